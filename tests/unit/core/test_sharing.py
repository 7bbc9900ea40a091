"""Shared pools: who is next, by weight, however long the runs are (semantics §6)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from schemas.commands import (
    Beat,
    Complete,
    Completion,
    ExtendLease,
    Fail,
    Failure,
    Handback,
    Release,
    RequestWork,
    Slot,
)
from schemas.entities import ExecutionStatus as E
from schemas.entities import Pool, Priority, Tenant
from schemas.replies import Granted, Waiting, WorkDone, WorkSeen
from tests.unit.core.fleet import POOL, Backlogs, Fleet
from tests.unit.core.world import World, compacted, granted, hints, rebuild, ref

WEIGHTS = {"a": 1, "b": 2, "c": 5}
TEN_MINUTES_MS = 600_000


def shared_world(weights: dict[str, int] = WEIGHTS, **pool: Any) -> World:
    world = World()
    for tenant, weight in weights.items():
        world.router.settings[tenant] = Tenant(tenant=tenant, weight=weight)
    world.router.settings["shared"] = Tenant(tenant="shared", pools=(Pool(name="p", **pool),))
    return world


def register(world: World, tenant: str, count: int, **kw: Any) -> None:
    for n in range(count):
        world.register(f"{tenant}-{n}", tenant=tenant, pool=POOL, delay_sec=0, **kw)


def take(world: World, count: int) -> list[str]:
    """Tenants of so many grants, in their order."""
    return [grant.execution.tenant for grant in world.claim(count=count, pool=POOL)]


@pytest.mark.parametrize(
    "runs_ms",
    [
        {"a": 10, "b": 10, "c": 10},
        {"a": TEN_MINUTES_MS, "b": 10, "c": 70},
        {"a": 10, "b": TEN_MINUTES_MS, "c": 30},
        {"a": 10, "b": 30, "c": TEN_MINUTES_MS},
    ],
)
def test_endless_backlogs_hold_slots_by_weight_however_long_they_run(runs_ms: dict[str, int]) -> None:
    world = shared_world(max_running=16, tenant_max_running=16)
    backlogs = Backlogs(world, {name: (name, Priority.NORMAL) for name in WEIGHTS})
    fleet = Fleet(world, 16, lambda execution: runs_ms[execution.tenant])
    fleet.run(backlogs, 600)
    whole = sum(fleet.held_ms.values())
    for tenant, weight in WEIGHTS.items():
        assert fleet.held_ms[tenant] / whole == pytest.approx(weight / 8, rel=0.03)


def test_one_slot_goes_round_by_weight() -> None:
    """What runs says nothing here: it is 0 for all whenever the slot is free."""
    world = shared_world()
    backlogs = Backlogs(world, {name: (name, Priority.NORMAL) for name in WEIGHTS})
    fleet = Fleet(world, 1, lambda _: 10)
    fleet.run(backlogs, 1_600)
    counted = Counter(execution.tenant for execution in fleet.granted[:160])
    assert counted == {"a": 20, "b": 40, "c": 100}


def test_a_hundredfold_weight_leaves_the_other_its_share() -> None:
    world = shared_world({"a": 100, "b": 1})
    backlogs = Backlogs(world, {name: (name, Priority.NORMAL) for name in "ab"})
    fleet = Fleet(world, 1, lambda _: 10)
    fleet.run(backlogs, 4_040)
    counted = Counter(execution.tenant for execution in fleet.granted[:404])
    assert counted == {"a": 400, "b": 4}


def test_who_was_away_saved_nothing_up() -> None:
    world = shared_world({"a": 1, "b": 1})
    backlogs = Backlogs(world, {"a": ("a", Priority.NORMAL)})
    fleet = Fleet(world, 1, lambda _: 10)
    fleet.run(backlogs, 300)
    before = len(fleet.granted)
    both = Backlogs(world, {"b": ("b", Priority.NORMAL)})
    both.wanted = {"a": ("a", Priority.NORMAL), "b": ("b", Priority.NORMAL)}
    both.waiting["a"] = 0
    fleet.run(both, 100)
    counted = Counter(execution.tenant for execution in fleet.granted[before : before + 8])
    assert counted == {"a": 4, "b": 4}


def test_priorities_come_before_tenants() -> None:
    world = World()
    world.configure("shared", pools=(Pool(name="p"),))
    wanted = {f"{tenant}-{priority}": (tenant, priority) for tenant in "ab" for priority in Priority}
    fleet = Fleet(world, 21, lambda _: 10)
    backlogs = Backlogs(world, wanted)
    fleet.run(backlogs, 500)
    by_priority = Counter(execution.priority for execution in fleet.granted[: 21 * 40])
    assert by_priority == {Priority.HIGH: 640, Priority.NORMAL: 160, Priority.LOW: 40}
    by_tenant = Counter(execution.tenant for execution in fleet.granted[: 21 * 40])
    assert by_tenant["a"] == pytest.approx(by_tenant["b"], abs=21)


def test_a_turn_whose_priority_has_nothing_goes_to_the_highest_that_has() -> None:
    """Of 21 turns one is low's own; those of high go to normal while there is any."""
    world = World()
    wanted = {priority.value: ("acme", priority) for priority in (Priority.NORMAL, Priority.LOW)}
    fleet = Fleet(world, 21, lambda _: 10, "default")
    fleet.run(Backlogs(world, wanted, "default"), 100)
    by_priority = Counter(execution.priority for execution in fleet.granted[: 21 * 10])
    assert by_priority == {Priority.NORMAL: 200, Priority.LOW: 10}


