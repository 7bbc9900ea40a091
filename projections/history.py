"""Owns what happened, event by event: one row each, and what each changed.

A row holds the event as it was logged (without payload: an event of a definition may carry 256 KiB). Since an
event carries the whole entity, what changed is the difference to the row before; it is worked out when asked.
An end of an execution that completed its job has a second row, where the job's cursor would have one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec.structs import replace
from sqlalchemy import Connection, Select, select

from projections import paging
from projections.history_tables import history
from projections.paging import FIRST_PAGE, SortKey
from projections.rows import AnyRow
from projections.store import Row, Writer
from projections.views import EventView, Page, PageRequest
from schemas import codec
from schemas.entities import Cursor, Entity, Execution, Job, JobStatus, KeptContent, Lease, Tenant
from schemas.events import (
    ContentKept,
    EngineEvent,
    Event,
    ExecutionEvent,
    JobCompleted,
    JobEvent,
    entity_of,
)

JOB = "job"
EXECUTION = "execution"
TENANT = "tenant"


class HistoryRows:
    """Events of one batch."""

    def __init__(self) -> None:
        self._rows: list[Row] = []

    def fold(self, event: Event, partition: int, offset: int, value: bytes) -> None:
        """Keeps an event of a job, an execution or a tenant's settings; others have no history."""
        entity = entity_of(cast(EngineEvent, event))
        match entity:
            case Execution() | Lease() | KeptContent():
                scope, subject = EXECUTION, entity.execution_id
            case Job() | Cursor():
                scope, subject = JOB, entity.job_id
            case Tenant():
                scope, subject = TENANT, entity.tenant
            case _:
                return
        row = {
            "tenant": entity.tenant,
            "scope": scope,
            "subject": subject,
            "log_offset": offset,
            "partition": partition,
            "entity": type(entity).__name__,
            "at_ms": event.at_ms,
            "value": _without_payload(event, value),
        }
        self._rows.append(row)
        if isinstance(entity, Execution) and entity.closes_job:
            of_job = {"scope": JOB, "subject": entity.job_id, "entity": Cursor.__name__}
            self._rows.append(row | of_job)

    def write(self, writer: Writer) -> None:
        """Appends the batch's events."""
        writer.insert(history, self._rows)


def execution_events(
    connection: Connection, tenant: str, execution_id: str, page: PageRequest = FIRST_PAGE
) -> Page[EventView]:
    """What happened to an execution, its lease and its payload, newest first by log position."""
    return _events(connection, tenant, EXECUTION, execution_id, page)


def job_events(
    connection: Connection, tenant: str, job_id: str, page: PageRequest = FIRST_PAGE
) -> Page[EventView]:
    """What happened to a job's definition and cursor (not to its executions), newest first."""
    return _events(connection, tenant, JOB, job_id, page)


def _events(
    connection: Connection, tenant: str, scope: str, subject: str, page: PageRequest
) -> Page[EventView]:
    question = {"list": "events", "tenant": tenant, "scope": scope, "subject": subject}
    walk = paging.begin(connection, question, page)
    mine = select(history).where(
        history.c.tenant == tenant, history.c.scope == scope, history.c.subject == subject
    )
    found = list(connection.execute(walk.select(mine, history.c.log_offset)))
    shown: list[tuple[SortKey, EventView]] = []
    # From the oldest to the newest, each against the state its entity had before.
    before = _before(connection, mine, found)
    for row in reversed(found):
        event = _told(connection, mine, row)
        after = entity_of(event)
        changes = _changes(before.get(row.entity), after)
        before[row.entity] = after
        shown.append((SortKey(row.log_offset), _view(row, event, changes)))
    return walk.page(shown[::-1])


def _before(connection: Connection, mine: Select[Any], found: Sequence[AnyRow]) -> dict[str, Entity]:
    oldest = {row.entity: row.log_offset for row in found}
    states = {}
    for entity, offset in oldest.items():
        row = connection.execute(
            mine.where(history.c.entity == entity, history.c.log_offset < offset)
            .order_by(history.c.log_offset.desc())
            .limit(1)
        ).one_or_none()
        if row is not None:
            states[entity] = entity_of(_told(connection, mine, row))
    return states


def _told(connection: Connection, mine: Select[Any], row: AnyRow) -> EngineEvent:
    """What a row says of its subject. Of an execution that completed its job the job's history has what an
    event of the job would say; what only the definition knows is left out once that is no longer kept."""
    event = cast(EngineEvent, codec.decode(row.value))
    if row.scope != JOB or not isinstance(event, ExecutionEvent):
        return event
    definition = connection.execute(
        mine.where(history.c.entity == Job.__name__, history.c.log_offset < row.log_offset)
        .order_by(history.c.log_offset.desc())
        .limit(1)
    ).one_or_none()
    registered = codec.decode(definition.value) if definition is not None else None
    job = registered.job if isinstance(registered, JobEvent) else None
    execution = event.execution
    cursor = Cursor(
        tenant=execution.tenant,
        job_id=execution.job_id,
        incarnation=int(execution.execution_id.rsplit(".", 3)[1], 36),
        status=JobStatus.COMPLETED,
        last_ms=execution.scheduled_ms,
        last_local=job.first_next_local if job is not None else "",
        tz_version=job.tz_version if job is not None else "",
        finished_ms=execution.finished_ms,
        runs=1,
        priority=execution.priority,
    )
    return JobCompleted(at_ms=event.at_ms, actor=event.actor, cause=event.cause, cursor=cursor)


def _view(row: AnyRow, event: EngineEvent, changes: Mapping[str, tuple[object, object]]) -> EventView:
    return EventView(
        partition=row.partition,
        offset=row.log_offset,
        at_ms=row.at_ms,
        actor=event.actor,
        cause=event.cause,
        type=type(event).__name__,
        entity=row.entity,
        changes=changes,
    )


def _changes(before: Entity | None, after: Entity) -> dict[str, tuple[object, object]]:
    new = msgspec.to_builtins(after)
    if before is not None:
        old = msgspec.to_builtins(before)
        return {name: (old[name], value) for name, value in new.items() if old[name] != value}
    return {
        field.encode_name: (None, new[field.encode_name])
        for field in msgspec.structs.fields(after)
        if getattr(after, field.name) != _default(field)
    }


def _default(field: msgspec.structs.FieldInfo) -> object:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _without_payload(event: Event, value: bytes) -> bytes:
    if isinstance(event, JobEvent) and event.job.content.payload:
        bare = replace(event.job.content, payload=b"")
        return codec.encode(replace(event, job=replace(event.job, content=bare)))
    if isinstance(event, ContentKept) and event.kept.content.payload:
        bare = replace(event.kept.content, payload=b"")
        return codec.encode(replace(event, kept=replace(event.kept, content=bare)))
    return value
