"""Backfills, what became of occurrences, many jobs at once, and what new zone data moved."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from schemas import codec
from schemas.events import ScheduleShifted
from streams.core.state import beginning
from streams.core.transaction import Logged
from tests.unit.api.conftest import Api, MakeApi

HOURLY = {"schedule": {"cron": "0 * * * *"}}
APRIL = {"from": "2026-04-01T00:00:00Z", "to": "2026-05-01T00:00:00Z"}
MINUTELY = {"schedule": {"cron": "* * * * *"}}


async def backfill(api: Api, job_id: str, start: str, end: str, **more: Any) -> Any:
    key = more.pop("idempotency", None)
    keyed = {"idempotency": key} if key else {}
    body = {"from": start, "to": end} | more
    answer = await api.post(f"/v1/jobs/{job_id}/backfill", body, fresh=True, **keyed)
    assert answer.status_code == (200 if more.get("dryRun") else 202), answer.text
    return answer.json()


def times(answer: Any) -> list[str]:
    return [one["scheduledTime"][11:16] for one in answer["occurrences"]]


async def worked_off(api: Api) -> list[str]:
    done: list[str] = []
    while True:
        answer = await api.post("/v1/pools/default/claim", {"workerId": "w"})
        if not answer.json()["executions"]:
            return done
        [one] = answer.json()["executions"]
        done.append(one["scheduledTime"][11:16])
        path = f"/v1/executions/{one['executionId']}/complete"
        await api.post(path, {"workerId": "w", "leaseEpoch": one["leaseEpoch"]})


async def occurrences(api: Api, job_id: str, start: str, end: str) -> Any:
    answer = await api.get(f"/v1/jobs/{job_id}/occurrences", params={"from": start, "to": end}, fresh=True)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_ovl_007_half_open_windows(make_api: MakeApi) -> None:
    async with make_api(now="2026-05-01T12:00:30Z") as api:
        await api.call("PUT", "/v1/jobs/a", MINUTELY)
        window = ("2026-05-01T01:00:00Z", "2026-05-01T01:05:00Z")
        dry = await backfill(api, "a", *window, dryRun=True)
        assert (dry["count"], times(dry)) == (5, ["01:00", "01:01", "01:02", "01:03", "01:04"])
        assert "executionId" not in dry["occurrences"][0]
        assert (await api.get("/v1/executions?kind=backfill")).json()["executions"] == []
        made = await backfill(api, "a", *window)
        assert made["count"] == 5
        following = await backfill(api, "a", "2026-05-01T01:05:00Z", "2026-05-01T01:07:00Z")
        assert times(following) == ["01:05", "01:06"]
        assert await worked_off(api) == times(made) + times(following)
        listed = await api.get("/v1/executions", params={"backfillId": made["backfillId"]}, fresh=True)
        found = listed.json()["executions"]
        assert sorted(one["executionId"] for one in found) == [
            one["executionId"] for one in made["occurrences"]
        ]
        assert {(one["kind"], one["priority"], one["backfillId"]) for one in found} == {
            ("backfill", "low", made["backfillId"])
        }


async def test_ovl_009_one_occurrence_at_the_start(api: Api) -> None:
    await api.call("PUT", "/v1/jobs/a", {"schedule": {"cron": "0 0 1 1 *"}})
    made = await backfill(api, "a", "2021-01-01T00:00:00Z", "2021-12-31T00:00:00Z")
    assert [one["scheduledTime"] for one in made["occurrences"]] == ["2021-01-01T00:00:00Z"]


async def test_ovl_005_a_policy_for_this_request_only(make_api: MakeApi) -> None:
    async with make_api(now="2026-05-01T11:30:00Z") as api:
        await api.call("PUT", "/v1/jobs/a", HOURLY | {"overlapPolicy": "skip"})
        api.log.advance(1800)
        claim = await api.post("/v1/pools/default/claim", {"workerId": "w", "waitSec": 5, "leaseSec": 3600})
        assert len(claim.json()["executions"]) == 1
        window = ("2026-05-01T09:00:00Z", "2026-05-01T12:00:00Z")
        made = await backfill(api, "a", *window, overlapPolicy="allow", idempotency="b")
        assert (made["count"], times(made)) == (3, ["09:00", "10:00", "11:00"])
        claim = await api.post("/v1/pools/default/claim", {"workerId": "v", "waitSec": 5, "max": 9})
        assert len(claim.json()["executions"]) == 3
        assert (await api.get("/v1/jobs/a")).json()["overlapPolicy"] == "skip"
        omitted = await backfill(api, "a", *window, rerun=True)
        assert omitted["count"] == 3
        listed = await api.get("/v1/executions", params={"backfillId": omitted["backfillId"]})
        assert [(one["status"], one["reason"]) for one in listed.json()["executions"]] == [
            ("SKIPPED", "overlap")
        ] * 3


async def test_what_ran_is_left_out_and_a_repeat_makes_nothing_twice(api: Api) -> None:
    await api.call("PUT", "/v1/jobs/a", HOURLY)
    for _ in range(2):
        api.log.advance(3600)
        await worked_off(api)
    window = ("2026-04-30T22:00:00Z", "2026-05-01T03:00:00Z")
    dry = await backfill(api, "a", *window, dryRun=True)
    api.log.advance(3600)
    assert times(dry) == ["22:00", "23:00", "00:00"]
    first = await backfill(api, "a", *window, idempotency="k")
    assert await worked_off(api) == ["03:00", "22:00", "23:00", "00:00"]
    again = await backfill(api, "a", *window, idempotency="k")
    assert again == first
    assert await worked_off(api) == []
    other = await backfill(api, "a", *window)
    assert (other["count"], other["occurrences"]) == (0, [])
    rerun = await backfill(api, "a", *window, rerun=True, priority="high")
    assert rerun["count"] == 5
    assert await worked_off(api) == ["22:00", "23:00", "00:00", "01:00", "02:00"]


async def test_a_large_backfill_is_cut_up(make_api: MakeApi) -> None:
    async with make_api(now="2026-05-01T12:00:00Z") as api:
        await api.call("PUT", "/v1/jobs/a", MINUTELY)
        made = await backfill(api, "a", "2026-04-29T00:00:00Z", "2026-04-30T17:40:00Z")
        assert (made["count"], len(made["occurrences"])) == (2_500, 1_000)
        sizes = [len(c.scheduled_ms) for c in api.log.sent if type(c).__name__ == "BackfillJob"]
        assert sizes == [1_000, 1_000, 500]
        refused = await api.post(
            "/v1/jobs/a/backfill", {"from": "2026-04-01T00:00:00Z", "to": "2026-04-08T00:00:00Z"}
        )
        assert refused.status_code == 400
        assert "10080" in refused.json()["errors"][0]["detail"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"to": "2026-05-01T00:00:00Z"}, "from"),
        ({"from": "2026-05-01T00:00:00Z"}, "to"),
        ({"from": "2026-05-01T00:00:00Z", "to": "2026-05-01T00:00:00Z"}, "to"),
        ({"from": "2026-05-01", "to": "2026-05-01T00:00:00Z"}, "from"),
        ({"from": "1969-05-01T00:00:00Z", "to": "2026-05-01T00:00:00Z"}, "from"),
        (APRIL | {"dryRun": 1}, "dryRun"),
        (APRIL | {"priority": "top"}, "priority"),
        (
            APRIL | {"overlapPolicy": "x"},
            "overlapPolicy",
        ),
    ],
    ids=str,
)
async def test_what_is_wrong_is_named(api: Api, body: dict[str, Any], field: str) -> None:
    await api.call("PUT", "/v1/jobs/a", HOURLY)
    answer = await api.post("/v1/jobs/a/backfill", body)
    assert answer.status_code == 400
    assert [error["field"] for error in answer.json()["errors"]] == [field]


async def test_a_finished_job_is_not_backfilled(api: Api) -> None:
    await api.call("PUT", "/v1/jobs/a", HOURLY)
    await api.call("DELETE", "/v1/jobs/a")
    for dry in (True, False):
        body = {"from": "2026-04-01T00:00:00Z", "to": "2026-04-02T00:00:00Z", "dryRun": dry}
        answer = await api.post("/v1/jobs/a/backfill", body)
        assert (answer.status_code, answer.json()["code"]) == (409, "job_finished")
    assert (await api.post("/v1/jobs/b/backfill", body)).status_code == 404


async def test_what_became_of_each_occurrence_and_what_will(api: Api) -> None:
    await api.call("PUT", "/v1/jobs/a", HOURLY | {"schedule": HOURLY["schedule"] | {"maxRuns": 4}})
    api.log.advance(3600)
    await worked_off(api)
    await api.post("/v1/jobs/a/pause")
    api.log.advance(2 * 3600)
    window = ("2026-05-01T00:00:00Z", "2026-05-02T00:00:00Z")
    paused = await occurrences(api, "a", *window)
    assert [(one["status"], one.get("reason")) for one in paused["occurrences"]][:2] == [
        ("COMPLETED", None),
        ("SCHEDULED", "paused"),
    ]
    await api.post("/v1/jobs/a/resume")
    await api.post("/v1/jobs/a/trigger")
    api.log.advance(3600)
    await backfill(api, "a", "2026-05-01T02:00:00Z", "2026-05-01T03:00:00Z")
    shown = await occurrences(api, "a", *window)
    rows = [
        (one["scheduledTime"][11:16], one["status"], one.get("count"), one.get("reason"), one.get("kind"))
        for one in shown["occurrences"]
    ]
    assert rows == [
        ("01:00", "COMPLETED", None, None, None),
        ("02:00", "SKIPPED", 2, "paused", None),
        ("02:00", "PENDING", None, None, "backfill"),
        ("04:00", "PENDING", None, None, None),
        ("05:00", "SCHEDULED", None, None, None),
        ("06:00", "SCHEDULED", None, None, None),
    ]
    assert shown["occurrences"][1]["to"] == "2026-05-01T03:00:00Z"
    assert shown["nextFrom"] is None
    later = await occurrences(api, "a", "2026-05-01T06:00:00Z", "2027-05-01T06:00:00Z")
    assert [one["scheduledTime"] for one in later["occurrences"]] == ["2026-05-01T06:00:00Z"]
    [next_one] = [one for one in shown["occurrences"] if one["scheduledTime"][11:13] == "05"]
    assert (await api.get(f"/v1/executions/{next_one['executionId']}")).json()["status"] == "SCHEDULED"


async def test_occurrences_come_in_pages(api: Api) -> None:
    await api.call("PUT", "/v1/jobs/a", MINUTELY)
    start, seen = "2026-05-01T00:00:00Z", []
    while start:
        page = await occurrences(api, "a", start, "2026-05-02T20:00:00Z")
        seen += [one["scheduledTime"] for one in page["occurrences"]]
        start = page["nextFrom"]
    assert len(seen) == len(set(seen)) == 44 * 60 - 1
    assert seen == sorted(seen)


async def test_a_missed_outage_is_one_range(make_api: MakeApi) -> None:
    """OVL-013: of 1,440 missed minutes the newest 1,000 are kept and 440 reported."""
    async with make_api(now="2026-05-01T00:00:00Z") as api:
        await api.call("PUT", "/v1/jobs/a", MINUTELY | {"overlapPolicy": "skip"})
        api.log.jump(86_430)
        shown = await occurrences(api, "a", "2026-05-01T00:00:00Z", "2026-05-02T00:01:00Z")
        rows = [
            (one["scheduledTime"][11:16], one["status"], one.get("count"), one.get("reason"))
            for one in shown["occurrences"]
        ]
        assert rows == [
            ("00:01", "SKIPPED", 440, "misfire_limit"),
            ("07:21", "PENDING", None, None),
            ("07:22", "PENDING", 999, None),
        ]
        dry = await backfill(api, "a", "2026-05-01T00:00:00Z", "2026-05-02T00:01:00Z", dryRun=True)
        assert (dry["count"], times(dry)[-1]) == (441, "07:20")


async def test_many_jobs_at_once(api: Api) -> None:
    jobs = [HOURLY | {"labels": {"team": "x" if n % 2 else "y"}, "name": f"n{n}"} for n in range(6)]
    await api.post("/v1/jobs/batch", {"jobs": jobs})
    body = {"filter": {"labels": {"team": "x"}}, "action": "pause", "reason": "freeze"}
    assert (await api.post("/v1/jobs/bulk", body | {"dryRun": True})).json() == {"count": 3}
    assert (await api.get("/v1/jobs?status=PAUSED")).json()["jobs"] == []
    assert (await api.post("/v1/jobs/bulk", body)).json() == {"count": 3}
    assert (await api.post("/v1/jobs/bulk", body)).json() == {"count": 0}
    paused = (await api.get("/v1/jobs?status=PAUSED")).json()["jobs"]
    assert {job["paused"]["reason"] for job in paused} == {"freeze"}
    assert (await api.post("/v1/jobs/bulk", {"filter": {}, "action": "resume"})).json() == {"count": 3}
    assert (await api.post("/v1/jobs/bulk", {"filter": {}, "action": "cancel"})).json() == {"count": 6}
    assert (await api.post("/v1/jobs/bulk", {"action": "cancel"})).status_code == 400
    assert (await api.post("/v1/jobs/bulk", {"filter": {"nmae": "x"}, "action": "cancel"})).status_code == 400


async def test_what_new_zone_data_moved(api: Api) -> None:
    job = {"schedule": {"cron": "0 9 * * *", "timeZone": "America/Vancouver"}}
    await api.call("PUT", "/v1/jobs/a", job)
    [registered] = [event for events in api.log.cluster.events for event in events]
    made = codec.decode(registered.value or b"").job  # type: ignore[attr-defined]
    before = beginning(made)
    after = replace(before, next_ms=before.next_ms - 3_600_000, tz_version="2026z")
    shifted = ScheduleShifted(at_ms=made.created_ms, actor="", cause="time", cursor=after)
    partition = api.log.cluster.partition_of("acme", "a")
    api.log.cluster.events[partition].append(
        Logged("cursor:acme/a", codec.encode(shifted), "ScheduleShifted")
    )
    api.log._publish(partition)
    answer = await api.get("/v1/tz-shifts", key="operator-key", fresh=True)
    assert answer.json() == {
        "tzVersion": "2026z",
        "count": 1,
        "shifts": [
            {
                "tenant": "acme",
                "jobId": "a",
                "timeZone": "America/Vancouver",
                "at": "2026-05-01T00:00:00Z",
                "nextRunBefore": "2026-05-01T16:00:00Z",
                "nextRunAfter": "2026-05-01T15:00:00Z",
            }
        ],
    }
    none = await api.get("/v1/tz-shifts?version=2020a", key="operator-key")
    assert none.json() == {"tzVersion": "2020a", "count": 0, "shifts": []}
    assert (await api.get("/v1/tz-shifts")).status_code == 403


async def test_a_key_with_another_window_is_refused(api: Api) -> None:
    await api.call("PUT", "/v1/jobs/a", HOURLY)
    made = await backfill(api, "a", "2026-04-30T00:00:00Z", "2026-04-30T02:00:00Z", idempotency="b")
    window = {"from": "2026-04-30T00:00:00Z", "to": "2026-04-30T02:00:00Z"}
    for other in ({"to": "2026-04-30T03:00:00Z"}, {"rerun": True}, {"priority": "high"}):
        answer = await api.post("/v1/jobs/a/backfill", window | other, idempotency="b", fresh=True)
        assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused"), other
    again = await backfill(api, "a", window["from"], window["to"], idempotency="b", reason="once more")
    assert (again["backfillId"], again["count"]) == (made["backfillId"], 2)
    listed = await api.get("/v1/executions?kind=backfill", fresh=True)
    assert len(listed.json()["executions"]) == 2
    assert (await backfill(api, "a", window["from"], window["to"], idempotency="c"))["count"] == 0
