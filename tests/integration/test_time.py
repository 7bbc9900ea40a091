"""Update, pause, resume, backfill and preview against a real server on a real broker."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta

import pytest
from horarium import Client, Conflict, Cron, Every, Execution, JobSpec, PreconditionFailed

from streams.ambient import wall_ms
from tests.waiting import wait_until

pytestmark = pytest.mark.kafka


@pytest.fixture
def name() -> str:
    """A job id, and the pool of that job alone."""
    return f"job-{secrets.token_hex(4)}"


def now() -> datetime:
    return datetime.fromtimestamp(wall_ms() / 1000, UTC)


def worked_off(client: Client, pool: str, number: int) -> list[str]:
    """Runs so many executions, one after the other, and says their kinds."""
    kinds: list[str] = []
    while len(kinds) < number:
        for run in client.claim(pool, "w", wait_sec=10).executions:
            client.complete(run.execution_id, "w", run.lease_epoch)
            kinds.append(run.kind or "")
    return kinds


def test_an_update_a_pause_and_a_resume(client: Client, name: str) -> None:
    spec = JobSpec(schedule=Every(1), pool=name, payload={"big": 2**70}, overlap_policy="skip")
    made = client.put_job(name, spec)
    assert worked_off(client, name, 1) == ["schedule"]
    updated = client.update_job(name, {"labels": {"team": "x"}}, version=made.version)
    assert (updated.version, updated.schedule) == (2, made.schedule)
    assert client.get_job(name).payload == {"big": 2**70}
    with pytest.raises(PreconditionFailed):
        client.update_job(name, {"labels": {"team": "y"}}, version=made.version)

    paused = client.pause_job(name, reason="freeze")
    assert (paused.status, paused.next_run_at) == ("PAUSED", None)
    assert client.trigger_job(name, overlap_policy="allow")
    wait_until(lambda: wall_ms() > made.created_at.timestamp() * 1000 + 4_000 if made.created_at else False)
    resumed = client.resume_job(name)
    assert resumed.status == "ACTIVE"
    assert worked_off(client, name, 2)
    client.cancel_job(name)
    found = client.job_occurrences(name, now() - timedelta(hours=1), now())
    assert "paused" in [one.reason for one in found.occurrences]
    types = [event.type for event in client.job_events(name).items]
    assert {"JobUpdated", "JobPaused", "JobResumed"} <= set(types)


def test_a_backfill(client: Client, name: str) -> None:
    client.put_job(name, JobSpec(schedule=Cron("0 0 1 * *", "Asia/Tokyo"), pool=name))
    window = (datetime(2024, 1, 1, tzinfo=UTC), datetime(2025, 1, 1, tzinfo=UTC))
    dry = client.backfill_job(name, *window)
    made = client.backfill_job(name, *window, dry_run=False, idempotency_key=name)
    again = client.backfill_job(name, *window, dry_run=False, idempotency_key=name)
    assert dry.count == made.count == again.count == 12
    assert [one.scheduled_time for one in dry.occurrences] == [one.scheduled_time for one in made.occurrences]
    assert worked_off(client, name, 12) == ["backfill"] * 12

    def listed() -> list[Execution]:
        return list(client.iter_executions(backfill_id=made.backfill_id))

    wait_until(lambda: {one.status for one in listed()} == {"COMPLETED"})
    assert [one.scheduled_time for one in reversed(listed())] == [
        one.scheduled_time for one in made.occurrences
    ]
    assert client.backfill_job(name, *window).count == 0
    client.cancel_job(name)
    with pytest.raises(Conflict):
        client.backfill_job(name, *window, rerun=True)


def test_the_engine_does_what_the_preview_says(client: Client, name: str) -> None:
    schedule = Cron("H H * * *", "America/New_York", jitter_sec=60)
    made = client.put_job(name, JobSpec(schedule=schedule, pool=name))
    found = client.preview_schedule(schedule, job_id=name, after=made.created_at, count=3)
    assert found.schedule == made.schedule
    assert found.occurrences[0].utc == made.next_run_at
    planned = client.job_occurrences(name, now(), now() + timedelta(days=4))
    times = [one.scheduled_time for one in planned.occurrences]
    assert times[:3] == [one.utc for one in found.occurrences]
    assert made.next_execution_id is not None
    assert client.get_execution(made.next_execution_id).due_at == found.occurrences[0].due_at
