"""Work requests that wait: interest and credit of asker sessions, per pool. Soft state, never logged.

A request is absolute and the newest replaces, so neither loss nor repeat makes credit drift. `grants_seen`
tells which grants the asker knew when it wrote the request. A worker that was granted something since is on
its way to be answered with that: what the request offers of its room has lapsed already (`lapse`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from schemas.commands import RequestWork, Slot
from schemas.ids import is_shared
from streams.core.limits import GRANTS_REMEMBERED_MAX, INTEREST_MS

SWEEP_MS = 1_000
TOLD_AGAIN_MS = 50
"""Between two looks of a session at a shared pool's shares; its own grants and outcomes it knows anyway."""


@dataclass(slots=True)
class Credit:
    """Free places of one worker, and the claim that waits for them."""

    worker_id: str
    claim_id: str
    places: int
    lease_sec: int


@dataclass(slots=True)
class Asker:
    """One session's request for one pool. `number`: grants so far to it, going on where it says it was."""

    session: str
    reply_partition: int
    seq: int = -1
    number: int = 0
    interest_until_ms: int = 0
    park_until_ms: int = 0
    running_max: int = 0
    hinted: bool = False
    told_ms: int = 0
    credits: deque[Credit] = field(default_factory=deque)
    unseen: deque[tuple[int, str]] = field(default_factory=deque)
    """(number, worker) of the newest grants that it may not have seen."""

    def has_credit(self, running: int, now_ms: int) -> bool:
        """Whether it can take an execution while so many of the pool run here."""
        below = not self.running_max or running < self.running_max
        return below and bool(self.credits) and self.park_until_ms > now_ms


