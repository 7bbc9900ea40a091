"""What a worker may do with an execution it holds: beat, complete, fail, hand back.

Only the holder acts: the execution is RUNNING and worker and epoch are those of the last grant, judged in
log order: a word that comes late, but before the expiry was decided, still counts. Otherwise the answer says
how this lease ended (semantics §4).
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from schemas.commands import Beat, Completion, Failure, Handback, LeaseRef
from schemas.entities import Execution, ExecutionStatus, Lease, LeaseEnd, WaitingFor
from schemas.events import (
    ExecutionCancelled,
    ExecutionCompleted,
    ExecutionReleased,
    LeaseExtended,
)
from schemas.ids import EXECUTION_ID_CHARS_MAX, is_shared
from schemas.replies import ItemResult
from streams.core.handlers.breaking import note_beat, note_outcome
from streams.core.handlers.ending import end, fail_attempt
from streams.core.handlers.gating import place
from streams.core.limits import ERROR_CHARS_MAX
from streams.core.refusals import (
    ALREADY_FINISHED,
    CANCELLED,
    LEASE_LOST,
    OTHER_POOL,
    TIMED_OUT,
    Refusal,
    invalid,
    not_found,
)
from streams.core.transaction import Transaction
from streams.core.validation import check_item

_ENDED = {
    LeaseEnd.COMPLETED: ALREADY_FINISHED,
    LeaseEnd.FAILED: ALREADY_FINISHED,
    LeaseEnd.CANCELLED: CANCELLED,
    LeaseEnd.TIMEOUT: TIMED_OUT,
}
_DONE = ItemResult(status=200)
_ACCEPTED = {
    Completion: LeaseEnd.COMPLETED,
    Failure: LeaseEnd.FAILED,
    Handback: LeaseEnd.RELEASED,
}


def report(tx: Transaction, tenant: str, item: LeaseRef, pools: Collection[str] = ()) -> ItemResult:
    """Decides one item of a work command. `pools`: those that may be reported for; empty: the tenant's own.

    What a shared pool runs only its workers report: a tenant could free places there that are not free.
    """
    result = _report(tx, tenant, item, pools)
    if isinstance(result, Refusal):
        return ItemResult(status=result.status, code=result.code, detail=result.detail)
    return result


def _report(tx: Transaction, tenant: str, item: LeaseRef, pools: Collection[str]) -> ItemResult | Refusal:
    # What is looked for in vain is remembered: a thousand texts as long as a request would fill the memory.
    is_long = len(item.execution_id) > EXECUTION_ID_CHARS_MAX
    execution = None if is_long else tx.state.execution(tenant, item.execution_id)
    problems = check_item(item, known=execution is not None)
    if problems:
        return invalid(*problems)
    if execution is None:
        return not_found("execution")
    if not (execution.pool in pools if pools else not is_shared(execution.pool)):
        return OTHER_POOL
    if execution.worker_id != item.worker_id or execution.lease_epoch != item.lease_epoch:
        return LEASE_LOST
    if execution.status is not ExecutionStatus.RUNNING:
        if execution.lease_end is _ACCEPTED.get(type(item)):
            return _DONE
        return _ENDED.get(execution.lease_end, LEASE_LOST)
    if execution.cancel_requested_ms:
        return _told(tx, execution, item)
    return _accept(tx, execution, item)


def _told(tx: Transaction, execution: Execution, item: LeaseRef) -> Refusal:
    """The worker's next call after a cancel: it learns of it, and the execution ends."""
    reported = {Completion: "COMPLETED", Failure: "FAILED"}.get(type(item), "")
    end(
        tx,
        ExecutionCancelled,
        execution,
        status=ExecutionStatus.CANCELLED,
        lease_end=LeaseEnd.CANCELLED,
        reported=reported,
        result=item.result if isinstance(item, Completion) else b"",
        error=item.error[:ERROR_CHARS_MAX] if isinstance(item, Failure) else execution.error,
    )
    return CANCELLED


def _accept(tx: Transaction, execution: Execution, item: LeaseRef) -> ItemResult:
    match item:
        case Beat():
            return ItemResult(status=200, extend_until_ms=_extend(tx, execution, item))
        case Completion():
            end(
                tx,
                ExecutionCompleted,
                execution,
                status=ExecutionStatus.COMPLETED,
                lease_end=LeaseEnd.COMPLETED,
                result=item.result,
                error="",  # of an earlier attempt; the read model keeps those
            )
            note_outcome(tx, execution, failed=False)
        case Failure():
            after_ms = None if item.retry_after_sec < 0 else item.retry_after_sec * 1000
            fail_attempt(
                tx,
                execution,
                item.error,
                LeaseEnd.FAILED,
                retryable=item.retryable,
                retry_after_ms=after_ms,
            )
        case Handback():
            _hand_back(tx, execution, item)
    return _DONE


def _extend(tx: Transaction, execution: Execution, beat: Beat) -> int:
    """The lease ends a lease's length from now, never past the attempt's deadline."""
    old = tx.state.lease(execution)
    lease = Lease(
        tenant=execution.tenant,
        execution_id=execution.execution_id,
        lease_epoch=execution.lease_epoch,
        until_ms=min(tx.now_ms + execution.lease_sec * 1000, execution.deadline_ms),
        progress=old.progress if beat.progress is None and old is not None else beat.progress or b"",
    )
    tx.emit(LeaseExtended, lease=lease)
    note_beat(tx, execution)
    return lease.until_ms


def _hand_back(tx: Transaction, execution: Execution, item: Handback) -> None:
    """Neither attempt nor delivery is spent."""
    later = item.delay_sec > 0
    released = replace(
        execution,
        status=ExecutionStatus.SCHEDULED if later else ExecutionStatus.PENDING,
        waiting_for=WaitingFor.NOTHING if later else place(tx, execution),
        due_ms=tx.now_ms + item.delay_sec * 1000 if later else execution.due_ms,
        delivery_count=execution.delivery_count - 1,
        lease_end=LeaseEnd.RELEASED,
    )
    tx.want_work(tx.emit_execution(ExecutionReleased, released))
