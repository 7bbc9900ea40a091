"""A dead letter that someone dealt with otherwise is forgotten."""

from __future__ import annotations

from msgspec.structs import replace

from schemas import ids
from schemas.commands import DiscardDeadLetter
from schemas.entities import Execution, ExecutionStatus
from schemas.events import DeadLetterDiscarded
from streams.core.handlers.outcome import Done
from streams.core.lifecycle import DISCARDED
from streams.core.refusals import NOT_DEAD_LETTERED, Refusal, not_found
from streams.core.transaction import Transaction


def discard_dead_letter(tx: Transaction, command: DiscardDeadLetter) -> Done | Refusal:
    """Its payload goes at once, itself when its time is over, so that a repeat finds it discarded."""
    execution = tx.state.execution(command.tenant, command.execution_id)
    if execution is None:
        return not_found("execution")
    if execution.status is not ExecutionStatus.FAILED:
        return NOT_DEAD_LETTERED
    if is_discarded(execution):
        return Done(200, execution=execution)
    discarded = tx.emit_execution(
        DeadLetterDiscarded, replace(execution, reason=DISCARDED, finished_ms=tx.now_ms)
    )
    tx.forget(ids.content_key(command.tenant, command.execution_id))
    return Done(200, execution=discarded)


def is_discarded(execution: Execution) -> bool:
    """Whether a given-up execution was dealt with: its payload is gone, so nothing is left to replay."""
    return execution.status is ExecutionStatus.FAILED and execution.reason == DISCARDED
