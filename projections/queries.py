"""Owns the questions of the read side: plain functions on a connection (`Store.reading`), tenant first.

Every statement filters on the tenant. Lists are walked newest first (`projections.paging`): jobs by creation,
executions by scheduled time, dead letters by the time they were given up, events by log position.

The next occurrence of an active job is an execution too, SCHEDULED under the id it will be fired with. No row
is kept for it: it is read from its job, and ends to be virtual when the real row is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import msgspec
from sqlalchemy import BindParameter, ColumnElement, Connection, Select, bindparam, exists, func, select

from projections import paging, rows
from projections.history import execution_events, job_events
from projections.history_tables import attempts
from projections.paging import FIRST_PAGE, PageSizeError, SortKey, StaleTokenError, Walk
from projections.stats import all_time, tenant_stats
from projections.tables import contents, definitions, executions, jobs, labels, offsets
from projections.views import (
    ExecutionDetail,
    ExecutionView,
    JobDetail,
    JobView,
    LastExecution,
    Page,
    PageRequest,
    Position,
)
from schemas.entities import (
    Content,
    ExecutionKind,
    ExecutionStatus,
    Job,
    JobStatus,
    Policies,
    ScheduleKind,
)
from schemas.ids import job_id_of, scheduled_execution_id

__all__ = [
    "DeadLetterFilter",
    "ExecutionFilter",
    "JobFilter",
    "PageSizeError",
    "StaleTokenError",
    "execution_events",
    "get_dead_letter",
    "get_definition",
    "get_execution",
    "get_job",
    "job_events",
    "list_dead_letters",
    "list_executions",
    "list_jobs",
    "positions",
    "tenant_stats",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs. Empty: any. `next_run_before_ms`: active ones whose next run is earlier."""

    statuses: tuple[JobStatus, ...] = ()
    pool: str = ""
    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    exclusion_group: str = ""
    next_run_before_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionFilter:
    """Which executions. Empty: any. The scheduled time lies in [from, to)."""

    job_id: str = ""
    statuses: tuple[ExecutionStatus, ...] = ()
    pool: str = ""
    task: str = ""
    kind: ExecutionKind | None = None
    backfill: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    scheduled_from_ms: int | None = None
    scheduled_to_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilter:
    """Which dead letters. Empty: any. They were given up in [from, to)."""

    job_id: str = ""
    pool: str = ""
    task: str = ""
    reason: str = ""
    from_ms: int | None = None
    to_ms: int | None = None


ANY_JOB = JobFilter()
ANY_EXECUTION = ExecutionFilter()
ANY_DEAD_LETTER = DeadLetterFilter()

# What is asked most is made once: making a statement of forty columns costs three times what running it does.
_TENANT: BindParameter[str] = bindparam("of_tenant")
_JOB_ID: BindParameter[str] = bindparam("of_job")
_EXECUTION_ID: BindParameter[str] = bindparam("of_execution")
_OF_JOB = (executions.c.tenant == _TENANT, executions.c.job_id == _JOB_ID)
_JOB = (
    select(*rows.JOB_COLUMNS, definitions.c.payload)
    .select_from(rows.JOBS)
    .where(jobs.c.tenant == _TENANT, jobs.c.job_id == _JOB_ID)
)
_EXECUTION = (
    select(*rows.EXECUTION_COLUMNS)
    .select_from(rows.EXECUTIONS)
    .where(
        executions.c.tenant == _TENANT,
        executions.c.execution_id == _EXECUTION_ID,
    )
)
_LAST_EXECUTION = (
    select(executions)
    .where(*_OF_JOB)
    .order_by(executions.c.scheduled_ms.desc(), executions.c.execution_id.desc())
    .limit(1)
)
_OPEN = select(executions.c.status, func.count()).where(*_OF_JOB, rows.OPEN).group_by(executions.c.status)
_ATTEMPTS = (
    select(attempts)
    .where(attempts.c.tenant == _TENANT, attempts.c.execution_id == _EXECUTION_ID)
    .order_by(attempts.c.lease_epoch)
)
_CONTENT = select(contents).where(contents.c.tenant == _TENANT, contents.c.execution_id == _EXECUTION_ID)
_DEFINITION = select(definitions).where(
    definitions.c.tenant == _TENANT,
    definitions.c.job_id == _JOB_ID,
    definitions.c.incarnation == bindparam("of_incarnation"),
    definitions.c.version == bindparam("of_version"),
)
_POSITIONS = select(offsets)


