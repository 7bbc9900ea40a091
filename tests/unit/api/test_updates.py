"""Changing a job: merge patches, versions, put; and policies as they are shown."""

from __future__ import annotations

import base64
from typing import Any

import httpx2
import pytest

from tests.unit.api.conftest import Api

CRON = {"name": "nightly", "schedule": {"cron": "0 9 * * *", "timeZone": "Europe/London"}}
FULL: dict[str, Any] = {
    "name": "full",
    "schedule": {
        "cron": "H 9 * * *",
        "timeZone": "Europe/London",
        "startAt": "2026-05-02T00:00:00Z",
        "endAt": "2027-05-02T00:00:00Z",
        "maxRuns": 7,
        "jitterSec": 30,
    },
    "target": {"pool": "reports", "task": "t"},
    "retryPolicy": {
        "maxAttempts": 2,
        "backoffBaseSec": 5,
        "backoffFactor": 2.5,
        "backoffMaxSec": 50,
        "jitter": "none",
    },
    "timeoutSec": 100,
    "leaseSec": 20,
    "maxDeliveries": 3,
    "priority": "high",
    "overlapPolicy": "allow",
    "queueLimit": 9,
    "maxConcurrent": 4,
    "misfirePolicy": "fire_once",
    "misfireWindowSec": 60,
    "startDeadlineSec": 90,
    "idempotencyKeyTemplate": "k:{jobId}:{scheduledTime:%Y-%m}",
    "labels": {"team": "x", "tier": "1"},
}


async def patch(
    api: Api, job_id: str, change: Any, version: int | str | None, **more: Any
) -> httpx2.Response:
    headers = {} if version is None else {"If-Match": f'"{version}"'}
    if isinstance(change, str):
        return await api.call("PATCH", f"/v1/jobs/{job_id}", headers=headers, content=change, **more)
    return await api.call("PATCH", f"/v1/jobs/{job_id}", change, headers=headers, **more)


async def shown(api: Api, job_id: str) -> Any:
    return (await api.get(f"/v1/jobs/{job_id}")).json()


async def test_every_policy_is_kept_and_shown(api: Api) -> None:
    made = await api.call("PUT", "/v1/jobs/full", FULL)
    assert made.status_code == 201, made.text
    read = await shown(api, "full")
    for answer in (made.json(), read):
        schedule = answer.pop("schedule")
        assert "H" not in schedule.pop("cronExpanded")
        assert schedule == FULL["schedule"]
        assert answer | FULL | {"schedule": schedule} == answer | {"schedule": schedule}
    [execution] = (await api.get("/v1/jobs/full/executions")).json()["executions"]
    assert execution["scheduledTime"] <= execution["dueAt"]


async def test_a_patch_changes_what_it_names(api: Api) -> None:
    await api.call("PUT", "/v1/jobs/full", FULL | {"payload": {"a": 1}})
    before = await shown(api, "full")
    change = {"labels": {"team": None, "new": "y"}, "retryPolicy": {"maxAttempts": 5}, "maxConcurrent": None}
    answer = await patch(api, "full", change | {"reason": "because"}, 1)
    assert answer.status_code == 200, answer.text
    assert answer.headers["ETag"] == '"2"'
    after = await shown(api, "full")
    assert after["updatedBy"] == after["createdBy"]
    expected = before | {
        "version": 2,
        "labels": {"tier": "1", "new": "y"},
        "retryPolicy": before["retryPolicy"] | {"maxAttempts": 5},
        "maxConcurrent": None,
        "updatedAt": "2026-05-01T00:00:00Z",
        "updatedBy": after["createdBy"],
    }
    assert after == expected


async def test_the_payload_stays_as_it_was_sent(api: Api) -> None:
    raw = '{ "n" : 1.10, "big": 123456789012345678901234567890, "e":1E2 }'
    body = f'{{"schedule": {{"everySec": 60}}, "payload": {raw}}}'
    await api.call("PUT", "/v1/jobs/a", content=body)
    assert (await patch(api, "a", {"name": "b"}, 1)).status_code == 200
    assert raw in (await api.get("/v1/jobs/a")).text
    # Merged within the payload, the rest of it stays byte for byte.
    assert (await patch(api, "a", '{"payload": {"n": 2}}', 2)).status_code == 200
    text = (await api.get("/v1/jobs/a")).text
    assert '"n":2' in text
    assert "123456789012345678901234567890" in text
    assert "1E2" in text
    assert (await patch(api, "a", {"payload": None}, 3)).status_code == 200
    assert "payload" not in await shown(api, "a")


