"""Whoever ceases to run, or to be runnable, makes room: for the next of its exclusion group, or for another
probe of its breaker.

Whatever it was that ended a run (an outcome, an expiry, a cancel, a deadline), `Transaction.emit_execution`
notes it, and this is asked once the command or timer is decided.
"""

from __future__ import annotations

from msgspec.structs import replace

from schemas import ids
from schemas.entities import WaitingFor
from schemas.events import ExecutionReady
from streams.core import keys
from streams.core.handlers.breaking import replace_probes
from streams.core.handlers.following import make_ready
from streams.core.transaction import Transaction

HELD_BACK_MAX = 100
"""Members that a breaker turns out to hold back, and that one call sets aside."""


def vacate(tx: Transaction) -> None:
    """Sees to all places that became free since it was asked last."""
    while tx.left:
        execution = tx.left.pop()
        if execution.exclusion_group:
            _call_next(tx, execution.tenant, execution.exclusion_group)
        replace_probes(tx, execution.tenant, ids.target_of(execution))


def _call_next(tx: Transaction, tenant: str, group: str) -> None:
    """The slot of a group is free: in each pool the member that is due first is called. Who is granted first
    has the slot; the others go back to waiting when they are about to be granted."""
    indexes, group_key = tx.state.indexes, f"{tenant}/{group}"
    if indexes.holds_group(group_key, besides=""):
        return
    for pool in indexes.pools_of_group(group_key):
        for made in range(HELD_BACK_MAX + 1):
            first = indexes.first_of_group(group_key, keys.WAITS, pool)
            called = indexes.first_of_group(group_key, keys.CALLED, pool)
            execution = tx.state.execution(tenant, first[1]) if first is not None else None
            if first is None or (called is not None and called < first) or execution is None:
                break
            if made == HELD_BACK_MAX:
                # Called all the same: when it is about to be granted it is set aside, and this goes on.
                tx.want_work(
                    tx.emit_execution(ExecutionReady, replace(execution, waiting_for=WaitingFor.WORKER))
                )
                break
            make_ready(tx, execution)
