"""Owns counts and lateness: how events become hourly counters, and what the counters say.

Counters are kept for each job and once more for the whole tenant (job ""), so that a tenant's figures need
not add up those of its jobs. They count events, so a compacted log counts less: they are history.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, case, func, select

from projections import rows
from projections.history_tables import LATENESS_BOUNDS_MS, LATENESS_BUCKETS, OUTCOMES, stats
from projections.store import Upsert, Writer
from projections.tables import executions
from projections.views import Lateness, Stats
from schemas.events import (
    AttemptFailed,
    CursorEvent,
    DeadLetterReplayed,
    Event,
    ExecutionCancelled,
    ExecutionClaimed,
    ExecutionCompleted,
    ExecutionDeadLettered,
    ExecutionEvent,
    ExecutionFired,
    ExecutionSkipped,
    LeaseExpired,
)
from schemas.topics import DAY_MS, HOUR_MS

COUNTERS = (*OUTCOMES, "late_count", "late_sum_ms", "late_max_ms", *LATENESS_BUCKETS)
_PLACE = {name: place for place, name in enumerate(COUNTERS)}
_COUNTED: dict[type[Event], int] = {
    ExecutionFired: _PLACE["fired"],
    ExecutionCompleted: _PLACE["completed"],
    ExecutionDeadLettered: _PLACE["failed"],
    ExecutionCancelled: _PLACE["cancelled"],
    ExecutionSkipped: _PLACE["skipped"],
    AttemptFailed: _PLACE["failed_attempts"],
    LeaseExpired: _PLACE["expired"],
    DeadLetterReplayed: _PLACE["replayed"],
}
_MISSED, _LATE_COUNT, _LATE_SUM, _LATE_MAX, _BUCKETS = (
    _PLACE[name] for name in ("missed", "late_count", "late_sum_ms", "late_max_ms", LATENESS_BUCKETS[0])
)


def _added(old: Any, new: Any) -> dict[str, ColumnElement[Any]]:
    changes = {name: old[name] + new[name] for name in COUNTERS if name != "late_max_ms"}
    return changes | {"late_max_ms": greater(old.late_max_ms, new.late_max_ms)}


def greater(one: ColumnElement[int], other: ColumnElement[int]) -> ColumnElement[int]:
    """SQLite and PostgreSQL have no common function for it."""
    return case((one > other, one), else_=other)


ADD = Upsert(stats, changes=_added)


class StatRows:
    """Counters of one batch."""

    def __init__(self) -> None:
        self._counters: dict[tuple[str, str, int], list[int]] = {}

    def fold_execution(self, event: ExecutionEvent) -> None:
        """Counts an execution's event, and how late its first grant was."""
        counted = _COUNTED.get(type(event))
        execution = event.execution
        late_ms = -1
        if isinstance(event, ExecutionClaimed) and execution.started_ms == execution.first_started_ms:
            late_ms = max(execution.started_ms - execution.due_ms, 0)
        elif counted is None:
            return
        for counters in self._hour(execution.tenant, execution.job_id, event.at_ms):
            if counted is not None:
                counters[counted] += 1
            if late_ms >= 0:
                counters[_LATE_COUNT] += 1
                counters[_LATE_SUM] += late_ms
                counters[_LATE_MAX] = max(counters[_LATE_MAX], late_ms)
                counters[_BUCKETS + bisect_left(LATENESS_BOUNDS_MS, late_ms)] += 1

    def fold_cursor(self, event: CursorEvent) -> None:
        """Counts the occurrences that the event says were skipped."""
        missed = sum(skip.count for skip in event.cursor.skips)
        if missed:
            for counters in self._hour(event.cursor.tenant, event.cursor.job_id, event.at_ms):
                counters[_MISSED] += missed

    def write(self, writer: Writer) -> None:
        """Adds the batch's counters to the rows."""
        writer.upsert(
            ADD,
            [
                {"tenant": tenant, "job_id": job_id, "start_ms": start_ms, "span_ms": HOUR_MS}
                | dict(zip(COUNTERS, counters, strict=True))
                for (tenant, job_id, start_ms), counters in self._counters.items()
            ],
        )

    def _hour(self, tenant: str, job_id: str, at_ms: int) -> tuple[list[int], list[int]]:
        start_ms = at_ms - at_ms % HOUR_MS
        return self._at((tenant, job_id, start_ms)), self._at((tenant, "", start_ms))

    def _at(self, key: tuple[str, str, int]) -> list[int]:
        counters = self._counters.get(key)
        if counters is None:
            counters = self._counters[key] = [0] * len(COUNTERS)
        return counters


