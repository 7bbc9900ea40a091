"""Owns jobs: how definitions and cursors become rows.

A job's definition and its cursor have keys of their own, so in a compacted log either may come first. The
rows are therefore the same in any order: a cursor counts only for the incarnation it names.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, bindparam, case, literal_column, select, update

from projections.history_tables import skips, tz_shifts
from projections.store import Row, Upsert, Writer
from projections.tables import definitions, jobs, labels
from schemas.entities import Cursor, Execution, Job, JobStatus, Policies
from schemas.events import CursorEvent, JobEvent, ScheduleShifted
from schemas.ids import scheduled_execution_id

# What a cursor says of its job; the first three also stand in a definition, as what the job begins with.
_OF_CURSOR = (
    "cursor_incarnation",
    "status",
    "next_ms",
    "next_local",
    "next_execution_id",
    "last_ms",
    "last_local",
    "catch_up",
    "tz_version",
    "finished_ms",
    "paused_ms",
    "paused_by",
    "paused_reason",
    "next_due_ms",
    "runs",
)
_OF_JOB = ("incarnation", "version", "name", "pool", "created_ms", "exclusion_group")


def _defined(old: Any, new: Any) -> dict[str, ColumnElement[Any]]:
    stands = old.cursor_incarnation == new.incarnation
    return {name: new[name] for name in _OF_JOB} | {
        name: case((stands, old[name]), else_=new[name]) for name in _OF_CURSOR
    }


def _moved(old: Any, new: Any) -> dict[str, ColumnElement[Any]]:
    return {name: new[name] for name in _OF_CURSOR}


def _not_of_an_older_one(old: Any, new: Any) -> ColumnElement[bool]:
    is_newer: ColumnElement[bool] = new.incarnation >= old.incarnation
    return is_newer


DEFINE = Upsert(jobs, changes=_defined)
MOVE = Upsert(jobs, changes=_moved, when=_not_of_an_older_one)
# A one-off that stood at its beginning is behind it, and over: what its own cursor would say.
CLOSE = (
    update(jobs)
    .where(
        jobs.c.tenant == bindparam("of_tenant"),
        jobs.c.job_id == bindparam("of_job"),
        jobs.c.incarnation == bindparam("of_incarnation"),
    )
    .values(
        cursor_incarnation=jobs.c.incarnation,
        status=bindparam("completed"),
        last_ms=jobs.c.next_ms,
        last_local=jobs.c.next_local,
        next_ms=literal_column("0"),
        next_local=literal_column("''"),
        next_execution_id=literal_column("''"),
        next_due_ms=literal_column("0"),
        finished_ms=bindparam("at_ms"),
        runs=literal_column("1"),
    )
)
KEEP_DEFINITION = Upsert(definitions)
KEEP_LABEL = Upsert(labels)


class JobRows:
    """Jobs of one batch: the newest definition and cursor of each, every skip and every shift."""

    def __init__(self) -> None:
        self._definitions: dict[tuple[str, str, int, int], Job] = {}
        self._newest: dict[tuple[str, str], Job] = {}
        self._cursors: dict[tuple[str, str], Cursor] = {}
        self._closings: list[Row] = []
        self._skips: list[Row] = []
        self._shifts: list[dict[str, object]] = []

    def fold_job(self, event: JobEvent) -> None:
        """A definition, new or changed."""
        job = event.job
        self._definitions[job.tenant, job.job_id, job.incarnation, job.version] = job
        self._newest[job.tenant, job.job_id] = job

    def fold_cursor(self, event: CursorEvent, offset: int) -> None:
        """Where a job stands, and what it skipped on the way."""
        cursor = event.cursor
        if isinstance(event, ScheduleShifted):
            self._fold_shift(event, offset)
        self._cursors[cursor.tenant, cursor.job_id] = cursor
        for number, skip in enumerate(cursor.skips):
            self._skips.append(
                {
                    "tenant": cursor.tenant,
                    "job_id": cursor.job_id,
                    "log_offset": offset,
                    "number": number,
                    "incarnation": cursor.incarnation,
                    "at_ms": event.at_ms,
                    "from_ms": skip.from_ms,
                    "to_ms": skip.to_ms,
                    "count": skip.count,
                    "reason": skip.reason.value,
                }
            )

    def fold_closing(self, execution: Execution) -> None:
        """An execution whose end completed its job."""
        job_id, incarnation, _, _ = execution.execution_id.rsplit(".", 3)
        self._closings.append(
            {
                "of_tenant": execution.tenant,
                "of_job": job_id,
                "of_incarnation": int(incarnation, 36),
                "completed": JobStatus.COMPLETED.value,
                "at_ms": execution.finished_ms,
            }
        )

    def _fold_shift(self, event: ScheduleShifted, offset: int) -> None:
        cursor = event.cursor
        key = (cursor.tenant, cursor.job_id)
        before: int | None = None
        if key in self._cursors:
            before = self._cursors[key].next_ms
        elif key in self._newest:
            before = self._newest[key].first_next_ms
        self._shifts.append(
            {
                "tenant": cursor.tenant,
                "job_id": cursor.job_id,
                "log_offset": offset,
                "tz_version": cursor.tz_version,
                "at_ms": event.at_ms,
                "before_ms": before,
                "after_ms": cursor.next_ms,
            }
        )

    def write(self, writer: Writer) -> None:
        """Definitions before cursors: a batch that makes a job anew ends with the new one's cursor."""
        # Before the rows move on: what they say is what a shift moved.
        for shift in self._shifts:
            if shift["before_ms"] is None:
                shift["before_ms"] = _next_of(writer, shift)
        writer.insert(tz_shifts, self._shifts)
        writer.upsert(KEEP_DEFINITION, [_definition_row(job) for job in self._definitions.values()])
        writer.upsert(KEEP_LABEL, [row for job in self._definitions.values() for row in _label_rows(job)])
        writer.upsert(DEFINE, [_job_row(job) for job in self._newest.values()])
        writer.each(CLOSE, self._closings)
        writer.upsert(MOVE, [_cursor_row(cursor) for cursor in self._cursors.values()])
        writer.insert(skips, self._skips)


