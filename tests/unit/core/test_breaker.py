"""Circuit breakers of pools: they hold back retries, lose nothing and spend no attempt (semantics §6)."""

from __future__ import annotations

import sys
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from schemas import codec, ids
from schemas.commands import Complete, Completion
from schemas.entities import BreakerStatus as B
from schemas.entities import Execution, OverlapPolicy, RetryJitter, RetryPolicy, WaitingFor
from schemas.entities import ExecutionStatus as E
from schemas.replies import Grant
from streams.core.engine import Engine
from streams.core.outcomes import Outcomes
from tests.golden import sample
from tests.unit.core.world import TENANT, World, compacted, rebuild, ref

TARGET = "pool:default"
RETRY = RetryPolicy(max_attempts=9, backoff_base_sec=10, backoff_factor=1, jitter=RetryJitter.NONE)


def status(world: World, target: str = TARGET) -> B | None:
    breaker = world.engine.state.breaker(TENANT, target)
    return breaker.status if breaker is not None else None


def probes(world: World) -> tuple[str, ...]:
    breaker = world.engine.state.breaker(TENANT, TARGET)
    return breaker.probes if breaker is not None else ()


def held(world: World) -> list[str]:
    return world.engine.state.indexes.held_back(TENANT, TARGET, 10_000)


def granted(world: World, count: int, jobs: int = 3, **kw: Any) -> list[Grant]:
    """So many executions of so many jobs, running."""
    first = len(world.executions())
    for n in range(count):
        job_id = f"job-{(first + n) % jobs}"
        if not world.knows_job(job_id):
            kw.setdefault("retry", RETRY)
            world.register(job_id, every_sec=86_400, overlap=OverlapPolicy.ALLOW, **kw)
        world.trigger(job_id, key=f"t{first + n}")
    grants = world.claim("W", count)
    assert len(grants) == count
    return grants


def opened(count: int = 20) -> World:
    """All have failed once, and wait for their retry."""
    world = World()
    for grant in granted(world, count):
        world.fail(grant)
    assert status(world) is B.OPEN
    return world


@pytest.mark.parametrize(
    ("failures", "successes", "jobs", "expected"),
    [
        (20, 0, 3, B.OPEN),
        (19, 0, 3, None),
        (10, 10, 3, B.OPEN),
        (9, 11, 3, None),
        (20, 0, 2, B.OPEN),  # the target has no more jobs
    ],
)
def test_when_it_opens(failures: int, successes: int, jobs: int, expected: B | None) -> None:
    world = World()
    grants = granted(world, failures + successes, jobs)
    for grant in grants[failures:]:
        world.complete(grant)
    for grant in grants[:failures]:
        assert status(world) is None
        world.fail(grant)
    assert status(world) is expected
    assert [alert.kind for alert in world.alerts] == (["breaker"] if expected else [])


def test_one_bad_job_of_many_does_not_open_it() -> None:
    world = World()
    world.register("good-1", every_sec=86_400)
    world.register("good-2", every_sec=86_400)
    for grant in granted(world, 40, 1):
        world.fail(grant)
    assert status(world) is None


def test_old_failures_do_not_count() -> None:
    world = World()
    grants = granted(world, 20, timeout_sec=600, lease_sec=600)
    for grant in grants[:10]:
        world.fail(grant)
    world.at(60)
    for grant in grants[10:]:
        world.fail(grant)
    assert status(world) is None


def test_what_says_nothing_of_the_target_does_not_count() -> None:
    world = World()
    grants = granted(world, 60, lease_sec=20, max_deliveries=1)
    for grant in grants[:20]:
        world.fail(grant, retryable=False)
    for grant in grants[20:40]:
        world.cancel(grant.execution.execution_id)
        world.fail(grant)
    world.at(21)  # the others expire
    assert Counter(e.status for e in world.executions()) == {E.FAILED: 40, E.CANCELLED: 20}
    assert status(world) is None


def test_timeouts_count() -> None:
    world = World()
    granted(world, 20, lease_sec=20, timeout_sec=20)
    world.at(21)
    assert status(world) is B.OPEN


def test_open_it_holds_back_retries_and_nothing_else() -> None:
    world = opened()
    world.register("fresh", delay_sec=0)
    world.register("elsewhere", delay_sec=0, pool="other")
    world.at(12)
    waiting = [e for e in world.executions() if e.status is E.PENDING and e.attempt > 1]
    assert {e.waiting_for for e in waiting} == {WaitingFor.BREAKER}
    assert len(held(world)) == len(waiting) == 20
    assert [g.execution.job_id for g in world.claim("W", 50)] == ["fresh"]
    assert [g.execution.job_id for g in world.claim("V", 50, pool="other")] == ["elsewhere"]
    assert all(e.attempt == 2 and e.delivery_count == 0 for e in waiting)


