"""Owns the claims of one tenant's pool in this process, and where their free places are offered.

Each waiting claim has room for some executions. Room is offered to partitions as credit, in total never more
than there is: credit is only placed anew once its former partition has said that it let go, or must have.
Interest in the pool is kept up at every partition of the tenant, so that one with work but without credit
says so and credit moves there. Pure bookkeeping: no I/O, time is passed in; `act` says what is to be sent and
answered (`api.work.desk` does it), `credit.Ledger` keeps each partition's side, `placing` decides where room
is offered.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from api.work.credit import Ledger
from api.work.placing import place
from schemas.commands import Slot
from schemas.replies import Grant, Granted
from streams.core.limits import SLOTS_PER_REQUEST_MAX

INTEREST_SEC = 15.0
"""A pool without claims for so long is left; a worker between two claims is not."""
CHECK_SEC = 0.5
"""A partition that does not say by then what a claim holds there has no owner now."""
LINGER_SEC = 0.005
LINGER_MAX_SEC = 0.05
"""Grants of several partitions come within milliseconds of each other: waited for, to be one answer."""
PARTS_SEC = 0.5
"""The longest wait for the rest of a pass that a partition had to cut into several replies."""
IMPATIENT_SEC = 0.5
"""The least that a claim waits: its question has to get there and back."""
PACE_SEC_PER_REQUEST = 300e-6
PACE_SEC_PER_SLOT = 20e-6
PACE_SEC_MAX = 0.05
"""With many partitions or workers requests are many or large: sent less often, each for more changes."""
RECENT_SEC = 90.0
"""Processors repeat replies younger than a minute after a crash; a client repeats a claim sooner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A worker that waits for executions. `until`: when it gets an empty answer."""

    token: int
    worker_id: str
    max: int
    until: float
    claim_id: str = ""
    lease_sec: int = 0
    patient: bool = True


@dataclass(slots=True)
class Waiting:
    """A claim and what it has got so far. `unchecked`: partitions that have not said what it holds there;
    `asked`: in which request they were. `repeated`: it was answered before, so it may hold something."""

    claim: Claim
    got: list[tuple[int, Grant]] = field(default_factory=list)
    keys: set[tuple[str, int]] = field(default_factory=set)
    unchecked: set[int] = field(default_factory=set)
    asked: dict[int, int] = field(default_factory=dict)
    check_until: float = 0.0
    repeated: bool = False
    first_got_at: float = 0.0
    answer_at: float = 0.0

    @property
    def room(self) -> int:
        return self.claim.max - len(self.got)


@dataclass(frozen=True, slots=True)
class Request:
    """A RequestWork to be sent."""

    partition: int
    seq: int
    grants_seen: int
    slots: tuple[Slot, ...]


@dataclass(slots=True)
class Actions:
    """What is to be done now, in this order: answers, releases, requests."""

    answers: list[tuple[int, list[Grant]]] = field(default_factory=list)
    releases: list[tuple[int, Grant]] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)


class Asker:
    """Claims and credit of one pool."""

    def __init__(self, partitions: Sequence[int], now: float) -> None:
        # Partitions may remember an earlier asker of this pool: requests are numbered on from its, which took
        # more than a microsecond each.
        seq = int(now * 1e6)
        self.ledgers = {partition: Ledger(partition, seq) for partition in partitions}
        self.waiting: dict[int, Waiting] = {}
        self._by_worker: dict[str, Waiting] = {}
        self._by_claim: dict[tuple[str, str], Waiting] = {}
        self._checking: dict[int, Waiting] = {}
        self._granted = _Recent(now)
        self._answered = _Recent(now)
        self._actions = Actions()
        self._alarms: list[tuple[float, int]] = []
        self._touched: set[int] = set()
        self._interested_until = 0.0
        self._plan_at: float | None = None
        self._planned_at = now
        self._pace_sec = 0.0
        self._closing = False

    # -- what happens

    def claim(self, claim: Claim, now: float) -> None:
        """A worker waits. Ends its older claim; a repeated one takes over what that has got."""
        older = self._by_worker.get(claim.worker_id)
        waiting = Waiting(claim)
        if older is not None:
            if claim.claim_id and claim.claim_id == older.claim.claim_id:
                waiting.got, older.got = older.got, []
                waiting.keys = older.keys
            self._answer(older, now)
        self.waiting[claim.token] = self._by_worker[claim.worker_id] = waiting
        if claim.claim_id:
            self._by_claim[claim.worker_id, claim.claim_id] = waiting
            waiting.repeated = self._answered.has((claim.worker_id, claim.claim_id))
        if claim.claim_id or not claim.patient:
            self._checking[claim.token] = waiting
            waiting.unchecked = set(self.ledgers)
            waiting.check_until = now + CHECK_SEC
            self._alarm(waiting.check_until, claim.token)
        self._alarm(claim.until, claim.token)
        self._changed(now)

    def cancel(self, token: int, now: float) -> None:
        """Nobody waits for this claim any more; what it has got goes back."""
        waiting = self.waiting.get(token)
        if waiting is not None:
            self._actions.releases += waiting.got
            self._remove(waiting, now)

    def close(self, now: float) -> None:
        """Answers everybody and takes all credit back; whatever is still granted is released."""
        for waiting in list(self.waiting.values()):
            self._answer(waiting, now)
        self._closing = True
        self._changed(now)

    def granted(self, reply: Granted, now: float) -> None:
        """Leases for this process."""
        partition = reply.partition
        ledger = self.ledgers.get(partition)
        if ledger is None:
            return
        workers = {grant.execution.worker_id for grant in reply.grants}
        for grant in reply.grants:
            execution = grant.execution
            if not self._granted.add((execution.execution_id, execution.lease_epoch), now):
                continue
            ledger.granted(execution.worker_id)
            waiting = self._by_worker.get(execution.worker_id)
            if waiting is None or waiting.room <= 0:
                self._actions.releases.append((partition, grant))
            else:
                self._hand(waiting, partition, grant, now)
        passed = ledger.in_parts | workers
        ledger.granted_all(workers, reply.number, reply.seq, reply.more, reply.backlog, now)
        for waiting in filter(None, map(self._by_worker.get, passed)):
            if waiting.got:
                waiting.answer_at = now + (PARTS_SEC if reply.more else LINGER_SEC)
                self._touched.add(waiting.claim.token)
        self._changed(now)

    def hinted(self, partition: int, backlog: int, now: float) -> None:
        """A partition has work and no credit."""
        if partition in self.ledgers:
            self.ledgers[partition].hinted(backlog, now)
            self._changed(now)

    def seen(
        self, partition: int, seq: int, number: int, held: Iterable[Grant], backlog: int, now: float
    ) -> None:
        """A partition has seen our request, and says what repeated claims still hold there."""
        ledger = self.ledgers.get(partition)
        if ledger is None:
            return
        ledger.seen(seq, number, backlog, now)
        for grant in held:
            self._hold(partition, grant, now)
        for waiting in self._checking.values():
            if partition in waiting.unchecked and waiting.asked.get(partition, seq + 1) <= seq:
                waiting.unchecked.discard(partition)
                self._touched.add(waiting.claim.token)
        self._changed(now)

    def delivered(self, partition: int, seq: int, now: float) -> None:
        """The broker has a request, or refused it for good."""
        if partition in self.ledgers:
            self.ledgers[partition].delivered(seq, now)

    # -- what to do

    def act(self, now: float) -> Actions:
        """Everything that is due; call it after each batch of events and at `due_at`."""
        while self._alarms and self._alarms[0][0] <= now:
            self._touched.add(heapq.heappop(self._alarms)[1])
        for token in self._touched:
            waiting = self.waiting.get(token)
            if waiting is not None:
                self._look_at(waiting, now)
        self._touched.clear()
        for ledger in self.ledgers.values():
            if ledger.expire(now):
                self._changed(now)
        if self._plan_at is not None and self._plan_at <= now:
            self._plan(now)
        elif self._is_interested(now):
            self._renew(now)
        actions, self._actions = self._actions, Actions()
        return actions

    def due_at(self, now: float) -> float | None:
        """When `act` is to be called next if nothing happens; None: not at all."""
        times = [self._alarms[0][0]] if self._alarms else []
        if self._plan_at is not None:
            times.append(self._plan_at)
        if self._is_interested(now):
            times += (ledger.renew_at(now) for ledger in self.ledgers.values())
            times += (at for ledger in self.ledgers.values() if (at := ledger.next_void_at()) is not None)
        return max(min(times), now) if times else None

    def is_idle(self, now: float) -> bool:
        """Whether it can be forgotten: nobody waits, nobody did lately, and no credit is out."""
        return (
            not self.waiting
            and not self._is_interested(now)
            and not any(ledger.ceilings() for ledger in self.ledgers.values())
        )

    # -- inside

    def _is_interested(self, now: float) -> bool:
        return not self._closing and (bool(self.waiting) or now < self._interested_until)

    def _changed(self, now: float) -> None:
        if self._plan_at is None:
            self._plan_at = max(now, self._planned_at + self._pace_sec)

    def _alarm(self, at: float, token: int) -> None:
        heapq.heappush(self._alarms, (at, token))

    def _hand(self, waiting: Waiting, partition: int, grant: Grant, now: float) -> None:
        if not waiting.got:
            waiting.first_got_at = now
        waiting.got.append((partition, grant))
        waiting.keys.add((grant.execution.execution_id, grant.execution.lease_epoch))
        waiting.answer_at = min(waiting.first_got_at + LINGER_MAX_SEC, now + LINGER_SEC)
        self._touched.add(waiting.claim.token)

    def _hold(self, partition: int, grant: Grant, now: float) -> None:
        execution = grant.execution
        waiting = self._by_claim.get((execution.worker_id, execution.claim_id))
        if waiting is None or (execution.execution_id, execution.lease_epoch) in waiting.keys:
            return
        self._granted.add((execution.execution_id, execution.lease_epoch), now)
        self._hand(waiting, partition, grant, now)

    def _look_at(self, waiting: Waiting, now: float) -> None:
        """Answers a claim that has waited enough."""
        if waiting.unchecked and waiting.check_until <= now:
            waiting.unchecked.clear()
        waiting.unchecked -= {p for p in waiting.unchecked if self.ledgers[p].silent(now)}
        if waiting.claim.until <= now:
            self._answer(waiting, now)
            return
        if waiting.unchecked:
            return
        if self._checking.pop(waiting.claim.token, None) is not None:
            self._changed(now)
        if waiting.got:
            if waiting.room <= 0 or waiting.answer_at <= now or not self._more_may_come(waiting):
                self._answer(waiting, now)
            else:
                self._alarm(waiting.answer_at, waiting.claim.token)
        elif not waiting.claim.patient and not any(ledger.backlog for ledger in self.ledgers.values()):
            self._answer(waiting, now)

    def _more_may_come(self, waiting: Waiting) -> bool:
        worker_id = waiting.claim.worker_id
        several = len(self.ledgers) > 1
        return any(
            worker_id in ledger.in_parts or (ledger.ceiling(worker_id) and (several or ledger.backlog))
            for ledger in self.ledgers.values()
        )

    def _answer(self, waiting: Waiting, now: float) -> None:
        surplus = max(0, -waiting.room)
        given = waiting.got[: len(waiting.got) - surplus]
        self._actions.releases += waiting.got[len(given) :]
        self._actions.answers.append((waiting.claim.token, [grant for _, grant in given]))
        if waiting.claim.claim_id and given:
            self._answered.add((waiting.claim.worker_id, waiting.claim.claim_id), now)
        self._remove(waiting, now)

    def _remove(self, waiting: Waiting, now: float) -> None:
        claim = waiting.claim
        del self.waiting[claim.token]
        self._checking.pop(claim.token, None)
        if self._by_worker.get(claim.worker_id) is waiting:
            del self._by_worker[claim.worker_id]
        if self._by_claim.get((claim.worker_id, claim.claim_id)) is waiting:
            del self._by_claim[claim.worker_id, claim.claim_id]
        self._interested_until = now + INTEREST_SEC
        self._changed(now)

    def _plan(self, now: float) -> None:
        """Offers all free room, and sends what changed."""
        self._plan_at, self._planned_at = None, now
        ledgers = list(self.ledgers.values())
        rooms = {} if self._closing else {worker: w.room for worker, w in self._by_worker.items()}
        one = len(ledgers) == 1
        # What a repeated claim holds takes the place of new work; with one partition, that knows it itself.
        ready = {worker for worker, w in self._by_worker.items() if one or not (w.repeated and w.unchecked)}
        targets = place(ledgers, rooms, ready, now)
        cost_sec = 0.0
        for ledger, target in zip(ledgers, targets, strict=True):
            checks = self._unasked(ledger.partition)
            claims = {worker: self._by_worker[worker].claim.claim_id for worker in target}
            changed = target != ledger.placed() or any(
                ledger.claims.get(worker) != claim_id for worker, claim_id in claims.items()
            )
            renewed = self._is_interested(now) and ledger.renew_at(now) <= now
            if changed or checks or renewed:
                slots = self._send(ledger, target, claims, checks, now)
                cost_sec += PACE_SEC_PER_REQUEST + slots * PACE_SEC_PER_SLOT
        self._pace_sec = min(PACE_SEC_MAX, cost_sec)

    def _renew(self, now: float) -> None:
        if any(ledger.renew_at(now) <= now for ledger in self.ledgers.values()):
            self._plan(now)

    def _unasked(self, partition: int) -> list[Waiting]:
        return [w for w in self._checking.values() if partition in w.unchecked and partition not in w.asked]

    def _send(
        self,
        ledger: Ledger,
        target: dict[str, int],
        claims: dict[str, str],
        checks: list[Waiting],
        now: float,
    ) -> int:
        slots = [self._slot(self._by_worker[worker].claim, credit) for worker, credit in target.items()]
        number = ledger.number
        seq = ledger.send(target, claims, now)
        for waiting in checks:
            if waiting.claim.worker_id not in target:
                if len(slots) == SLOTS_PER_REQUEST_MAX:
                    continue
                slots.append(self._slot(waiting.claim, 0))
            waiting.asked[ledger.partition] = seq
        self._actions.requests.append(Request(ledger.partition, seq, number, tuple(slots)))
        return len(slots)

    @staticmethod
    def _slot(claim: Claim, credit: int) -> Slot:
        return Slot(
            worker_id=claim.worker_id, credit=credit, claim_id=claim.claim_id, lease_sec=claim.lease_sec
        )


class _Recent:
    """What came lately; a repeat is recognised for at least RECENT_SEC."""

    def __init__(self, now: float) -> None:
        self._turned_at = now
        self._older: set[int] = set()
        self._newer: set[int] = set()

    def has(self, key: tuple[str, object]) -> bool:
        return hash(key) in self._newer or hash(key) in self._older

    def add(self, key: tuple[str, object], now: float) -> bool:
        """False if it was there."""
        if now - self._turned_at > RECENT_SEC:
            self._older, self._newer, self._turned_at = self._newer, set(), now
        if self.has(key):
            return False
        self._newer.add(hash(key))
        return True
