"""How many jobs a tenant may have, and how fast it may register them (semantics §6)."""

from __future__ import annotations

import pytest

from schemas import codec
from schemas.commands import RegisterJob, RegisterMode, ScheduleSpec
from schemas.entities import Content, Policies
from schemas.replies import CommandDone
from streams.core.engine import Engine
from streams.core.rates import RegistrationRates
from tests.unit.core.world import TENANT, World, compacted, rebuild


def small() -> World:
    world = World()
    world.configure(max_jobs=3)
    return world


def jobs(world: World) -> tuple[int, int, int]:
    """Living jobs of the tenant, and those of them in pools `default` and `other`; the same by any replay."""
    logs = (world.log, compacted(world.log, len(world.log)), compacted(world.log, len(world.log) // 2))
    counts = []
    for state in (world.engine.state, *(rebuild(log).state for log in logs)):
        found = state.indexes
        counts.append(
            (found.jobs_of(TENANT), found.jobs_in(TENANT, "default"), found.jobs_in(TENANT, "other"))
        )
    assert len(set(counts)) == 1
    return counts[0]


def test_living_jobs_are_counted() -> None:
    world = small()
    world.register("a", every_sec=60)
    world.register("b", delay_sec=5, pool="other")
    world.register("c", every_sec=60)
    assert jobs(world) == (3, 2, 1)
    world.update(1, "a", every_sec=60, pool="other")
    world.pause("c")
    assert jobs(world) == (3, 1, 2)
    world.cancel_job("c")
    assert jobs(world) == (2, 0, 2)
    world.at(5)
    (grant,) = world.claim("W", pool="other")
    assert jobs(world) == (2, 0, 2)  # completed once its execution is
    world.complete(grant)
    assert jobs(world) == (1, 0, 1)
    world.at(200_000)  # finished ones are forgotten
    assert not world.knows_job("b")
    assert jobs(world) == (1, 0, 1)


def test_one_more_than_the_cap_is_refused_until_one_is_over() -> None:
    world = small()
    for job_id in "abc":
        assert world.register(job_id, every_sec=60).status == 201
    refused = world.register("d", every_sec=60)
    assert (refused.status, refused.code, refused.limit) == (429, "too_many_jobs", 3)
    assert not world.knows_job("d")
    assert world.register("a", every_sec=60).status == 201  # a repeat makes nothing
    assert world.register("a", mode=RegisterMode.PUT, every_sec=30).status == 200
    assert world.update(2, "a", every_sec=20).status == 200
    world.pause("b")
    assert world.register("d", every_sec=60).status == 429
    world.cancel_job("b")
    assert world.register("d", every_sec=60).status == 201
    assert world.register("b", mode=RegisterMode.PUT, every_sec=9).code == "too_many_jobs"  # made anew
    world.configure(max_jobs=4)
    assert world.register("b", mode=RegisterMode.PUT, every_sec=9).status == 201


def test_lowering_the_cap_takes_no_job_away() -> None:
    world = small()
    for job_id in "abc":
        world.register(job_id, every_sec=60)
    world.configure(max_jobs=1)
    world.at(61)
    assert len(world.claim("W", 9)) == 3
    assert world.register("d", every_sec=60).code == "too_many_jobs"


def test_zero_jobs_close_registration() -> None:
    world = World()
    world.configure(max_jobs=0)
    refused = world.register("a", every_sec=60)
    assert (refused.status, refused.code, refused.limit) == (429, "too_many_jobs", 0)


def registrations(world: World, count: int, first: int = 0) -> list[CommandDone]:
    commands = [
        RegisterJob(
            **world._envelope(f"key-{n}"),
            job_id=f"job-{n}",
            schedule=ScheduleSpec(every_sec=60),
            pool="default",
            content=Content(name="n", task="t"),
            policies=Policies(),
        )
        for n in range(first, first + count)
    ]
    return [reply for reply in world.run(*commands) if isinstance(reply, CommandDone)]


def test_a_second_s_worth_at_once_then_as_they_come() -> None:
    world = World()
    world.configure(registrations_per_sec=100)
    statuses = [done.status for done in registrations(world, 150)]
    assert statuses == [201] * 100 + [429] * 50
    (refused,) = registrations(world, 1, 150)
    assert (refused.code, refused.limit, refused.retry_after_ms) == ("rate_limited", 100, 10)
    assert [done.status for done in registrations(world, 100)] == [201] * 100  # repeats cost nothing
    world.until(world.now_ms + 9)
    assert registrations(world, 1, 100)[0].retry_after_ms == 1
    world.until(world.now_ms + 1)
    assert [done.status for done in registrations(world, 2, 100)] == [201, 429]
    world.until(world.now_ms + 60_000)  # never more than a second's worth
    assert [done.status for done in registrations(world, 101, 200)] == [201] * 100 + [429]


def test_what_is_refused_otherwise_costs_nothing() -> None:
    world = World()
    world.configure(registrations_per_sec=1)
    for _ in range(3):
        assert world.register("bad", cron="0 0 30 2 *").status == 400
    assert world.register("good", every_sec=60).status == 201
    assert world.register("late", every_sec=60).code == "rate_limited"


def test_an_update_costs_nothing_and_a_restart_fills_the_bucket() -> None:
    world = World()
    world.configure(registrations_per_sec=1)
    assert registrations(world, 1)[0].status == 201
    for version in range(1, 4):
        assert world.update(version, "job-0", every_sec=60 + version).status == 200
    assert registrations(world, 1, 1)[0].status == 429
    world.engine = Engine(0, world.store, codec, world.router)
    assert registrations(world, 1, 1)[0].status == 201


def test_shares_of_a_tenant_with_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Split over its partitions; none of them gets nothing."""
    monkeypatch.setattr("tests.unit.core.world.OnePartition.partitions_of", lambda *_: [0, 1, 2])
    world = World()
    world.configure(max_jobs=2, registrations_per_sec=7)
    assert [done.code for done in registrations(world, 2)] == ["", "too_many_jobs"]
    world.configure(max_jobs=100)
    assert [done.code for done in registrations(world, 3, 1)] == ["", "", "rate_limited"]  # 3 of 7


def test_an_abort_gives_back_what_was_taken() -> None:
    rates = RegistrationRates()
    assert [rates.take("a", 2, 0) for _ in range(3)] == [0, 0, 500]
    rates.undo()
    assert [rates.take("a", 2, 0) for _ in range(2)] == [0, 0]
    rates.settled()
    rates.undo()
    assert rates.take("a", 2, 0) == 500
    rates.drop_stale(999)
    assert rates.take("a", 2, 999) == 0
    rates.drop_stale(5_000)
    assert rates._buckets == {}