def get_job(connection: Connection, tenant: str, job_id: str) -> JobDetail | None:
    """One job with payload, its newest fired execution and how many executions are in which status."""
    row = connection.execute(_JOB, {"of_tenant": tenant, "of_job": job_id}).one_or_none()
    if row is None:
        return None
    view = rows.job_view(row, row.payload)
    return JobDetail(
        view=view,
        last_execution=_last_execution(connection, tenant, job_id),
        counts=_counts(connection, tenant, job_id, waits=bool(view.next_execution_id)),
    )


def get_definition(connection: Connection, tenant: str, job_id: str, version: int) -> Job | None:
    """One version of a job with its payload, also one that was replaced."""
    row = connection.execute(
        select(definitions).where(
            definitions.c.tenant == tenant, definitions.c.job_id == job_id, definitions.c.version == version
        )
    ).one_or_none()
    return None if row is None else rows.definition(row, row.payload)


def list_jobs(
    connection: Connection, tenant: str, filters: JobFilter = ANY_JOB, page: PageRequest = FIRST_PAGE
) -> Page[JobView]:
    """Jobs, newest first by creation and id; without payloads."""
    walk = paging.begin(connection, {"list": "jobs", "tenant": tenant, "filters": filters}, page)
    statement = _jobs(tenant, filters.labels).where(
        *_any_of(jobs.c.status, filters.statuses),
        *_equal(jobs.c.pool, filters.pool),
        *_equal(jobs.c.name, filters.name),
        *_equal(jobs.c.exclusion_group, filters.exclusion_group),
    )
    if filters.next_run_before_ms is not None:
        statement = statement.where(rows.WILL_RUN, jobs.c.next_ms < filters.next_run_before_ms)
    found = connection.execute(walk.select(statement, jobs.c.created_ms, jobs.c.job_id))
    return walk.page([(SortKey(row.created_ms, row.job_id), rows.job_view(row)) for row in found])


def get_execution(connection: Connection, tenant: str, execution_id: str) -> ExecutionDetail | None:
    """One execution with every grant and its payload; also the next occurrence of a job."""
    row = connection.execute(_EXECUTION, {"of_tenant": tenant, "of_execution": execution_id}).one_or_none()
    return _not_fired(connection, tenant, execution_id) if row is None else _detail(connection, row)


def list_executions(
    connection: Connection,
    tenant: str,
    filters: ExecutionFilter = ANY_EXECUTION,
    page: PageRequest = FIRST_PAGE,
) -> Page[ExecutionView]:
    """Executions, newest first by scheduled time and id, the next occurrences among them."""
    walk = paging.begin(connection, {"list": "executions", "tenant": tenant, "filters": filters}, page)
    found = _fired(connection, tenant, filters, walk)
    found |= _next_occurrences(connection, tenant, filters, walk, walk.lowest(found))
    return walk.page(sorted(found.items(), reverse=True, key=itemgetter(0)))


def list_dead_letters(
    connection: Connection,
    tenant: str,
    filters: DeadLetterFilter = ANY_DEAD_LETTER,
    page: PageRequest = FIRST_PAGE,
) -> Page[ExecutionView]:
    """Given-up executions that can be replayed, newest first by the time they were given up and id."""
    walk = paging.begin(connection, {"list": "dead-letters", "tenant": tenant, "filters": filters}, page)
    statement = _executions(tenant, {}).where(
        rows.DEAD_LETTER,
        *_equal(executions.c.job_id, filters.job_id),
        *_equal(executions.c.pool, filters.pool),
        *_equal(definitions.c.task, filters.task),
        *_equal(executions.c.reason, filters.reason),
        *_within(executions.c.finished_ms, filters.from_ms, filters.to_ms),
    )
    found = connection.execute(walk.select(statement, executions.c.finished_ms, executions.c.execution_id))
    return walk.page(
        [(SortKey(row.finished_ms, row.execution_id), rows.execution_view(row)) for row in found]
    )