def _definition_row(job: Job) -> Row:
    return {
        "tenant": job.tenant,
        "job_id": job.job_id,
        "incarnation": job.incarnation,
        "version": job.version,
        "pool": job.pool,
        "name": job.content.name,
        "task": job.content.task,
        "content_type": job.content.content_type,
        "labels": json_text(job.content.labels),
        "schedule": json_text(job.schedule),
        "policies": _policies_text(job.policies),
        "created_ms": job.created_ms,
        "created_by": job.created_by,
        "request_key": job.request_key,
        "body_hash": job.body_hash,
        "first_next_ms": job.first_next_ms,
        "first_next_local": job.first_next_local,
        "first_due_ms": job.first_due_ms,
        "first_version": job.first_version,
        "definition_hash": job.definition_hash,
        "updated_ms": job.updated_ms,
        "updated_by": job.updated_by,
        "payload": job.content.payload,
    }


def _next_of(writer: Writer, shift: Row) -> int:
    mine = (jobs.c.tenant == shift["tenant"], jobs.c.job_id == shift["job_id"])
    found = writer.connection.execute(select(jobs.c.next_ms).where(*mine)).scalar_one_or_none()
    return int(found or 0)


def _label_rows(job: Job) -> list[Row]:
    return [
        {
            "tenant": job.tenant,
            "key": key,
            "value": value,
            "job_id": job.job_id,
            "incarnation": job.incarnation,
            "version": job.version,
        }
        for key, value in job.content.labels.items()
    ]


def _job_row(job: Job) -> Row:
    """The job at its beginning."""
    return _NOT_BEGUN | {
        "tenant": job.tenant,
        "job_id": job.job_id,
        "incarnation": job.incarnation,
        "next_ms": job.first_next_ms,
        "next_local": job.first_next_local,
        "next_execution_id": _next_id(job.job_id, job.incarnation, job.first_next_ms),
        "next_due_ms": job.first_due_ms,
        "tz_version": job.tz_version,
        "version": job.version,
        "name": job.content.name,
        "pool": job.pool,
        "created_ms": job.created_ms,
        "exclusion_group": job.policies.exclusion_group,
    }


def _cursor_row(cursor: Cursor) -> Row:
    """The cursor; where its job was not seen yet, a row that no query shows (`version` 0)."""
    nothing = {"version": 0, "name": "", "pool": "", "created_ms": 0, "exclusion_group": ""}
    return _cursor_columns(cursor) | nothing


def _cursor_columns(cursor: Cursor) -> dict[str, object]:
    return {
        "tenant": cursor.tenant,
        "job_id": cursor.job_id,
        "incarnation": cursor.incarnation,
        "cursor_incarnation": cursor.incarnation,
        "status": cursor.status.value,
        "next_ms": cursor.next_ms,
        "next_local": cursor.next_local,
        "next_execution_id": _next_id(cursor.job_id, cursor.incarnation, cursor.next_ms),
        "last_ms": cursor.last_ms,
        "last_local": cursor.last_local,
        "catch_up": json_text(cursor.catch_up),
        "tz_version": cursor.tz_version,
        "finished_ms": cursor.finished_ms,
        "paused_ms": cursor.paused_ms,
        "paused_by": cursor.paused_by,
        "paused_reason": cursor.paused_reason,
        "next_due_ms": cursor.next_due_ms,
        "runs": cursor.runs,
    }


def _next_id(job_id: str, incarnation: int, next_ms: int) -> str:
    return scheduled_execution_id(job_id, incarnation, next_ms) if next_ms else ""


def json_text(value: object) -> str:
    """JSON as the columns keep it: attributes in camelCase, as in the API."""
    return msgspec.json.encode(value).decode()


@lru_cache(maxsize=1_024)  # most jobs of a tenant have the same
def _policies_text(policies: Policies) -> str:
    return json_text(policies)


_NOT_BEGUN = _cursor_columns(Cursor(tenant="", job_id="", incarnation=0, status=JobStatus.ACTIVE))
"""What the row of a job without a cursor says of one; `cursor_incarnation` 0 among it."""
