"""Breaks of fairness: who is granted next."""

from __future__ import annotations

from collections import deque
from typing import Any

from streams.core import keys, priorities
from streams.core.fairness import Fairness
from streams.core.handlers.ordering import PoolOrder
from tests.simulation.mutants.mutation import Mutation, change


def _weights_ignored() -> None:
    def make(original: Any) -> Any:
        def key(self: PoolOrder, line: Any) -> tuple[float, float, str]:
            _, start, name = original(self, line)
            return (line.tenant.running, start, name)

        return key

    change(PoolOrder, "_key", make)


def _due_time_alone() -> None:
    def make(original: Any) -> Any:
        def key(self: PoolOrder, line: Any) -> tuple[float, float, str]:
            indexes, name = self._tx.state.indexes, line.tenant.name
            first = indexes.runnable(self._pool_key, line.priority, name, 1)
            prefix = keys.queue_prefix(self._pool_key, line.priority, name)
            return (keys.due_and_id(first[0][0], prefix)[0] if first else 0, 0.0, name)

        return key

    change(PoolOrder, "_key", make)


def _equals_by_name() -> None:
    change(Fairness, "start", lambda original: lambda self, pool_key, tenant: 0.0)


def _newest_first() -> None:
    def make(original: Any) -> Any:
        def read(self: PoolOrder, line: Any) -> bool:
            found: bool = original(self, line)
            line.head = deque(reversed(line.head))
            return found

        return read

    change(PoolOrder, "_read", make)


def _low_starves() -> None:
    change(priorities, "by_turn", lambda original: lambda step: keys.PRIORITIES)


def _priorities_alike() -> None:
    def make(original: Any) -> Any:
        return lambda step: (*keys.PRIORITIES[step % 3 :], *keys.PRIORITIES[: step % 3])

    change(priorities, "by_turn", make)


OF_TURNS = (
    Mutation("weights ignored", "tenants of a shared pool have equal shares", _weights_ignored),
    Mutation("due time alone", "a tenant's flood goes before all others", _due_time_alone),
    Mutation("newest first", "what is due last is granted first", _newest_first),
    Mutation("low starves", "the highest priority that waits is next", _low_starves),
    Mutation("priorities alike", "each priority has a third of the turns", _priorities_alike),
)
EQUALS_BY_NAME = Mutation(
    "equals by name", "of tenants with equal shares the first by name is next", _equals_by_name
)
"""Needs a long row of grants in which nobody else runs: the simulation has hardly any."""
