"""One round of turns: high 16, normal 4, low 1. High hardly waits and low never starves (semantics §6).

Firing and granting go by it. A turn whose priority has nothing goes to the highest that has.
"""

from __future__ import annotations

from streams.core import keys

_HIGH, _NORMAL, _LOW = keys.PRIORITIES
ROUND = (*(_HIGH, _HIGH, _HIGH, _HIGH, _NORMAL) * 2, _LOW, *(_HIGH, _HIGH, _HIGH, _HIGH, _NORMAL) * 2)


def by_turn(step: int) -> tuple[str, ...]:
    """The priorities in the order in which turn number `step` asks them."""
    return _ORDERS[step % len(ROUND)]


_ORDERS = tuple((turn, *(other for other in keys.PRIORITIES if other != turn)) for turn in ROUND)
