"""Decides where free room is offered: first where work waits, the rest spread out. Pure.

A worker's room goes to few partitions, rather to one: what comes from one is one answer, and nothing is left
behind elsewhere to be granted too late. Room that sits idle at one partition while work waits at another is
called back; it can be offered again when its partition has confirmed, for until then it might still be used
there.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence

from api.work.credit import Ledger, Offers
from api.work.shares import allot
from streams.core.fairness import Fairness
from streams.core.limits import SLOTS_PER_REQUEST_MAX

Target = dict[str, int]

RESERVE = 50
"""Workers placed at a partition without work; more would make every request larger for nothing."""
RESERVE_LOW = 25
"""Filled up again below that, so that not every grant costs a request."""
COVER = 2
"""Workers that a partition should have, if need be with a part of their room."""
SIDE = 10
"""That part. A claim is answered with what comes first, so what others grant it in a herd comes too late."""


class Room:
    """Free places that no partition can use, by worker; who came first is first."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self.total = 0

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[str]:
        """The workers as they stand now; they may be changed meanwhile."""
        return iter(list(self._places))

    def of(self, worker_id: str) -> int:
        """Free places of the worker."""
        return self._places.get(worker_id, 0)

    def set(self, worker_id: str, places: int) -> None:
        """The newest word."""
        self.total += places - self._places.get(worker_id, 0)
        if places:
            self._places[worker_id] = places
        else:
            self._places.pop(worker_id, None)


class Draft:
    """The credit that every partition is to have, begun from what it has. Partitions by their place."""

    def __init__(self, ledgers: Sequence[Ledger]) -> None:
        self._targets = [ledger.placed() for ledger in ledgers]
        self.totals = [ledger.placed_total for ledger in ledgers]
        self.edited: set[int] = set()

    def target(self, place: int) -> Target:
        """Credit by worker."""
        return self._targets[place]

    def put(self, place: int, worker_id: str, credit: int) -> None:
        """Changes the credit of a worker; 0 takes it away."""
        target = self._edit(place)
        self.totals[place] += credit - target.get(worker_id, 0)
        if credit:
            target[worker_id] = credit
        else:
            target.pop(worker_id, None)

    def clear(self, place: int) -> None:
        """The partition is to have none."""
        if self._targets[place]:
            self._targets[place], self.totals[place] = {}, 0
            self.edited.add(place)

    def touch(self, place: int) -> None:
        """The partition is to be told again."""
        self._edit(place)

    def give(self, room: Room, place: int, worker_id: str, credit: int) -> int:
        """Moves free places of a worker to a partition, unless its request is full; returns how many."""
        target = self._targets[place]
        if worker_id not in target and len(target) >= SLOTS_PER_REQUEST_MAX:
            return 0
        self.put(place, worker_id, target.get(worker_id, 0) + credit)
        room.set(worker_id, room.of(worker_id) - credit)
        return credit

    def _edit(self, place: int) -> Target:
        if place not in self.edited:
            self.edited.add(place)
            self._targets[place] = dict(self._targets[place])
        return self._targets[place]