def get_dead_letter(connection: Connection, tenant: str, execution_id: str) -> ExecutionDetail | None:
    """One dead letter with payload, error and every grant; None when it was replayed or let go."""
    row = connection.execute(
        _executions(tenant, {}).where(executions.c.execution_id == execution_id, rows.DEAD_LETTER)
    ).one_or_none()
    return None if row is None else _detail(connection, row)


def positions(connection: Connection) -> dict[int, Position]:
    """How far each partition is folded."""
    return {row.partition: Position(row.next_offset, row.at_ms) for row in connection.execute(_POSITIONS)}


def _jobs(tenant: str, wanted: Mapping[str, str]) -> Select[Any]:
    # Qualified by the job's newest definition: a label of an older one is no longer its label.
    statement = select(*rows.JOB_COLUMNS).select_from(rows.JOBS).where(jobs.c.tenant == tenant)
    return statement.where(*_labelled(jobs.c, jobs.c.version, wanted))


def _executions(tenant: str, wanted: Mapping[str, str]) -> Select[Any]:
    statement = select(*rows.EXECUTION_COLUMNS).select_from(rows.EXECUTIONS)
    statement = statement.where(executions.c.tenant == tenant)
    return statement.where(*_labelled(executions.c, executions.c.job_version, wanted))


def _fired(
    connection: Connection, tenant: str, filters: ExecutionFilter, walk: Walk
) -> dict[SortKey, ExecutionView]:
    statement = _executions(tenant, filters.labels).where(
        *_equal(executions.c.job_id, filters.job_id),
        *_equal(executions.c.pool, filters.pool),
        *_equal(definitions.c.task, filters.task),
        *_equal(executions.c.kind, filters.kind or ""),
        *([rows.BACKFILLED, executions.c.backfill == filters.backfill] if filters.backfill else []),
        *_within(executions.c.scheduled_ms, filters.scheduled_from_ms, filters.scheduled_to_ms),
    )
    # One status at a time: each has an index in the list's order, several together have none.
    parts = [
        statement.where(
            executions.c.status == status.value,
            *([rows.NOT_COMPLETED] if status is not ExecutionStatus.COMPLETED and not filters.job_id else []),
        )
        for status in filters.statuses
    ]
    return {
        SortKey(row.scheduled_ms, row.execution_id): rows.execution_view(row)
        for part in parts or [statement]
        for row in connection.execute(walk.select(part, executions.c.scheduled_ms, executions.c.execution_id))
    }


def _next_occurrences(
    connection: Connection, tenant: str, filters: ExecutionFilter, walk: Walk, down_to: SortKey | None
) -> dict[SortKey, ExecutionView]:
    if filters.statuses and ExecutionStatus.SCHEDULED not in filters.statuses:
        return {}
    if filters.backfill or filters.kind not in (None, ExecutionKind.SCHEDULE):
        return {}
    statement = _jobs(tenant, filters.labels).where(
        rows.WILL_RUN,
        *_equal(jobs.c.job_id, filters.job_id),
        *_equal(jobs.c.pool, filters.pool),
        *_equal(definitions.c.task, filters.task),
        *_within(jobs.c.next_ms, filters.scheduled_from_ms, filters.scheduled_to_ms),
    )
    found = connection.execute(walk.select(statement, jobs.c.next_ms, jobs.c.next_execution_id, down_to))
    return {
        SortKey(row.next_ms, row.next_execution_id): rows.next_execution(rows.job_view(row), row.next_ms)
        for row in found
    }


