"""Whose turn it is in a pool, as far as state does not say. Soft: forgotten at a restart, undone by an abort.

In a shared pool the next tenant is the one with the least running / weight. Where that is a tie (short runs
on few slots are all 0), a tenant's virtual time decides: each grant moves it by 1 / weight, and who was away
begins where the others are, so that grants go by weight and nobody saves them up (start-time fair queueing).
"""

from __future__ import annotations

from collections.abc import Callable

TENANTS_REMEMBERED_MAX = 10_000
"""Of one pool; those that are not ahead of the others are forgotten first, which changes nothing."""


class Fairness:
    """Turns of one partition, by pool."""

    def __init__(self) -> None:
        self._steps: dict[str, int] = {}
        self._clocks: dict[str, float] = {}
        self._ends: dict[str, dict[str, float]] = {}
        self._undo: list[tuple[str, str, float | None, float]] = []
        self._undo_steps: dict[str, int] = {}
        self._seen: dict[tuple[str, str], str] = {}

    def seen_to(self, pool_key: str, priority: str) -> str:
        """The tenant at which the last pass stopped looking, if there were more than one pass may see."""
        return self._seen.get((pool_key, priority), "")

    def saw(self, pool_key: str, priority: str, tenant: str) -> None:
        """The next pass goes on behind this tenant."""
        self._seen[pool_key, priority] = tenant

    def step(self, pool_key: str, begin: Callable[[], int] | None = None) -> int:
        """Counts the grants of a pool: where it is in the round of priorities.

        `begin`: where that is at first; None: 0. A partition's newest fencing token is as good as any: if
        each owner began at 0, and had time for a few grants only, what is low would never have its turn.
        """
        step = self._steps.get(pool_key)
        if step is None:
            step = begin() if begin is not None else 0
        self._undo_steps.setdefault(pool_key, step)
        self._steps[pool_key] = step + 1
        return step

    def start(self, pool_key: str, tenant: str) -> float:
        """A tenant's virtual time: least is next."""
        clock = self._clocks.get(pool_key, 0.0)
        return max(clock, self._ends.get(pool_key, {}).get(tenant, 0.0))

    def granted(self, pool_key: str, tenant: str, weight: float) -> None:
        """The tenant's turn is used. `weight` over n: n turns at once."""
        start = self.start(pool_key, tenant)
        ends = self._ends.setdefault(pool_key, {})
        self._undo.append((pool_key, tenant, ends.get(tenant), self._clocks.get(pool_key, 0.0)))
        ends[tenant] = start + 1 / weight
        self._clocks[pool_key] = start

    def settled(self) -> None:
        """The grants of the transaction are committed."""
        for pool_key in {undo[0] for undo in self._undo}:
            ends = self._ends[pool_key]
            if len(ends) > TENANTS_REMEMBERED_MAX:
                clock = self._clocks[pool_key]
                self._ends[pool_key] = {tenant: end for tenant, end in ends.items() if end > clock}
        self._undo.clear()
        self._undo_steps.clear()

    def undo(self) -> None:
        """The transaction was aborted: its grants never were."""
        for pool_key, tenant, end, clock in reversed(self._undo):
            self._clocks[pool_key] = clock
            if end is None:
                del self._ends[pool_key][tenant]
            else:
                self._ends[pool_key][tenant] = end
        self._steps.update(self._undo_steps)
        self._undo.clear()
        self._undo_steps.clear()

    def forget(self, pool_key: str) -> None:
        """Nobody asks for the pool any more."""
        self._steps.pop(pool_key, None)
        self._clocks.pop(pool_key, None)
        self._ends.pop(pool_key, None)
        for place in [place for place in self._seen if place[0] == pool_key]:
            del self._seen[place]
