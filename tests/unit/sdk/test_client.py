"""Calls of the API: what is sent, what is read, what is repeated. Each test runs on both clients."""

import asyncio
import inspect
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import horarium
import pytest
from horarium import (
    AsyncClient,
    At,
    Client,
    ConnectionFailed,
    Cron,
    Delay,
    InvalidAnswer,
    JobSpec,
    RetryPolicy,
    RetryRules,
    Unavailable,
)
from horarium.exchange import newest_position

from tests.unit.sdk.fake_server import FakeServer
from tests.unit.sdk.manual_clock import ManualClock

JOB = {"jobId": "a", "status": "ACTIVE", "version": 1, "nextRunAt": "2026-07-01T09:00:00Z", "new": [1]}


class Either:
    """The sync or the async client, called alike; `pauses` are the waits between tries."""

    def __init__(self, kind: str, url: str, retry: RetryRules) -> None:
        self.pauses: list[float] = []
        self.moment = 0.0
        options: dict[str, Any] = {"retry": retry, "now": lambda: self.moment}
        self.sync = Client(url, "key", sleep=self._paused, **options) if kind == "sync" else None
        self.other = AsyncClient(url, "key", sleep=self._paused_too, **options) if kind == "async" else None

    def _paused(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.moment += seconds

    async def _paused_too(self, seconds: float) -> None:
        self._paused(seconds)

    async def do(self, method: str, *args: Any, **kwargs: Any) -> Any:
        if self.sync is not None:
            return await asyncio.to_thread(getattr(self.sync, method), *args, **kwargs)
        return await getattr(self.other, method)(*args, **kwargs)

    async def all(self, method: str, **kwargs: Any) -> list[Any]:
        if self.sync is not None:
            return await asyncio.to_thread(lambda: list(getattr(self.sync, method)(**kwargs)))
        return [item async for item in getattr(self.other, method)(**kwargs)]

    async def close(self) -> None:
        if self.sync is not None:
            self.sync.close()
        if self.other is not None:
            await self.other.close()


@pytest.fixture(params=["sync", "async"])
async def client(request: pytest.FixtureRequest, server: FakeServer) -> AsyncIterator[Either]:
    either = Either(request.param, server.url, RetryRules(for_sec=10))
    yield either
    await either.close()


async def test_a_job_is_sent_with_key_and_read_tolerantly(client: Either, server: FakeServer) -> None:
    server.plan("/v1/jobs", 201, JOB)
    spec = JobSpec(
        schedule=Cron("0 9 * * MON-FRI", "Europe/London"),
        name="nightly",
        pool="reports",
        payload={"n": 9007199254740993},
        retry_policy=RetryPolicy(max_attempts=3),
        lease_sec=30,
        labels={"team": "x"},
    )
    job = await client.do("create_job", spec)
    (seen,) = server.seen
    assert seen.body == {
        "schedule": {"cron": "0 9 * * MON-FRI", "timeZone": "Europe/London"},
        "name": "nightly",
        "target": {"pool": "reports"},
        "payload": {"n": 9007199254740993},
        "retryPolicy": {"maxAttempts": 3},
        "leaseSec": 30,
        "labels": {"team": "x"},
    }
    assert seen.headers["authorization"] == "Bearer key"
    assert len(seen.headers["idempotency-key"]) == 32
    assert (job.job_id, job.status, job.next_run_at) == ("a", "ACTIVE", datetime(2026, 7, 1, 9, tzinfo=UTC))
    assert job.raw["new"] == [1]


async def test_a_lost_answer_is_repeated_with_the_same_key(client: Either, server: FakeServer) -> None:
    server.plan("/v1/jobs", do_it_first=True)
    server.plan("/v1/jobs", 503, {"code": "outcome_unknown"}, headers={"Retry-After": "3"})
    job = await client.do("create_job", JobSpec(schedule=Delay(5)))
    assert job.job_id == "job_0"
    assert len(server.jobs) == 1
    assert len({seen.headers["idempotency-key"] for seen in server.seen}) == 1
    first, second = client.pauses
    assert 0.05 <= first <= 0.1
    assert second == 3


async def test_a_given_key_is_used(client: Either, server: FakeServer) -> None:
    await client.do("create_job", JobSpec(schedule=Delay(5)), idempotency_key="mine")
    assert server.seen[0].headers["idempotency-key"] == "mine"


async def test_the_key_that_the_server_made_is_used_for_the_repeat(
    client: Either, server: FakeServer
) -> None:
    server.plan("/v1/jobs/a", 503, {"code": "outcome_unknown"}, headers={"Idempotency-Key": "made"})
    server.plan("/v1/jobs/a", 201, JOB)
    await client.do("put_job", "a", JobSpec(schedule=Delay(5)))
    assert [seen.headers.get("idempotency-key") for seen in server.seen] == [None, "made"]


async def test_repeats_end(client: Either, server: FakeServer) -> None:
    for _ in range(50):
        server.plan("/v1/jobs/a", 503, {"code": "projection_behind", "detail": "late"})
    with pytest.raises(Unavailable) as raised:
        await client.do("get_job", "a")
    assert raised.value.code == "projection_behind"
    assert 5 <= sum(client.pauses) <= 10
    # Backoff grows, so few tries fill the time.
    assert 5 <= len(server.seen) <= 12


async def test_a_retry_after_beyond_the_time_is_not_waited_for(client: Either, server: FakeServer) -> None:
    server.plan("/v1/jobs", 429, {"code": "rate_limited"}, headers={"Retry-After": "11"})
    with pytest.raises(horarium.RateLimited) as raised:
        await client.do("create_job", JobSpec(schedule=Delay(5)))
    assert raised.value.retry_after_sec == 11
    assert client.pauses == []


async def test_no_answer_at_all(client: Either, server: FakeServer) -> None:
    for _ in range(50):
        server.plan("/v1/jobs")
    with pytest.raises(ConnectionFailed) as raised:
        await client.do("create_job", JobSpec(schedule=Delay(5)))
    assert raised.value.idempotency_key == server.seen[0].headers["idempotency-key"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, horarium.BadRequest),
        (401, horarium.Unauthorized),
        (403, horarium.Forbidden),
        (404, horarium.NotFound),
        (409, horarium.Conflict),
        (412, horarium.PreconditionFailed),
        (413, horarium.TooLarge),
        (422, horarium.IdempotencyKeyReused),
        (428, horarium.PreconditionFailed),
        (500, horarium.ApiError),
    ],
)
async def test_problems_are_exceptions(client: Either, server: FakeServer, status: int, kind: type) -> None:
    problem = {"code": "some_code", "detail": "why", "errors": [{"field": "schedule.cron", "detail": "bad"}]}
    server.plan("/v1/jobs", status, problem)
    with pytest.raises(horarium.ApiError) as raised:
        await client.do("create_job", JobSpec(schedule=Delay(5)))
    assert type(raised.value) is kind
    assert (raised.value.status, raised.value.code) == (status, "some_code")
    assert raised.value.errors == (horarium.FieldError("schedule.cron", "bad"),)
    assert len(server.seen) == 1


