"""Jobs as they stand: definition, cursor, next occurrence, lists."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection

from projections.occurrences import job_skips
from projections.queries import JobFilter, get_job, list_jobs
from projections.store import Store
from projections.views import JobDetail, JobView, SkipView
from schemas import ids
from schemas.entities import CatchUp, ExecutionStatus, JobStatus, Skip, SkipReason
from schemas.events import JobCancelled, JobCompleted, JobPaused
from tests.unit.projections.story import MINUTE, ONCE, T0, TENANT, Story, cursor_of, fold, job


def found(db: Connection, job_id: str) -> JobDetail:
    detail = get_job(db, TENANT, job_id)
    assert detail is not None
    return detail


def listed(db: Connection, filters: JobFilter) -> list[str]:
    return [view.job.job_id for view in list_jobs(db, TENANT, filters).items]


def test_a_job_without_a_cursor_stands_at_its_beginning(store: Store, db: Connection) -> None:
    story = Story()
    made = story.register(job("a", labels={"team": "x"}, payload=b"\x00\xff"))
    fold(store, story.records)

    view = found(db, "a").view
    assert view == JobView(
        job=made,
        cursor=None,
        status=JobStatus.ACTIVE,
        next_run_ms=made.first_next_ms,
        next_run_local="",
        next_execution_id=ids.scheduled_execution_id("a", T0, made.first_next_ms),
    )


def test_the_cursor_says_where_a_job_stands(store: Store, db: Connection) -> None:
    story = Story()
    made = story.register(job("a"))
    cursor = cursor_of(
        made,
        next_ms=T0 + 5 * MINUTE,
        next_local="2026-11-01T00:05:00",
        last_ms=T0 + 4 * MINUTE,
        last_local="2026-11-01T00:04:00",
        catch_up=(CatchUp(after_ms=1, after_local="l", from_ms=2, to_ms=3, count=4),),
        tz_version="2026.6",
    )
    story.move(cursor)
    fold(store, story.records)

    view = found(db, "a").view
    assert view.cursor == cursor
    assert (view.next_run_ms, view.next_run_local) == (T0 + 5 * MINUTE, "2026-11-01T00:05:00")


@pytest.mark.parametrize(
    ("event", "status", "more"),
    [
        (JobPaused, JobStatus.PAUSED, {"paused_ms": T0, "paused_by": "ann", "paused_reason": "lunch"}),
        (JobCancelled, JobStatus.CANCELLED, {"finished_ms": T0}),
        (JobCompleted, JobStatus.COMPLETED, {"finished_ms": T0}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
def test_a_job_that_does_not_fire_has_no_next_run(
    store: Store, db: Connection, event: type, status: JobStatus, more: dict[str, object]
) -> None:
    story = Story()
    made = story.register(job("a"))
    cursor = cursor_of(made, status, next_ms=T0 + MINUTE, **more)
    story.move(cursor, event)
    fold(store, story.records)

    view = found(db, "a").view
    assert (view.status, view.cursor) == (status, cursor)
    assert (view.next_run_ms, view.next_execution_id) == (0, "")


def test_a_one_off_has_no_next_run_once_it_was_fired(store: Store, db: Connection) -> None:
    story = Story()
    made = story.register(job("a", schedule=ONCE))
    fold(store, story.records)
    assert found(db, "a").view.next_run_ms == T0 + MINUTE

    story.fire(made, T0 + MINUTE)
    fold(store, story.records)
    db.rollback()
    view = found(db, "a").view
    assert (view.status, view.next_run_ms) == (JobStatus.ACTIVE, 0)


def test_a_job_made_anew_begins_again(store: Store, db: Connection) -> None:
    story = Story()
    old = story.register(job("a", task="old", labels={"v": "1"}))
    story.move(cursor_of(old, JobStatus.CANCELLED, finished_ms=T0), JobCancelled)
    new = story.register(job("a", incarnation=T0 + 1, task="new", labels={"v": "2"}, created_ms=T0 + 1))
    fold(store, story.records)

    view = found(db, "a").view
    assert (view.job, view.cursor, view.status) == (new, None, JobStatus.ACTIVE)
    assert listed(db, JobFilter(labels={"v": "1"})) == []
    assert listed(db, JobFilter(labels={"v": "2"})) == ["a"]

    story.move(cursor_of(new, next_ms=T0 + 9 * MINUTE))
    fold(store, story.records)
    db.rollback()
    assert found(db, "a").view.next_run_ms == T0 + 9 * MINUTE


def test_a_cursor_may_come_before_its_job(store: Store, db: Connection) -> None:
    """As in a compacted log, when the definition was updated after the cursor moved."""
    story = Story()
    made = job("a", version=2)
    story.move(cursor_of(made, JobStatus.PAUSED, paused_by="bob"), JobPaused)
    fold(store, story.records)
    assert get_job(db, TENANT, "a") is None
    assert listed(db, JobFilter()) == []

    story.register(made)
    fold(store, story.records)
    db.rollback()
    view = found(db, "a").view
    assert view.status is JobStatus.PAUSED
    assert view.cursor is not None
    assert view.cursor.paused_by == "bob"


def test_a_job_says_what_became_of_it(store: Store, db: Connection) -> None:
    story = Story()
    made = story.register(job("a"))
    story.complete(story.claim(story.fire(made, T0 + MINUTE)))
    buried = story.bury(story.claim(story.fire(made, T0 + 2 * MINUTE)))
    story.bury(story.claim(story.fire(made, T0 + 3 * MINUTE)))
    story.complete(story.claim(story.replay(buried)))
    story.fail(story.claim(story.fire(made, T0 + 4 * MINUTE)), error="no luck")
    story.move(cursor_of(made, next_ms=T0 + 5 * MINUTE))
    fold(store, story.records)

    detail = found(db, "a")
    assert detail.counts == {
        ExecutionStatus.COMPLETED: 2,
        ExecutionStatus.FAILED: 1,
        # The retry and the next occurrence.
        ExecutionStatus.SCHEDULED: 2,
    }
    assert detail.last_execution is not None
    assert detail.last_execution.scheduled_ms == T0 + 4 * MINUTE
    assert (detail.last_execution.status, detail.last_execution.error) == (
        ExecutionStatus.SCHEDULED,
        "no luck",
    )


def test_skips_are_kept(store: Store, db: Connection) -> None:
    story = Story()
    made = story.register(job("a"))
    paused = Skip(from_ms=T0, to_ms=T0 + MINUTE, count=2, reason=SkipReason.PAUSED)
    overlap = Skip(from_ms=T0 + 2 * MINUTE, to_ms=T0 + 2 * MINUTE, count=1, reason=SkipReason.OVERLAP)
    story.move(cursor_of(made), skips=[paused])
    story.move(cursor_of(made), skips=[overlap])
    fold(store, story.records)

    def seen(skip: Skip, at_ms: int) -> SkipView:
        return SkipView(
            at_ms=at_ms, from_ms=skip.from_ms, to_ms=skip.to_ms, count=skip.count, reason=skip.reason
        )

    assert job_skips(db, TENANT, "a", T0, T0 + 3 * MINUTE) == (
        seen(paused, T0 + 2_000),
        seen(overlap, T0 + 3_000),
    )
    assert job_skips(db, TENANT, "a", T0 + MINUTE, T0 + 2 * MINUTE) == (seen(paused, T0 + 2_000),)
    assert job_skips(db, "other", "a", T0, T0 + 3 * MINUTE) == ()


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (JobFilter(), ["fired", "paused", "late", "plain"]),
        (JobFilter(statuses=(JobStatus.PAUSED,)), ["paused"]),
        (JobFilter(statuses=(JobStatus.PAUSED, JobStatus.ACTIVE)), ["fired", "paused", "late", "plain"]),
        (JobFilter(pool="slow"), ["late"]),
        (JobFilter(name="report"), ["plain"]),
        (JobFilter(labels={"team": "x"}), ["paused", "plain"]),
        (JobFilter(labels={"team": "x", "env": "prod"}), ["plain"]),
        (JobFilter(next_run_before_ms=T0 + MINUTE), []),
        (JobFilter(next_run_before_ms=T0 + MINUTE + 1), ["plain"]),
        (JobFilter(next_run_before_ms=T0 + 99 * MINUTE), ["late", "plain"]),
    ],
)
def test_jobs_are_filtered(store: Store, db: Connection, filters: JobFilter, expected: list[str]) -> None:
    story = Story()
    story.register(job("plain", name="report", labels={"team": "x", "env": "prod"}))
    story.register(job("late", pool="slow", created_ms=T0 + 1, first_next_ms=T0 + 9 * MINUTE))
    paused = story.register(job("paused", labels={"team": "x"}, created_ms=T0 + 2))
    story.move(cursor_of(paused, JobStatus.PAUSED, next_ms=T0 + MINUTE), JobPaused)
    fired = story.register(job("fired", schedule=ONCE, created_ms=T0 + 3))
    story.fire(fired, T0 + MINUTE)
    story.register(job("plain", tenant="other", name="report", labels={"team": "x"}))
    fold(store, story.records)
    assert listed(db, filters) == expected


def test_lists_come_without_payloads(store: Store, db: Connection) -> None:
    story = Story()
    story.register(job("a"))
    fold(store, story.records)
    assert list_jobs(db, TENANT).items[0].job.content.payload == b""


def test_another_tenants_job_is_not_there(store: Store, db: Connection) -> None:
    story = Story()
    story.register(job("a", tenant="other"))
    fold(store, story.records)
    assert get_job(db, TENANT, "a") is None
    assert listed(db, JobFilter()) == []
