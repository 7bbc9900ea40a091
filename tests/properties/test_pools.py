"""Two tenants, own and shared pools, under any sequence of grants, ends, other settings, aborts and crashes:
no cap is exceeded at any instant, nothing that may run waits beside credit, counters say what entities do,
and the checker finds nobody who was granted out of turn.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from projections.checker.checker import Checker
from schemas import codec, ids
from schemas.commands import Slot
from schemas.entities import Execution, ExecutionStatus, OverlapPolicy, Pool, Priority
from schemas.events import Event, ExecutionClaimed, ExecutionEvent
from schemas.replies import Grant
from streams.core.engine import Engine
from streams.core.fairness import Fairness
from streams.core.handlers.ordering import PoolOrder
from tests.unit.core.derived import indexes
from tests.unit.core.world import TENANT, World, compacted, granted, rebuild

TENANTS = [TENANT, "other"]
POOLS = ["one", "two", "shared/p"]
CAPS = st.sampled_from([1, 2, 4, 100])
POOL_CAPS = st.sampled_from([0, 1, 2, 5])
BACKLOG = 6


class Pools(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 10_000))
    def begin(self, seed: int) -> None:
        self.world = World(seed=seed)
        self.grants: list[Grant] = []
        self.read = 0
        self.running: dict[str, Execution] = {}
        self.checker = Checker()
        self.versions = 0
        for tenant in TENANTS:
            for pool in POOLS:
                self.world.register(
                    pool.replace("/", "-"),
                    tenant=tenant,
                    pool=pool,
                    delay_sec=86_400,
                    overlap=OverlapPolicy.ALLOW,
                    priority=Priority.HIGH if pool == "one" else Priority.LOW,
                    lease_sec=20,
                )
                self.trigger(tenant, pool, BACKLOG)

    @rule(tenant=st.sampled_from(TENANTS), pool=st.sampled_from(POOLS), count=st.integers(1, 4))
    def trigger(self, tenant: str, pool: str, count: int) -> None:
        for _ in range(count):
            self.world.trigger(pool.replace("/", "-"), tenant=tenant)

    @rule(
        tenant=st.sampled_from(TENANTS),
        cap=CAPS,
        own=POOL_CAPS,
        paused=st.sampled_from(["", "", "", "one", "all"]),
    )
    def configure(self, tenant: str, cap: int, own: int, paused: str) -> None:
        pools = (Pool(name="one", max_running=own, paused=paused == "one"),)
        self.settle(tenant, max_running=cap, paused=paused == "all", pools=pools)

    @rule(
        cap=POOL_CAPS,
        each=POOL_CAPS,
        paused=st.sampled_from([False, False, False, True]),
        weight=st.integers(1, 5),
    )
    def configure_shared(self, cap: int, each: int, paused: bool, weight: int) -> None:
        pool = Pool(name="p", max_running=cap, tenant_max_running=each, paused=paused)
        self.settle(ids.SHARED, pools=(pool,))
        self.settle(TENANT, weight=weight)

    def settle(self, tenant: str, **settings: Any) -> None:
        self.versions += 1
        told = replace(self.world.router.settings_of(tenant), version=self.versions, **settings)
        self.checker.configured(told, self.world.now_ms)
        self.world.configure(tenant, version=self.versions, **settings)

    @rule(pools=st.sets(st.sampled_from(POOLS), min_size=1), credits=st.lists(st.integers(1, 4), max_size=4))
    def ask(self, pools: set[str], credits: list[int]) -> None:
        for pool in sorted(pools):
            slots = (Slot(worker_id=f"w{n}", credit=credit) for n, credit in enumerate(credits))
            self.world.request(*slots, pool=pool, park_sec=60)

    @precondition(lambda self: self.grants)
    @rule(data=st.data(), what=st.sampled_from(["complete", "complete", "fail", "release", "snooze", "beat"]))
    def report(self, data: st.DataObject, what: str) -> None:
        grant = data.draw(st.sampled_from(self.grants))
        match what:
            case "complete":
                self.world.complete(grant)
            case "fail":
                self.world.fail(grant)
            case "release":
                self.world.release(grant)
            case "snooze":
                self.world.release(grant, 3)
            case "beat":
                self.world.beat(grant)

    @rule(ms=st.sampled_from([1, 60, 3_000, 25_000]))
    def walk(self, ms: int) -> None:
        self.world.until(self.world.now_ms + ms)

    @rule()
    def abort(self) -> None:
        """A transaction that grants is refused by the log, and decided again."""
        engine = self.world.engine
        engine.begin(self.world.now_ms, self.world.chance.random)
        engine.fire(self.world.now_ms, 10)
        engine.settings_changed()
        engine.grant()
        engine.abort()
        self.world.run()

    @rule(how=st.sampled_from(["store", "log", "compacted"]))
    def restart(self, how: str) -> None:
        world = self.world
        if how == "store":
            world.engine = Engine(0, world.store, codec, world.router)
        else:
            log = world.log if how == "log" else compacted(world.log, len(world.log))
            world.engine = rebuild(log, world.router)
            world.store = world.engine.state.kv._base  # type: ignore[assignment]
        world.run()

    @invariant()
    def all_is_well(self) -> None:
        self.no_cap_was_exceeded()
        self.counters_are_what_runs()
        self.nothing_that_may_run_waits_beside_credit()

    def no_cap_was_exceeded(self) -> None:
        """Settings change between transactions alone, so those of now were those of every grant since."""
        for key, value in self.world.log[self.read :]:
            event = codec.decode(value) if value is not None else None
            if isinstance(event, Event):
                self.checker.take(0, event)
            if not isinstance(event, ExecutionEvent):
                continue
            self.running.pop(key, None)
            if event.execution.status is ExecutionStatus.RUNNING:
                self.running[key] = event.execution
            if isinstance(event, ExecutionClaimed):
                self.check_grant(event.execution)
        self.read = len(self.world.log)
        held = {(e.execution_id, e.lease_epoch) for e in self.running.values()}
        self.grants = [
            grant
            for grant in granted(self.world.replies)
            if (grant.execution.execution_id, grant.execution.lease_epoch) in held
        ]

    def check_grant(self, execution: Execution) -> None:
        mine = self.world.router.settings_of(execution.tenant)
        of_tenant = [e for e in self.running.values() if e.tenant == execution.tenant]
        assert not mine.paused
        assert len(of_tenant) <= mine.max_running
        pool_key = ids.pool_key(execution.tenant, execution.pool)
        owner, _, name = pool_key.partition("/")
        pool = {p.name: p for p in self.world.router.settings_of(owner).pools}.get(name, Pool(name=name))
        here = [e for e in self.running.values() if ids.pool_key(e.tenant, e.pool) == pool_key]
        assert not pool.paused
        assert not pool.max_running or len(here) <= pool.max_running
        each = pool.tenant_max_running or (pool.max_running and max(1, pool.max_running // 2))
        if owner == ids.SHARED and each:
            assert sum(e.tenant == execution.tenant for e in here) <= each

    def counters_are_what_runs(self) -> None:
        found = self.world.engine.state.indexes
        by_tenant = Counter(e.tenant for e in self.running.values())
        by_pool = Counter(ids.pool_key(e.tenant, e.pool) for e in self.running.values())
        for tenant in TENANTS:
            assert found.running_of(tenant) == by_tenant[tenant]
            for pool in POOLS:
                pool_key = ids.pool_key(tenant, pool)
                assert found.running_in(pool_key) == by_pool[pool_key]

    def nothing_that_may_run_waits_beside_credit(self) -> None:
        engine, now_ms = self.world.engine, self.world.now_ms
        for pool_key in engine._parking.pools():
            running = engine.state.indexes.running_in(pool_key)
            if engine._parking.next_with_credit(pool_key, running, now_ms) is not None:
                engine.begin(now_ms, self.world.chance.random)
                backlog, _ = PoolOrder(engine._open(), Fairness(), pool_key, 0).waiting()
                engine.abort()
                assert backlog == 0, pool_key

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        assert self.checker.report.good, self.checker.report.violations
        for log in (world.log, compacted(world.log, len(world.log))):
            engine = rebuild(log)
            assert engine.digest() == world.engine.digest()
            assert indexes(engine.state.kv) == indexes(world.store)


Pools.TestCase.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestPools = Pools.TestCase
