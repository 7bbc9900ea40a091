"""Caps and pauses delay and never drop; what is freed is granted at once (semantics §6)."""

from __future__ import annotations

from typing import Any

import pytest

from schemas import codec
from schemas.commands import Slot
from schemas.entities import ExecutionStatus as E
from schemas.entities import OverlapPolicy, Pool, Tenant, WaitingFor
from schemas.replies import Grant
from streams.core.caps import PoolCaps, running_max, share
from streams.core.engine import Engine
from tests.unit.core.world import TENANT, OnePartition, World, compacted, granted, hints, rebuild


def capped(
    count: int = 6, pools: tuple[str, ...] = ("default",), own_pools: tuple[Pool, ...] = (), **settings: Any
) -> World:
    """`count` runnable executions in each pool."""
    world = World()
    world.configure(pools=own_pools, **settings)
    for pool in pools:
        for n in range(count):
            world.register(f"{pool}-{n}", pool=pool, delay_sec=0, lease_sec=30)
    world.run()
    return world


def park(world: World, credit: int, pool: str = "default") -> list[Grant]:
    """Asks and stays parked."""
    return granted(world.request(Slot(worker_id=pool, credit=credit), pool=pool, park_sec=60))


def running(world: World) -> int:
    return sum(e.status is E.RUNNING for e in world.executions())


def restarted(world: World, how: str) -> None:
    """The process dies: another one opens its store, or makes it from the log."""
    if how == "store":
        world.engine = Engine(0, world.store, codec, world.router)
    else:
        log = world.log if how == "log" else compacted(world.log, len(world.log))
        world.engine = rebuild(log, world.router)
        world.store = world.engine.state.kv._base  # type: ignore[assignment]


def test_a_tenants_cap_holds_over_its_pools_and_what_ends_in_one_frees_the_other() -> None:
    world = capped(pools=("one", "two"), max_running=3)
    grants = park(world, 10, "one")
    assert len(grants) == 3
    assert park(world, 2, "two") == []
    park(world, 0, "one")
    world.complete(grants[0])
    assert [g.execution.pool for g in granted(world.replies)] == ["one", "one", "one", "two"]
    assert running(world) == 3


def test_a_pools_cap_leaves_others_alone() -> None:
    world = capped(pools=("one", "two"), own_pools=(Pool(name="one", max_running=2),))
    assert len(park(world, 10, "one")) == 2
    assert len(park(world, 10, "two")) == 6


def test_a_place_that_is_freed_in_a_capped_pool_is_used_at_once() -> None:
    world = capped(own_pools=(Pool(name="default", max_running=2),))
    first = park(world, 9)
    world.request(*(Slot(worker_id=name, credit=1) for name in "AB"), park_sec=60)
    for grant in first:
        world.complete(grant)
    assert len(granted(world.replies)) == 4
    assert running(world) == 2


def test_a_tenants_cap_frees_its_work_in_shared_pools_too() -> None:
    world = World()
    world.configure(max_running=1)
    world.register("own", delay_sec=0)
    world.register("shared", pool="shared/p", delay_sec=0)
    (own,) = park(world, 1)
    assert park(world, 1, "shared/p") == []
    world.complete(own)
    assert [g.execution.job_id for g in granted(world.replies)] == ["own", "shared"]


@pytest.mark.parametrize("ending", ["complete", "fail", "release", "snooze", "expire", "cancel"])
def test_every_way_of_ending_frees_the_place(ending: str) -> None:
    world = capped(2, max_running=1)
    (grant,) = park(world, 1)
    park(world, 1)
    match ending:
        case "complete":
            world.complete(grant)
        case "fail":
            world.fail(grant)
        case "release":
            world.release(grant)
        case "snooze":
            world.release(grant, 5)
        case "expire":
            world.until(grant.execution.lease_until_ms + 1)
        case "cancel":
            world.cancel(grant.execution.execution_id)
            assert running(world) == 1  # until its worker was told
            world.beat(grant)
    assert len(granted(world.replies)) == 2
    assert running(world) == 1


@pytest.mark.parametrize("how", ["store", "log", "compacted"])
def test_what_runs_counts_after_a_crash(how: str) -> None:
    world = capped(6, max_running=4)
    grants = world.claim(count=3)
    restarted(world, how)
    world.grants_seen = 0
    more = world.claim("B", 9)
    assert (len(grants), len(more)) == (3, 1)
    world.complete(grants[0])
    assert len(world.claim("C", 9)) == 1
    assert rebuild(world.log).digest() == world.engine.digest()


def test_a_cap_that_is_lowered_below_what_runs_stops_grants_alone() -> None:
    world = capped(6, max_running=4)
    grants = park(world, 9)
    park(world, 9)
    world.configure(max_running=2)
    assert running(world) == 4
    for left, grant in enumerate(grants[:2]):
        assert world.complete(grant).status == 200
        assert running(world) == 3 - left
    world.complete(grants[2])
    assert running(world) == 2
    assert len(granted(world.replies)) == 5


def test_a_cap_that_is_raised_counts_at_once() -> None:
    world = capped(6, max_running=1)
    park(world, 9)
    park(world, 9)
    world.configure(max_running=5)
    assert running(world) == 5


