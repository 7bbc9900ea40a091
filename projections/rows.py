"""Owns how selected rows become entities and views; the folds own how entities become rows."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
from sqlalchemy import ColumnElement, Row, and_, exists, literal_column

from projections.tables import definitions, executions, jobs, leases
from projections.views import Attempt, ExecutionView, JobView
from schemas.entities import (
    CatchUp,
    Content,
    Cursor,
    Execution,
    ExecutionKind,
    ExecutionStatus,
    Job,
    JobStatus,
    Policies,
    Schedule,
)
from schemas.ids import scheduled_execution_id

AnyRow: TypeAlias = Row[*tuple[Any, ...]]

# Literals, not parameters: only then do the partial indexes serve.
NOT_COMPLETED = executions.c.status != literal_column("'COMPLETED'")
OPEN = executions.c.status.in_([literal_column(f"'{word}'") for word in ("SCHEDULED", "PENDING", "RUNNING")])
BACKFILLED = executions.c.backfill != literal_column("''")
DEAD_LETTER = and_(
    executions.c.status == literal_column("'FAILED'"),
    executions.c.forgotten_ms == literal_column("0"),
    executions.c.discarded_by == literal_column("''"),
)

# The next occurrence was fired, so the job's own word on it is out of date: a one-off has no cursor to move.
FIRED = exists().where(
    executions.c.tenant == jobs.c.tenant, executions.c.execution_id == jobs.c.next_execution_id
)
WILL_RUN = and_(
    jobs.c.status == literal_column("'ACTIVE'"), jobs.c.next_execution_id != literal_column("''"), ~FIRED
)

JOB_DEFINITION = and_(
    definitions.c.tenant == jobs.c.tenant,
    definitions.c.job_id == jobs.c.job_id,
    definitions.c.incarnation == jobs.c.incarnation,
    definitions.c.version == jobs.c.version,
)
JOBS = jobs.join(definitions, JOB_DEFINITION)
JOB_COLUMNS: tuple[ColumnElement[Any], ...] = (
    *jobs.c,
    *(column for column in definitions.c if column.name not in jobs.c and column.name != "payload"),
    WILL_RUN.label("will_run"),
)

EXECUTION_DEFINITION = and_(
    definitions.c.tenant == executions.c.tenant,
    definitions.c.job_id == executions.c.job_id,
    definitions.c.incarnation == executions.c.incarnation,
    definitions.c.version == executions.c.job_version,
)
_LEASE = and_(
    leases.c.tenant == executions.c.tenant,
    leases.c.execution_id == executions.c.execution_id,
    leases.c.lease_epoch == executions.c.lease_epoch,
)
# Outer joins: in a compacted log an older definition may be gone, and no heartbeat is the rule.
EXECUTIONS = executions.outerjoin(definitions, EXECUTION_DEFINITION).outerjoin(leases, _LEASE)
EXECUTION_COLUMNS: tuple[ColumnElement[Any], ...] = (
    *executions.c,
    definitions.c.name,
    definitions.c.task,
    definitions.c.labels,
    leases.c.until_ms,
    leases.c.progress,
)


def definition(row: AnyRow, payload: bytes = b"") -> Job:
    """A row of `definitions`, or of JOB_COLUMNS."""
    return Job(
        tenant=row.tenant,
        job_id=row.job_id,
        incarnation=row.incarnation,
        version=row.version,
        pool=row.pool,
        schedule=msgspec.json.decode(row.schedule, type=Schedule),
        content=content(row, payload),
        policies=policies(row),
        created_ms=row.created_ms,
        created_by=row.created_by,
        request_key=row.request_key,
        body_hash=row.body_hash,
        first_next_ms=row.first_next_ms,
        first_next_local=row.first_next_local,
        first_due_ms=row.first_due_ms,
        first_version=row.first_version,
        definition_hash=row.definition_hash,
        updated_ms=row.updated_ms,
        updated_by=row.updated_by,
    )


def job_view(row: AnyRow, payload: bytes = b"") -> JobView:
    """A row of JOB_COLUMNS."""
    return JobView(
        job=definition(row, payload),
        cursor=_cursor(row) if row.cursor_incarnation == row.incarnation else None,
        status=JobStatus(row.status),
        next_run_ms=row.next_ms if row.will_run else 0,
        next_run_local=row.next_local if row.will_run else "",
        next_execution_id=row.next_execution_id if row.will_run else "",
    )


def _cursor(row: AnyRow) -> Cursor:
    return Cursor(
        tenant=row.tenant,
        job_id=row.job_id,
        incarnation=row.cursor_incarnation,
        status=JobStatus(row.status),
        next_ms=row.next_ms,
        next_local=row.next_local,
        last_ms=row.last_ms,
        last_local=row.last_local,
        catch_up=msgspec.json.decode(row.catch_up, type=tuple[CatchUp, ...]),
        tz_version=row.tz_version,
        finished_ms=row.finished_ms,
        paused_ms=row.paused_ms,
        paused_by=row.paused_by,
        paused_reason=row.paused_reason,
        next_due_ms=row.next_due_ms,
        runs=row.runs,
    )


def content(row: AnyRow, payload: bytes) -> Content:
    """A row of `definitions` or `contents`."""
    return Content(
        name=row.name,
        task=row.task,
        payload=payload,
        content_type=row.content_type,
        labels=msgspec.json.decode(row.labels, type=dict[str, str]),
    )


def policies(row: AnyRow) -> Policies:
    """A row of `definitions` or `contents`."""
    return msgspec.json.decode(row.policies, type=Policies)


def execution_view(row: AnyRow) -> ExecutionView:
    """A row of EXECUTION_COLUMNS."""
    return ExecutionView(
        execution=msgspec.convert(row, Execution, from_attributes=True),
        name=row.name or "",
        task=row.task or "",
        labels=msgspec.json.decode(row.labels, type=dict[str, str]) if row.labels else {},
        lease_until_ms=max(row.lease_until_ms, row.until_ms or 0),
        progress=row.progress or b"",
        virtual=False,
        discarded_by=row.discarded_by,
    )


def next_execution(view: JobView, scheduled_ms: int, finished_ms: int = 0) -> ExecutionView:
    """The occurrence of a job that was not fired: SCHEDULED, or CANCELLED at `finished_ms`."""
    job = view.job
    due_ms = view.cursor.next_due_ms if view.cursor is not None else job.first_due_ms
    execution = Execution(
        tenant=job.tenant,
        execution_id=scheduled_execution_id(job.job_id, job.incarnation, scheduled_ms),
        job_version=job.version,
        kind=ExecutionKind.SCHEDULE,
        pool=job.pool,
        priority=job.policies.priority,
        scheduled_ms=scheduled_ms,
        due_ms=max(due_ms, scheduled_ms),
        fired_ms=0,
        status=ExecutionStatus.CANCELLED if finished_ms else ExecutionStatus.SCHEDULED,
        lease_sec=job.policies.lease_sec,
        finished_ms=finished_ms,
    )
    return ExecutionView(
        execution=execution,
        name=job.content.name,
        task=job.content.task,
        labels=job.content.labels,
        lease_until_ms=0,
        progress=b"",
        virtual=True,
    )


def attempt(row: AnyRow) -> Attempt:
    """A row of `attempts`."""
    return msgspec.convert(row, Attempt, from_attributes=True)
