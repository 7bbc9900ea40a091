"""What keeps a due execution from being handed out: a circuit breaker, its exclusion group.

Asked twice: when it becomes due, so that it waits outside the queue, and again when it is about to be
granted, since much may have happened in between.
"""

from __future__ import annotations

from schemas.entities import BreakerStatus, Execution, WaitingFor
from streams.core import keys
from streams.core.limits import PROBES_MAX
from streams.core.transaction import Transaction


def place(tx: Transaction, execution: Execution) -> WaitingFor:
    """What an execution that is due waits for from now on; `pool` and `due_ms` are those it will have.

    In a group whose slot is free one a pool is called, by due time: the others need not be looked at.
    """
    waiting = gate(tx, execution)
    if waiting is WaitingFor.WORKER and execution.exclusion_group:
        group_key = f"{execution.tenant}/{execution.exclusion_group}"
        mine = (execution.due_ms, execution.execution_id)
        for standing in (keys.CALLED, keys.WAITS):
            first = tx.state.indexes.first_of_group(group_key, standing, execution.pool)
            if first is not None and first < mine:
                return WaitingFor.EXCLUSION
    return waiting


def gate(tx: Transaction, execution: Execution) -> WaitingFor:
    """What holds back an execution that a worker could have now; WORKER: nothing does."""
    if execution.attempt > 1 and _is_held_back(tx, execution):
        return WaitingFor.BREAKER
    group = execution.exclusion_group
    if group and tx.state.indexes.holds_group(f"{execution.tenant}/{group}", execution.execution_id):
        return WaitingFor.EXCLUSION
    return WaitingFor.WORKER


def _is_held_back(tx: Transaction, execution: Execution) -> bool:
    """An open breaker of a pool holds back retries; while it probes, all but a few."""
    breaker = tx.state.breaker_of(execution)
    if breaker is None or breaker.status is BreakerStatus.CLOSED:
        return False
    is_probe = execution.execution_id in breaker.probes or len(breaker.probes) < PROBES_MAX
    return breaker.status is BreakerStatus.OPEN or not is_probe