def test_a_paused_pool_grants_nothing_and_goes_on_where_it_was() -> None:
    world = capped(own_pools=(Pool(name="default", paused=True),))
    log = len(world.log)
    assert park(world, 9) == []
    assert hints(world.request()) == []
    park(world, 9)
    assert len(world.log) == log, "a pause writes nothing, however much waits"
    assert {e.waiting_for for e in world.executions()} == {WaitingFor.WORKER}
    world.configure(pools=(Pool(name="default"),))
    assert [g.execution.job_id for g in granted(world.replies)] == [f"default-{n}" for n in range(6)]


def test_the_time_to_start_goes_on_while_a_pool_is_paused() -> None:
    world = World()
    world.configure(pools=(Pool(name="default", paused=True),))
    world.register("late", delay_sec=0, start_deadline_sec=60)
    world.at(59)
    assert world.execution_of("late").status is E.PENDING
    world.at(60)
    assert (world.execution_of("late").status, world.execution_of("late").reason) == (E.SKIPPED, "deadline")


@pytest.mark.parametrize("how", ["timed out", "cancelled"])
def test_a_run_that_is_over_counts_until_its_lease_ends(how: str) -> None:
    """Nobody tells its worker, which may still be at it."""
    world = World()
    world.configure(max_running=1)
    for job_id in ("first", "second"):
        world.register(job_id, delay_sec=0, lease_sec=30, timeout_sec=30 if how == "timed out" else 600)
    (grant,) = park(world, 1)
    if how == "cancelled":
        world.cancel(grant.execution.execution_id)
    park(world, 1)
    world.until(grant.execution.lease_until_ms - 1)
    assert len(granted(world.replies)) == 1
    world.until(grant.execution.lease_until_ms)
    assert len(granted(world.replies)) == 2


def test_what_nobody_configured_has_the_defaults() -> None:
    settings = World().router.settings_of("anybody")
    assert (settings.max_running, settings.max_jobs, settings.registrations_per_sec) == (1_000, 100_000, 500)
    assert (settings.weight, settings.lateness_alert_sec) == (1, 60)
    world = World()
    world.register("many", every_sec=86_400, overlap=OverlapPolicy.ALLOW)
    for _ in range(1_001):
        world.trigger("many")
    assert len(world.claim(count=1_000)) == 1_000
    assert world.claim("B") == []


def test_a_paused_tenant_is_left_out_of_own_and_shared_pools() -> None:
    world = World()
    world.configure(paused=True)
    world.register("own", delay_sec=0)
    world.register("a", pool="shared/p", delay_sec=0)
    world.register("b", tenant="other", pool="shared/p", delay_sec=0)
    assert park(world, 9) == []
    assert [g.execution.tenant for g in park(world, 9, "shared/p")] == ["other"]
    park(world, 9, "shared/p")
    world.configure(paused=False)
    assert running(world) == 3


def test_a_paused_shared_pool_serves_nobody() -> None:
    world = World()
    world.configure("shared", pools=(Pool(name="p", paused=True), Pool(name="q")))
    for pool in ("p", "q"):
        world.register(pool, pool=f"shared/{pool}", delay_sec=0)
    assert park(world, 9, "shared/p") == []
    assert len(park(world, 9, "shared/q")) == 1


def test_work_that_becomes_free_is_hinted_to_those_without_credit() -> None:
    world = capped(2, max_running=1)
    (grant,) = world.claim()
    assert hints(world.request()) == []
    world.complete(grant)
    (hint,) = hints(world.replies)
    assert (hint.backlog, hint.running) == (1, 0)
    world = capped(3, paused=True)
    assert hints(world.request()) == []
    world.configure(paused=False)
    assert [hint.backlog for hint in hints(world.replies)] == [3]


def test_a_job_runs_as_often_as_it_may() -> None:
    world = World()
    world.register("j", delay_sec=3_600, overlap=OverlapPolicy.ALLOW, max_concurrent=2)
    for _ in range(5):
        world.trigger("j")
    grants = world.claim(count=9)
    assert len(grants) == 2
    world.complete(grants[0])
    assert len(world.claim("B", 9)) == 1


class Shards(OnePartition):
    def __init__(self, partitions: list[int]) -> None:
        super().__init__()
        self.partitions = partitions

    def partitions_of(self, tenant: str) -> list[int]:
        return self.partitions


@pytest.mark.parametrize("cap", [1, 4, 7, 8, 1_000])
@pytest.mark.parametrize("shards", [1, 3, 4, 8])
def test_a_cap_is_split_over_shards_and_none_gets_nothing(cap: int, shards: int) -> None:
    partitions = [(5 + shard) % 64 for shard in range(shards)]
    parts = [share(cap, partitions, partition) for partition in partitions]
    assert sum(parts) == max(cap, shards)
    assert max(parts) - min(parts) <= 1
    router = Shards(partitions)
    router.settings[TENANT] = Tenant(tenant=TENANT, max_running=cap, pools=(Pool(name="p", max_running=cap),))
    assert [running_max(router, router.settings_of(TENANT), each) for each in partitions] == parts
    assert [PoolCaps(router, f"{TENANT}/p", each).running_max for each in partitions] == parts


def test_one_shard_gets_the_rest_of_a_division() -> None:
    assert [share(7, [3, 4, 5], partition) for partition in (3, 4, 5)] == [3, 2, 2]