def test_in_a_pool_without_bounds_a_tenant_has_its_own_cap_alone() -> None:
    world = shared_world({"a": 1})
    world.configure("a", max_running=7)
    register(world, "a", 9)
    assert len(take(world, 9)) == 7


def test_within_a_tenant_by_due_time() -> None:
    world = shared_world()
    for tenant in "ab":
        for sec in (3, 1, 2):
            world.register(f"{tenant}{sec}", tenant=tenant, pool=POOL, delay_sec=sec)
    world.at(5)
    grants = world.claim(count=6, pool=POOL)
    for tenant in "ab":
        got = [g.execution.job_id for g in grants if g.execution.tenant == tenant]
        assert got == [f"{tenant}1", f"{tenant}2", f"{tenant}3"]


def test_a_tenant_that_nobody_configured_has_weight_one() -> None:
    world = World()
    register(world, "known", 3)
    register(world, "unknown", 3)
    assert Counter(take(world, 4)) == {"known": 2, "unknown": 2}


def test_a_tenant_has_half_of_a_shared_pool_unless_the_pool_says_otherwise() -> None:
    world = shared_world({"a": 1}, max_running=5)
    register(world, "a", 9)
    assert len(take(world, 9)) == 2
    world = shared_world({"a": 1}, max_running=5, tenant_max_running=4)
    register(world, "a", 9)
    assert len(take(world, 9)) == 4
    world = shared_world({"a": 1}, max_running=1)
    register(world, "a", 9)
    assert len(take(world, 9)) == 1


def test_weights_count_from_when_they_change() -> None:
    world = shared_world({"a": 1, "b": 1})
    backlogs = Backlogs(world, {name: (name, Priority.NORMAL) for name in "ab"})
    fleet = Fleet(world, 8, lambda execution: 20 if execution.tenant == "a" else 30)
    fleet.run(backlogs, 300)
    assert fleet.held() == {"a": 4, "b": 4}
    world.configure("b", weight=3)
    fleet.run(backlogs, 300)
    assert fleet.held() == {"a": 2, "b": 6}
    assert rebuild(world.log).digest() == world.engine.digest()


def test_an_abort_leaves_the_turns_as_they_were() -> None:
    def order(aborted: bool) -> list[str]:
        world = shared_world()
        for tenant in WEIGHTS:
            register(world, tenant, 40)
        got = []
        for _ in range(30):
            if aborted:
                world.engine.begin(world.now_ms, world.chance.random)
                world.engine.grant()
                world.engine.abort()
                world.run()
            (grant,) = world.claim(pool=POOL)
            got.append(grant.execution.tenant)
            world.complete(grant)
        return got

    assert order(aborted=True) == order(aborted=False)