def _not_fired(connection: Connection, tenant: str, execution_id: str) -> ExecutionDetail | None:
    job_id = job_id_of(execution_id)
    detail = None if job_id is None else get_job(connection, tenant, job_id)
    if detail is None:
        return None
    view, job = detail.view, detail.view.job
    # A paused job keeps its next occurrence; one that was cancelled lost a one-off's only one, whose id may
    # have been handed out at registration.
    cursor = view.cursor
    scheduled_ms, finished_ms = cursor.next_ms if cursor else job.first_next_ms, 0
    if cursor is not None and view.status is JobStatus.CANCELLED and job.schedule.kind is ScheduleKind.ONCE:
        scheduled_ms, finished_ms = job.schedule.run_at_ms, cursor.finished_ms
    elif view.status not in (JobStatus.ACTIVE, JobStatus.PAUSED):
        return None
    if execution_id != scheduled_execution_id(job.job_id, job.incarnation, scheduled_ms):
        return None
    return ExecutionDetail(
        view=rows.next_execution(view, scheduled_ms, finished_ms),
        attempts=(),
        content=job.content,
        policies=job.policies,
    )


def _detail(connection: Connection, row: rows.AnyRow) -> ExecutionDetail:
    granted = connection.execute(_ATTEMPTS, {"of_tenant": row.tenant, "of_execution": row.execution_id})
    kept = connection.execute(
        _CONTENT, {"of_tenant": row.tenant, "of_execution": row.execution_id}
    ).one_or_none()
    fired_with = (
        kept
        or connection.execute(
            _DEFINITION,
            {
                "of_tenant": row.tenant,
                "of_job": row.job_id,
                "of_incarnation": row.incarnation,
                "of_version": row.job_version,
            },
        ).one_or_none()
    )
    return ExecutionDetail(
        view=rows.execution_view(row),
        attempts=tuple(rows.attempt(each) for each in granted),
        content=rows.content(fired_with, fired_with.payload) if fired_with else Content(name="", task=""),
        policies=rows.policies(fired_with) if fired_with else Policies(),
    )


def _last_execution(connection: Connection, tenant: str, job_id: str) -> LastExecution | None:
    row = connection.execute(_LAST_EXECUTION, {"of_tenant": tenant, "of_job": job_id}).one_or_none()
    return None if row is None else msgspec.convert(row, LastExecution, from_attributes=True)


def _counts(connection: Connection, tenant: str, job_id: str, waits: bool) -> dict[ExecutionStatus, int]:
    # Open ones are few and counted one by one; finished ones may be a million and were counted as they ended.
    found = connection.execute(_OPEN, {"of_tenant": tenant, "of_job": job_id})
    counts = {ExecutionStatus(status): count for status, count in found}
    if waits:
        counts[ExecutionStatus.SCHEDULED] = counts.get(ExecutionStatus.SCHEDULED, 0) + 1
    ended = all_time(connection, tenant, job_id)
    counts |= {
        ExecutionStatus.COMPLETED: ended["completed"],
        # A replay takes it from the dead letters; how it ends then is counted anew.
        ExecutionStatus.FAILED: ended["failed"] - ended["replayed"],
        ExecutionStatus.CANCELLED: ended["cancelled"],
        ExecutionStatus.SKIPPED: ended["skipped"],
    }
    return {status: count for status, count in counts.items() if count > 0}


def _labelled(
    owner: Any, version: ColumnElement[int], wanted: Mapping[str, str]
) -> list[ColumnElement[bool]]:
    return [
        exists().where(
            labels.c.tenant == owner.tenant,
            labels.c.key == key,
            labels.c.value == value,
            labels.c.job_id == owner.job_id,
            labels.c.incarnation == owner.incarnation,
            labels.c.version == version,
        )
        for key, value in sorted(wanted.items())
    ]


def _equal(column: ColumnElement[str], wanted: str) -> list[ColumnElement[bool]]:
    return [column == wanted] if wanted else []


def _any_of(column: ColumnElement[str], wanted: Sequence[str]) -> list[ColumnElement[bool]]:
    return [column.in_([str(word) for word in wanted])] if wanted else []


def _within(column: ColumnElement[int], from_ms: int | None, to_ms: int | None) -> list[ColumnElement[bool]]:
    bounds = [] if from_ms is None else [column >= from_ms]
    return bounds if to_ms is None else [*bounds, column < to_ms]
