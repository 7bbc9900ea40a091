"""Owns what became of a job's occurrences: executions, and the ranges that never became any, oldest first."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, select

from projections.history_tables import skips
from projections.tables import executions
from projections.views import Occurred, SkipView
from schemas.entities import ExecutionKind, ExecutionStatus, Job, SkipReason

_OF_SCHEDULE = (ExecutionKind.SCHEDULE.value, ExecutionKind.BACKFILL.value)
_NOT_RUN = (ExecutionStatus.SKIPPED.value, ExecutionStatus.CANCELLED.value)


def job_occurrences(
    connection: Connection, job: Job, from_ms: int, to_ms: int, limit: int
) -> tuple[Occurred, ...]:
    """Executions of the job's schedule, backfilled ones too, with a scheduled time in [from, to)."""
    found = connection.execute(
        select(
            executions.c.scheduled_ms,
            executions.c.execution_id,
            executions.c.status,
            executions.c.kind,
            executions.c.reason,
        )
        .where(*_of_job(job, from_ms, to_ms))
        .order_by(executions.c.scheduled_ms, executions.c.execution_id)
        .limit(limit)
    )
    return tuple(
        Occurred(
            scheduled_ms=row.scheduled_ms,
            execution_id=row.execution_id,
            status=ExecutionStatus(row.status),
            kind=ExecutionKind(row.kind),
            reason=row.reason,
        )
        for row in found
    )


def times_that_ran(
    connection: Connection, job: Job, from_ms: int, to_ms: int, but_of: str = ""
) -> frozenset[int]:
    """Scheduled times in [from, to) that ran or will, those of the backfill `but_of` left aside."""
    found = connection.execute(
        select(executions.c.scheduled_ms)
        .where(*_of_job(job, from_ms, to_ms))
        .where(executions.c.status.not_in(_NOT_RUN))
        .where(*([executions.c.backfill != but_of] if but_of else []))
    )
    return frozenset(found.scalars())


def job_skips(
    connection: Connection, tenant: str, job_id: str, from_ms: int, to_ms: int, limit: int = 1_000
) -> tuple[SkipView, ...]:
    """Ranges that reach into [from, to), by where they end."""
    found = connection.execute(
        select(skips)
        .where(skips.c.tenant == tenant, skips.c.job_id == job_id)
        .where(skips.c.from_ms < to_ms, skips.c.to_ms >= from_ms)
        .order_by(skips.c.to_ms)
        .limit(limit)
    ).mappings()
    return tuple(
        SkipView(
            at_ms=row["at_ms"],
            from_ms=row["from_ms"],
            to_ms=row["to_ms"],
            count=row["count"],
            reason=SkipReason(row["reason"]),
        )
        for row in found
    )


def _of_job(job: Job, from_ms: int, to_ms: int) -> list[ColumnElement[bool]]:
    return [
        executions.c.tenant == job.tenant,
        executions.c.job_id == job.job_id,
        executions.c.incarnation == job.incarnation,
        executions.c.kind.in_(_OF_SCHEDULE),
        executions.c.scheduled_ms >= from_ms,
        executions.c.scheduled_ms < to_ms,
    ]