def test_a_worker_of_a_shared_pool_reports_for_the_tenant_and_gets_its_claim_again() -> None:
    world = shared_world()
    register(world, "a", 1)
    register(world, "b", 1)
    grants = world.claim("w", 2, pool=POOL, claim_id="c-1")
    assert {g.execution.tenant for g in grants} == {"a", "b"}
    again = world.claim("w", 2, pool=POOL, claim_id="c-1", ack=True)
    assert again == []
    (ack,) = [reply for reply in world.replies if isinstance(reply, WorkSeen)]
    assert {g.execution.tenant for g in ack.held} == {"a", "b"}
    assert all(world.beat(grant).status == 200 for grant in grants)
    assert all(world.complete(grant).status == 200 for grant in grants)


def test_a_tenant_does_not_free_places_of_a_shared_pool_that_are_not_free() -> None:
    """Else one that reports for the pool's workers would hold more of them than its cap says."""
    world = shared_world()
    register(world, "a", 1)
    (grant,) = world.claim("w", 1, pool=POOL)
    held = ref(grant)
    for kind, item in (
        (ExtendLease, Beat(**held)),
        (Complete, Completion(**held)),
        (Fail, Failure(**held, error="x")),
        (Release, Handback(**held)),
    ):
        for pools in ((), ("p",), ("shared/q",)):
            envelope = world._envelope(tenant="a")
            (done,) = world.run(kind(**envelope, items=(item,), pools=pools))  # type: ignore[arg-type]
            assert isinstance(done, WorkDone)
            assert [(one.status, one.code) for one in done.results] == [(403, "forbidden")]
    assert world.engine.state.indexes.running_of("a") == 1
    assert world.complete(grant).status == 200


# -- what askers are told


def rows(*waiting: Waiting) -> list[tuple[str, str, int, int, int]]:
    return [(r.priority.value, r.tenant, r.weight, r.backlog, r.running) for r in waiting]


def test_replies_say_whose_work_waits_and_who_is_next() -> None:
    world = shared_world()
    register(world, "a", 2)
    register(world, "b", 3, priority=Priority.HIGH)
    register(world, "c", 4)
    world.run()
    (hint,) = hints(world.request(pool=POOL))
    assert (hint.pool, hint.backlog, hint.running) == (POOL, 9, 0)
    assert rows(*hint.waiting) == [("HIGH", "b", 2, 3, 0), ("NORMAL", "a", 1, 2, 0), ("NORMAL", "c", 5, 4, 0)]
    world.claim(count=2, pool=POOL)
    reply = next(r for r in reversed(world.replies) if isinstance(r, Granted))
    assert (reply.pool, reply.backlog, reply.running) == (POOL, 7, 2)
    assert rows(*reply.waiting) == [
        ("HIGH", "b", 2, 1, 2),
        ("NORMAL", "a", 1, 2, 0),
        ("NORMAL", "c", 5, 4, 0),
    ]


def test_what_may_not_run_now_is_left_out() -> None:
    world = shared_world(tenant_max_running=2)
    world.configure("b", paused=True)
    register(world, "a", 5)
    register(world, "b", 5)
    world.run()
    (hint,) = hints(world.request(pool=POOL))
    assert rows(*hint.waiting) == [("NORMAL", "a", 1, 2, 0)]
    assert hint.backlog == 2
    assert len(take(world, 9)) == 2
    assert hints(world.request(pool=POOL)) == []


def test_an_own_pool_tells_its_priorities() -> None:
    world = World()
    for n, priority in enumerate((Priority.LOW, Priority.HIGH, Priority.HIGH)):
        world.register(f"j{n}", delay_sec=0, priority=priority)
    world.run()
    (hint,) = hints(world.request())
    assert rows(*hint.waiting) == [("HIGH", "acme", 1, 2, 0), ("LOW", "acme", 1, 1, 0)]


