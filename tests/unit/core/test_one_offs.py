"""One-offs that are moved about: an id is never used again, and every run counts."""

from __future__ import annotations

import random  # noqa: TID251 seeded
from typing import Any

import pytest

from schemas.entities import JobStatus
from streams.core.instants import format_instant
from tests.unit.core.world import World

HOUR = 3_600


def at(world: World, hour: float) -> str:
    return format_instant(world.start_ms + round(hour * HOUR * 1000))


def update(world: World, **kw: Any) -> int:
    job = world.engine.state.job("acme", "job-1")
    assert job is not None
    return world.update(job.version, timeout_sec=7 * 86_400, misfire_window_sec=2_592_000, **kw).status


def test_an_instant_that_has_passed_is_not_run_again_when_its_execution_is_forgotten() -> None:
    world = World()
    world.register(run_at=at(world, 0), allow_past=True)
    (first,) = world.claim("A")
    assert update(world, run_at=at(world, 20)) == 200
    world.complete(first)
    world.jump(at(world, 30))
    (second,) = world.claim("A")
    assert not world.engine.state.knows(f"exec:acme/{first.execution.execution_id}")
    assert update(world, run_at=at(world, 0), allow_past=True) == 400
    assert update(world, run_at=at(world, 21), allow_past=True) == 200
    world.complete(second)
    world.until(world.now_ms + 1)
    (third,) = world.claim("A")
    assert len({each.execution.execution_id for each in (first, second, third)}) == 3


@pytest.mark.parametrize("seed", range(40))
def test_no_pair_of_execution_and_epoch_is_granted_twice(seed: int) -> None:
    chance = random.Random(seed)
    world = World()
    world.register(run_at=at(world, 0), allow_past=True)
    pairs: list[tuple[str, int]] = []
    hour = 0
    for _ in range(30):
        match chance.randrange(4):
            case 0:
                hour += chance.choice([1, 10, 30])
                world.jump(at(world, hour))
            case 1:
                when = at(world, chance.choice([0, 1, hour, hour + 2]))
                update(world, run_at=when, allow_past=True)
            case 2:
                update(world, cron="0 */5 * * *")
            case _:
                world.until(world.now_ms + 1)
                for grant in world.claim("A", 3):
                    pairs.append((grant.execution.execution_id, grant.execution.lease_epoch))
                    if chance.randrange(2):
                        world.complete(grant)
        if not world.knows_job():
            break
    assert len(pairs) == len(set(pairs))
    assert world.rebuilt().digest() == world.engine.digest()


def test_runs_of_a_one_off_count() -> None:
    world = World()
    world.register(delay_sec=0, max_runs=2)
    world.run()
    (first,) = world.claim("A")
    assert world.cursor().runs == 1
    assert update(world, delay_sec=1, max_runs=1) == 400
    assert update(world, delay_sec=1, max_runs=2) == 200
    world.at(1)
    assert world.cursor().runs == 2
    assert update(world, every_sec=60, max_runs=2) == 400
    assert update(world, every_sec=60, max_runs=3) == 200
    world.complete(first)
    (second,) = world.claim("A")
    world.complete(second)
    world.at(61)
    (third,) = world.claim("A")
    world.complete(third)
    assert world.cursor().status is JobStatus.COMPLETED
