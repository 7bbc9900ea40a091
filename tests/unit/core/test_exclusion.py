"""Exclusion groups: jobs of a tenant that never run at the same time (semantics §5)."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.entities import ExecutionStatus as E
from schemas.entities import OverlapPolicy, Priority, RetryJitter, RetryPolicy, Tenant, WaitingFor
from schemas.replies import Grant
from streams.core import keys
from tests.unit.core.world import NO_RETRY, TENANT, World, compacted, rebuild

BACKLOG = keys.backlog(f"{TENANT}/default", Priority.NORMAL, TENANT)
PLAIN = RetryPolicy(max_attempts=3, backoff_base_sec=10, backoff_factor=1, jitter=RetryJitter.NONE)


def group(world: World, *jobs: str, delay_sec: int = 0, **kw: Any) -> None:
    """One-offs of group `g`, due in the order of their names."""
    kw.setdefault("retry", PLAIN)
    for n, job_id in enumerate(jobs):
        done = world.register(job_id, delay_sec=delay_sec + n, exclusion_group="g", **kw)
        assert done.status == 201, done


def names(grants: list[Grant]) -> list[str]:
    return [grant.execution.job_id for grant in grants]


def waits(world: World) -> dict[str, WaitingFor]:
    return {e.job_id: e.waiting_for for e in world.executions() if e.status is E.PENDING}


def test_one_at_a_time_by_due_time() -> None:
    world = World()
    group(world, "c", "a", "b")
    world.at(5)
    ran = []
    while grants := world.claim("W", 10):
        ran += names(grants)
        assert len(grants) == 1
        world.complete(grants[0])
    assert ran == ["c", "a", "b"]


def test_due_time_counts_before_priority() -> None:
    world = World()
    group(world, "first", priority=Priority.LOW)
    group(world, "second", delay_sec=1, priority=Priority.HIGH)
    world.at(2)
    assert names(world.claim("W", 2)) == ["first"]


def test_only_one_is_in_the_queue() -> None:
    """What must wait draws no credit: backlog and hints leave it out."""
    world = World()
    group(world, *"abcdef")
    world.at(10)
    assert world.engine.state.indexes.number(BACKLOG) == 1
    assert sorted(waits(world).values()) == [WaitingFor.EXCLUSION] * 5 + [WaitingFor.WORKER]
    (grant,) = world.claim("W", 6)
    assert world.engine.state.indexes.number(BACKLOG) == 0
    world.complete(grant)
    assert world.engine.state.indexes.number(BACKLOG) == 1


def test_groups_of_others_and_jobs_without_one_go_on() -> None:
    world = World()
    group(world, "a", "b")
    world.register("free", delay_sec=0)
    world.register("other", delay_sec=0, exclusion_group="h")
    world.at(2)
    assert sorted(names(world.claim("W", 9))) == ["a", "free", "other"]


def test_a_parked_worker_gets_the_next_one_when_the_slot_is_free() -> None:
    world = World()
    group(world, "a", "b")
    world.at(2)
    (grant,) = world.claim("W")
    assert world.claim("V", park_sec=60) == []
    world.complete(grant)
    assert world.execution_of("b").status is E.RUNNING


@pytest.mark.parametrize("how", ["complete", "give up", "fail", "snooze", "release", "expire", "timeout"])
def test_whatever_ends_a_run_frees_the_slot(how: str) -> None:
    world = World()
    group(world, "a", "b", lease_sec=20, timeout_sec=30, max_deliveries=2)
    world.at(2)
    (grant,) = world.claim("W")
    match how:
        case "complete":
            world.complete(grant)
        case "give up":
            world.fail(grant, retryable=False)
        case "fail":
            world.fail(grant)
        case "snooze":
            world.release(grant, 5)
        case "release":
            world.release(grant)
        case "expire":
            world.at(22)
        case "timeout":
            world.at(15)
            world.beat(grant)
            world.at(32)
    expected = ["a"] if how in ("release", "expire") else ["b"]  # by due time: a is due before b
    assert names(world.claim("V", 5)) == expected


def test_a_retry_in_its_backoff_holds_nothing_and_comes_back_in_its_turn() -> None:
    world = World()
    group(world, "a", "b", "c")
    world.at(3)
    (a,) = world.claim("W")
    world.fail(a)
    (b,) = world.claim("W")
    world.at(14)
    assert waits(world) == {"a": WaitingFor.EXCLUSION, "c": WaitingFor.EXCLUSION}
    world.complete(b)
    (c,) = world.claim("W", 3)
    assert c.execution.job_id == "c"  # due at 2 s, the retry at 13 s
    world.complete(c)
    assert names(world.claim("W", 3)) == ["a"]


def test_a_cancelled_run_keeps_the_slot_until_its_worker_was_told() -> None:
    world = World()
    group(world, "a", "b")
    world.at(2)
    (a,) = world.claim("W")
    world.cancel(a.execution.execution_id)
    assert world.claim("V", 3) == []
    assert world.beat(a).code == "cancelled"
    assert names(world.claim("V", 3)) == ["b"]


def test_a_cancelled_run_keeps_the_slot_until_its_lease_ends() -> None:
    world = World()
    group(world, "a", "b", lease_sec=20)
    world.at(2)
    (a,) = world.claim("W")
    world.cancel(a.execution.execution_id)
    world.at(21.9)
    assert world.claim("V", 3) == []
    world.at(22)
    assert names(world.claim("V", 3)) == ["b"]


def test_one_that_times_out_keeps_the_slot_until_then() -> None:
    world = World()
    group(world, "a", "b", lease_sec=5, timeout_sec=8)
    world.at(2)
    (a,) = world.claim("W")
    world.at(6)
    world.beat(a)
    world.at(9.9)
    assert world.claim("V", 3) == []
    world.at(10)
    assert names(world.claim("V", 3)) == ["b"]


@pytest.mark.parametrize("how", ["cancel", "cancel job", "deadline"])
def test_when_the_called_one_goes_the_next_is_called(how: str) -> None:
    world = World()
    group(world, "a", start_deadline_sec=5)
    group(world, "b", delay_sec=1)
    world.at(2)
    assert waits(world) == {"a": WaitingFor.WORKER, "b": WaitingFor.EXCLUSION}
    match how:
        case "cancel":
            world.cancel(world.execution_of("a").execution_id)
        case "cancel job":
            world.cancel_job("a")
        case "deadline":
            world.at(5)
    assert waits(world) == {"b": WaitingFor.WORKER}


def test_a_waiting_one_can_be_cancelled_and_misses_its_deadline() -> None:
    world = World()
    group(world, "a")
    group(world, "b", "c", delay_sec=1, start_deadline_sec=10)
    world.at(3)
    (a,) = world.claim("W")
    world.cancel(world.execution_of("b").execution_id)
    world.at(12)
    assert world.execution_of("b").status is E.CANCELLED
    assert world.execution_of("c").status is E.SKIPPED
    world.complete(a)
    assert world.claim("W", 3) == []


def test_a_pool_without_workers_does_not_hold_up_another() -> None:
    world = World()
    group(world, "idle", pool="nobody")
    group(world, "a", "b", delay_sec=1)
    world.at(3)
    (a,) = world.claim("W", 5)
    assert a.execution.job_id == "a"
    assert world.claim("X", pool="nobody") == []  # who is granted first has the slot
    assert waits(world) == {"idle": WaitingFor.EXCLUSION, "b": WaitingFor.EXCLUSION}
    world.complete(a)
    assert waits(world) == {"idle": WaitingFor.WORKER, "b": WaitingFor.WORKER}
    (idle,) = world.claim("X", pool="nobody")
    assert world.claim("W") == []
    world.complete(idle)
    assert names(world.claim("W")) == ["b"]


@pytest.mark.parametrize("overlap", list(OverlapPolicy))
def test_no_deadlock_with_overlap(overlap: OverlapPolicy) -> None:
    """Two jobs of one group, each with the next run waiting for the one before."""
    world = World()
    for job_id in "ab":
        world.register(job_id, every_sec=5, max_runs=4, exclusion_group="g", overlap=overlap, queue_limit=9)
    done = []
    for sec in range(5, 60):
        world.at(sec)
        for grant in world.claim("W", 3):
            world.at(sec + 0.5)
            if world.complete(grant).status == 200:
                done.append(grant.execution.job_id)
    assert min(done.count("a"), done.count("b")) >= 3
    assert [e for e in world.executions() if e.status in (E.PENDING, E.RUNNING)] == []


def test_cancel_running_waits_for_the_told_worker_and_its_group() -> None:
    world = World()
    world.register("a", every_sec=10, exclusion_group="g", overlap=OverlapPolicy.CANCEL_RUNNING)
    world.at(10)
    (old,) = world.claim("W")
    world.at(20)
    assert world.claim("V") == []
    assert world.complete(old).code == "cancelled"
    (new,) = world.claim("V")
    assert new.execution.scheduled_ms > old.execution.scheduled_ms


def test_triggers_backfills_and_replays_obey() -> None:
    world = World("2026-05-01T12:00:00Z")
    world.register("a", cron="0 * * * *", exclusion_group="g", overlap=OverlapPolicy.ALLOW, retry=NO_RETRY)
    group(world, "holder")
    (holder,) = world.claim("H")
    world.trigger("a", overlap=OverlapPolicy.ALLOW)
    world.backfill("2026-05-01T10:00:00Z", "2026-05-01T11:00:00Z", job_id="a", overlap=OverlapPolicy.ALLOW)
    assert world.claim("W", 9) == []
    world.fail(holder, retryable=False)
    (grant,) = world.claim("W", 9)
    world.replay(holder.execution.execution_id)
    assert waits(world)["holder"] is WaitingFor.EXCLUSION
    world.complete(grant)
    for _ in range(2):
        (grant,) = world.claim("W", 9)
        world.complete(grant)
    assert names(world.claim("W", 9)) == ["holder"]


def test_an_execution_keeps_the_group_it_was_fired_with() -> None:
    world = World()
    group(world, "a")
    world.register("b", every_sec=10, exclusion_group="g")
    (a,) = world.claim("W")
    world.at(10)
    world.update(1, "b", every_sec=10)
    assert world.claim("V", 3) == []
    world.at(20)
    world.complete(a)
    (old,) = world.claim("V", 3)
    assert old.execution.exclusion_group == "g"
    world.complete(old)
    (new,) = world.claim("V", 3)
    assert new.execution.exclusion_group == ""


def test_a_ledger_that_compares_fencing_tokens_refuses_a_zombie() -> None:
    """The old holder works on after its lease; the next of its group has a greater token (semantics §4)."""
    world = World()
    group(world, "a", "b", lease_sec=20, max_deliveries=1)
    world.at(2)
    (zombie,) = world.claim("W")
    newest = zombie.execution.fencing_token
    world.at(22)
    (holder,) = world.claim("V")
    assert holder.execution.job_id == "b"
    newest = max(newest, holder.execution.fencing_token)
    assert zombie.execution.fencing_token < newest == holder.execution.fencing_token
    assert zombie.execution.lease_epoch == holder.execution.lease_epoch  # epochs alone could not tell
    assert world.complete(zombie).code == "lease_lost"


def test_a_restart_changes_nothing() -> None:
    world = World()
    group(world, *"abcd")
    world.at(5)
    (a,) = world.claim("W")
    for log in (world.log, compacted(world.log, len(world.log))):
        state = rebuild(log).state.indexes
        assert state.holds_group(f"{TENANT}/g", besides="")
        assert not state.holds_group(f"{TENANT}/g", besides=a.execution.execution_id)
        assert state.pools_of_group(f"{TENANT}/g") == ["default"]


def test_refused_for_tenants_with_several_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    def settings_of(_: object, tenant: str) -> Tenant:
        return Tenant(tenant=tenant, shards=4)

    world = World()
    world.register("old", every_sec=5)
    monkeypatch.setattr("tests.unit.core.world.OnePartition.settings_of", settings_of)
    for done in (
        world.register(delay_sec=0, exclusion_group="g"),
        world.update(1, "old", every_sec=5, exclusion_group="g"),
    ):
        assert (done.status, done.errors[0].field) == (400, "exclusionGroup")
    assert world.register(delay_sec=0).status == 201
