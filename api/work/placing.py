"""Decides where free room is offered: first where work waits, the rest spread out. Pure.

Room that sits idle at one partition while work waits at another is called back; it can be offered again when
its partition has confirmed, for until then it might still be used there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from api.work.credit import Ledger
from streams.core.limits import SLOTS_PER_REQUEST_MAX

Target = dict[str, int]


def place(
    ledgers: Sequence[Ledger], rooms: Mapping[str, int], ready: AbstractSet[str], now: float
) -> list[Target]:
    """Credit by worker that each ledger's partition is to have. `rooms`: free places of each waiting worker;
    `ready`: workers whose room may be offered anew (the others only keep what they have)."""
    targets = _kept(ledgers, rooms, now)
    free = _free(ledgers, rooms, ready)
    live = [number for number, ledger in enumerate(ledgers) if not ledger.silent(now)]
    # Nobody answers at all: then waiting where we are is as good as anything.
    live = live or list(range(len(ledgers)))
    _offer_to_the_needy(ledgers, targets, free, live)
    _call_back_idle(ledgers, targets, rooms, live)
    _spread(targets, free, live)
    return targets


def _kept(ledgers: Sequence[Ledger], rooms: Mapping[str, int], now: float) -> list[Target]:
    """What is placed and still wanted; of a worker that has less room than is placed, the first is kept."""
    left = dict(rooms)
    targets: list[Target] = []
    everybody_silent = all(ledger.silent(now) for ledger in ledgers)
    for ledger in ledgers:
        target: Target = {}
        if everybody_silent or not ledger.silent(now):
            for worker, credit in ledger.placed().items():
                kept = min(credit, left.get(worker, 0))
                if kept > 0:
                    target[worker] = kept
                    left[worker] -= kept
        targets.append(target)
    return targets


def _free(ledgers: Sequence[Ledger], rooms: Mapping[str, int], ready: AbstractSet[str]) -> dict[str, int]:
    """Room of each worker that no partition can use, whatever request it goes by."""
    used: dict[str, int] = {}
    for ledger in ledgers:
        for worker, credit in ledger.ceilings().items():
            used[worker] = used.get(worker, 0) + credit
    free = {worker: room - used.get(worker, 0) for worker, room in rooms.items() if worker in ready}
    return {worker: room for worker, room in free.items() if room > 0}


def _need(ledger: Ledger, target: Target) -> int:
    return ledger.backlog - sum(target.values()) if ledger.backlog else 0


def _offer_to_the_needy(
    ledgers: Sequence[Ledger], targets: list[Target], free: dict[str, int], live: Sequence[int]
) -> None:
    """Longest waiting first, so that no partition is passed over."""
    if not free:
        return
    needy = [number for number in live if _need(ledgers[number], targets[number]) > 0]
    for number in sorted(needy, key=lambda each: ledgers[each].wanting_since):
        need = _need(ledgers[number], targets[number])
        for worker in list(free):
            if need <= 0:
                break
            need -= _give(targets[number], free, worker, min(free[worker], need))
        ledgers[number].wanting_since = 0.0 if need <= 0 else ledgers[number].wanting_since


def _call_back_idle(
    ledgers: Sequence[Ledger],
    targets: list[Target],
    rooms: Mapping[str, int],
    live: Sequence[int],
) -> None:
    unmet = sum(max(0, _need(ledgers[number], targets[number])) for number in live)
    if not unmet:
        return
    # What was called back before and is not confirmed yet; a partition without an owner will not do it soon.
    coming = sum(
        max(0, credit - targets[number].get(worker, 0))
        for number in live
        for worker, credit in ledgers[number].ceilings().items()
        if worker in rooms
    )
    excess = unmet - coming
    # Who was heard lately confirms soonest.
    for number in sorted(live, key=lambda each: -ledgers[each].heard_at):
        idle = sum(targets[number].values()) - ledgers[number].backlog
        for worker in list(targets[number]):
            taken = min(targets[number][worker], idle, excess)
            if taken <= 0:
                break
            targets[number][worker] -= taken
            if not targets[number][worker]:
                del targets[number][worker]
            idle -= taken
            excess -= taken
        if excess <= 0:
            return


def _spread(targets: list[Target], free: dict[str, int], live: Sequence[int]) -> None:
    if not free:
        return
    order = sorted(live, key=lambda each: sum(targets[each].values()))
    turn = 0
    for worker in list(free):
        share = max(1, free[worker] // len(order))
        for _ in range(len(order)):
            if worker not in free:
                break
            number = order[turn % len(order)]
            turn += 1
            _give(targets[number], free, worker, min(share, free[worker]))
        if worker in free:  # the remainder of the division
            _give(targets[order[turn % len(order)]], free, worker, free[worker])


def _give(target: Target, free: dict[str, int], worker: str, credit: int) -> int:
    """Moves room of a worker to a partition, unless its request is full; returns how much."""
    if worker not in target and len(target) >= SLOTS_PER_REQUEST_MAX:
        return 0
    target[worker] = target.get(worker, 0) + credit
    free[worker] -= credit
    if not free[worker]:
        del free[worker]
    return credit