def test_a_breaker_is_of_one_tenant_also_in_a_shared_pool() -> None:
    world = World()
    for tenant, count in ((TENANT, 20), ("other", 1)):
        kw: dict[str, Any] = {"tenant": tenant, "pool": "shared/p", "retry": RETRY}
        world.register("job", every_sec=86_400, overlap=OverlapPolicy.ALLOW, **kw)
        for n in range(count):
            world.trigger("job", key=f"t{n}", tenant=tenant)
    for grant in world.claim("W", 21, pool="shared/p"):
        world.fail(grant)
    assert status(world, "pool:shared/p") is B.OPEN
    world.at(11)
    assert [grant.execution.tenant for grant in world.claim("W", 21, pool="shared/p")] == ["other"]


def test_retries_that_were_in_the_queue_are_held_back_when_asked_for() -> None:
    world = World()
    grants = granted(world, 40, timeout_sec=600, lease_sec=600)
    for grant in grants[:5]:
        world.fail(grant)
    world.at(11)  # five retries are pending
    for grant in grants[20:]:
        world.fail(grant)
    assert status(world) is B.OPEN
    assert held(world) == []
    assert world.claim("W", 50) == []
    assert len(held(world)) == 5


def test_after_the_pause_three_are_tried_and_a_success_lets_all_go() -> None:
    world = opened(250)
    world.at(29.9)
    assert status(world) is B.OPEN
    world.at(30)
    assert status(world) is B.PROBING
    tried = world.claim("W", 500)
    assert sorted(g.execution.execution_id for g in tried) == sorted(probes(world))
    assert len(tried) == 3
    assert len(held(world)) == 247
    world.complete(tried[0])
    assert status(world) is B.CLOSED
    world.at(30.1)
    assert held(world) == []
    assert len(world.claim("W", 500)) == 247  # nothing was lost
    assert {e.attempt for e in world.executions()} == {2}
    assert [a.detail.rpartition(": ")[2].split()[0] for a in world.alerts] == ["open", "a", "closed,"]


