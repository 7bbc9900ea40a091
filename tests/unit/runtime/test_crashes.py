"""A process that dies at any commit step: nothing lost, nothing twice, and the state is what the log says."""

from __future__ import annotations

import pytest

from streams.runtime.checkpoint import Step
from streams.store.memory import MemoryFolder
from tests.unit.runtime.installation import Crash, Installation, Process


def die(world: Installation, process: Process, step: Step) -> MemoryFolder:
    process.crash_at = step
    with pytest.raises(Crash):
        world.run(process, steps=20)
    process.evict()
    return process.crash()


def successor(world: Installation, left: MemoryFolder, *, name: str, keeps_folder: bool) -> Process:
    world.time.pass_ms(6_500)
    return world.live(name, left if keeps_folder else None)


@pytest.mark.parametrize("keeps_folder", [True, False], ids=["folder", "no-folder"])
@pytest.mark.parametrize("name", ["a", "b"], ids=["restart", "take-over"])
@pytest.mark.parametrize("step", Step)
def test_a_command_is_decided_once(step: Step, name: str, keeps_folder: bool) -> None:
    world = Installation()
    process = world.live("a")
    world.register("job-1")
    left = die(world, process, step)
    again = successor(world, left, name=name, keeps_folder=keeps_folder)
    world.run(again, steps=10)
    assert world.types().count("JobRegistered") == 1
    assert again.digest(0) == world.replayed_digest()
    world.time.pass_ms(60_000)
    world.request()
    world.until(lambda: len(world.grants()) == 1, again)


@pytest.mark.parametrize("keeps_folder", [True, False], ids=["folder", "no-folder"])
@pytest.mark.parametrize("step", Step)
def test_a_timer_fires_once(step: Step, keeps_folder: bool) -> None:
    world = Installation()
    process = world.live("a")
    world.register("job-1", delay_sec=1)
    world.run(process)
    world.time.pass_ms(1_000)
    left = die(world, process, step)
    again = successor(world, left, name="b", keeps_folder=keeps_folder)
    world.run(again, steps=10)
    assert world.types().count("ExecutionFired") == 1
    assert again.digest(0) == world.replayed_digest()


@pytest.mark.parametrize("step", Step)
def test_an_epoch_is_granted_once(step: Step) -> None:
    world = Installation()
    process = world.live("a")
    world.register("job-1", delay_sec=0)
    world.run(process)
    world.request()
    left = die(world, process, step)
    again = successor(world, left, name="b", keeps_folder=True)
    world.request()
    world.run(again, steps=20)
    claimed = [execution for kind, execution in world.executions() if kind == "ExecutionClaimed"]
    pairs = [(each.execution_id, each.lease_epoch) for each in claimed]
    assert len(pairs) == len(set(pairs)) == 1


def test_a_crash_in_a_crash_recovery() -> None:
    world = Installation()
    process = world.live("a")
    world.register("job-1", delay_sec=1)
    left = die(world, process, Step.COMMITTED)
    for step in (Step.SENT, Step.COMMITTED, Step.REPLIED):
        world.time.pass_ms(6_500)
        process = world.start("a", left)
        world.register(f"job-{step.name}", delay_sec=1)
        left = die(world, process, step)
    again = successor(world, left, name="a", keeps_folder=True)
    world.run(again, steps=30)
    assert world.types().count("JobRegistered") == 4
    assert world.types().count("ExecutionFired") == 4
    assert again.digest(0) == world.replayed_digest()
