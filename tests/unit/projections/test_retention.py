"""What the read model forgets by itself, and what it keeps."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection, func, select

from projections.history_tables import attempts, history, skips, stats
from projections.queries import (
    JobFilter,
    execution_events,
    get_dead_letter,
    get_execution,
    get_job,
    job_events,
    list_jobs,
    tenant_stats,
)
from projections.retention import Retention
from projections.store import Store
from projections.tables import contents, definitions, labels, leases
from schemas import ids
from schemas.entities import Content, ExecutionStatus, JobStatus, Skip, SkipReason
from schemas.events import JobCompleted
from schemas.topics import DAY_MS, HOUR_MS
from tests.unit.projections.story import MINUTE, T0, TENANT, Story, cursor_of, fold, job

DAYS = 30


def purge_all(store: Store, limit: int = 1_000, days: int = DAYS) -> int:
    retention, steps = Retention(days), 1
    while retention.purge(store, limit):
        steps += 1
    return steps


def rows(db: Connection, *tables: object) -> list[int]:
    return [db.execute(select(func.count()).select_from(table)).scalar_one() for table in tables]  # type: ignore[arg-type]


def later(story: Story, days: float = DAYS + 1) -> None:
    """Something happens, so that the read model knows how late it is."""
    story.at(T0 + int(days * DAY_MS)).register(job("clock", tenant="clock"))


def test_an_execution_goes_with_all_its_rows(store: Store, db: Connection) -> None:
    story = Story()
    made = story.register(job("a"))
    old = story.fire(made, T0, key="k")
    story.keep(old, Content(name="a", task="work"))
    old = story.claim(old)
    story.beat(old, T0 + MINUTE)
    story.complete(old)
    young = story.at(T0 + 2 * DAY_MS).complete(story.claim(story.fire(made, T0 + DAY_MS)))
    open_one = story.at(T0).fire(made, T0 + MINUTE)
    later(story)
    fold(store, story.records)
    purge_all(store)

    assert get_execution(db, TENANT, old.execution_id) is None
    assert execution_events(db, TENANT, old.execution_id).items == ()
    assert rows(db, leases, contents, attempts) == [0, 0, 1]
    assert get_execution(db, TENANT, young.execution_id) is not None
    assert len(execution_events(db, TENANT, young.execution_id).items) == 3
    assert get_execution(db, TENANT, open_one.execution_id) is not None


def test_a_dead_letter_stays_as_long_as_the_engine_has_it(store: Store, db: Connection) -> None:
    story = Story()
    dead = story.bury(story.claim(story.fire(story.register(job("a")), T0)))
    later(story)
    fold(store, story.records)
    purge_all(store)
    detail = get_dead_letter(db, TENANT, dead.execution_id)
    assert detail is not None
    assert detail.content.payload == b'{"kept": true}'
    db.rollback()

    story.forget(ids.execution_key(TENANT, dead.execution_id))
    fold(store, story.records)
    purge_all(store)
    assert get_execution(db, TENANT, dead.execution_id) is None


@pytest.mark.parametrize("limit", [1, 3, 1_000])
def test_a_finished_job_goes_with_its_last_execution(store: Store, db: Connection, limit: int) -> None:
    story = Story()
    for number in range(4):
        made = story.register(job(f"gone-{number}", labels={"team": "x", "n": str(number)}))
        story.complete(story.claim(story.fire(made, T0)))
        story.move(cursor_of(made, JobStatus.COMPLETED, finished_ms=story.now_ms), JobCompleted)
    kept = story.register(job("kept", labels={"team": "x"}))
    story.complete(story.claim(story.fire(kept, T0)))
    later(story)
    fold(store, story.records)
    purge_all(store, limit)

    assert [get_job(db, TENANT, f"gone-{number}") for number in range(4)] == [None] * 4
    jobs = list_jobs(db, TENANT, JobFilter(labels={"team": "x"})).items
    assert [view.job.job_id for view in jobs] == ["kept"]
    # The two of "kept" and the clock.
    assert rows(db, definitions, labels) == [2, 1]
    assert get_job(db, TENANT, "kept").counts[ExecutionStatus.COMPLETED] == 1  # type: ignore[union-attr]
    assert tenant_stats(db, TENANT, T0, T0 + DAY_MS).completed == 5


def test_a_finished_job_waits_for_its_executions(store: Store, db: Connection) -> None:
    story = Story()
    made = story.register(job("a"))
    story.move(cursor_of(made, JobStatus.COMPLETED, finished_ms=T0), JobCompleted)
    story.at(T0 + 20 * DAY_MS).complete(story.claim(story.fire(made, T0)))
    later(story)
    fold(store, story.records)
    purge_all(store)
    assert get_job(db, TENANT, "a") is not None


def test_a_job_of_years_forgets_its_old_moves(store: Store, db: Connection) -> None:
    story = Story()
    made = story.register(job("a"))
    skip = Skip(from_ms=T0, to_ms=T0, count=1, reason=SkipReason.OVERLAP)
    for day in range(40):
        story.at(T0 + day * DAY_MS).move(cursor_of(made, next_ms=T0 + (day + 1) * DAY_MS), skips=[skip])
    fold(store, story.records)
    purge_all(store, limit=7)
    assert rows(db, skips) == [31]
    assert len(job_events(db, TENANT, "a").items) == 31
    assert get_job(db, TENANT, "a") is not None


@pytest.mark.parametrize("limit", [1, 1_000])
def test_hours_become_days(store: Store, db: Connection, limit: int) -> None:
    story = Story()
    a, b = story.register(job("a")), story.register(job("b"))
    for hour in range(0, 72, 6):
        story.at(T0 + hour * HOUR_MS)
        story.claim(story.fire(a, story.now_ms), late_ms=hour)
        story.fire(b, story.now_ms)
    later(story, DAYS + 2.5)
    fold(store, story.records)
    before = [tenant_stats(db, TENANT, T0, T0 + 3 * DAY_MS, name) for name in ("", "a", "b")]
    db.rollback()
    purge_all(store, limit)

    after = [tenant_stats(db, TENANT, T0, T0 + 3 * DAY_MS, name) for name in ("", "a", "b")]
    assert after == before
    assert before[0].lateness.max_ms == 66
    spans = db.execute(
        select(stats.c.span_ms, func.count()).where(stats.c.tenant == TENANT).group_by(stats.c.span_ms)
    ).all()
    # Two days of three names, and the four hours of the third.
    assert sorted(tuple(row) for row in spans) == [(HOUR_MS, 3 * 4), (DAY_MS, 3 * 2)]
    assert tenant_stats(db, TENANT, T0 + 5 * HOUR_MS, T0 + 6 * HOUR_MS, "a").fired == 4
    db.rollback()

    # What comes late is added up the next time.
    story.at(T0 + 7 * HOUR_MS).fire(a, T0 + 7 * HOUR_MS)
    later(story, DAYS + 2.5)
    fold(store, story.records)
    purge_all(store)
    assert tenant_stats(db, TENANT, T0 + 5 * HOUR_MS, T0 + 6 * HOUR_MS, "a").fired == 5


def test_an_empty_read_model_has_nothing_to_forget(store: Store, db: Connection) -> None:
    assert purge_all(store) == 1
    assert rows(db, history) == [0]


def test_steps_are_taken_now_and_then(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    more = [True, True, False]
    now_ms = [0]
    retention = Retention(DAYS)

    def purge(store: Store, limit: int = 0) -> bool:
        asked.append(more[len(asked)])
        return asked[-1]

    monkeypatch.setattr(retention, "purge", purge)
    monkeypatch.setattr("projections.retention.monotonic_ms", lambda: now_ms[0])
    for _ in range(5):
        retention.step(store)
    assert asked == more
    more.append(False)
    now_ms[0] = 60_000
    retention.step(store)
    assert len(asked) == 4
