"""Properties of one partition under any sequence of calls: replay equals live, compaction changes nothing,
nothing early, at most one accepted outcome, one execution of a job and of an exclusion group at a time, every
occurrence accounted for,
and nothing stuck: whatever has to come up again has a timer that no scan has passed, and nobody waits alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from projections.checker.checker import Checker
from projections.checker.report import Report
from projections.checker.skips import KEPT_MAX
from schemas import codec, ids
from schemas.commands import CancelJob, MissedInPause, RegisterMode, Slot
from schemas.entities import (
    BreakerStatus,
    Execution,
    ExecutionStatus,
    Job,
    JobStatus,
    MisfirePolicy,
    OverlapPolicy,
    Pool,
    Priority,
    RetryPolicy,
    WaitingFor,
)
from schemas.replies import Grant
from streams.core import keys
from streams.core.engine import Engine
from streams.core.fairness import Fairness
from streams.core.handlers.ordering import PoolOrder
from streams.core.instants import format_instant
from streams.core.lifecycle import FINAL
from streams.core.planning import plan, seed_of
from streams.core.schedule import previous_occurrence
from streams.core.state import due_of_cursor, due_of_execution
from streams.core.transaction import Source
from tests.unit.core.derived import check_unfinished, in_any_order, indexes
from tests.unit.core.world import TENANT, World, compacted, rebuild

JOBS = ["a", "b", "c"]
POOLS = ["default", "other", "shared/p"]
CAPS = [1, 2, 100]
SCHEDULES: list[dict[str, Any]] = [
    {"delay_sec": 0},
    {"delay_sec": 7},
    {"every_sec": 3},
    {"cron": "*/5 * * * * *"},
    {"cron": "30 1 * * *", "time_zone": "Europe/London"},
    {"cron": "*/4 * * * * *", "jitter_sec": 3},
    {"every_sec": 5, "max_runs": 3},
]
SMALL = {
    "streams.core.timebuckets.WHEEL_LANE_MAX": 2,
    "streams.core.timebuckets.SHARE": 1,
    "streams.core.timebuckets.ENTRY_MAX": 2,
    "streams.core.counters.KNOWN_MAX": 1,
    "streams.core.handlers.granting.MATCHED_MAX": 1,
    "streams.core.handlers.ordering.READ_MIN": 1,
    "streams.core.handlers.cancelling.ENTITIES_PER_COMMAND_MAX": 1,
    "streams.core.handlers.scheduling.MISFIRE_KEPT_MAX": 4,
    "streams.core.decoded.BYTES_EACH": 40 << 20,  # three entities a generation
    "streams.core.handlers.breaking.LET_GO_MAX": 1,
    "streams.core.handlers.breaking.PROBES_MAX": 1,
    "streams.core.handlers.gating.PROBES_MAX": 1,
    "projections.checker.breakers.PROBES_MAX": 1,
}
"""Limits that a short history reaches."""
SENSITIVE = {
    "streams.core.handlers.breaking.OUTCOMES_MIN": 1,
    "streams.core.handlers.breaking.JOBS_MIN": 1,
    "streams.core.handlers.breaking.PAUSE_MS": 3_000,
    "streams.core.handlers.breaking.PAUSE_MAX_MS": 9_000,
    "projections.checker.breakers.OUTCOMES_MIN": 1,
    "projections.checker.breakers.PAUSE_MS": 3_000,
    "projections.checker.breakers.PAUSE_MAX_MS": 9_000,
}
"""A breaker that a few failures open, and a checker that knows it."""


class Partition(RuleBasedStateMachine):
    @initialize(
        seed=st.integers(0, 10_000),
        small=st.booleans(),
        start=st.sampled_from(["2026-03-29T00:59:50Z", "2026-10-25T00:29:55Z"]),
    )
    def begin(self, seed: int, small: bool, start: str) -> None:
        self.small = small
        with ExitStack() as patches:  # one that fails takes the others along: they are the whole run's
            for name, value in (*(SMALL.items() if small else ()), *SENSITIVE.items()):
                patches.enter_context(patch(name, value))
            self.patches = patches.pop_all()
        self.world = World(start, seed)
        self.grants: list[Grant] = []
        self.accepted: Counter[str] = Counter()
        self.events_seen = 0

    @rule(
        job=st.sampled_from(JOBS),
        schedule=st.sampled_from(SCHEDULES),
        put=st.booleans(),
        deliveries=st.integers(1, 3),
        overlap=st.sampled_from(OverlapPolicy),
        misfire=st.sampled_from(MisfirePolicy),
        group=st.sampled_from(["", "g", "h"]),
        pool=st.sampled_from(POOLS),
        priority=st.sampled_from(Priority),
    )
    def register(
        self,
        job: str,
        schedule: dict[str, Any],
        put: bool,
        deliveries: int,
        overlap: OverlapPolicy,
        misfire: MisfirePolicy,
        group: str,
        pool: str,
        priority: Priority,
    ) -> None:
        mode = RegisterMode.PUT if put else RegisterMode.CREATE
        retry = RetryPolicy(max_attempts=2, backoff_base_sec=1, backoff_max_sec=5)
        self.world.register(
            job,
            mode=mode,
            max_deliveries=deliveries,
            lease_sec=4,
            timeout_sec=9,
            retry=retry,
            overlap=overlap,
            max_concurrent=2 if overlap is OverlapPolicy.ALLOW else 0,
            misfire=misfire,
            exclusion_group=group,
            pool=pool,
            priority=priority,
            **schedule,
        )

    @rule(
        cap=st.sampled_from(CAPS),
        in_pool=st.sampled_from([0, *CAPS]),
        in_shared=st.sampled_from([0, *CAPS]),
        paused=st.sampled_from([None, None, "tenant", *POOLS]),
    )
    def configure(self, cap: int, in_pool: int, in_shared: int, paused: str | None) -> None:
        """Other caps and pauses; what is lowered below what runs only stops grants."""
        world = self.world
        shared = Pool(name="p", max_running=in_shared, paused=paused == "shared/p")
        world.configure(ids.SHARED, pools=(shared,))
        self.no_cap_was_exceeded()  # what that grants is bound by these settings, not by those that follow
        pools = (
            Pool(name="default", max_running=in_pool, paused=paused == "default"),
            Pool(name="other", paused=paused == "other"),
        )
        world.configure(max_running=cap, paused=paused == "tenant", pools=pools)

    @rule(sec=st.sampled_from([0.001, 1, 2.5, 5, 30]))
    def walk(self, sec: float) -> None:
        self.world.until(self.world.now_ms + round(sec * 1000))

    @rule(sec=st.sampled_from([3, 11, 100, 5_000, 90_000, 200_000]))
    def outage(self, sec: int) -> None:
        self.world.now_ms += sec * 1000
        self.world.run()

    @rule(count=st.integers(1, 3), worker=st.sampled_from("AB"), pool=st.sampled_from(POOLS))
    def claim(self, count: int, worker: str, pool: str) -> None:
        self.grants += self.world.claim(worker, count, claim_id="c", pool=pool)

    @precondition(lambda self: self.grants)
    @rule(
        data=st.data(),
        what=st.sampled_from(["complete", "fail", "beat", "release", "snooze", "cancel", "give up"]),
    )
    def report(self, data: st.DataObject, what: str) -> None:
        grant = data.draw(st.sampled_from(self.grants))
        match what:
            case "complete":
                self.world.complete(grant)
            case "fail":
                self.world.fail(grant)
            case "give up":
                self.world.fail(grant, retryable=False)
            case "beat":
                self.world.beat(grant, b"1")
            case "release":
                self.world.release(grant)
            case "snooze":
                self.world.release(grant, 2)
            case "cancel":
                self.world.cancel(grant.execution.execution_id)

    @rule(pool=st.sampled_from(POOLS))
    def storm(self, pool: str) -> None:
        """All that runs fails, and what can be had too: breakers open on little in these worlds."""
        self.grants += self.world.claim("A", 3, pool=pool)
        for grant in self.grants:
            self.world.fail(grant)

    @rule(job=st.sampled_from(JOBS), own=st.booleans())
    def trigger(self, job: str, own: bool) -> None:
        self.world.trigger(job, payload=b'"own"' if own else None)

    @rule(job=st.sampled_from(JOBS), version=st.integers(1, 4), schedule=st.sampled_from(SCHEDULES))
    def update(self, job: str, version: int, schedule: dict[str, Any]) -> None:
        self.world.update(version, job, payload=b'"updated"', lease_sec=4, timeout_sec=9, **schedule)

    @rule(job=st.sampled_from(JOBS))
    def pause(self, job: str) -> None:
        self.world.pause(job)

    @rule(job=st.sampled_from(JOBS), missed=st.sampled_from(MissedInPause))
    def resume(self, job: str, missed: MissedInPause) -> None:
        self.world.resume(job, missed)

    @rule(job=st.sampled_from(JOBS), back=st.integers(0, 20))
    def backfill(self, job: str, back: int) -> None:
        found = self.world.engine.state.job(TENANT, job)
        if found is not None:
            past = previous_occurrence(
                plan(found.schedule, seed_of(found), past=True), self.world.now_ms - back * 1000
            )
            if past is not None:
                self.world.backfill(format_instant(past.utc_ms), job_id=job, backfill_id=f"b{back}")

    @rule(job=st.sampled_from(JOBS))
    def cancel(self, job: str) -> None:
        self.world.cancel_job(job)

    @rule(job=st.sampled_from(JOBS))
    def cancel_next(self, job: str) -> None:
        known = self.world.engine.state.job(TENANT, job)
        if known is not None:
            next_ms = self.world.cursor(job).next_ms
            self.world.cancel(ids.scheduled_execution_id(job, known.incarnation, next_ms))

    @rule(
        job=st.sampled_from(JOBS),
        count=st.integers(1, 3),
        schedule=st.sampled_from(SCHEDULES),
        sec=st.sampled_from([11, 30, 100]),
    )
    def cancel_ahead(self, job: str, count: int, schedule: dict[str, Any], sec: int) -> None:
        """The next few are cancelled, and then another schedule comes to the same instants, maybe late."""
        self.world.register(job, mode=RegisterMode.PUT, every_sec=5)
        for _ in range(count):
            self.cancel_next(job)
        known = self.world.engine.state.job(TENANT, job)
        if known is not None:
            self.update(job, known.version, schedule)
        self.outage(sec)

    @precondition(lambda self: self.grants)
    @rule(data=st.data(), own=st.booleans())
    def replay(self, data: st.DataObject, own: bool) -> None:
        grant = data.draw(st.sampled_from(self.grants))
        self.world.replay(grant.execution.execution_id, payload=b'"new"' if own else None)

    @rule(count=st.integers(0, 2), pool=st.sampled_from(POOLS))
    def park(self, count: int, pool: str) -> None:
        """Asks and does not take the credit back: grants come with what becomes due."""
        self.world.request(*(Slot(worker_id=name, credit=count) for name in "AB"), park_sec=60, pool=pool)

    @rule(sec=st.integers(0, 40), job=st.sampled_from(JOBS), limit=st.integers(1, 10))
    def abort(self, sec: int, job: str, limit: int) -> None:
        engine = self.world.engine
        self.world.now_ms += sec * 1000
        engine.begin(self.world.now_ms, self.world.chance.random)
        engine.decide(CancelJob(**self.world._envelope(), job_id=job), Source("commands", 0, 0))
        engine.fire(self.world.now_ms, limit)
        engine.grant()
        engine.abort()
        self.world.run()

    @rule(sec=st.integers(0, 70), limit=st.integers(1, 3))
    def lag(self, sec: int, limit: int) -> None:
        """Timers go on in small passes while the work of the last seconds is not decided yet."""
        world = self.world
        world.now_ms += sec * 1000
        for settled_ms in (0, world.now_ms - 1_000 * sec // 2, world.now_ms):
            world.one(settled_ms, limit)
        world.run()

    @rule(how=st.sampled_from(["store", "log", "compacted"]))
    def restart(self, how: str) -> None:
        """The process dies; its store is opened again, or made from the log, and soft state is gone."""
        world = self.world
        if how == "store":
            world.engine = Engine(0, world.store, codec, world.router)
        else:
            log = world.log if how == "log" else compacted(world.log, len(world.log) * 3 // 4)
            world.engine = rebuild(log, world.router)
            world.store = world.engine.state.kv._base  # type: ignore[assignment]
        world.run()

    @invariant()
    def one_at_a_time(self) -> None:
        running = Counter(e.job_id for e in self.world.executions() if e.status is ExecutionStatus.RUNNING)
        for job_id, count in running.items():
            job = self.world.engine.state.job(TENANT, job_id)
            if job is not None and job.version == job.first_version:
                assert count <= (2 if job.policies.overlap is OverlapPolicy.ALLOW else 1), running

    @invariant()
    def one_of_a_group_at_a_time(self) -> None:
        """And whoever waits for a group's slot waits for one that runs, or behind one that is called."""
        running: Counter[str] = Counter()
        called: dict[tuple[str, str], tuple[int, str]] = {}
        waiting = []
        for e in self.world.executions():
            if not e.exclusion_group:
                assert e.waiting_for is not WaitingFor.EXCLUSION
            elif e.status is ExecutionStatus.RUNNING:
                running[e.exclusion_group] += 1
            elif e.waiting_for is WaitingFor.WORKER:
                place = (e.exclusion_group, e.pool)
                mine = (e.due_ms, e.execution_id)
                called[place] = min(called.get(place, mine), mine)
            elif e.waiting_for is WaitingFor.EXCLUSION:
                waiting.append(e)
        assert all(count == 1 for count in running.values()), running
        for e in waiting:
            first = called.get((e.exclusion_group, e.pool))
            ahead = first is not None and first < (e.due_ms, e.execution_id)
            assert running[e.exclusion_group] or ahead, e

    @invariant()
    def no_cap_was_exceeded(self) -> None:
        """By no grant, at no instant: what a cap is when an execution is claimed counts."""
        world = self.world
        running = [e for e in world.executions() if e.status is ExecutionStatus.RUNNING]
        claimed = "ExecutionClaimed" in world.types[self.events_seen :]
        self.events_seen = len(world.types)
        indexes = world.engine.state.indexes
        assert indexes.running_of(TENANT) == len(running)
        for pool in POOLS:
            here = sum(e.pool == pool for e in running)
            pool_key = ids.pool_key(TENANT, pool)
            assert indexes.running_of_in(TENANT, pool_key) == indexes.running_in(pool_key) == here
        if claimed:
            check_caps(world, running)

    @invariant()
    def who_is_held_back_has_a_breaker_for_it(self) -> None:
        """Open: until its timer; probing: while others are tried; closed: until its next pass."""
        world = self.world
        for pool in POOLS:
            breaker = world.engine.state.breaker(TENANT, f"pool:{pool}")
            held = [e for e in world.executions() if e.waiting_for is WaitingFor.BREAKER and e.pool == pool]
            assert all(e.attempt > 1 for e in held)
            if breaker is not None and breaker.status is BreakerStatus.PROBING:
                for execution_id in breaker.probes:
                    e = world.execution(execution_id)
                    assert e.status is ExecutionStatus.RUNNING or e.waiting_for is WaitingFor.WORKER
                assert not held or breaker.probes
            elif held:
                assert breaker is not None
                if breaker.status is BreakerStatus.CLOSED:
                    assert any(at > world.now_ms for at in waiting_timers(world, ids.key_of(breaker)))

    @invariant()
    def who_is_unfinished_is_known(self) -> None:
        check_unfinished(self.world, JOBS)

    @invariant()
    def nothing_was_quarantined(self) -> None:
        assert self.world.quarantined == []
        assert "internal_error" not in [alert.kind for alert in self.world.alerts]

    @invariant()
    def nothing_is_stuck(self) -> None:
        world = self.world
        for key, due_ms in expected_timers(world):
            entries = waiting_timers(world, key)
            assert any(filed >= due_ms for filed in entries), (key, due_ms - world.now_ms, entries)
        by_job: dict[str, list[Execution]] = defaultdict(list)
        for e in world.executions():
            if e.status not in FINAL:
                by_job[e.job_id].append(e)
        for job_id, unfinished in by_job.items():
            assert any(e.waiting_for is not WaitingFor.OVERLAP for e in unfinished), job_id
        for job in jobs(world):
            cursor = world.cursor(job.job_id)
            if cursor.status is JobStatus.ACTIVE:
                assert by_job[job.job_id] or (cursor.next_ms and not cursor.catch_up), cursor
        for pool in POOLS:
            self.who_can_be_granted_is(ids.pool_key(TENANT, pool))

    def who_can_be_granted_is(self, pool_key: str) -> None:
        """Nothing waits beside credit unless a cap or a pause keeps it there."""
        engine, now_ms = self.world.engine, self.world.now_ms
        running = engine.state.indexes.running_in(pool_key)
        if engine._parking.next_with_credit(pool_key, running, now_ms) is None:
            return
        engine.begin(now_ms, self.world.chance.random)
        backlog, _ = PoolOrder(engine._open(), Fairness(), pool_key, 0).waiting()
        engine.abort()
        assert backlog == 0, pool_key

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        with self.patches:
            self.check_its_log()

    def check_its_log(self) -> None:
        world = self.world
        for log in (
            world.log,
            compacted(world.log, len(world.log)),
            compacted(world.log, len(world.log) // 2),
            in_any_order(world.log, len(world.log)),
        ):
            engine = rebuild(log)
            assert engine.digest() == world.engine.digest()
            assert indexes(engine.state.kv) == indexes(world.store)
        kept_max = SMALL["streams.core.handlers.scheduling.MISFIRE_KEPT_MAX"] if self.small else KEPT_MAX
        report = judged(world, kept_max)
        assert report.good, report.violations
        assert not report.unjudged
        accounted = report.fired + sum(report.skipped.values()) + report.kept + report.undecided
        assert report.due == accounted


def jobs(world: World) -> list[Job]:
    found = [codec.decode(value) for _, value in world.store.scan(b"ejob:", b"ejob;")]
    return [event.job for event in found]  # type: ignore[attr-defined]


def check_caps(world: World, running: list[Execution]) -> None:
    """After a grant. Grants of one pass may meet different pools, so each cap is looked at alone."""
    newest = max(running, key=lambda e: e.fencing_token, default=None)
    if newest is None:
        return
    mine, shared = world.router.settings_of(TENANT), world.router.settings_of(ids.SHARED)
    assert not mine.paused
    assert len(running) <= mine.max_running
    for owner, prefix in ((mine, ""), (shared, "shared/")):
        for pool in owner.pools:
            here = [e for e in running if e.pool == prefix + pool.name]
            if newest in here:
                most = max(1, pool.max_running // 2) if prefix else pool.max_running
                assert not pool.paused
                assert not pool.max_running or len(here) <= most


def expected_timers(world: World) -> Iterator[tuple[str, int]]:
    """What has to be looked at again, and from when on."""
    for e in world.executions():
        due_ms = due_of_execution(e)
        if e.status is ExecutionStatus.RUNNING:
            due_ms = world.engine.state.lease_until_ms(e)
        if due_ms is not None:
            yield ids.key_of(e), due_ms
    for breaker in (world.engine.state.breaker(TENANT, f"pool:{pool}") for pool in POOLS):
        if breaker is not None and breaker.status is BreakerStatus.OPEN:
            yield ids.key_of(breaker), breaker.until_ms
    for job in jobs(world):
        cursor = world.cursor(job.job_id)
        at_ms = due_of_cursor(cursor)
        is_late = cursor.status in (JobStatus.CANCELLED, JobStatus.COMPLETED) and by_then(world, job, at_ms)
        first = world.engine.state.first_execution(job)
        closed = first is not None and first.closes_job  # and is forgotten by its execution's timer
        if at_ms is not None and not is_late and not closed:
            yield ids.job_key(TENANT, job.job_id), at_ms


def by_then(world: World, job: Job, at_ms: int | None) -> bool:
    """A finished job that was looked at while something of it was open: that one's own end tries again."""
    known = any(e.job_id == job.job_id for e in world.executions())
    return at_ms is not None and at_ms <= world.now_ms and known


def waiting_timers(world: World, key: str) -> list[int]:
    """Instants of the stored entries of a log key that no pass has taken yet."""
    found = []
    for entry, _ in world.store.scan(b"t", b"u"):
        lane, filed_ms, log_keys = keys.split_timer(entry)
        position = keys.position(entry[1:2], keys.minute_of(entry), lane)
        if key in log_keys.split("\0") and entry > (world.store.get(position) or b""):
            found.append(filed_ms)
    return found


def judged(world: World, kept_max: int) -> Report:
    """What the checker says of the whole log."""
    checker = Checker(kept_max=kept_max)
    for offset, command in world.work:
        checker.word(0, offset, command)
    for key, value in world.log:
        if value is None:
            checker.forgotten(key)
        else:
            checker.take(0, codec.decode(value))  # type: ignore[arg-type]
    return checker.finish(world.now_ms, grace_ms=0)


Partition.TestCase.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestPartition = Partition.TestCase
