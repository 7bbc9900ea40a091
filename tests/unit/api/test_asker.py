"""Claims and credit of one pool: what is asked of partitions, what workers get, and what never happens."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from api.work.asker import CHECK_SEC, IMPATIENT_SEC, INTEREST_SEC, Actions, Asker
from api.work.credit import FIRST_WORD_SEC, PARK_SEC, RENEW_SEC, SILENT_SEC, SLACK_SEC
from api.work.placing import COVER, RESERVE, Room
from api.work.waiting import Claim
from schemas.commands import RequestWork
from schemas.entities import Content, Execution, ExecutionKind, ExecutionStatus, Policies, Priority
from schemas.replies import Grant, Granted, WorkHinted, WorkSeen
from schemas.replies import Waiting as Row
from streams.core.parking import Parking

NEWEST = 10**6
"""As the number of a request: later than all that a test sends."""


def granted(
    partition: int,
    number: int,
    grants: Sequence[Grant],
    backlog: int = 0,
    seq: int = NEWEST,
    more: bool = False,
) -> Granted:
    return Granted(
        session="s",
        pool="p",
        partition=partition,
        number=number,
        grants=tuple(grants),
        backlog=backlog,
        seq=seq,
        more=more,
    )


def seen(partition: int, seq: int, number: int = 0, held: Sequence[Grant] = (), backlog: int = 0) -> WorkSeen:
    return WorkSeen(
        session="s",
        pool="p",
        partition=partition,
        seq=seq,
        number=number,
        held=tuple(held),
        backlog=backlog,
    )


def hinted(partition: int, backlog: int) -> WorkHinted:
    return WorkHinted(session="s", pool="p", partition=partition, backlog=backlog)


def grant(number: int, worker: str, claim_id: str = "", epoch: int = 1) -> Grant:
    execution = Execution(
        tenant="acme",
        execution_id=f"j{number}.a.b.s",
        job_version=1,
        kind=ExecutionKind.SCHEDULE,
        pool="p",
        priority=Priority.NORMAL,
        scheduled_ms=0,
        due_ms=0,
        fired_ms=0,
        status=ExecutionStatus.RUNNING,
        lease_epoch=epoch,
        worker_id=worker,
        claim_id=claim_id,
    )
    return Grant(execution=execution, content=Content(name="", task="t"), policies=Policies())


@dataclass
class Pool:
    """An asker and its clock."""

    k: int = 1
    now: float = 0.0
    tokens: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.asker = Asker(range(self.k), self.now)

    def claim(
        self, worker: str, most: int = 1, claim_id: str = "", wait: float = 20, patient: bool = True
    ) -> int:
        token = next(self.tokens)
        self.asker.claim(
            Claim(
                token=token,
                worker_id=worker,
                max=most,
                until=self.now + wait,
                claim_id=claim_id,
                patient=patient,
            ),
            self.now,
        )
        return token

    def act(self, later: float = 0.0) -> Actions:
        self.now += later
        return self.asker.act(self.now)

    def introduced(self) -> Actions:
        """What is done once all partitions have said that nothing waits."""
        self.see_all(self.act())
        return self.act(0.1)

    def see_all(self, actions: Actions, backlog: int = 0) -> None:
        for request in actions.requests:
            self.asker.delivered(request.partition, request.seq, self.now)
            self.asker.seen(seen(request.partition, request.seq, backlog=backlog), self.now)


def credits(actions: Actions) -> dict[int, dict[str, int]]:
    return {r.partition: {s.worker_id: s.credit for s in r.slots if s.credit} for r in actions.requests}


def test_one_partition_needs_one_message() -> None:
    pool = Pool()
    token = pool.claim("w", 3, "c")
    [request] = pool.act().requests
    assert [(s.worker_id, s.credit, s.claim_id) for s in request.slots] == [("w", 3, "c")]
    pool.asker.seen(seen(0, request.seq, 0, (), 2), pool.now)
    pool.asker.granted(granted(0, 2, [grant(1, "w", "c"), grant(2, "w", "c")]), pool.now)
    actions = pool.act()
    assert [(t, len(grants)) for t, grants in actions.answers] == [(token, 2)]
    # The third place is not offered any more: the worker comes again for it.
    assert credits(actions) in ({0: {}}, {})


def test_a_partition_that_remembers_an_earlier_asker_hears_the_next() -> None:
    parking = Parking()
    heard = []
    for start in (0.0, 16.0):  # a pool is forgotten sooner here than there
        pool = Pool(now=start)
        pool.claim("w", wait=1)
        for later in (0.0, RENEW_SEC, RENEW_SEC):
            for request in pool.act(later).requests:
                command = RequestWork(
                    command_id="c",
                    tenant="t",
                    actor="a",
                    session="s",
                    pool="p",
                    seq=request.seq,
                    grants_seen=request.grants_seen,
                    park_sec=PARK_SEC,
                    slots=request.slots,
                )
                now_ms = round(pool.now * 1000)
                heard.append(parking.request("t/p", command, now_ms, now_ms, set())[1])
    assert len(heard) > 2
    assert all(heard)


def test_an_empty_answer_after_the_wait() -> None:
    pool = Pool()
    token = pool.claim("w", wait=20)
    assert pool.act(19.9).answers == []
    assert pool.act(0.2).answers == [(token, [])]


def test_who_does_not_wait_is_answered_when_nothing_is_there() -> None:
    pool = Pool()
    token = pool.claim("w", wait=IMPATIENT_SEC, patient=False)
    actions = pool.act()
    assert actions.answers == []
    pool.see_all(actions)
    assert pool.act(0.01).answers == [(token, [])]


def test_a_repeat_of_a_grant_is_dropped() -> None:
    pool = Pool()
    pool.claim("w")
    pool.act()
    pool.asker.granted(granted(0, 1, [grant(1, "w")]), pool.now)
    assert len(pool.act().answers) == 1
    pool.claim("w")
    pool.act()
    pool.asker.granted(granted(0, 1, [grant(1, "w")]), pool.now)
    actions = pool.act()
    assert (actions.answers, actions.releases) == ([], [])
    pool.asker.granted(granted(0, 2, [grant(1, "w", epoch=2)]), pool.now)
    assert len(pool.act().answers) == 1


def test_what_nobody_waits_for_is_released() -> None:
    pool = Pool()
    token = pool.claim("w", 2)
    pool.act()
    pool.asker.cancel(token, pool.now)
    pool.asker.granted(granted(0, 1, [grant(1, "w")]), pool.now)
    actions = pool.act()
    assert [(p, g.execution.execution_id) for p, g in actions.releases] == [(0, "j1.a.b.s")]


def test_a_late_grant_goes_to_the_next_claim_of_its_worker() -> None:
    pool = Pool()
    first = pool.claim("w", wait=1)
    pool.act()
    assert pool.act(1).answers == [(first, [])]
    second = pool.claim("w")
    pool.asker.granted(granted(0, 1, [grant(1, "w"), grant(2, "w")]), pool.now)
    actions = pool.act()
    assert [(t, len(g)) for t, g in actions.answers] == [(second, 1)]
    assert len(actions.releases) == 1


def test_a_new_claim_ends_the_older_one() -> None:
    pool = Pool()
    first = pool.claim("w")
    pool.act()
    second = pool.claim("w")
    actions = pool.act()
    assert actions.answers == [(first, [])]
    assert list(pool.asker.waiting) == [second]


def test_a_repeated_claim_gets_what_it_holds_and_nothing_new() -> None:
    pool = Pool(k=4)
    pool.claim("w", 2, "c")
    pool.see_all(pool.act())
    held = [grant(1, "w", "c"), grant(2, "w", "c")]
    pool.asker.granted(granted(1, 2, held), pool.now)
    assert len(pool.act(0.1).answers) == 1
    token = pool.claim("w", 2, "c")
    actions = pool.act(0.1)
    assert {r.partition for r in actions.requests} == {0, 1, 2, 3}
    assert not any(credits(actions).values())
    assert all([s.claim_id for s in r.slots] == ["c"] for r in actions.requests)
    for request in actions.requests:
        mine = held if request.partition == 1 else ()
        pool.asker.seen(seen(request.partition, request.seq, 0, mine, 5), pool.now)
    assert [(t, [g.execution for g in got]) for t, got in pool.act().answers] == [
        (token, [g.execution for g in held])
    ]


def test_a_partition_without_owner_does_not_hold_up_a_claim() -> None:
    pool = Pool(k=2)
    token = pool.claim("w", 1, "c")
    for request in pool.act().requests:
        if request.partition == 0:
            pool.asker.seen(seen(0, request.seq, 0, (), 0), pool.now)
    pool.asker.granted(granted(0, 1, [grant(1, "w", "c")]), pool.now)
    assert pool.act(0.1).answers == []
    assert [t for t, _ in pool.act(CHECK_SEC).answers] == [token]


def test_credit_moves_to_where_work_waits_once_it_is_let_go() -> None:
    pool = Pool(k=3)
    pool.claim("w")
    actions = pool.introduced()
    [home] = [p for p, placed in credits(actions).items() if placed]
    pool.see_all(actions)
    other = (home + 1) % 3
    pool.asker.hinted(hinted(other, 5), pool.now)
    back = pool.act(0.1)
    assert credits(back) == {home: {}}
    assert pool.act(0.1).requests == []
    pool.see_all(back)
    assert credits(pool.act(0.1)) == {other: {"w": 1}}


def test_credit_of_a_silent_partition_comes_back_in_time() -> None:
    pool = Pool(k=2)
    pool.claim("w", wait=60)
    first = pool.introduced()
    [dead] = [p for p, placed in credits(first).items() if placed]
    alive = 1 - dead
    for request in first.requests:
        pool.asker.delivered(request.partition, request.seq, pool.now)
    placed_at = None
    while placed_at is None and pool.now < 60:
        pool.asker.hinted(hinted(alive, 1), pool.now)
        actions = pool.act(0.25)
        for request in actions.requests:
            pool.asker.delivered(request.partition, request.seq, pool.now)
            if request.partition == alive:
                pool.asker.seen(seen(alive, request.seq, 0, (), 1), pool.now)
                if any(slot.credit for slot in request.slots):
                    placed_at = pool.now
    assert placed_at is not None
    assert PARK_SEC + SLACK_SEC <= placed_at <= PARK_SEC + SLACK_SEC + SILENT_SEC + RENEW_SEC


def test_no_room_is_offered_before_it_is_known_whose_work_waits_where() -> None:
    pool = Pool(k=3)
    pool.claim("w", 5)
    asked = pool.act()
    assert credits(asked) == {0: {}, 1: {}, 2: {}}
    for request in asked.requests[:2]:
        pool.asker.seen(seen(request.partition, request.seq, backlog=9), pool.now)
    assert pool.act(0.1).requests == []
    assert pool.asker.due_at(pool.now) == FIRST_WORD_SEC  # one without an owner is not waited for longer
    assert sum(sum(placed.values()) for placed in credits(pool.act(FIRST_WORD_SEC - 0.1)).values()) == 5


def tell(pool: Pool, partition: int, tenant: str, running: int, backlog: int = 9) -> None:
    """A partition of a shared pool says whose work waits and runs there."""
    row = Row(priority=Priority.NORMAL, tenant=tenant, weight=1, backlog=backlog, running=running)
    told = WorkHinted(
        session="s", pool="p", partition=partition, backlog=backlog, waiting=(row,), running=running
    )
    pool.asker.hinted(told, pool.now)


def test_credit_is_bounded_by_what_was_known_to_run_while_tenants_share_what_is_scarce() -> None:
    pool = Pool(k=2)
    for number in range(3):
        pool.claim(f"w{number}")
    pool.see_all(pool.act())
    tell(pool, 0, "red", 4)
    tell(pool, 1, "blue", 3)
    sent = pool.act(0.1)
    bounds = {r.partition: r.running_max for r in sent.requests}
    assert {p: sum(placed.values()) for p, placed in credits(sent).items()} == {0: 1, 1: 2}
    assert bounds == {0: 5, 1: 5}
    pool.see_all(sent, backlog=9)
    # Others came first there: what cannot be used is called back, and goes where it is fair now.
    tell(pool, 0, "red", 5)
    tell(pool, 1, "blue", 3)
    back = pool.act(0.1)
    assert credits(back)[0] == {}
    # Nobody else waits any more: no bound is needed.
    tell(pool, 1, "blue", 5, backlog=2)
    tell(pool, 0, "red", 5, backlog=0)
    [freed] = [request for request in pool.act(0.1).requests if request.partition == 1]
    assert freed.running_max == 0


def test_credit_that_cannot_be_used_does_not_keep_a_capped_pool_from_its_cap() -> None:
    pool = Pool(k=2)
    pool.asker.max_running = 4
    for number in range(2):
        pool.claim(f"w{number}")
    pool.see_all(pool.act())
    tell(pool, 0, "red", 3)
    tell(pool, 1, "blue", 0)
    sent = pool.act(0.1)
    assert {p: sum(placed.values()) for p, placed in credits(sent).items()} == {1: 1}
    pool.see_all(sent, backlog=9)
    tell(pool, 1, "blue", 1)  # another process was first
    tell(pool, 0, "red", 2)
    assert credits(pool.act(0.1))[1] == {}


def test_interest_is_renewed_and_ends() -> None:
    pool = Pool(k=2)
    token = pool.claim("w")
    pool.see_all(pool.act())
    pool.asker.cancel(token, pool.now)
    pool.see_all(pool.act(0.1))
    asked = 0
    while pool.now < 2 * INTEREST_SEC:
        actions = pool.act(0.5)
        asked += len(actions.requests)
        pool.see_all(actions)
    assert 2 * 2 <= asked <= 2 * 4
    assert pool.asker.is_idle(pool.now)
    assert pool.asker.due_at(pool.now) is None


def test_at_the_end_nothing_stays_out() -> None:
    pool = Pool(k=2)
    token = pool.claim("w", 10)
    pool.see_all(pool.act())
    pool.asker.close(pool.now)
    actions = pool.act(0.1)
    assert actions.answers == [(token, [])]
    assert not any(credits(actions).values())
    pool.asker.granted(granted(0, 1, [grant(1, "w")]), pool.now)
    assert len(pool.act().releases) == 1
    pool.see_all(actions)
    assert pool.asker.is_idle(pool.now)


class AskerMachine(RuleBasedStateMachine):
    """Any order of claims, cancels, grants, hints, losses and delays.

    The partitions are modelled as the core has it: the newest request replaces, and a worker with grants that
    the asker had not seen gets nothing under it. Replies of one partition come in order; work and time are
    drawn.
    """

    K = 3

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pool(k=self.K)
        self.rooms: dict[int, tuple[str, int]] = {}
        self.credit: list[dict[str, int]] = [{} for _ in range(self.K)]
        self.unseen: list[list[tuple[int, str]]] = [[] for _ in range(self.K)]
        self.number = [0] * self.K
        self.work = [0] * self.K
        self.seqs = [0] * self.K
        self.inbox: list[list[object]] = [[] for _ in range(self.K)]
        self.outbox: list[list[tuple[str, int, int, tuple[Grant, ...], bool]]] = [[] for _ in range(self.K)]
        self.ids = itertools.count(1)
        self.open: dict[str, str] = {}  # granted and neither handed out nor released
        self.handed: set[str] = set()

    def _act(self) -> None:
        actions = self.pool.act()
        for token, grants in actions.answers:
            worker, room = self.rooms.pop(token)
            assert len(grants) <= room
            for given in grants:
                assert given.execution.worker_id == worker
                self._settle(given)
                self.handed.add(given.execution.execution_id)
        for _, given in actions.releases:
            self._settle(given)
        for request in actions.requests:
            self.inbox[request.partition].append(request)
        if actions.requests:
            self._check_offers()

    def _check_offers(self) -> None:
        """What is offered is never more than there is room for."""
        for waiting in self.pool.asker.waiting.values():
            worker = waiting.claim.worker_id
            ledgers = self.pool.asker.ledgers.values()
            assert sum(ledger.placed().get(worker, 0) for ledger in ledgers) <= waiting.room

    def _settle(self, given: Grant) -> None:
        # Handed out or released exactly once.
        del self.open[given.execution.execution_id]

    @rule(worker=st.sampled_from("abc"), room=st.integers(1, 4))
    def claim(self, worker: str, room: int) -> None:
        token = self.pool.claim(worker, room, wait=30)
        self.rooms[token] = (worker, room)
        self._act()

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.rooms:
            token = data.draw(st.sampled_from(sorted(self.rooms)))
            del self.rooms[token]
            self.pool.asker.cancel(token, self.pool.now)
            self._act()

    @rule(partition=st.integers(0, K - 1))
    def partition_reads(self, partition: int) -> None:
        if not self.inbox[partition]:
            return
        request = self.inbox[partition].pop(0)
        self.pool.asker.delivered(partition, request.seq, self.pool.now)  # type: ignore[attr-defined]
        self.seqs[partition] = request.seq  # type: ignore[attr-defined]
        seen = request.grants_seen  # type: ignore[attr-defined]
        self.unseen[partition] = [u for u in self.unseen[partition] if u[0] > seen]
        credit = {slot.worker_id: slot.credit for slot in request.slots}  # type: ignore[attr-defined]
        for _, worker in self.unseen[partition]:
            credit[worker] = 0
        self.credit[partition] = credit
        number = self.number[partition]
        self.outbox[partition].append(("seen", request.seq, number, (), False))  # type: ignore[attr-defined]
        self._match(partition)

    @rule(partition=st.integers(0, K - 1), more=st.integers(1, 3))
    def work_comes(self, partition: int, more: int) -> None:
        self.work[partition] += more
        self._match(partition)

    def _match(self, partition: int) -> None:
        grants = []
        for worker, places in self.credit[partition].items():
            while places and self.work[partition]:
                places -= 1
                self.work[partition] -= 1
                self.number[partition] += 1
                self.unseen[partition].append((self.number[partition], worker))
                made = grant(next(self.ids), worker)
                self.open[made.execution.execution_id] = worker
                grants.append(made)
            if any(made.execution.worker_id == worker for made in grants):
                places = 0  # what the pass did not use has lapsed
            self.credit[partition][worker] = places
        if grants:
            cut, seq, number = len(grants) // 2, self.seqs[partition], self.number[partition]
            if cut:
                early = tuple(grants[:cut])
                self.outbox[partition].append(("granted", seq, number - len(grants) + cut, early, True))
            self.outbox[partition].append(("granted", seq, number, tuple(grants[cut:]), False))
        elif self.work[partition]:
            self.outbox[partition].append(("hinted", 0, 0, (), False))

    @rule(partition=st.integers(0, K - 1))
    def reply_comes(self, partition: int) -> None:
        if not self.outbox[partition]:
            return
        kind, seq, number, grants, more = self.outbox[partition].pop(0)
        asker, now, backlog = self.pool.asker, self.pool.now, self.work[partition]
        if kind == "seen":
            asker.seen(seen(partition, seq, number, (), backlog), now)
        elif kind == "granted":
            asker.granted(granted(partition, number, grants, backlog, seq, more), now)
            asker.granted(
                granted(partition, number, grants, backlog, seq, more), now
            )  # repeated after a crash
        else:
            asker.hinted(hinted(partition, backlog), now)
        self._act()

    @rule(sec=st.sampled_from([0.001, 0.01, 0.1, 0.5]))
    def time_passes(self, sec: float) -> None:
        self.pool.now += sec
        self._act()

    @invariant()
    def ceilings_are_true(self) -> None:
        """The bound that the ledger keeps is never below what the partition really has left to grant."""
        for partition in range(self.K):
            ledger = self.pool.asker.ledgers[partition]
            on_the_way = [g for _, _, _, grants, _ in self.outbox[partition] for g in grants]
            for worker, places in self.credit[partition].items():
                unheard = sum(g.execution.worker_id == worker for g in on_the_way)
                assert places + unheard <= ledger.ceiling(worker), (partition, worker)


TestAskerMachine = AskerMachine.TestCase
TestAskerMachine.settings = settings(max_examples=40, stateful_step_count=60, deadline=None)


def test_a_pass_that_is_cut_is_one_answer_and_its_end_gives_the_rest_back() -> None:
    pool = Pool(k=1)
    token = pool.claim("w", 5, wait=10)
    pool.act()
    pool.asker.granted(granted(0, 2, [grant(1, "w"), grant(2, "w")], 3, more=True), pool.now)
    pool.now += 0.1
    assert pool.act().answers == []
    pool.asker.granted(granted(0, 3, [grant(3, "w")], 3), pool.now)
    ((answered, grants),) = pool.act().answers
    assert (answered, len(grants)) == (token, 3)
    assert pool.asker.ledgers[0].ceiling("w") == 0


@pytest.mark.parametrize("k", [1, 64])
def test_what_happens_costs_as_much_as_its_workers_not_as_all_that_wait(
    k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted: how many workers a plan looks at, and how many requests name."""
    pool = Pool(k=k)
    for number in range(5_000):
        pool.claim(f"w{number}", wait=1_000)
    actions = pool.introduced() if k > 1 else pool.act()
    named = sum(len(request.slots) for request in actions.requests)
    assert k * COVER <= named <= k * RESERVE
    pool.see_all(actions)
    looked_at: list[str] = []
    of = Room.of

    def counted(room: Room, worker_id: str) -> int:
        looked_at.append(worker_id)
        return of(room, worker_id)

    monkeypatch.setattr(Room, "of", counted)
    named = 0
    for number in range(200):
        partition = number % k
        worker = next(iter(pool.asker.ledgers[partition].placed()))
        pool.asker.granted(granted(partition, 1 + number // k, [grant(number, worker)]), pool.now)
        for step in (0.004, 0.004):
            actions = pool.act(step)
            named += sum(len(request.slots) for request in actions.requests)
            pool.see_all(actions)
        pool.claim(worker, wait=1_000)
    assert len(looked_at) <= 20 * 200
    assert named <= 20 * 200