async def test_a_stranger_answers(client: Either, server: FakeServer) -> None:
    server.plan("/v1/jobs/a", 404, b"<html>no such page</html>")
    with pytest.raises(horarium.NotFound, match="unknown: <html>"):
        await client.do("get_job", "a")
    server.plan("/v1/jobs/a", 200, b"<html>hello</html>")
    with pytest.raises(InvalidAnswer):
        await client.do("get_job", "a")
    server.plan("/v1/jobs/a", 200, {"hello": "world"})
    with pytest.raises(InvalidAnswer, match="jobId"):
        await client.do("get_job", "a")


async def test_reads_see_own_writes(client: Either, server: FakeServer) -> None:
    server.plan("/v1/jobs", 201, JOB, headers={"Horarium-Position": "3:100"})
    server.plan("/v1/jobs", 201, JOB, headers={"Horarium-Position": "5:7"})
    server.plan("/v1/jobs/a", 200, JOB)
    await client.do("create_job", JobSpec(schedule=Delay(5)))
    await client.do("create_job", JobSpec(schedule=Delay(5)))
    await client.do("get_job", "a")
    assert [seen.headers.get("horarium-position") for seen in server.seen] == [None, None, "3:100,5:7"]


@pytest.mark.parametrize(
    ("old", "new", "both"),
    [
        ("", "1:5", "1:5"),
        ("1:5", "1:9", "1:9"),
        ("1:9", "1:5", "1:9"),
        ("1:9,2:3", "2:4,0:1", "0:1,1:9,2:4"),
        ("opaque", "newer", "newer"),
    ],
)
def test_positions_become_one(old: str, new: str, both: str) -> None:
    assert newest_position(old, new) == both


async def test_all_pages_are_walked(client: Either, server: FakeServer) -> None:
    server.plan("/v1/executions", 200, {"executions": [_execution("1")], "nextPageToken": "t"})
    server.plan("/v1/executions", 200, {"executions": [], "nextPageToken": "u"})
    server.plan("/v1/executions", 200, {"executions": [_execution("2")], "nextPageToken": ""})
    found = await client.all("iter_executions", status="FAILED", labels={"team": "x"}, page_size=1)
    assert [execution.execution_id for execution in found] == ["1", "2"]
    assert [seen.query.get("pageToken") for seen in server.seen] == [None, "t", "u"]
    assert server.seen[2].query == {
        "status": "FAILED",
        "label.team": "x",
        "pageSize": "1",
        "pageToken": "u",
    }