def test_replies_tell_a_bounded_number_of_tenants() -> None:
    world = World()
    for n in range(100):
        world.register("j", tenant=f"t{n}", pool=POOL, delay_sec=0)
    world.run()
    (hint,) = hints(world.request(pool=POOL))
    assert (hint.backlog, len(hint.waiting)) == (100, 32)


def test_askers_hear_of_shares_that_move_but_not_too_often() -> None:
    world = shared_world()
    register(world, "a", 5)
    (grant, other) = world.claim(count=2, pool=POOL)
    world.run()
    world.request(pool=POOL)
    before = len(hints(world.replies))
    world.now_ms += 200
    world.complete(grant)
    told = hints(world.replies)[before:]
    assert [rows(*hint.waiting) for hint in told] == [[("NORMAL", "a", 1, 3, 1)]]
    world.now_ms += 10
    world.complete(other)
    assert len(hints(world.replies)) == before + 1
    world.until(world.now_ms + 100)
    told = hints(world.replies)[before + 1 :]
    assert [rows(*hint.waiting) for hint in told] == [[("NORMAL", "a", 1, 3, 0)]]
    world.until(world.now_ms + 1_000)
    assert len(hints(world.replies)) == before + 2


def test_shares_hold_after_a_crash_since_what_runs_is_state() -> None:
    world = shared_world()
    for tenant in WEIGHTS:
        register(world, tenant, 60)
    taken = take(world, 40)
    world.engine = rebuild(compacted(world.log, len(world.log)), world.router)
    world.store = world.engine.state.kv._base  # type: ignore[assignment]
    world.grants_seen = 0
    for grant in world.claim("x", 40, pool=POOL):
        taken.append(grant.execution.tenant)
    assert Counter(taken) == {"a": 10, "b": 20, "c": 50}


@pytest.mark.parametrize("weight", [1, 100])
def test_a_flood_delays_the_others_by_a_pass_or_two_however_large_it_is(weight: int) -> None:
    """Passes counted, not time: how long one takes is the benchmark's to say (`bench.fairness`)."""

    def passes(flood: int) -> int:
        world = shared_world({"a": weight, "b": 1})
        world.router.settings["a"] = Tenant(tenant="a", weight=weight, max_running=100_000)
        for n in range(flood):
            world.register(f"a{n}", tenant="a", pool=POOL, delay_sec=10)
        for n in range(10):
            world.register(f"b{n}", tenant="b", pool=POOL, delay_sec=10)
        slots = tuple(Slot(worker_id=f"w{n}", credit=1) for n in range(500))
        world.now_ms += 10_000
        for done in range(1, flood // 10):
            request = RequestWork(
                **world._envelope(tenant="shared"),
                pool=POOL,
                seq=done,
                grants_seen=world.grants_seen,
                park_sec=60,
                slots=slots,
            )
            world.one(world.now_ms, 50, [request])
            if sum(grant.execution.tenant == "b" for grant in granted(world.replies)) == 10:
                return done
        raise AssertionError("B did not run")

    assert passes(3_000) == passes(500) <= 3


def test_more_tenants_than_one_pass_may_see_all_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.core.handlers.ordering.TENANTS_SEEN_MAX", 3)
    world = World()
    for n in range(10):
        world.register("j", tenant=f"t{n}", pool=POOL, delay_sec=0)
        world.register("k", tenant=f"t{n}", pool=POOL, delay_sec=0)
    world.run()
    assert len(take(world, 1)) == 1
    assert sorted({*take(world, 19)}) == [f"t{n}" for n in range(10)]
    assert len([e for e in world.executions() if e.status is E.RUNNING]) == 20


def test_tenants_that_may_not_run_do_not_hide_the_one_that_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.core.handlers.ordering.TENANTS_SEEN_MAX", 2)
    world = World()
    for n in range(9):
        world.router.settings[f"t{n}"] = Tenant(tenant=f"t{n}", paused=n != 7)
        world.register("j", tenant=f"t{n}", pool=POOL, delay_sec=0)
    for _ in range(3):
        world.request(pool=POOL)
    assert take(world, 5) == ["t7"]
