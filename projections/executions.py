"""Owns executions: how their events become rows of executions, grants, leases and payloads.

An execution's newest event is all its row needs. Grants are history: one row each, made by the claim and
closed by the first event that says how it ended, since later events of the execution repeat that ending.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, bindparam, case, delete, literal_column, update

from projections.history_tables import attempts
from projections.jobs import json_text
from projections.store import Row, Upsert, Writer
from projections.tables import contents, executions, leases
from schemas.entities import Execution, ExecutionStatus, KeptContent, Lease, LeaseEnd
from schemas.events import DeadLetterDiscarded, ExecutionEvent

Key = tuple[str, str]
"""Tenant and execution id."""

# How a lease can end that spends the attempt: the execution then carries the number of the next one.
_SPENT = (LeaseEnd.FAILED, LeaseEnd.TIMEOUT)
_ENDING = ("ended_ms", "lease_end", "error", "reported")


def _first_ending(old: Any, new: Any) -> dict[str, ColumnElement[Any]]:
    is_open = old.ended_ms == literal_column("0")
    return {name: case((is_open, new[name]), else_=old[name]) for name in _ENDING}


BORN_WITH = {"job_id", "incarnation", "kind", "scheduled_ms", "fired_ms", "backfill"}
"""What an execution is from its first event to its last. Left alone by updates, since a database that sets a
column anew files the row anew in every index that has it."""


def _what_changes(_old: Any, new: Any) -> dict[str, ColumnElement[Any]]:
    fixed = {"tenant", "execution_id", *BORN_WITH}
    return {column.name: new[column.name] for column in executions.c if column.name not in fixed}


KEEP_EXECUTION = Upsert(executions, changes=_what_changes)
KEEP_LEASE = Upsert(leases)
KEEP_CONTENT = Upsert(contents)
KEEP_GRANT = Upsert(attempts, changes=_first_ending)
# Only a dead letter cares: without the engine's record it cannot be replayed.
FORGET = (
    update(executions)
    .where(
        executions.c.tenant == bindparam("of_tenant"),
        executions.c.execution_id == bindparam("of_execution"),
        executions.c.status == bindparam("dead"),
    )
    .values(forgotten_ms=bindparam("at_ms"))
)
DROP_CONTENT = delete(contents).where(
    contents.c.tenant == bindparam("of_tenant"), contents.c.execution_id == bindparam("of_execution")
)


class ExecutionRows:
    """Executions of one batch: the newest entity of each, and every grant."""

    def __init__(self) -> None:
        self._newest: dict[Key, Execution] = {}
        self._grants: dict[tuple[str, str, int], dict[str, object]] = {}
        self._leases: dict[Key, Lease] = {}
        self._contents: dict[Key, KeptContent] = {}
        self._forgotten: dict[Key, int] = {}
        self._discarded: dict[Key, str] = {}

    def fold_execution(self, event: ExecutionEvent) -> None:
        """An execution as it is now, and what that says about its newest grant."""
        execution = event.execution
        self._newest[execution.tenant, execution.execution_id] = execution
        if isinstance(event, DeadLetterDiscarded):
            self._discarded[execution.tenant, execution.execution_id] = event.actor
        runs = execution.status is ExecutionStatus.RUNNING
        # While it runs, how an earlier lease ended may still stand in it.
        if not runs and execution.lease_end is LeaseEnd.NONE:
            return
        key = (execution.tenant, execution.execution_id, execution.lease_epoch)
        row = self._grants.get(key)
        if row is None:
            row = self._grants[key] = _grant_row(execution)
        if not runs and not row["ended_ms"]:
            row |= _ending(event)

    def fold_lease(self, lease: Lease) -> None:
        """A heartbeat."""
        self._leases[lease.tenant, lease.execution_id] = lease

    def fold_content(self, kept: KeptContent) -> None:
        """A payload of its own."""
        self._contents[kept.tenant, kept.execution_id] = kept

    def forget(self, tenant: str, execution_id: str, at_ms: int) -> None:
        """The engine let go of it: its row stays, but as a dead letter it is gone."""
        self._forgotten[tenant, execution_id] = at_ms

    def write(self, writer: Writer) -> None:
        """All rows of the batch."""
        writer.upsert(
            KEEP_EXECUTION,
            [_execution_row(each, self._discarded.get(key, "")) for key, each in self._newest.items()],
        )
        writer.upsert(KEEP_GRANT, list(self._grants.values()))
        writer.upsert(KEEP_LEASE, [_lease_row(lease) for lease in self._leases.values()])
        writer.upsert(KEEP_CONTENT, [_content_row(kept) for kept in self._contents.values()])
        # As the engine does: what was discarded need not be kept to be delivered.
        writer.each(
            DROP_CONTENT,
            [{"of_tenant": tenant, "of_execution": execution_id} for tenant, execution_id in self._discarded],
        )
        writer.each(
            FORGET,
            [
                {"of_tenant": tenant, "of_execution": execution_id, "dead": "FAILED", "at_ms": at_ms}
                for (tenant, execution_id), at_ms in self._forgotten.items()
            ],
        )


def _execution_row(execution: Execution, discarded_by: str) -> Row:
    job_id, incarnation, _, _ = execution.execution_id.rsplit(".", 3)
    return {
        "tenant": execution.tenant,
        "execution_id": execution.execution_id,
        "job_id": job_id,
        "incarnation": int(incarnation, 36),
        "job_version": execution.job_version,
        "kind": execution.kind.value,
        "pool": execution.pool,
        "priority": execution.priority.value,
        "scheduled_ms": execution.scheduled_ms,
        "due_ms": execution.due_ms,
        "fired_ms": execution.fired_ms,
        "status": execution.status.value,
        "waiting_for": execution.waiting_for.value,
        "attempt": execution.attempt,
        "delivery_count": execution.delivery_count,
        "lease_epoch": execution.lease_epoch,
        "fencing_token": execution.fencing_token,
        "worker_id": execution.worker_id,
        "claim_id": execution.claim_id,
        "first_started_ms": execution.first_started_ms,
        "started_ms": execution.started_ms,
        "lease_until_ms": execution.lease_until_ms,
        "lease_sec": execution.lease_sec,
        "deadline_ms": execution.deadline_ms,
        "lease_end": execution.lease_end.value,
        "cancel_requested_ms": execution.cancel_requested_ms,
        "finished_ms": execution.finished_ms,
        "error": execution.error,
        "reason": execution.reason,
        "reported": execution.reported,
        "result": execution.result,
        "idempotency_key": execution.idempotency_key,
        "replays": execution.replays,
        "replay_key": execution.replay_key,
        "start_deadline_ms": execution.start_deadline_ms,
        "backfill": execution.backfill,
        "exclusion_group": execution.exclusion_group,
        "lateness_alert_sec": execution.lateness_alert_sec,
        "closes_job": execution.closes_job,
        "forgotten_ms": 0,
        "discarded_by": discarded_by,
    }


def _ending(event: ExecutionEvent) -> dict[str, object]:
    execution = event.execution
    # Otherwise the error is one of an earlier attempt.
    failed = execution.lease_end in _SPENT or execution.reported
    return {
        "ended_ms": event.at_ms,
        "lease_end": execution.lease_end.value,
        "error": execution.error if failed else "",
        "reported": execution.reported,
    }


def _grant_row(execution: Execution) -> dict[str, object]:
    """The grant while it is open. Its row has the attempt from the claim; only in a compacted log, and after
    a purge, is the attempt taken from a later event."""
    attempt = execution.attempt
    waits = execution.status in (ExecutionStatus.SCHEDULED, ExecutionStatus.PENDING)
    if waits and execution.lease_end in _SPENT:
        attempt = max(attempt - 1, 1)
    return {
        "tenant": execution.tenant,
        "execution_id": execution.execution_id,
        "lease_epoch": execution.lease_epoch,
        "attempt": attempt,
        "delivery_count": execution.delivery_count,
        "fencing_token": execution.fencing_token,
        "worker_id": execution.worker_id,
        "claimed_ms": execution.started_ms,
        "ended_ms": 0,
        "lease_end": LeaseEnd.NONE.value,
        "error": "",
        "reported": "",
    }


def _lease_row(lease: Lease) -> Row:
    return {
        "tenant": lease.tenant,
        "execution_id": lease.execution_id,
        "lease_epoch": lease.lease_epoch,
        "until_ms": lease.until_ms,
        "progress": lease.progress,
    }


def _content_row(kept: KeptContent) -> Row:
    return {
        "tenant": kept.tenant,
        "execution_id": kept.execution_id,
        "name": kept.content.name,
        "task": kept.content.task,
        "payload": kept.content.payload,
        "content_type": kept.content.content_type,
        "labels": json_text(kept.content.labels),
        "policies": json_text(kept.policies),
    }
