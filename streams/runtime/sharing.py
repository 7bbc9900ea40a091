"""Who has a part in a turn, and how many of its timers.

A partition's part in a transaction has its fixed price (requests and a marker at the broker, a batch in the
store), worth it for hundreds of executions, not for twenty. So only *light* partitions have a part in every
turn; *heavy* ones, of which the last one left something over, take turns, those that waited longest first.
None is passed over more than `WAIT_TURNS` - 1 times in a row: it may hold tenants that have little, too.

Pure: what it knows is in the partitions, and they do not change here.
"""

from __future__ import annotations

from collections.abc import Sequence

from streams.runtime.partition import Partition

FIRE_LIMIT = 2_000
"""Timers of one transaction over all heavy partitions, and over all light ones; what is left follows in the
next."""
SHARE_MIN = 20
"""Of records and of timers, for whoever has a part."""
HEAVY_SHARE = 200
"""Timers that are worth the fixed price: more heavy partitions have a part only if they must."""
WAIT_TURNS = 4
"""A heavy partition has a part in one of so many turns: in half a second with turns of 130 ms (measured)."""
WAITING_RECORDS = 50
"""With so many records a partition is worth its price: it does not wait. So what waits is bounded."""


def can_wait(partition: Partition) -> bool:
    """Whether it may be passed over. Its records take no room from those of others meanwhile."""
    return partition.heavy and len(partition.work) + len(partition.commands) < WAITING_RECORDS


def choose(busy: Sequence[Partition]) -> list[Partition]:
    """Those of the busy partitions that have a part in this turn, in their order."""
    waiting = [each for each in busy if can_wait(each)]
    count = max(FIRE_LIMIT // HEAVY_SHARE, -(-len(waiting) // WAIT_TURNS))
    if len(waiting) <= count:
        return list(busy)
    waiting.sort(key=lambda each: (-each.passed_over, each.number))
    passed_over = {each.number for each in waiting[count:] if each.passed_over < WAIT_TURNS - 1}
    return [each for each in busy if each.number not in passed_over]


def timers_each(chosen: Sequence[Partition]) -> tuple[int, int]:
    """How many timers a light partition of this turn may fire, and a heavy one."""
    heavy = sum(each.heavy for each in chosen)
    return _share(len(chosen)), _share(heavy)


def _share(among: int) -> int:
    return max(SHARE_MIN, FIRE_LIMIT // max(1, among))
