"""Versions of a job, what became of its occurrences, backfills, and shifts by new zone data."""

from __future__ import annotations

from msgspec.structs import replace
from sqlalchemy import Connection, select

from projections.history_tables import tz_shifts
from projections.occurrences import job_occurrences, times_that_ran
from projections.queries import ExecutionFilter, get_definition, get_execution, get_job, list_executions
from projections.retention import Retention
from projections.shifts import list_tz_shifts
from projections.store import Store
from projections.views import TzShift
from schemas import ids
from schemas.entities import Content, ExecutionKind, ExecutionStatus, JobStatus
from schemas.events import ExecutionFired, JobPaused, JobResumed, JobUpdated, ScheduleShifted
from schemas.topics import DAY_MS
from tests.unit.projections.story import MINUTE, T0, TENANT, Story, cursor_of, fold, job


def test_versions(store: Store, db: Connection) -> None:
    story = Story()
    first = story.register(job("a", labels={"team": "x"}))
    fired = story.fire(first, T0 + MINUTE)
    content = Content(name="b", task="t", payload=b"2", content_type="application/json")
    second = replace(first, version=2, content=content, updated_ms=T0 + 5_000, updated_by="bob")
    story.tell(JobUpdated, job=second)
    fold(store, story.records)

    detail = get_job(db, TENANT, "a")
    assert detail is not None
    assert detail.view.job == second
    assert [get_definition(db, TENANT, "a", version) for version in (1, 2, 3)] == [first, second, None]
    assert get_definition(db, "other", "a", 1) is None
    execution = get_execution(db, TENANT, fired.execution_id)
    assert execution is not None
    assert execution.content == first.content
    assert dict(execution.view.labels) == {"team": "x"}


def test_a_pause_and_a_resume(store: Store, db: Connection) -> None:
    story = Story()
    made = story.register(job("a"))
    paused = cursor_of(made, JobStatus.PAUSED, next_ms=T0 + MINUTE, paused_ms=T0, paused_by="ann")
    story.move(paused, JobPaused)
    story.move(cursor_of(made, next_ms=T0 + 3 * MINUTE, next_due_ms=T0 + 3 * MINUTE + 9, runs=4), JobResumed)
    fold(store, story.records)

    detail = get_job(db, TENANT, "a")
    assert detail is not None
    assert (detail.view.status, detail.view.next_run_ms) == (JobStatus.ACTIVE, T0 + 3 * MINUTE)
    assert detail.view.cursor is not None
    assert (detail.view.cursor.runs, detail.view.cursor.paused_ms) == (4, 0)
    upcoming = get_execution(db, TENANT, detail.view.next_execution_id)
    assert upcoming is not None
    assert upcoming.view.execution.due_ms == T0 + 3 * MINUTE + 9


def test_occurrences_and_backfills(store: Store, db: Connection) -> None:
    story = Story()
    made = story.register(job("a"))
    story.complete(story.claim(story.fire(made, T0 + MINUTE)))
    cancelled = story.fire(made, T0 + 2 * MINUTE)
    story.cancel(cancelled)
    backfilled = replace(
        story.fire(made, T0 + 3 * MINUTE),
        execution_id=ids.backfill_execution_id("a", made.incarnation, T0 + 2 * MINUTE, "bf"),
        kind=ExecutionKind.BACKFILL,
        scheduled_ms=T0 + 2 * MINUTE,
        backfill="bf",
    )
    story.tell(ExecutionFired, execution=backfilled)
    fold(store, story.records)

    found = job_occurrences(db, made, T0, T0 + 3 * MINUTE, 10)
    assert [(one.scheduled_ms - T0, one.status, one.kind) for one in found] == [
        (MINUTE, ExecutionStatus.COMPLETED, ExecutionKind.SCHEDULE),
        (2 * MINUTE, ExecutionStatus.PENDING, ExecutionKind.BACKFILL),
        (2 * MINUTE, ExecutionStatus.CANCELLED, ExecutionKind.SCHEDULE),
    ]
    assert len(job_occurrences(db, made, T0, T0 + 3 * MINUTE, 2)) == 2
    assert job_occurrences(db, replace(made, incarnation=made.incarnation + 1), T0, T0 + DAY_MS, 9) == ()
    window = (T0, T0 + 3 * MINUTE)
    assert times_that_ran(db, made, *window) == {T0 + MINUTE, T0 + 2 * MINUTE}
    assert times_that_ran(db, made, *window, "bf") == {T0 + MINUTE}
    listed = list_executions(db, TENANT, ExecutionFilter(backfill="bf")).items
    assert [view.execution for view in listed] == [backfilled]


def test_shifts(store: Store, db: Connection) -> None:
    story = Story()
    one = story.register(job("a"))
    other = story.register(job("b", tenant="other"))
    fold(store, story.records)
    # In a batch of its own the row says what was before; in one batch, the event before.
    later = Story(first_offset=story.last_offset + 1)
    shifted = cursor_of(one, next_ms=T0, tz_version="2026f")
    later.move(shifted, ScheduleShifted)
    later.move(replace(shifted, next_ms=T0 + 7 * MINUTE))
    later.move(replace(shifted, next_ms=0), ScheduleShifted)
    later.move(cursor_of(other, next_ms=T0 + 2 * MINUTE, tz_version="2025b"), ScheduleShifted)
    fold(store, later.records)

    def shift(at_sec: int, before_ms: int, after_ms: int) -> TzShift:
        return TzShift(
            tenant=TENANT,
            job_id="a",
            time_zone="UTC",
            at_ms=T0 + at_sec * 1_000,
            before_ms=before_ms,
            after_ms=after_ms,
        )

    found = list_tz_shifts(db, "2026f")
    assert (found.count, found.shifts) == (
        2,
        (shift(3, T0 + 7 * MINUTE, 0), shift(1, one.first_next_ms, T0)),
    )
    assert list_tz_shifts(db).version == "2025b"
    assert list_tz_shifts(db, "never").count == 0
    later.at(T0 + 40 * DAY_MS).register(job("clock", tenant="clock"))
    fold(store, later.records)
    Retention(30).purge(store)
    db.rollback()
    assert db.execute(select(tz_shifts)).all() == []