class Parking:
    """Parked requests of one partition: pool (`<owner>/<pool>`) to sessions, asked in turn."""

    def __init__(self) -> None:
        self._pools: dict[str, deque[Asker]] = {}
        self._spent: list[tuple[Asker, Credit]] = []
        self._lapsed: list[tuple[Asker, Credit]] = []
        self._told: list[tuple[Asker, bool, int]] = []
        self._later: dict[str, int] = {}
        self._swept_ms = 0

    def request(
        self, pool_key: str, command: RequestWork, now_ms: int, sent_ms: int, held: set[str]
    ) -> tuple[Asker, bool]:
        """Takes a session's request, and says whether it is the newest: an older one changes nothing. `held`:
        claims that still hold executions and are given those instead of new ones."""
        asker = self._asker(pool_key, command)
        if command.seq <= asker.seq:
            return asker, False
        asker.seq = command.seq
        asker.reply_partition = command.reply_partition
        asker.number = max(asker.number, command.grants_seen)
        asker.interest_until_ms = now_ms + INTEREST_MS
        asker.park_until_ms = sent_ms + command.park_sec * 1000
        asker.running_max = command.running_max
        asker.hinted = False
        while asker.unseen and asker.unseen[0][0] <= command.grants_seen:
            asker.unseen.popleft()
        asker.credits = _credits(command.slots, asker, held)
        if asker.credits:  # the turns of workers go on over renewed requests, also if grants are few
            asker.credits.rotate(-(asker.number % len(asker.credits)))
        return asker, True

    def _asker(self, pool_key: str, command: RequestWork) -> Asker:
        askers = self._pools.setdefault(pool_key, deque())
        for asker in askers:
            if asker.session == command.session:
                return asker
        asker = Asker(command.session, command.reply_partition)
        askers.append(asker)
        return asker

    def next_with_credit(self, pool_key: str, running: int, now_ms: int) -> Asker | None:
        """The next session that can take an execution while so many of the pool run here."""
        askers = self._pools.get(pool_key)
        if not askers:
            return None
        for _ in range(len(askers)):
            if askers[0].has_credit(running, now_ms):
                return askers[0]
            askers.rotate(-1)
        return None

    def spend(self, pool_key: str, asker: Asker) -> Credit:
        """One place of the session's next worker is used. Sessions take turns; within one, a worker is filled
        before the next: its asker answers it with what it got, and what others hold half-full comes back."""
        credit = asker.credits[0]
        asker.number += 1
        asker.unseen.append((asker.number, credit.worker_id))
        if len(asker.unseen) > GRANTS_REMEMBERED_MAX:
            asker.unseen.popleft()
        credit.places -= 1
        if not credit.places:
            asker.credits.popleft()
        self._pools[pool_key].rotate(-1)
        self._spent.append((asker, credit))
        return credit

    def lapse(self) -> None:
        """What a worker's claim did not get in this pass lapses: its asker answers it now, and would have to
        hand back whatever came later (measured: each execution of a herd was granted three times)."""
        for asker, credit in self._spent:
            if credit.places and asker.credits and asker.credits[0] is credit:
                asker.credits.popleft()
                self._lapsed.append((asker, credit))

    def settled(self) -> None:
        """The grants and hints of the transaction are committed."""
        self._spent.clear()
        self._lapsed.clear()
        self._told.clear()

    def undo(self) -> None:
        """The transaction was aborted: its grants and hints never were."""
        for asker, credit in self._lapsed:
            asker.credits.appendleft(credit)
        for asker, credit in reversed(self._spent):
            asker.number -= 1
            asker.unseen.pop()
            if not credit.places:
                asker.credits.append(credit)
            credit.places += 1
        for asker, hinted, told_ms in reversed(self._told):
            asker.hinted, asker.told_ms = hinted, told_ms
        self.settled()

    def pools(self) -> list[str]:
        """Pools that anybody asks for."""
        return list(self._pools)

    def is_asked(self, pool_key: str, running: int, now_ms: int) -> bool:
        """Whether a session has credit here, or is to be told that there is work."""
        has_credit = self.next_with_credit(pool_key, running, now_ms) is not None
        return has_credit or bool(self.to_hint(pool_key, now_ms))

    def credit(self, pool_key: str, running: int, now_ms: int) -> int:
        """Free places in all."""
        askers = (asker for asker in self._pools.get(pool_key, ()) if asker.has_credit(running, now_ms))
        return sum(credit.places for asker in askers for credit in asker.credits)

    def to_hint(self, pool_key: str, now_ms: int) -> list[Asker]:
        """Interested sessions that are to be told what waits: once a request; of a shared pool again, but not
        more often than every `TOLD_AGAIN_MS`. For those that were told just now the pool comes up then."""
        found = []
        for asker in self._pools.get(pool_key, ()):
            if asker.interest_until_ms <= now_ms:
                continue
            if not asker.hinted or (is_shared(pool_key) and now_ms >= asker.told_ms + TOLD_AGAIN_MS):
                found.append(asker)
            elif is_shared(pool_key):
                self._later.setdefault(pool_key, asker.told_ms + TOLD_AGAIN_MS)
        return found

    def told(self, asker: Asker, now_ms: int) -> None:
        """The session knows what waits."""
        self._told.append((asker, asker.hinted, asker.told_ms))
        asker.hinted, asker.told_ms = True, now_ms

    def take_later(self, now_ms: int) -> list[str]:
        """Pools whose sessions are to be told now of what changed a moment ago."""
        due = [pool_key for pool_key, due_ms in self._later.items() if due_ms <= now_ms]
        for pool_key in due:
            del self._later[pool_key]
        return due

    def next_ms(self) -> int | None:
        """When `take_later` has something."""
        return min(self._later.values(), default=None)

    def drop_stale(self, now_ms: int) -> list[str]:
        """Forgets sessions that are gone; now and then, since it looks at all of them. Returns the pools that
        nobody asks for any more."""
        dropped: list[str] = []
        if now_ms - self._swept_ms < SWEEP_MS:
            return dropped
        self._swept_ms = now_ms
        for pool_key, askers in list(self._pools.items()):
            living = deque(a for a in askers if max(a.interest_until_ms, a.park_until_ms) > now_ms)
            if living:
                self._pools[pool_key] = living
            else:
                del self._pools[pool_key]
                dropped.append(pool_key)
        return dropped


def _credits(slots: tuple[Slot, ...], asker: Asker, held: set[str]) -> deque[Credit]:
    in_flight = {worker_id for _, worker_id in asker.unseen}
    return deque(
        Credit(slot.worker_id, slot.claim_id, slot.credit, slot.lease_sec)
        for slot in slots
        if slot.credit and slot.worker_id not in in_flight and slot.claim_id not in held
    )
