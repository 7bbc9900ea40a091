"""Owns the claims of one pool in this process, and where their free places are offered.

Each waiting claim has room for some executions. Room is offered to partitions as credit, in total never more
than there is: credit is only placed anew once its former partition has said that it let go, or must have.
Interest in the pool is kept up at every partition that can hold its work, so that one with work but without
credit says so and credit moves there. Pure bookkeeping: no I/O, time is passed in; `act` says what is to be
sent and answered (`api.work.desk` does it). `waiting` holds the claims, `away` the workers between two of
them, `credit.Ledger` each partition's side, `placing` decides where room is offered.

What happens costs as much as the workers concerned, never as much as all that wait.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from api.work.away import Away
from api.work.credit import Ledger, Offers, Report
from api.work.placing import Draft, Plan, Room
from api.work.waiting import Checks, Claim, Recent, Waiting
from schemas.commands import Slot
from schemas.replies import Grant, Granted, WorkHinted, WorkSeen
from streams.core.fairness import Fairness
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
BUSY_SEC = 1.0
BUSY_WORK = 10
"""After a reply with more grants than that or with work left behind, as in a herd, a worker's room is not
split: its claim is answered with what comes first, and what others grant it later comes too late."""
CAPPED_SEC = 0.25
"""While a pool is at its limit, partitions are asked so often whether something ended."""


@dataclass(frozen=True, slots=True)
class Request:
    """A RequestWork to be sent."""

    partition: int
    seq: int
    grants_seen: int
    slots: tuple[Slot, ...]
    running_max: int


@dataclass(slots=True)
class Actions:
    """What is to be done now, in this order: answers, releases, requests."""

    answers: list[tuple[int, list[Grant]]] = field(default_factory=list)
    releases: list[tuple[int, Grant]] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)


class Asker:
    """Claims and credit of one pool. `max_running`: settings of the pool, 0: no bound."""

    def __init__(self, partitions: Sequence[int], now: float) -> None:
        # Partitions may remember an earlier asker of this pool: requests are numbered on from its, which took
        # more than a microsecond each.
        seq = int(now * 1e6)
        self.max_running = 0
        self.offers = Offers()
        self.ledgers = {partition: Ledger(partition, self.offers, seq) for partition in partitions}
        self.waiting: dict[int, Waiting] = {}
        self._by_worker: dict[str, Waiting] = {}
        self._by_claim: dict[tuple[str, str], Waiting] = {}
        self._room = Room()
        self._away = Away(now)
        self._checks = Checks(partitions)
        self._fairness = Fairness()
        self._granted = Recent(now)
        self._answered = Recent(now)
        self._actions = Actions()
        self._alarms: list[tuple[float, int]] = []
        self._touched: set[int] = set()
        self._interested_until = 0.0
        self._busy_until = 0.0
        self._plan_at: float | None = None
        self._planned_at = now
        self._pace_sec = 0.0
        self._capped = False
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
            self._checks.begin(waiting)
            waiting.check_until = now + CHECK_SEC
            self._alarm(waiting.check_until, claim.token)
        for partition, grant in self._away.back(claim.worker_id, now):
            self._hand(waiting, partition, grant, now)
        self._alarm(claim.until, claim.token)
        self._changed(claim.worker_id, now)

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
        self._actions.releases += self._away.end()
        self._closing = True
        self._plan_soon(now)

    def granted(self, reply: Granted, now: float) -> None:
        """Leases for this process."""
        partition = reply.partition
        ledger = self.ledgers.get(partition)
        if ledger is None:
            return
        fresh = [
            grant
            for grant in reply.grants
            if self._granted.add((grant.execution.execution_id, grant.execution.lease_epoch), now)
        ]
        workers = {grant.execution.worker_id for grant in reply.grants}
        passed = ledger.in_parts | workers
        ledger.used(
            Counter(grant.execution.worker_id for grant in fresh),
            Counter(grant.execution.tenant for grant in fresh),
        )
        ledger.granted(workers, reply.number, reply.more, Report.of(reply), now)
        self.offers.changed |= passed
        if reply.backlog or len(reply.grants) > BUSY_WORK:
            self._busy_until = now + BUSY_SEC
        for grant in fresh:
            self._take(partition, grant, now)
        for worker_id in passed:
            waiting = self._by_worker.get(worker_id)
            if waiting is not None and waiting.got:
                waiting.answer_at = now + (PARTS_SEC if reply.more else LINGER_SEC)
                self._touched.add(waiting.claim.token)
        self._plan_soon(now)

    def hinted(self, reply: WorkHinted, now: float) -> None:
        """A partition has work and no credit."""
        if reply.partition in self.ledgers:
            self.ledgers[reply.partition].hinted(Report.of(reply), now)
            self._plan_soon(now)

    def seen(self, reply: WorkSeen, now: float) -> None:
        """A partition has seen our request, and says what repeated claims still hold there."""
        partition = reply.partition
        ledger = self.ledgers.get(partition)
        if ledger is None:
            return
        ledger.seen(reply.seq, reply.number, Report.of(reply), now)
        for grant in reply.held:
            self._hold(partition, grant, now)
        for waiting in self._checks.seen(partition, reply.seq):
            self._touched.add(waiting.claim.token)
            self.offers.changed.add(waiting.claim.worker_id)
        self._plan_soon(now)

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
        self._actions.releases += self._away.give_up(now, others_wait=bool(self._room))
        for ledger in self.ledgers.values():
            if ledger.expire(now):
                self._plan_soon(now)
        renewal = self._is_interested(now) and any(self._renew_at(each, now) <= now for each in self._each())
        if renewal or (self._plan_at is not None and self._plan_at <= now):
            self._plan(now)
        actions, self._actions = self._actions, Actions()
        return actions

    def due_at(self, now: float) -> float | None:
        """When `act` is to be called next if nothing happens; None: not at all."""
        times = [self._alarms[0][0]] if self._alarms else []
        if self._plan_at is not None:
            times.append(self._plan_at)
        if (given_up_at := self._away.due_at(now)) is not None:
            times.append(given_up_at)
        if self._is_interested(now):
            times += (self._renew_at(ledger, now) for ledger in self._each())
            times += (at for ledger in self._each() if (at := ledger.next_void_at()) is not None)
        return max(min(times), now) if times else None

    def is_idle(self, now: float) -> bool:
        """Whether it can be forgotten: nobody waits, nobody did lately, and no credit is out."""
        return (
            not self.waiting
            and not self._is_interested(now)
            and not any(ledger.holds_credit() for ledger in self._each())
        )

    # -- inside

    def _each(self) -> Iterable[Ledger]:
        return self.ledgers.values()

    def _is_interested(self, now: float) -> bool:
        return not self._closing and (bool(self.waiting) or now < self._interested_until)

    def _renew_at(self, ledger: Ledger, now: float) -> float:
        if self._capped and ledger.report.running:
            return ledger.sent_at + CAPPED_SEC
        return ledger.renew_at(now)

    def _changed(self, worker_id: str, now: float) -> None:
        """The worker has more or less room."""
        self.offers.changed.add(worker_id)
        self._plan_soon(now)

    def _plan_soon(self, now: float) -> None:
        at = max(now, self._planned_at + self._pace_sec)
        self._plan_at = at if self._plan_at is None else min(at, self._plan_at)

    def _alarm(self, at: float, token: int) -> None:
        heapq.heappush(self._alarms, (at, token))

    def _take(self, partition: int, grant: Grant, now: float) -> None:
        worker_id = grant.execution.worker_id
        waiting = self._by_worker.get(worker_id)
        if waiting is not None and waiting.room > 0:
            self._hand(waiting, partition, grant, now)
        elif waiting is not None or not self._away.keep(worker_id, partition, grant):
            self._actions.releases.append((partition, grant))

    def _hand(self, waiting: Waiting, partition: int, grant: Grant, now: float) -> None:
        if not waiting.got:
            waiting.first_got_at = now
        waiting.got.append((partition, grant))
        waiting.keys.add((grant.execution.execution_id, grant.execution.lease_epoch))
        waiting.answer_at = min(waiting.first_got_at + LINGER_MAX_SEC, now + LINGER_SEC)
        self._touched.add(waiting.claim.token)
        self.offers.changed.add(waiting.claim.worker_id)

    def _hold(self, partition: int, grant: Grant, now: float) -> None:
        execution = grant.execution
        waiting = self._by_claim.get((execution.worker_id, execution.claim_id))
        if waiting is None or (execution.execution_id, execution.lease_epoch) in waiting.keys:
            return
        self._granted.add((execution.execution_id, execution.lease_epoch), now)
        self._hand(waiting, partition, grant, now)

    def _look_at(self, waiting: Waiting, now: float) -> None:
        """Answers a claim that has waited enough."""
        if waiting.unchecked:
            self._check(waiting, now)
        if waiting.claim.until <= now:
            self._answer(waiting, now)
        elif waiting.unchecked:
            return
        elif waiting.got:
            if waiting.room <= 0 or waiting.answer_at <= now or not self._more_may_come(waiting):
                self._answer(waiting, now)
            else:
                self._alarm(waiting.answer_at, waiting.claim.token)
        elif not waiting.claim.patient and not any(ledger.report.backlog for ledger in self._each()):
            self._answer(waiting, now)

    def _check(self, waiting: Waiting, now: float) -> None:
        """Whether a claim must still be waited for partitions to say what it holds."""
        gone = {p for p in waiting.unchecked if self.ledgers[p].silent(now)}
        if waiting.check_until <= now or gone == waiting.unchecked:
            waiting.unsure = True
            self._checks.end(waiting)
            self._changed(waiting.claim.worker_id, now)

    def _more_may_come(self, waiting: Waiting) -> bool:
        worker_id = waiting.claim.worker_id
        if any(worker_id in ledger.in_parts for ledger in self._each()):
            return True
        elsewhere = [self.ledgers[partition] for partition in self.offers.at(worker_id)]
        # A single one is no herd: nothing else is to be expected at this moment, unless it is known.
        several = len(self.ledgers) > 1 and len(waiting.got) > 1
        return any(several or ledger.report.backlog for ledger in elsewhere)

    def _answer(self, waiting: Waiting, now: float) -> None:
        surplus = max(0, -waiting.room)
        given = waiting.got[: len(waiting.got) - surplus]
        self._actions.releases += waiting.got[len(given) :]
        self._actions.answers.append((waiting.claim.token, [grant for _, grant in given]))
        if waiting.claim.claim_id and given:
            self._answered.add((waiting.claim.worker_id, waiting.claim.claim_id), now)
        self._away.left(waiting.claim.worker_id, waiting.room, now)
        self._remove(waiting, now)

    def _remove(self, waiting: Waiting, now: float) -> None:
        claim = waiting.claim
        del self.waiting[claim.token]
        self._checks.end(waiting)
        if self._by_worker.get(claim.worker_id) is waiting:
            del self._by_worker[claim.worker_id]
        if self._by_claim.get((claim.worker_id, claim.claim_id)) is waiting:
            del self._by_claim[claim.worker_id, claim.claim_id]
        self._interested_until = now + INTEREST_SEC
        self._changed(claim.worker_id, now)

    def _plan(self, now: float) -> None:
        """Offers all free room, and sends what changed."""
        self._plan_at, self._planned_at = None, now
        ledgers = list(self.ledgers.values())
        draft = Draft(ledgers)
        self._follow_workers(ledgers, draft)
        whole = now < self._busy_until or any(each.report.backlog > BUSY_WORK for each in ledgers)
        plan = Plan(ledgers, draft, self._room, self.offers, self._fairness, now, whole=whole)
        self._capped = plan.make(self.max_running)
        cost_sec = 0.0
        for number, ledger in enumerate(ledgers):
            checks = self._checks.to_ask(ledger.partition)
            renewed = self._is_interested(now) and self._renew_at(ledger, now) <= now
            if number in draft.edited or checks or renewed:
                slots = self._send(ledger, draft.target(number), checks, now)
                cost_sec += PACE_SEC_PER_REQUEST + slots * PACE_SEC_PER_SLOT
        self._pace_sec = min(PACE_SEC_MAX, cost_sec)
        if plan.begins_at > now:
            self._plan_at = plan.begins_at

    def _follow_workers(self, ledgers: Sequence[Ledger], draft: Draft) -> None:
        """What changed for workers since the last plan: less room takes credit away, free room can be
        offered."""
        places = {ledger.partition: number for number, ledger in enumerate(ledgers)}
        for worker_id in self.offers.changed:
            waiting = None if self._closing else self._by_worker.get(worker_id)
            room = max(0, waiting.room) if waiting is not None else 0
            offers = self.offers.at(worker_id)
            left = room
            for partition in offers:
                number = places[partition]
                credit = draft.target(number).get(worker_id, 0)
                # The end of the pass that is under way takes away what the worker did not get in it.
                most = 0 if worker_id in ledgers[number].in_parts else left
                if credit > most:
                    draft.put(number, worker_id, most)
                elif waiting and credit and ledgers[number].claims[worker_id] != waiting.claim.claim_id:
                    draft.touch(number)
                left -= min(most, credit)
            ready = waiting is not None and self._is_ready(waiting)
            self._room.set(worker_id, max(0, room - sum(offers.values())) if ready else 0)
        self.offers.changed.clear()

    def _is_ready(self, waiting: Waiting) -> bool:
        """What a repeated claim holds takes the place of new work; with one partition, that knows it
        itself. What is still to come of a pass does so, too."""
        if any(waiting.claim.worker_id in ledger.in_parts for ledger in self._each()):
            return False
        return len(self.ledgers) == 1 or not (waiting.repeated and waiting.unchecked)

    def _send(self, ledger: Ledger, target: dict[str, int], checks: list[Waiting], now: float) -> int:
        partition = ledger.partition
        slots = [_slot(self._by_worker[worker], credit, partition) for worker, credit in target.items()]
        claims = {slot.worker_id: slot.claim_id for slot in slots}
        free = SLOTS_PER_REQUEST_MAX - len(slots)
        named = [waiting for waiting in checks if waiting.claim.worker_id in target]
        extra = [waiting for waiting in checks if waiting.claim.worker_id not in target][:free]
        slots += [_slot(waiting, 0, partition) for waiting in extra]
        number = ledger.number
        seq = ledger.send(target, claims, now)
        self._checks.asked(partition, seq, named + extra)
        self._actions.requests.append(Request(partition, seq, number, tuple(slots), ledger.running_max))
        return len(slots)


def _slot(waiting: Waiting, credit: int, partition: int) -> Slot:
    claim = waiting.claim
    return Slot(
        worker_id=claim.worker_id,
        credit=credit,
        claim_id=claim.claim_id,
        lease_sec=claim.lease_sec,
        known=waiting.knows(partition),
    )
