"""Whoever ceases to run, or to be runnable, makes room: for the next of its exclusion group, or for another
probe of its breaker.

Whatever it was that ended a run (an outcome, an expiry, a cancel, a deadline), `Transaction.emit_execution`
notes it, and this is asked once the command or timer is decided.
"""

from __future__ import annotations

from schemas import ids
from streams.core import keys
from streams.core.handlers.breaking import replace_probes
from streams.core.handlers.following import make_ready
from streams.core.transaction import Transaction


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
        while (first := indexes.first_of_group(group_key, keys.WAITS, pool)) is not None:
            called = indexes.first_of_group(group_key, keys.CALLED, pool)
            execution = tx.state.execution(tenant, first[1])
            if (called is not None and called < first) or execution is None:
                break
            make_ready(tx, execution)
