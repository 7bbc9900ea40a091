"""What a refused registration says: when to come back, and by which rate."""

from __future__ import annotations

from typing import Any

import pytest

from api.changes import problem_of
from schemas.replies import CommandDone
from tests.unit.api.conftest import Api


def refused(**more: Any) -> CommandDone:
    return CommandDone(session="s", command_id="c", status=429, partition=0, detail="too many", **more)


@pytest.mark.parametrize(
    ("retry_after_ms", "seconds"), [(1, 1), (999, 1), (1_000, 1), (1_001, 2), (60_000, 60)]
)
def test_a_rate_says_whole_seconds_never_too_few(retry_after_ms: int, seconds: int) -> None:
    problem = problem_of(refused(code="rate_limited", retry_after_ms=retry_after_ms, limit=500))
    assert problem is not None
    answer = problem.response()
    assert answer.status_code == 429
    assert answer.headers["Retry-After"] == str(seconds)
    assert answer.headers["RateLimit-Policy"] == '"registrations";q=500;w=1'
    assert answer.headers["RateLimit"] == f'"registrations";r=0;t={seconds}'
    assert (problem.body.code, problem.body.retry_after_sec) == ("rate_limited", seconds)


def test_a_number_has_room_when_jobs_end() -> None:
    problem = problem_of(refused(code="too_many_jobs", limit=100_000))
    assert problem is not None
    assert problem.response().headers["Retry-After"] == "60"
    assert "RateLimit" not in problem.response().headers


async def test_registrations_a_second(api: Api) -> None:
    settings = await api.call("PUT", "/v1/tenants/acme", {"registrationsPerSec": 2}, key="operator-key")
    assert settings.status_code == 200
    body = {"schedule": {"everySec": 60}}
    made = [await api.post("/v1/jobs", body, idempotency=f"k{number}") for number in range(3)]
    assert [answer.status_code for answer in made] == [201, 201, 429]
    limited = made[2]
    assert (limited.json()["code"], limited.headers["Retry-After"]) == ("rate_limited", "1")
    assert limited.headers["RateLimit-Policy"] == '"registrations";q=2;w=1'
    assert limited.headers["RateLimit"] == '"registrations";r=0;t=1'
    # A repeat of what is known costs nothing.
    again = await api.post("/v1/jobs", body, idempotency="k0")
    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (201, "true")
    short = {"name": "x", "execute_at": "2026-06-01T00:00:00Z", "target_topic": "p"}
    assert (await api.post("/api/v1/jobs/schedule", short)).status_code == 429
    api.log.advance(1)
    assert (await api.post("/v1/jobs", body, idempotency="k2")).status_code == 201


async def test_a_batch_says_it_of_each_item(api: Api) -> None:
    await api.call("PUT", "/v1/tenants/acme", {"registrationsPerSec": 2}, key="operator-key")
    jobs = {"jobs": [{"schedule": {"everySec": 60}}] * 3}
    first = await api.post("/v1/jobs/batch", jobs, idempotency="b")
    results = first.json()["results"]
    assert (first.status_code, [result["status"] for result in results]) == (200, [201, 201, 429])
    problem = results[2]["problem"]
    assert (problem["code"], problem["retryAfterSec"]) == ("rate_limited", 1)
    api.log.advance(1)
    again = (await api.post("/v1/jobs/batch", jobs, idempotency="b")).json()["results"]
    assert [result["status"] for result in again] == [201, 201, 201]
    assert [result.get("replayed", False) for result in again] == [True, True, False]


async def test_jobs_of_a_tenant(api: Api) -> None:
    await api.call("PUT", "/v1/tenants/acme", {"maxJobs": 2}, key="operator-key")
    for name in ("a", "b"):
        assert (await api.call("PUT", f"/v1/jobs/{name}", {"schedule": {"everySec": 60}})).status_code == 201
    full = await api.call("PUT", "/v1/jobs/c", {"schedule": {"everySec": 60}})
    assert (full.status_code, full.json()["code"]) == (429, "too_many_jobs")
    assert (full.headers["Retry-After"], full.json()["retryAfterSec"]) == ("60", 60)
    await api.call("DELETE", "/v1/jobs/a")
    assert (await api.call("PUT", "/v1/jobs/c", {"schedule": {"everySec": 60}})).status_code == 201
