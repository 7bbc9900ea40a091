"""Counts and lateness by tenant and job."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection

from projections.history_tables import LATENESS_BOUNDS_MS
from projections.queries import tenant_stats
from projections.stats import percentile
from projections.store import Store
from schemas.entities import Skip, SkipReason
from schemas.topics import DAY_MS, HOUR_MS
from tests.unit.projections.story import MINUTE, T0, TENANT, Story, cursor_of, fold, job


@pytest.mark.parametrize("size", [1, 1_000])
def test_counts(store: Store, db: Connection, size: int) -> None:
    story = Story()
    a, b = story.register(job("a")), story.register(job("b", pool="slow"))
    story.complete(story.claim(story.fire(a, T0), late_ms=7))
    story.complete(story.claim(story.fire(a, T0 + MINUTE), late_ms=70))
    dead = story.bury(story.claim(story.expire(story.claim(story.fire(b, T0), late_ms=700)), late_ms=9_999))
    story.fail(story.claim(story.fire(b, T0 + MINUTE), late_ms=0))
    story.cancel(story.fire(b, T0 + 2 * MINUTE))
    story.fire(b, T0 + 3 * MINUTE)
    story.claim(story.replay(dead))
    story.bury(story.claim(story.fire(b, T0 + 4 * MINUTE), late_ms=3))
    story.move(cursor_of(a), skips=[Skip(from_ms=T0, to_ms=T0 + MINUTE, count=5, reason=SkipReason.PAUSED)])
    story.complete(story.claim(story.fire(story.register(job("a", tenant="other")), T0)))
    fold(store, story.records, size)

    stats = tenant_stats(db, TENANT, T0, T0 + HOUR_MS)
    assert (stats.fired, stats.completed, stats.failed, stats.cancelled) == (7, 2, 2, 1)
    assert (stats.failed_attempts, stats.expired, stats.replayed, stats.missed) == (1, 1, 1, 5)
    assert stats.failure_rate == 0.5
    assert (stats.backlog, stats.running, stats.dead_letters) == ({"slow": 1}, {"slow": 1}, 1)
    # First grants only: 0, 3, 7, 70 and 700 ms.
    late = stats.lateness
    assert (late.count, late.sum_ms, late.max_ms) == (5, 780, 700)
    assert 5 <= late.p50_ms <= 10
    assert 500 <= late.p99_ms <= 700

    of_a = tenant_stats(db, TENANT, T0, T0 + HOUR_MS, "a")
    assert (of_a.fired, of_a.completed, of_a.failed, of_a.missed) == (2, 2, 0, 5)
    assert (of_a.lateness.count, of_a.lateness.max_ms, of_a.backlog) == (2, 70, {})


def test_a_window_is_hours(store: Store, db: Connection) -> None:
    story = Story()
    made = story.register(job("a"))
    for hour in (0, 1, 2, 30):
        story.at(T0 + hour * HOUR_MS).fire(made, T0 + hour * HOUR_MS)
    fold(store, story.records)

    def fired(from_ms: int, to_ms: int) -> int:
        return tenant_stats(db, TENANT, from_ms, to_ms).fired

    assert fired(T0, T0 + HOUR_MS) == 1
    assert fired(T0 + HOUR_MS, T0 + 3 * HOUR_MS) == 2
    assert fired(T0 + HOUR_MS + MINUTE, T0 + HOUR_MS + 2 * MINUTE) == 1
    assert fired(T0, T0 + 2 * DAY_MS) == 4
    assert fired(T0 + 5 * DAY_MS, T0 + 6 * DAY_MS) == 0


def test_no_one_was_late(store: Store, db: Connection) -> None:
    fold(store, [])
    stats = tenant_stats(db, TENANT, T0, T0 + HOUR_MS)
    assert (stats.lateness.p50_ms, stats.lateness.p99_ms, stats.failure_rate) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("late_ms", [*LATENESS_BOUNDS_MS, 1, 6, 777, 3_600_000])
def test_a_percentile_lies_in_the_bucket_of_the_truth(store: Store, db: Connection, late_ms: int) -> None:
    story = Story()
    made = story.register(job("a"))
    for number in range(10):
        story.claim(story.fire(made, T0 + number), late_ms=late_ms)
    fold(store, story.records)
    late = tenant_stats(db, TENANT, T0, T0 + HOUR_MS).lateness
    lower = max((bound for bound in LATENESS_BOUNDS_MS if bound < late_ms), default=0)
    assert lower <= late.p50_ms <= late.p99_ms <= late_ms


def test_percentiles_are_interpolated() -> None:
    none = [0] * (len(LATENESS_BOUNDS_MS) + 1)
    buckets = [50, 50, *none[2:]]
    assert percentile(none, 0, 0.5) == 0
    assert percentile(buckets, 10, 0.5) == 5
    assert percentile(buckets, 10, 0.75) == 7.5
    assert percentile([*none[:-1], 4], 900_000, 1.0) == 900_000
