"""Stops one unfinished execution: pending ends at once, running ends when its worker was told."""

from __future__ import annotations

from msgspec.structs import replace

from schemas import ids
from schemas.entities import Execution, ExecutionStatus, WaitingFor
from schemas.events import CancelRequested, ExecutionCancelled
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
    tx.forget(ids.lease_key(execution.tenant, execution.execution_id))
    return tx.emit_execution(ExecutionCancelled, cancelled)