def test_a_probe_that_fails_opens_it_for_twice_as_long() -> None:
    world = opened()
    pauses = []
    for _ in range(7):
        began = world.now_ms
        world.until(world.engine.state.breaker(TENANT, TARGET).until_ms)  # type: ignore[union-attr]
        pauses.append((world.now_ms - began) // 1_000)
        first, *_ = world.claim("W", 3)
        assert status(world) is B.PROBING
        world.fail(first)
        assert status(world) is B.OPEN
    assert pauses == [30, 60, 120, 240, 480, 600, 600]


def test_a_probe_that_beats_for_a_minute_closes_it() -> None:
    world = opened()
    world.at(30)
    grant, *_ = world.claim("W", 3, lease_sec=120)
    world.at(89)
    world.beat(grant)
    assert status(world) is B.PROBING
    world.at(90)
    world.beat(grant)
    assert status(world) is B.CLOSED


@pytest.mark.parametrize("how", ["cancel", "not retryable", "snooze", "cancel pending", "cancel job"])
def test_a_probe_that_told_nothing_is_replaced(how: str) -> None:
    world = opened()
    world.at(30)
    before = probes(world)
    if how.startswith("cancel "):
        (first, *_) = before
        if how == "cancel pending":
            world.cancel(first)
        else:
            world.cancel_job(ids.job_id_of(first) or "")
    else:
        grant, *_ = world.claim("W", 3)
        first = grant.execution.execution_id
        match how:
            case "cancel":
                world.cancel(first)
                world.beat(grant)
            case "not retryable":
                world.fail(grant, retryable=False)
            case "snooze":
                world.release(grant, 5)
    assert status(world) is B.PROBING
    assert first not in probes(world)
    assert len(probes(world)) == 3


def test_a_cancelled_one_that_waits_is_gone() -> None:
    world = opened()
    world.at(12)
    one = held(world)[0]
    assert world.cancel(one).status == 202
    assert one not in held(world)
    world.cancel_job("job-1")
    assert {ids.job_id_of(each) for each in held(world)} == {"job-0", "job-2"}


def test_first_attempts_probe_too_when_nothing_is_held_back() -> None:
    world = World()
    for grant in granted(world, 20, retry=RetryPolicy(max_attempts=1)):
        world.fail(grant)
    world.at(30)
    assert (status(world), probes(world)) == (B.PROBING, ())
    (grant,) = granted(world, 1)
    assert probes(world) == (grant.execution.execution_id,)
    world.complete(grant)
    assert status(world) is B.CLOSED


@pytest.mark.parametrize("openings", [1, 2])
def test_an_older_store_and_a_compacted_log_try_again_in_time(openings: int) -> None:
    world = opened()
    older, known = world.store.copy(), len(world.log)
    for _ in range(openings):
        world.until(world.engine.state.breaker(TENANT, TARGET).until_ms)  # type: ignore[union-attr]
        first, *_ = world.claim("W", 3)
        world.fail(first)
    assert status(world) is B.OPEN
    until_ms = world.engine.state.breaker(TENANT, TARGET).until_ms  # type: ignore[union-attr]
    tail = world.log[known:]
    world.engine = Engine(0, older, codec, world.router)
    for key, value in compacted(tail, len(tail)):
        world.engine.apply(key, value)
    older.write(world.engine.commit())
    world.engine.written()
    world.store = older
    world.until(until_ms)
    assert status(world) is B.PROBING


@pytest.mark.parametrize("how", ["store", "log", "compacted"])
def test_a_restart_in_every_state(how: str) -> None:
    def restarted(world: World) -> None:
        if how == "store":
            world.engine = Engine(0, world.store, codec, world.router)
        else:
            log = world.log if how == "log" else compacted(world.log, len(world.log))
            assert rebuild(log).digest() == world.engine.digest()
            world.engine = rebuild(log)
            world.store = world.engine.state.kv._base  # type: ignore[assignment]
        world.run()

    world = opened(120)
    restarted(world)
    assert status(world) is B.OPEN
    world.at(30)
    assert status(world) is B.PROBING
    before = probes(world)
    restarted(world)
    assert probes(world) == before
    tried = world.claim("W", 200)
    assert len(tried) == 3
    restarted(world)
    world.engine.begin(world.now_ms, world.chance.random)
    world.engine.abort()
    world.complete(tried[0])
    assert status(world) is B.CLOSED
    restarted(world)
    world.at(31)
    assert held(world) == []
    assert len(world.claim("W", 200)) == 117


def test_a_closed_one_is_forgotten_after_a_day() -> None:
    world = opened()
    world.at(30)
    world.complete(world.claim("W", 3)[0])
    world.at(30 + 86_399)
    assert status(world) is B.CLOSED
    world.at(30 + 86_400)
    assert status(world) is None


@pytest.mark.parametrize("how", ["store", "compacted"])
def test_one_that_nothing_comes_to_try_is_closed_after_a_day(how: str) -> None:
    world = opened()
    for job in range(3):
        world.cancel_job(f"job-{job}")
    world.at(31)
    assert (status(world), probes(world)) == (B.PROBING, ())
    if how == "compacted":
        world.engine = rebuild(compacted(world.log, len(world.log)))
        world.store = world.engine.state.kv._base  # type: ignore[assignment]
    world.at(30 + 86_399)
    assert status(world) is B.PROBING
    world.at(30 + 86_400)
    assert status(world) is B.CLOSED
    assert world.alerts[-1].detail.endswith("closed, nothing came to be tried for a day")
    world.at(30 + 2 * 86_400)
    assert status(world) is None


def test_what_waits_to_be_tried_for_days_keeps_its_breaker_open() -> None:
    world = opened()
    world.at(30 + 5 * 86_400)  # no worker asks
    assert (status(world), len(probes(world)), len(held(world))) == (B.PROBING, 3, 17)
    for grant in world.claim("W", 3):
        world.cancel(grant.execution.execution_id)
        world.beat(grant)
    assert len(probes(world)) == 3
    assert len(held(world)) == 14


def test_those_due_first_are_tried() -> None:
    world = World()
    grants = granted(world, 20, timeout_sec=600, lease_sec=600)
    for grant in reversed(grants):
        world.fail(grant)
        world.now_ms += 10
    world.at(31)
    tried = {grant.execution.execution_id for grant in world.claim("W", 20)}
    assert tried == {grant.execution.execution_id for grant in grants[-3:]}


def test_what_was_held_back_is_let_go_a_hundred_at_a_time() -> None:
    """A look at it lets go of so many, and two looks may meet in one pass."""
    world = opened(450)
    world.at(30)
    tried = world.claim("W", 3)
    item = Completion(**ref(tried[0]))
    complete = Complete(**world._envelope(), items=(item,), pools=("default",))
    world.one(world.now_ms, 1_000, [complete])
    left = [len(held(world))]
    while left[-1]:
        world.now_ms = max(world.now_ms, world.engine.next_wakeup_ms(world.now_ms))
        world.one(world.now_ms, 1_000)
        left.append(len(held(world)))
    assert left[0] == 447
    assert all(more - fewer <= 200 for more, fewer in pairwise(left))
    assert world.sec(world.now_ms) < 31


def test_the_minute_of_outcomes_begins_anew_after_a_restart() -> None:
    world = World()
    grants = granted(world, 38, timeout_sec=600, lease_sec=600)
    for grant in grants[:19]:
        world.fail(grant)
    world.engine = Engine(0, world.store, codec, world.router)
    for grant in grants[19:]:
        world.fail(grant)
    assert status(world) is None


def test_an_aborted_transaction_counts_nothing() -> None:
    outcomes = Outcomes()
    execution = sample(Execution)
    tenant = execution.tenant
    outcomes.add(execution, "t", 0, failed=True)
    outcomes.settled()
    outcomes.add(execution, "t", 0, failed=True)
    outcomes.undo()
    assert outcomes.totals(tenant, "t", 0) == (1, 1, 1)
    outcomes.clear(tenant, "t")
    outcomes.undo()
    assert outcomes.totals(tenant, "t", 59_999) == (1, 1, 1)
    assert outcomes.totals(tenant, "t", 60_000) == (0, 0, 0)
    outcomes.drop_stale(120_000)
    assert outcomes._windows == {}


@pytest.mark.slow
def test_a_storm_of_10_000_failures_is_spread_by_full_jitter() -> None:
    """All fail in the same instant; their retries fall due evenly over the backoff (here 100 s)."""
    world = World()
    world.configure(registrations_per_sec=1_000_000, max_running=100_000)
    retry = RetryPolicy(max_attempts=5, backoff_base_sec=100, backoff_factor=1, backoff_max_sec=100)
    for n in range(100):
        world.register(f"job-{n}", every_sec=86_400, overlap=OverlapPolicy.ALLOW, retry=retry)
    world.at(86_400 - 1)
    starts = world.now_ms
    for n in range(100):
        for again in range(100):
            world.trigger(f"job-{n}", key=f"{n}-{again}")
    grants: list[Grant] = []
    while batch := world.claim("W", 1_000):
        grants += batch
    assert len(grants) == 10_000
    for grant in grants:
        world.fail(grant)
    due = [e.due_ms - starts for e in world.executions() if e.status is E.SCHEDULED]
    histogram = Counter(ms // 10_000 for ms in due)
    for at, count in sorted(histogram.items()):
        sys.stdout.write(f"due after {at * 10:2} s: {count:5} {'#' * (count // 25)}\n")
    assert len(due) == 10_000
    assert sorted(histogram) == list(range(10))
    assert all(850 <= count <= 1_150 for count in histogram.values())  # 1,000 and five deviations


class Counting(World):
    """Knows how many events its longest transaction had."""

    longest = 0

    def one(self, *args: Any, **kw: Any) -> bool:
        before = len(self.log)
        more = super().one(*args, **kw)
        self.longest = max(self.longest, len(self.log) - before)
        return more


def test_many_retries_of_one_group_are_looked_at_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them may be tried at a time: neither the breaker nor the group may walk over all at once."""
    monkeypatch.setattr("streams.core.handlers.breaking.ROUNDS_MAX", 2)
    monkeypatch.setattr("streams.core.handlers.breaking.LET_GO_MAX", 5)
    monkeypatch.setattr("streams.core.handlers.vacating.HELD_BACK_MAX", 5)
    world, count = Counting(), 80
    for n in range(4):
        world.register(
            f"job-{n}", every_sec=86_400, overlap=OverlapPolicy.ALLOW, retry=RETRY, exclusion_group="g"
        )
    for n in range(count):
        world.trigger(f"job-{n % 4}", key=f"t{n}")
        (grant,) = world.claim("W", 9)
        world.fail(grant)
    world.trigger("job-0", key="holder")
    (holder,) = world.claim("W", 9)
    world.at(29)
    assert len(held(world)) == count
    world.longest = 0
    world.at(31)
    assert status(world) is B.PROBING
    assert held(world) == []  # all wait for their group, and each was looked at once
    assert world.longest <= 16
    world.complete(holder)
    (probe,) = world.claim("W", 9)
    world.complete(probe)
    assert status(world) is B.CLOSED
    while status(world) is B.CLOSED:
        (grant,) = world.claim("W", 9)
        world.fail(grant)
    assert status(world) is B.OPEN
    assert world.claim("W", 9) == []
    assert len(held(world)) + 41 == count  # those that failed wait for their next attempt
    assert world.longest <= 16
    while status(world) is not B.CLOSED:
        for grant in world.claim("W", 9):
            world.complete(grant)
        world.until(world.now_ms + 5_000)
    while grants := world.claim("W", 9):
        assert len(grants) == 1
        world.complete(grants[0])
        world.until(world.now_ms + 1_000)
    assert Counter(e.status for e in world.executions()) == {E.COMPLETED: count + 1}


def test_an_error_at_a_breakers_timer_is_told_of_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = opened()
    with monkeypatch.context() as broken:
        broken.setattr("streams.core.handlers.timing.visit_breaker", lambda *_: 1 / 0)
        world.at(31)
    (alert,) = (alert for alert in world.alerts if alert.kind == "internal_error")
    assert (alert.tenant, alert.target, alert.job_id) == (TENANT, TARGET, "")
    world.at(95)
    assert status(world) is B.PROBING
