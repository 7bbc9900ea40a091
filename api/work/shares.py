"""Decides whose work gets free room when there is less room than work: by priority, 16 : 4 : 1, then to the
tenant that runs least for its weight, over all partitions, ties by virtual time (semantics §6). Pure.

The rules and the memory of turns are those of a partition's own grants (`streams.core.fairness`). The
partitions report who waits and how many run; what was granted or offered since then is added.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from api.work.credit import Ledger
from schemas.entities import Priority
from schemas.replies import Waiting
from streams.core.fairness import Fairness
from streams.core.priorities import by_turn

STEPS = 256
"""Decisions about one lot of room; a larger lot goes in larger pieces."""
POOL = ""
"""A `Fairness` of its own for each pool: it needs no name."""


Key = tuple[float, float, str]


@dataclass(slots=True, eq=False)
class _Line:
    """Work of one tenant and priority: what is left of it by partition, longest without an offer first."""

    tenant: str
    weight: int
    left: dict[int, int] = field(default_factory=dict)
    order: deque[int] = field(default_factory=deque)


def allot(
    ledgers: Sequence[Ledger],
    needs: Mapping[int, int],
    budget: int,
    fairness: Fairness,
    now: float,
) -> dict[int, int]:
    """How much each partition (by its place among the ledgers) gets of `budget`, at most what it needs.
    Remembers in the ledgers for which tenant."""
    if sum(needs.values()) <= budget:
        for number, need in needs.items():
            _allot_all(ledgers[number], need)
        return dict(needs)
    loads = _loads(ledgers, now)
    queues = {
        priority: [(_key(line, loads, fairness), line) for line in lines]
        for priority, lines in _lines(ledgers, needs).items()
    }
    for queue in queues.values():
        heapq.heapify(queue)
    left, given = dict(needs), dict.fromkeys(needs, 0)
    at_once = max(1, budget // STEPS)
    while budget > 0 and any(queues.values()):
        for priority in by_turn(fairness.step(POOL)):
            found = _first(queues.get(priority, []), left, loads, fairness)
            if found is not None:
                break
        else:
            break
        line, place = found
        units = min(at_once, budget, left[place], line.left[place])
        budget -= units
        left[place] -= units
        given[place] += units
        line.left[place] -= units
        loads[line.tenant] = loads.get(line.tenant, 0) + units
        _allot(ledgers[place], line.tenant, units)
        fairness.granted(POOL, line.tenant, line.weight / units)
    fairness.settled()
    return given


def _first(
    queue: list[tuple[Key, _Line]], left: Mapping[int, int], loads: Mapping[str, float], fairness: Fairness
) -> tuple[_Line, int] | None:
    """The next tenant of a priority and its partition. Keys only grow meanwhile, so an old one at the top is
    put right when it comes up."""
    while queue:
        known, line = queue[0]
        now = _key(line, loads, fairness)
        if now != known:
            heapq.heapreplace(queue, (now, line))
            continue
        place = _next_place(line, left)
        if place is not None:
            return line, place
        heapq.heappop(queue)
    return None


def _key(line: _Line, loads: Mapping[str, float], fairness: Fairness) -> Key:
    # Half of the next one counts: else small shares, which one more moves most, were too large on average.
    load = loads.get(line.tenant, 0) + 0.5
    return (load / line.weight, fairness.start(POOL, line.tenant), line.tenant)


def _allot(ledger: Ledger, tenant: str, units: int) -> None:
    ledger.allotted[tenant] = ledger.allotted.get(tenant, 0) + units


def _allot_all(ledger: Ledger, need: int) -> None:
    """There is room for all that waits."""
    for row in ledger.report.waiting:
        units = min(row.backlog, need)
        _allot(ledger, row.tenant, units)
        need -= units


def _lines(ledgers: Sequence[Ledger], needs: Mapping[int, int]) -> dict[str, list[_Line]]:
    found: dict[tuple[str, str], _Line] = {}
    for place in needs:
        report = ledgers[place].report
        told = report.waiting or (
            Waiting(priority=Priority.NORMAL, tenant="", weight=1, backlog=report.backlog, running=0),
        )
        for row in told:
            key = (str(row.priority), row.tenant)
            line = found.setdefault(key, _Line(row.tenant, max(1, row.weight)))
            line.left[place] = row.backlog
            line.order.append(place)
    lines: dict[str, list[_Line]] = {}
    for (priority, _), line in found.items():
        lines.setdefault(priority, []).append(line)
    return lines


def _loads(ledgers: Sequence[Ledger], now: float) -> dict[str, float]:
    """What each tenant holds over all partitions: what it runs, and what was offered for its sake. So a slot
    on its way to the next run counts for whose run that is, and nobody pays for the turn-around of others."""
    loads: dict[str, float] = {}
    for ledger in ledgers:
        for counts in (ledger.running.now(now), ledger.allotted):
            for tenant, count in counts.items():
                loads[tenant] = loads.get(tenant, 0) + count
    return loads


def _next_place(line: _Line, left: Mapping[int, int]) -> int | None:
    """The partition whose turn it is for the tenant; None if all its work has been offered room."""
    while line.order:
        place = line.order[0]
        if line.left[place] > 0 and left[place] > 0:
            line.order.rotate(-1)
            return place
        line.order.popleft()
    return None
