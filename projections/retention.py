"""Owns what the read model forgets, and when: details after some days, by themselves and in small steps.

The engine's tombstones are not listened to: it forgets a finished execution after a day, readers later. Time
is that of the newest event folded, so that a replay of old events is not purged as it comes in. Dead letters
stay as long as the engine can replay them, jobs until their last execution is gone. Counters of a day become
one row; those of a job go with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy import (
    ColumnElement,
    Delete,
    Table,
    and_,
    bindparam,
    delete,
    exists,
    func,
    literal_column,
    select,
)

from projections.history import EXECUTION
from projections.history_tables import (
    HOURLY,
    NOT_OF_EXECUTION,
    alerts,
    attempts,
    history,
    skips,
    stats,
    tz_shifts,
)
from projections.stats import ADD, COUNTERS, SUMS
from projections.store import Row, Store, Writer
from projections.tables import PURGEABLE, contents, definitions, executions, jobs, labels, leases, offsets
from schemas.topics import DAY_MS
from streams.ambient import monotonic_ms

DEFAULT_DETAIL_DAYS = 30
# Rows of one kind that one step takes: some milliseconds, between two batches.
STEP_ROWS = 1_000
EVERY_MS = 10_000


def _each(table: Table, *columns: str) -> Delete:
    return delete(table).where(*(table.c[name] == bindparam(f"of_{name}") for name in columns))


_EXECUTION = ("tenant", "execution_id")
_OF_EXECUTION = [_each(table, *_EXECUTION) for table in (attempts, leases, contents, executions)]
_EVENTS = _each(history, "tenant", "scope", "subject")
_EVENT = ("tenant", "scope", "subject", "log_offset")
_ONE_EVENT = _each(history, *_EVENT)
_SKIP = ("tenant", "job_id", "log_offset", "number")
_ONE_SKIP = _each(skips, *_SKIP)
_SHIFT = ("tenant", "job_id", "log_offset")
_ONE_SHIFT = _each(tz_shifts, *_SHIFT)
_ALERT = ("tenant", "alert_id")
_ONE_ALERT = _each(alerts, *_ALERT)
_JOB = ("tenant", "job_id")
_OF_JOB = [_each(table, *_JOB) for table in (skips, tz_shifts, stats, definitions, jobs)]
_LABEL = _each(labels, "tenant", "key", "value", "job_id")
_HOURS = delete(stats).where(
    stats.c.tenant == bindparam("of_tenant"),
    stats.c.job_id == bindparam("of_job_id"),
    stats.c.start_ms >= bindparam("from_ms"),
    stats.c.start_ms < bindparam("to_ms"),
    HOURLY,
)


class Retention:
    """Forgets what is older than `detail_days`."""

    def __init__(self, detail_days: int = DEFAULT_DETAIL_DAYS) -> None:
        self._detail_ms = detail_days * DAY_MS
        self._next_ms = 0

    def step(self, store: Store) -> None:
        """Forgets a little, every now and then; again at once while there is more."""
        now_ms = monotonic_ms()
        if now_ms >= self._next_ms and not self.purge(store):
            self._next_ms = now_ms + EVERY_MS

    def purge(self, store: Store, limit: int = STEP_ROWS) -> bool:
        """One step; whether there may be more to do."""
        with store.reading() as connection:
            newest_ms = connection.execute(select(func.max(offsets.c.at_ms))).scalar_one()
        if not newest_ms:
            return False
        before_ms = newest_ms - self._detail_ms
        with store.writing() as writer:
            taken = [
                forget(writer, before_ms, limit)
                for forget in (_executions, _events, _skips, _shifts, _alerts, _jobs, _hours)
            ]
        return max(taken) == limit


def _executions(writer: Writer, before_ms: int, limit: int) -> int:
    old = and_(PURGEABLE, executions.c.finished_ms < before_ms)
    found = _find(writer, executions, _EXECUTION, old, executions.c.finished_ms, limit)
    writer.each(
        _EVENTS,
        [
            {"of_tenant": row["of_tenant"], "of_scope": EXECUTION, "of_subject": row["of_execution_id"]}
            for row in found
        ],
    )
    for statement in _OF_EXECUTION:
        writer.each(statement, found)
    return len(found)


def _events(writer: Writer, before_ms: int, limit: int) -> int:
    # Those of executions go with them; a job may move its cursor for years.
    old = and_(NOT_OF_EXECUTION, history.c.at_ms < before_ms)
    found = _find(writer, history, _EVENT, old, history.c.at_ms, limit)
    writer.each(_ONE_EVENT, found)
    return len(found)


def _skips(writer: Writer, before_ms: int, limit: int) -> int:
    found = _find(writer, skips, _SKIP, skips.c.at_ms < before_ms, skips.c.at_ms, limit)
    writer.each(_ONE_SKIP, found)
    return len(found)


def _shifts(writer: Writer, before_ms: int, limit: int) -> int:
    found = _find(writer, tz_shifts, _SHIFT, tz_shifts.c.at_ms < before_ms, tz_shifts.c.at_ms, limit)
    writer.each(_ONE_SHIFT, found)
    return len(found)


def _alerts(writer: Writer, before_ms: int, limit: int) -> int:
    found = _find(writer, alerts, _ALERT, alerts.c.at_ms < before_ms, alerts.c.at_ms, limit)
    writer.each(_ONE_ALERT, found)
    return len(found)


def _jobs(writer: Writer, before_ms: int, limit: int) -> int:
    used = exists().where(executions.c.tenant == jobs.c.tenant, executions.c.job_id == jobs.c.job_id)
    old = and_(jobs.c.finished_ms > literal_column("0"), jobs.c.finished_ms < before_ms, ~used)
    found = _find(writer, jobs, _JOB, old, jobs.c.finished_ms, limit)
    for row in found:
        mine = and_(definitions.c.tenant == row["of_tenant"], definitions.c.job_id == row["of_job_id"])
        texts = writer.connection.execute(select(definitions.c.labels).where(mine)).scalars().all()
        pairs = {pair for text in texts for pair in msgspec.json.decode(text, type=dict[str, str]).items()}
        writer.each(_LABEL, [{**row, "of_key": key, "of_value": value} for key, value in sorted(pairs)])
    for statement in _OF_JOB:
        writer.each(statement, found)
    return len(found)


def _hours(writer: Writer, before_ms: int, limit: int) -> int:
    """Adds up the hours of the oldest day that is past; counts jobs."""
    today_ms = before_ms - before_ms % DAY_MS
    hourly = and_(HOURLY, stats.c.start_ms < today_ms)
    oldest_ms = writer.connection.execute(select(func.min(stats.c.start_ms)).where(hourly)).scalar_one()
    if oldest_ms is None:
        return 0
    day_ms = oldest_ms - oldest_ms % DAY_MS
    found = writer.connection.execute(
        select(stats.c.tenant, stats.c.job_id, *SUMS)
        .where(hourly, stats.c.start_ms < day_ms + DAY_MS)
        .group_by(stats.c.tenant, stats.c.job_id)
        .limit(limit)
    ).all()
    writer.each(
        _HOURS,
        [
            {"of_tenant": tenant, "of_job_id": job_id, "from_ms": day_ms, "to_ms": day_ms + DAY_MS}
            for tenant, job_id, *_ in found
        ],
    )
    writer.upsert(
        ADD,
        [
            {"tenant": tenant, "job_id": job_id, "start_ms": day_ms, "span_ms": DAY_MS}
            | {name: int(value) for name, value in zip(COUNTERS, values, strict=True)}
            for tenant, job_id, *values in found
        ],
    )
    # A day of fewer jobs is not the last one.
    return limit if found else 0


def _find(
    writer: Writer,
    table: Table,
    key: Sequence[str],
    old: ColumnElement[bool],
    age: ColumnElement[int],
    limit: int,
) -> list[Row]:
    """Keys of the oldest rows, as parameters of the deletes."""
    columns = [table.c[name].label(f"of_{name}") for name in key]
    rows = writer.connection.execute(select(*columns).where(old).order_by(age).limit(limit)).mappings()
    return [dict(row) for row in rows]
