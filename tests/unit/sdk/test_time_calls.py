"""Previews, updates, pauses, backfills, occurrences: what is sent and what is read, on both clients."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from horarium import At, Cron, Delay, Every, JobSpec, Occurrence, PreconditionFailed, Previewed

from tests.unit.sdk.fake_server import FakeServer
from tests.unit.sdk.test_client import JOB, Either
from tests.unit.sdk.test_client import client as client  # the fixture

NINE = datetime(2026, 7, 1, 9, tzinfo=UTC)
AT_NINE = "2026-07-01T09:00:00Z"


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (
            Cron("0 9 * * *", "Europe/London", end_at=NINE, jitter_sec=5),
            {"cron": "0 9 * * *", "timeZone": "Europe/London", "endAt": AT_NINE, "jitterSec": 5},
        ),
        (Every(60, start_at=NINE, max_runs=3), {"everySec": 60, "startAt": AT_NINE, "maxRuns": 3}),
        (Every(60), {"everySec": 60}),
        (
            At("2026-07-01T09:00:00", time_zone="Asia/Tokyo"),
            {"runAt": "2026-07-01T09:00:00", "timeZone": "Asia/Tokyo"},
        ),
    ],
    ids=str,
)
def test_schedules(schedule: Any, expected: dict[str, Any]) -> None:
    assert schedule.to_json() == expected


def test_policies() -> None:
    spec = JobSpec(
        schedule=Delay(1),
        overlap_policy="allow",
        max_concurrent=4,
        queue_limit=2,
        misfire_policy="fire_once",
        start_deadline_sec=9,
        idempotency_key_template="{jobId}",
    )
    assert spec.to_json() == {
        "schedule": {"delaySec": 1},
        "overlapPolicy": "allow",
        "maxConcurrent": 4,
        "queueLimit": 2,
        "misfirePolicy": "fire_once",
        "startDeadlineSec": 9,
        "idempotencyKeyTemplate": "{jobId}",
    }


async def test_a_preview(client: Either, server: FakeServer) -> None:
    answer = {
        "schedule": {"runAt": AT_NINE},
        "occurrences": [{"utc": AT_NINE, "local": "2026-07-01T10:00:00+01:00"}],
    }
    server.plan("/v1/schedules/preview", 200, answer)
    found = await client.do("preview_schedule", At(NINE, allow_past=True), job_id="a", after=NINE, count=5)
    assert server.seen[0].query == {
        "runAt": AT_NINE,
        "allowPast": "true",
        "jobId": "a",
        "after": AT_NINE,
        "count": "5",
    }
    assert found.schedule == {"runAt": AT_NINE}
    assert found.occurrences == (Previewed(utc=NINE, local="2026-07-01T10:00:00+01:00"),)


async def test_an_update_names_its_version(client: Either, server: FakeServer) -> None:
    server.plan("/v1/jobs/a", 200, JOB | {"version": 4, "updatedBy": "me", "overlapPolicy": "skip"})
    changes = {"labels": {"team": None}, "schedule": Every(30), "overlapPolicy": "skip"}
    job = await client.do("update_job", "a", changes, version=3, reason="faster")
    [seen] = server.seen
    assert (seen.method, seen.headers["if-match"]) == ("PATCH", '"3"')
    assert seen.headers["idempotency-key"]
    assert seen.body == {
        "labels": {"team": None},
        "schedule": {"everySec": 30},
        "overlapPolicy": "skip",
        "reason": "faster",
    }
    assert (job.version, job.updated_by, job.overlap_policy) == (4, "me", "skip")
    server.plan("/v1/jobs/a", 412, {"code": "version_differs"})
    with pytest.raises(PreconditionFailed):
        await client.do("put_job", "a", JobSpec(schedule=Delay(5)), version=3)
    assert server.seen[1].headers["if-match"] == '"3"'


async def test_pause_resume_trigger(client: Either, server: FakeServer) -> None:
    server.plan("/v1/jobs/a/pause", 200, JOB | {"status": "PAUSED", "paused": {"by": "me"}})
    server.plan("/v1/jobs/a/resume", 200, JOB)
    server.plan("/v1/jobs/a/trigger", 202, {"executionId": "x", "status": "PENDING"})
    paused = await client.do("pause_job", "a", reason="freeze")
    assert (paused.status, paused.paused) == ("PAUSED", {"by": "me"})
    await client.do("resume_job", "a", missed="fire_once", idempotency_key="k")
    assert await client.do("trigger_job", "a", overlap_policy="allow") == "x"
    assert [seen.body for seen in server.seen] == [
        {"reason": "freeze"},
        {"missed": "fire_once"},
        {"overlapPolicy": "allow"},
    ]
    assert server.seen[1].headers["idempotency-key"] == "k"


async def test_a_backfill_is_a_dry_run_first(client: Either, server: FakeServer) -> None:
    answer = {"backfillId": "bf", "count": 1, "occurrences": [{"scheduledTime": AT_NINE}]}
    server.plan("/v1/jobs/a/backfill", 200, answer)
    server.plan("/v1/jobs/a/backfill", 202, answer)
    dry = await client.do("backfill_job", "a", NINE, "2026-07-02T00:00:00Z")
    assert (dry.count, dry.occurrences) == (1, (Occurrence(scheduled_time=NINE),))
    await client.do("backfill_job", "a", NINE, NINE, dry_run=False, overlap_policy="allow", priority="high")
    window = {"from": AT_NINE, "to": "2026-07-02T00:00:00Z"}
    assert server.seen[0].body == window | {"dryRun": True, "rerun": False}
    more = {"dryRun": False, "rerun": False, "overlapPolicy": "allow", "priority": "high"}
    assert server.seen[1].body == {"from": AT_NINE, "to": AT_NINE} | more


async def test_occurrences(client: Either, server: FakeServer) -> None:
    rows = [
        {"scheduledTime": AT_NINE, "to": AT_NINE, "count": 3, "status": "SKIPPED", "reason": "paused"},
        {"scheduledTime": AT_NINE, "status": "SCHEDULED", "executionId": "x"},
    ]
    server.plan("/v1/jobs/a/occurrences", 200, {"occurrences": rows, "nextFrom": AT_NINE})
    found = await client.do("job_occurrences", "a", NINE, "2026-07-02T00:00:00Z")
    assert server.seen[0].query == {"from": AT_NINE, "to": "2026-07-02T00:00:00Z"}
    assert [one.count for one in found.occurrences] == [3, 1]
    assert found.next_from == NINE


async def test_bulk_and_shifts(client: Either, server: FakeServer) -> None:
    server.plan("/v1/jobs/bulk", 200, {"count": 7})
    shift = {"tenant": "t", "jobId": "a", "timeZone": "Z", "at": AT_NINE, "nextRunAfter": AT_NINE}
    server.plan("/v1/tz-shifts", 200, {"tzVersion": "2026f", "count": 1, "shifts": [shift]})
    assert await client.do("bulk_jobs", "pause", labels={"team": "x"}) == 7
    assert server.seen[0].body == {"filter": {"labels": {"team": "x"}}, "action": "pause", "dryRun": True}
    found = await client.do("tz_shifts", "2026f")
    assert (found.tz_version, found.count, found.shifts[0].next_run_after) == ("2026f", 1, NINE)