async def test_bytes_stay_and_are_replaced(api: Api) -> None:
    data = base64.b64encode(b"\x00\xff").decode()
    job = {"schedule": {"everySec": 60}, "payloadBase64": data, "contentType": "image/png"}
    await api.call("PUT", "/v1/jobs/a", job)
    await patch(api, "a", {"name": "b"}, 1)
    read = await shown(api, "a")
    assert (read["payloadBase64"], read["contentType"]) == (data, "image/png")
    assert (await patch(api, "a", {"payload": {"now": "json"}}, 2)).status_code == 200
    assert (await shown(api, "a"))["payload"] == {"now": "json"}
    await patch(api, "a", {"payloadBase64": data, "contentType": "image/png"}, 3)
    assert (await shown(api, "a"))["payloadBase64"] == data


async def test_versions(api: Api) -> None:
    await api.call("PUT", "/v1/jobs/a", CRON)
    missing = await patch(api, "a", {"name": "b"}, None)
    assert (missing.status_code, missing.json()["code"]) == (428, "precondition_required")
    assert (await patch(api, "a", {"name": "b"}, "x")).status_code == 400
    assert (await patch(api, "a", {"name": "b"}, 1, idempotency="k")).status_code == 200
    stale = await patch(api, "a", {"name": "c"}, 1)
    assert (stale.status_code, stale.json()["code"]) == (412, "version_differs")
    unknown = await patch(api, "a", {"name": "c"}, 9)
    assert (unknown.status_code, unknown.json()["code"]) == (412, "version_differs")
    # The answer got lost: the same request, with the version it was meant for.
    again = await patch(api, "a", {"name": "b"}, 1, idempotency="k")
    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (200, "true")
    other = await patch(api, "a", {"name": "z"}, 1, idempotency="k")
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    assert (await patch(api, "nobody", {"name": "b"}, 1)).status_code == 404
    assert (await patch(api, "a", {"name": "b"}, 1, key="other-key")).status_code == 404
    await api.call("DELETE", "/v1/jobs/a")
    assert (await patch(api, "a", {"name": "b"}, 2)).json()["code"] == "job_finished"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"nmae": "x"}, "nmae"),
        ({"schedule": None}, "schedule"),
        ({"schedule": {"cron": "61 * * * *"}}, "schedule.cron"),
        ({"schedule": {"cron": "0 0 * * *", "everySec": 5}}, "schedule"),
        ({"timeoutSec": 0}, "timeoutSec"),
        ({"timeoutSec": "x"}, "timeoutSec"),
        ({"queueLimit": None, "maxDeliveries": 0}, "maxDeliveries"),
        ({"exclusionGroup": "a b"}, "exclusionGroup"),
        ({"latenessAlertSec": 0}, "latenessAlertSec"),
        ({"target": {"pool": "shared/x/y"}}, "target.pool"),
        ('{"name": "a", "name": "b"}', "name"),
        ("[]", "body"),
        ('{"payload": NaN}', "payload"),
    ],
    ids=str,
)
async def test_a_patch_is_judged_like_a_body(api: Api, change: Any, field: str) -> None:
    await api.call("PUT", "/v1/jobs/a", CRON)
    answer = await patch(api, "a", change, 1)
    assert answer.status_code == 400, answer.text
    assert field in [error["field"] for error in answer.json()["errors"]]
    assert (await shown(api, "a"))["version"] == 1


async def test_a_patch_to_another_kind_of_schedule(api: Api) -> None:
    job = CRON | {"schedule": CRON["schedule"] | {"endAt": "2027-01-01T00:00:00Z"}}  # type: ignore[operator]
    await api.call("PUT", "/v1/jobs/a", job)
    answer = await patch(api, "a", {"schedule": {"everySec": 60}}, 1)
    assert answer.json()["schedule"] == {
        "everySec": 60,
        "anchoredAt": "2026-05-01T00:00:00Z",
        "endAt": "2027-01-01T00:00:00Z",
    }
    api.log.advance(30)
    # The anchor stays where the interval does.
    answer = await patch(api, "a", {"name": "b"}, 2)
    assert answer.json()["schedule"]["anchoredAt"] == "2026-05-01T00:00:00Z"
    answer = await patch(
        api, "a", {"schedule": {"runAt": "2026-06-01T09:00:00", "timeZone": "Europe/London"}}, 3
    )
    assert answer.json()["nextRunAt"] == "2026-06-01T08:00:00Z"
    # The local time stays, the zone changes.
    answer = await patch(api, "a", {"schedule": {"timeZone": "Asia/Tokyo"}}, 4)
    assert answer.json()["nextRunAt"] == "2026-06-01T00:00:00Z"
    assert answer.json()["schedule"]["runAt"] == "2026-06-01T09:00:00"


async def test_an_update_counts_from_the_next_occurrence_on(api: Api) -> None:
    job = {"schedule": {"everySec": 60}, "payload": 1}
    await api.call("PUT", "/v1/jobs/a", job)
    api.log.advance(60)
    answer = await api.call("PUT", "/v1/jobs/a", job | {"payload": 2})
    assert (answer.status_code, answer.json()["version"]) == (200, 2)
    claim = await api.post("/v1/pools/default/claim", {"workerId": "w", "waitSec": 1})
    [first] = claim.json()["executions"]
    assert first["payload"] == 1
    path = f"/v1/executions/{first['executionId']}"
    await api.post(f"{path}/complete", {"workerId": "w", "leaseEpoch": 1})
    api.log.advance(60)
    claim = await api.post("/v1/pools/default/claim", {"workerId": "w", "waitSec": 1})
    [second] = claim.json()["executions"]
    assert second["payload"] == 2
    assert (await api.get(path)).json()["payload"] == 1


