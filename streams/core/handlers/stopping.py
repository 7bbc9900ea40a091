"""Stops one unfinished execution: pending ends at once, running ends when its worker was told."""

from __future__ import annotations

from msgspec.structs import replace

from schemas import ids
from schemas.entities import Execution, ExecutionStatus, Job, WaitingFor
from schemas.events import CancelRequested, ExecutionCancelled
from streams.core.limits import ENTITIES_PER_COMMAND_MAX
from streams.core.transaction import Transaction


def stop(tx: Transaction, execution: Execution) -> Execution:
    """The caller sees to what may run next (`following.follow_up`)."""
    if execution.status is ExecutionStatus.RUNNING:
        if execution.cancel_requested_ms:
            return execution
        return tx.emit_execution(CancelRequested, replace(execution, cancel_requested_ms=tx.now_ms))
    cancelled = replace(
        execution,
        status=ExecutionStatus.CANCELLED,
        waiting_for=WaitingFor.NOTHING,
        cancel_requested_ms=tx.now_ms,
        finished_ms=tx.now_ms,
    )
    tx.forget_lease(execution)
    ended = tx.emit_execution(ExecutionCancelled, cancelled)
    let_go_of_version(tx, ended, tx.state.job_of(ended))
    return ended


def let_go_of_version(tx: Transaction, ended: Execution, job: Job | None) -> None:
    """The payload of a superseded version goes with its last unfinished execution."""
    if (job is not None and job.version == ended.job_version) or tx.state.superseded(ended) is None:
        return
    unfinished = tx.state.open_executions(ended.tenant, ended.job_id, ENTITIES_PER_COMMAND_MAX)
    # If there are more than were looked at, it may still be needed.
    others = len(unfinished) == ENTITIES_PER_COMMAND_MAX
    if not others and all(other.job_version != ended.job_version for other in unfinished):
        version_id = ids.version_id(ended.job_id, ended.job_version)
        tx.forget(ids.content_key(ended.tenant, version_id))