# Adds up COUNTERS over the selected rows; made once, for making them costs more than running them.
SUMS: tuple[ColumnElement[Any], ...] = tuple(
    func.coalesce((func.max if name == "late_max_ms" else func.sum)(stats.c[name]), 0) for name in COUNTERS
)


_ALL_TIME = select(*SUMS).where(
    stats.c.tenant == bindparam("of_tenant"), stats.c.job_id == bindparam("of_job")
)
# No row spans more than a day: the index need not be read from its beginning.
_WINDOW = _ALL_TIME.where(
    stats.c.start_ms > bindparam("day_before_ms"),
    stats.c.start_ms + stats.c.span_ms > bindparam("from_ms"),
    stats.c.start_ms < bindparam("to_ms"),
)


def all_time(connection: Connection, tenant: str, job_id: str) -> dict[str, int]:
    """Sums of all time; job "" is the whole tenant."""
    return _named(connection.execute(_ALL_TIME, {"of_tenant": tenant, "of_job": job_id}).one())


def totals(connection: Connection, tenant: str, job_id: str, from_ms: int, to_ms: int) -> dict[str, int]:
    """Sums of every hour that the window touches; job "" is the whole tenant."""
    found = connection.execute(
        _WINDOW,
        {
            "of_tenant": tenant,
            "of_job": job_id,
            "day_before_ms": from_ms - DAY_MS,
            "from_ms": from_ms,
            "to_ms": to_ms,
        },
    )
    return _named(found.one())


def _named(sums: Sequence[Any]) -> dict[str, int]:
    # PostgreSQL sums big integers as decimals.
    return {name: int(value) for name, value in zip(COUNTERS, sums, strict=True)}


def tenant_stats(connection: Connection, tenant: str, from_ms: int, to_ms: int, job_id: str = "") -> Stats:
    """What happened in every hour that [from, to) touches, and what waits now; job "" is the whole tenant."""
    total = totals(connection, tenant, job_id, from_ms, to_ms)
    late = [total[name] for name in LATENESS_BUCKETS]
    mine = [executions.c.tenant == tenant, *([executions.c.job_id == job_id] if job_id else [])]
    waiting = connection.execute(
        select(executions.c.pool, executions.c.status, func.count())
        .where(*mine, executions.c.status.in_(["PENDING", "RUNNING"]))
        .where(rows.OPEN if job_id else rows.NOT_COMPLETED)
        .group_by(executions.c.pool, executions.c.status)
    ).all()
    dead = connection.execute(
        # All have an end; saying so leads SQLite to their index.
        select(func.count())
        .select_from(executions)
        .where(*mine, rows.DEAD_LETTER, executions.c.finished_ms > 0)
    ).scalar_one()
    return Stats(
        from_ms=from_ms,
        to_ms=to_ms,
        **{name: total[name] for name in OUTCOMES},
        lateness=Lateness(
            count=total["late_count"],
            sum_ms=total["late_sum_ms"],
            max_ms=total["late_max_ms"],
            p50_ms=percentile(late, total["late_max_ms"], 0.50),
            p99_ms=percentile(late, total["late_max_ms"], 0.99),
        ),
        backlog={pool: count for pool, status, count in waiting if status == "PENDING"},
        running={pool: count for pool, status, count in waiting if status == "RUNNING"},
        dead_letters=dead,
    )


def percentile(buckets: Sequence[int], max_ms: int, share: float) -> float:
    """The lateness that `share` of all stay below, as if they lay evenly within a bucket; 0 of none."""
    wanted, seen = share * sum(buckets), 0
    for number, count in enumerate(buckets):
        if count and seen + count >= wanted:
            low = LATENESS_BOUNDS_MS[number - 1] if number else 0
            high = min(LATENESS_BOUNDS_MS[number], max_ms) if number < len(LATENESS_BOUNDS_MS) else max_ms
            return low + (high - low) * (wanted - seen) / count
        seen += count
    return 0.0