async def test_a_put_bound_to_a_version(api: Api) -> None:
    await api.call("PUT", "/v1/jobs/a", CRON)
    seen = {"If-Match": '"1"'}
    first = await api.call("PUT", "/v1/jobs/a", CRON | {"name": "b"}, headers=seen)
    second = await api.call("PUT", "/v1/jobs/a", CRON | {"name": "c"}, headers=seen)
    assert (first.status_code, second.status_code) == (200, 412)
    assert (await api.call("PUT", "/v1/jobs/new", CRON, headers=seen)).status_code == 404


async def test_a_repeated_registration_is_answered_alike_after_an_update(api: Api) -> None:
    first = await api.post("/v1/jobs", CRON, idempotency="k")
    job_id = first.json()["jobId"]
    assert (await patch(api, job_id, {"schedule": {"cron": "0 7 * * *"}, "name": "b"}, 1)).status_code == 200
    again = await api.post("/v1/jobs", CRON, idempotency="k")
    assert (again.status_code, again.json()) == (201, first.json())
    put = await api.call("PUT", "/v1/jobs/mine", CRON, idempotency="p")
    assert (await patch(api, "mine", {"schedule": {"cron": "0 7 * * *"}}, 1)).status_code == 200
    repeated = await api.call("PUT", "/v1/jobs/mine", CRON, idempotency="p")
    assert (repeated.status_code, repeated.json()) == (200, put.json())
    batch = {"jobs": [CRON | {"requestKey": "k"}]}
    [result] = (await api.post("/v1/jobs/batch", batch)).json()["results"]
    assert (result["job"], result["replayed"]) == (first.json(), True)
    assert (await shown(api, job_id))["version"] == 2


@pytest.mark.parametrize(
    "change", [{}, {"name": None}, {"timeoutSec": 21_600}, {"schedule": {"cron": "0 9 * * *"}}]
)
async def test_a_patch_that_changes_nothing_makes_no_version(api: Api, change: Any) -> None:
    job = {
        "schedule": {"cron": "0 9 * * *"},
        "payload": {"n": 1},
        "exclusionGroup": "g",
        "latenessAlertSec": 5,
    }
    await api.call("PUT", "/v1/jobs/a", job)
    answer = await patch(api, "a", change, 1)
    assert (answer.status_code, answer.json()["version"], answer.headers["ETag"]) == (200, 1, '"1"')
    types = [event["type"] for event in (await api.get("/v1/jobs/a/events", fresh=True)).json()["events"]]
    assert types == ["JobRegistered"]


@pytest.mark.parametrize(
    "schedule",
    [
        {"everySec": 60, "jitterSec": 30, "maxRuns": 5},
        {"runAt": "2026-06-01T12:00:00.5", "timeZone": "Asia/Tokyo"},
        {"delaySec": 90},
        {"cron": "H H * * *", "endAt": "2027-01-01T00:00:00Z"},
    ],
    ids=lambda schedule: next(iter(schedule)),
)
async def test_an_empty_patch_of_any_schedule_makes_no_version(api: Api, schedule: Any) -> None:
    await api.call("PUT", "/v1/jobs/a", {"schedule": schedule, "payloadBase64": "AAE="})
    api.log.advance(7)
    assert (await patch(api, "a", {}, 1)).json()["version"] == 1


async def test_group_and_lateness_alert_are_shown_changed_and_found(api: Api) -> None:
    made = await api.call(
        "PUT",
        "/v1/jobs/a",
        {"schedule": {"everySec": 60}, "exclusionGroup": "ledger", "latenessAlertSec": 5},
    )
    assert (made.json()["exclusionGroup"], made.json()["latenessAlertSec"]) == ("ledger", 5)
    await api.call("PUT", "/v1/jobs/b", {"schedule": {"everySec": 60}, "target": {"pool": "shared/gpu"}})
    found = (await api.get("/v1/jobs?exclusionGroup=ledger", fresh=True)).json()["jobs"]
    assert [job["jobId"] for job in found] == ["a"]
    changed = await patch(api, "a", {"exclusionGroup": None, "latenessAlertSec": 7}, 1)
    assert (changed.json()["exclusionGroup"], changed.json()["latenessAlertSec"]) == (None, 7)
    assert (await api.get("/v1/jobs?exclusionGroup=ledger", fresh=True)).json()["jobs"] == []
    assert (await api.get("/v1/jobs/b", fresh=True)).json()["target"]["pool"] == "shared/gpu"