def _execution(an_id: str) -> dict[str, Any]:
    return {"executionId": an_id, "jobId": "a", "status": "FAILED", "startedAt": None}


async def test_a_batch_answers_item_by_item(client: Either, server: FakeServer) -> None:
    problem = {"status": 400, "code": "invalid", "detail": "no"}
    server.plan(
        "/batch", 200, {"results": [{"status": 201, "job": JOB}, {"status": 400, "problem": problem}]}
    )
    specs = [JobSpec(schedule=Delay(5), request_key="k"), JobSpec(schedule={"everySec": 0})]
    good, bad = await client.do("create_jobs", specs)
    assert good.job.job_id == "a"
    assert isinstance(bad.error, horarium.BadRequest)
    assert server.seen[0].body["jobs"] == [
        {"schedule": {"delaySec": 5}, "requestKey": "k"},
        {"schedule": {"everySec": 0}},
    ]


async def test_paths_are_quoted(client: Either, server: FakeServer) -> None:
    server.plan("/claim", 200, {"executions": []})
    await client.do("claim", "shared/x", "w", wait_sec=0)
    assert server.seen[0].path == "/v1/pools/shared%2Fx/claim"
    assert server.seen[0].body["claimId"]


async def test_times_and_bytes(client: Either, server: FakeServer) -> None:
    when = datetime(2026, 7, 1, 11, 0, 0, 500_000, tzinfo=timezone(timedelta(hours=2)))
    await client.do("create_job", JobSpec(schedule=At(when), payload=b"\x00\xff"))
    assert server.seen[0].body == {
        "schedule": {"runAt": "2026-07-01T09:00:00.500000Z"},
        "payloadBase64": "AP8=",
        "contentType": "application/octet-stream",
    }
    with pytest.raises(ValueError, match="no instant"):
        await client.do("create_job", JobSpec(schedule=At(datetime(2026, 7, 1))))  # noqa: DTZ001
    with pytest.raises(ValueError, match="JSON compliant"):
        await client.do("create_job", JobSpec(schedule=Delay(1), payload=float("nan")))


async def test_the_short_form(client: Either, server: FakeServer) -> None:
    answer = {
        "job_id": "j",
        "instance_id": "j.1",
        "status": "SCHEDULED",
        "scheduled_time": "2026-07-01T09:00:00Z",
    }
    server.plan("/api/v1/jobs/schedule", 201, answer)
    task = await client.do(
        "schedule_task", "mail", datetime(2026, 7, 1, 9, tzinfo=UTC), pool="mails", payload=[1]
    )
    assert server.seen[0].body == {
        "name": "mail",
        "execute_at": "2026-07-01T09:00:00Z",
        "target_topic": "mails",
        "payload": [1],
    }
    assert (task.instance_id, task.scheduled_time.hour) == ("j.1", 9)


async def test_single_reports_of_a_worker(client: Either, server: FakeServer) -> None:
    server.plan("/heartbeat", 200, {"extendUntil": "2026-07-01T09:00:00Z"})
    server.plan("/complete", 409, {"code": "lease_lost", "status": 409})
    answer = await client.do("heartbeat", "e", "w", 3, progress={"row": 1})
    assert answer.accepted
    assert answer.extend_until == datetime(2026, 7, 1, 9, tzinfo=UTC)
    with pytest.raises(horarium.Conflict) as raised:
        await client.do("complete", "e", "w", 3, result=None)
    assert raised.value.code == "lease_lost"
    assert [seen.body for seen in server.seen] == [
        {"workerId": "w", "leaseEpoch": 3, "progress": {"row": 1}},
        {"workerId": "w", "leaseEpoch": 3, "result": None},
    ]


def test_both_clients_have_the_same_methods() -> None:
    def methods(kind: type) -> dict[str, inspect.Signature]:
        made = kind("http://127.0.0.1:1", "k")
        return {
            name: inspect.signature(getattr(made, name))
            for name in vars(kind)
            if not name.startswith("_") and name not in {"run", "close"}
        }

    assert methods(Client) == methods(AsyncClient)
    assert len(methods(Client)) > 25


async def test_clients_close(server: FakeServer, clock: ManualClock) -> None:
    server.plan("/v1/jobs/a", 200, JOB)
    server.plan("/v1/jobs/a", 200, JOB)
    async with AsyncClient(server.url + "/", "key") as other:
        await other.get_job("a")
    with Client(server.url, "key") as client:
        await asyncio.to_thread(client.get_job, "a")