class Plan:
    """Fills a draft. `whole`: in a herd a worker's room goes to one partition, others get a little of it."""

    def __init__(
        self,
        ledgers: Sequence[Ledger],
        draft: Draft,
        room: Room,
        offers: Offers,
        fairness: Fairness,
        now: float,
        *,
        whole: bool = False,
    ) -> None:
        self._ledgers, self._draft, self._room, self._offers = ledgers, draft, room, offers
        self._fairness, self._now, self._whole = fairness, now, whole
        self._is_scarce = self._is_divided = self._is_capped = False
        self._numbers = {ledger.partition: number for number, ledger in enumerate(ledgers)}
        self._budget = room.total
        silent = {number for number, ledger in enumerate(ledgers) if ledger.silent(now)}
        self.begins_at = max(ledger.first_word_until(now) for ledger in ledgers) if len(ledgers) > 1 else now
        """Room is not offered before it is known whose work waits where."""
        # Nobody answers at all: then waiting where we are is as good as anything.
        self._live = [n for n in range(len(ledgers)) if n not in silent] or list(range(len(ledgers)))
        if len(silent) < len(ledgers):
            for number in silent:
                draft.clear(number)

    def make(self, max_running: int) -> bool:
        """True if only `max_running` keeps work from being offered room. It is the bound of the pool over all
        partitions, 0: none; what runs, may still be granted or is offered now stays within."""
        if self._now < self.begins_at:
            return False
        if max_running:
            self._is_capped = True
            self._whole = False  # what is more than needed would be missing elsewhere
            running = sum(ledger.report.running for ledger in self._ledgers)
            self._budget = min(self._room.total, max_running - running - self._offers.total)
            if self._budget < 0:
                self._take_back(-self._budget, all_of_it=True)
        self._offer_to_the_needy()
        self._unbind()
        self._call_back_idle()
        if max_running and self._budget <= 0 and self._room.total:
            return bool(self._needs())
        self._spread()
        return False

    def _needs(self) -> dict[int, int]:
        """What no room is offered for, longest waiting first."""
        needs = {
            number: need
            for number in self._live
            if (backlog := self._ledgers[number].report.backlog)
            and (need := backlog - self._draft.totals[number]) > 0
        }
        return dict(sorted(needs.items(), key=lambda each: self._ledgers[each[0]].wanting_since))

    def _offer_to_the_needy(self) -> None:
        """Each as much as it needs; if there is not enough, by shares."""
        needs = self._needs()
        self._is_scarce = sum(needs.values()) > max(0, self._budget)
        self._is_divided = self._is_scarce and self._are_several(needs)
        if not needs or self._budget <= 0:
            return
        before = list(self._draft.totals)
        wanted = allot(self._ledgers, needs, self._budget, self._fairness, self._now)
        if self._whole:
            self._hand_out_whole(wanted)
        else:
            self._hand_out(wanted)
        for number, need in needs.items():
            given = self._draft.totals[number] - before[number]
            if given and self._is_divided:
                # The rest of a worker's room is there for what is granted anyhow.
                self._bound(number, before[number] + min(given, wanted[number]))
            # Who got something and needs more stands behind those who got nothing.
            if given:
                self._ledgers[number].wanting_since = self._now if given < need else 0.0

    def _are_several(self, places: Iterable[int]) -> bool:
        """Whether work of more than one tenant waits there."""
        return len({row.tenant for place in places for row in self._ledgers[place].report.waiting}) > 1

    def _hand_out(self, wanted: dict[int, int]) -> None:
        """A worker of its own for each partition, if there are enough; what is left of one serves others."""
        fresh = iter(self._room)
        opened: list[str] = []
        own = len(self._room) >= sum(1 for units in wanted.values() if units)
        for number, units in wanted.items():
            left, mine = units, ""
            while left > 0:
                worker = mine or (opened.pop() if opened and not own else next(fresh, ""))
                worker = worker or (opened.pop() if opened else "")
                given = self._give(number, worker, left) if worker else 0
                if not given:
                    break
                left -= given
                mine = worker if self._room.of(worker) else ""
            if mine:
                opened.append(mine)

    def _hand_out_whole(self, wanted: dict[int, int]) -> None:
        """Each worker goes to one partition with all its room, also with what it gets back later; of what
        that does not need, those that got nobody and need little get it."""
        fresh = (worker for worker in self._room if not self._is_placed(worker))
        homes: list[tuple[str, int]] = []
        for number, units in wanted.items():
            left = units
            for worker in list(self._draft.target(number)) if units else ():
                left -= self._give(number, worker, self._room.of(worker))
            while left > 0 and (worker := next(fresh, "")):
                left -= self._give(number, worker, self._room.of(worker))
                homes.append((worker, number))
            if 0 < left <= SIDE:
                self._borrow(number, left, homes)

    def _is_placed(self, worker: str) -> bool:
        targets = (self._draft.target(self._numbers[partition]) for partition in self._offers.at(worker))
        return any(worker in target for target in targets)

    def _borrow(self, number: int, units: int, homes: Sequence[tuple[str, int]]) -> None:
        for worker, home in homes:
            credit = self._draft.target(home).get(worker, 0)
            spare = self._draft.totals[home] - self._ledgers[home].report.backlog
            moved = min(units, spare, credit)
            if moved > 0:
                self._draft.put(home, worker, credit - moved)
                self._draft.put(number, worker, self._draft.target(number).get(worker, 0) + moved)
                self._bound(number, self._draft.totals[number])
                units -= moved
            if units <= 0:
                return

    def _give(self, number: int, worker: str, credit: int) -> int:
        credit = min(credit, self._room.of(worker), self._budget)
        given = self._draft.give(self._room, number, worker, credit) if credit > 0 else 0
        self._budget -= given
        if given:
            self._bound(number, self._draft.totals[number])
        return given

    def _call_back_idle(self) -> None:
        unmet = sum(self._needs().values())
        if unmet:
            # What was called back before and is not confirmed yet; a silent partition will not do it soon.
            coming = sum(self._ledgers[number].unconfirmed() for number in self._live)
            self._take_back(unmet - coming, all_of_it=False)

    def _take_back(self, excess: int, *, all_of_it: bool) -> None:
        """So much less credit; only what has no work waiting for it, unless all of it may go."""
        # Who was heard lately confirms soonest.
        for number in sorted(self._live, key=lambda each: -self._ledgers[each].heard_at):
            if excess <= 0:
                return
            idle = self._draft.totals[number] - (0 if all_of_it else self._ledgers[number].usable())
            for worker, credit in list(self._draft.target(number).items()):
                taken = min(credit, idle, credit if self._whole else excess)
                if taken <= 0 or excess <= 0:
                    break
                self._draft.put(number, worker, credit - taken)
                idle -= taken
                excess -= taken

    def _spread(self) -> None:
        """Every partition gets a few workers in advance, so that what becomes due need not ask for them."""
        if self._whole and self._needs():
            return
        thin = [
            (len(self._draft.target(number)), number)
            for number in self._live
            if len(self._draft.target(number)) < RESERVE_LOW or number in self._draft.edited
        ]
        heapq.heapify(thin)
        lacking = sum(max(0, COVER - workers) for workers, _ in thin)
        workers_left = len(self._room)
        for worker in self._room:
            if self._budget <= 0 or not thin:
                return
            if self._whole and self._is_placed(worker):
                continue
            home = None if lacking > 0 else self._home(worker)
            if home is not None:
                self._give(home, worker, self._room.of(worker))
                continue
            parts = min(-(-lacking // workers_left), len(thin), self._room.of(worker))
            parts = 1 if self._whole else max(1, parts)
            workers_left -= 1
            side = min(SIDE, self._room.of(worker) // parts)
            for part in range(parts):
                workers, number = thin[0]
                credit = self._room.of(worker) - (parts - 1) * side if part == 0 else side
                if workers >= (COVER if part else RESERVE) or not self._give(number, worker, credit):
                    if part == 0:
                        return  # the one with the fewest has enough; thousands may be left
                    break
                lacking -= workers < COVER
                heapq.heapreplace(thin, (len(self._draft.target(number)), number))

    def _bound(self, number: int, credit: int) -> None:
        """Where tenants share what is scarce a partition uses credit only as long as no more runs there than
        we believe: what others gave it meanwhile would come on top."""
        ledger = self._ledgers[number]
        is_bounded = self._is_divided or self._is_capped
        ledger.running_max = ledger.report.running + credit if is_bounded else 0

    def _unbind(self) -> None:
        """With room for all, credit that more running than we believed keeps from being used may be used."""
        if self._is_scarce:
            return
        for number, ledger in enumerate(self._ledgers):
            if ledger.usable() < min(ledger.report.backlog, self._draft.totals[number]):
                self._bound(number, self._draft.totals[number])
                self._draft.touch(number)

    def _home(self, worker: str) -> int | None:
        """A partition that is told of the worker anyhow."""
        return next((number for number in self._draft.edited if worker in self._draft.target(number)), None)
