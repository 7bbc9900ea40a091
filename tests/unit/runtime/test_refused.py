"""What the log will never take is found, and holds up nobody else."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from schemas import codec
from streams.transport.log import LogRefused, Outgoing
from streams.transport.memory import MemoryTransactionalWriter
from tests.unit.runtime.asking import TENANT
from tests.unit.runtime.installation import Installation

Refuse = Callable[[str], None]


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """Makes the log refuse events whose keys begin so: such as one that is larger than a broker takes."""
    send = MemoryTransactionalWriter.send
    refused: list[bytes] = []

    def refusing(self: MemoryTransactionalWriter, records: list[Outgoing], on_last: Any = None) -> None:
        if any((each.key or b"").startswith(tuple(refused)) for each in records):
            self._failure = LogRefused("too large")
            raise self._failure
        send(self, records, on_last)

    monkeypatch.setattr(MemoryTransactionalWriter, "send", refusing)
    return lambda key: refused.append(key.encode())


def shared(partitions: int) -> Installation:
    world = Installation(partitions)
    world.shards = {TENANT: partitions}
    return world


def job_in(world: Installation, partition: int, name: str = "job") -> str:
    return next(each for n in itertools.count() if world.where(each := f"{name}-{n}") == partition)


def set_aside(world: Installation, partition: int = 0) -> list[str]:
    found = [codec.decode(each.value or b"") for each in world.read(world.topics.quarantine, partition)]
    return [command.command_id for command in found]  # type: ignore[attr-defined]


def test_a_record_is_found_and_set_aside(refuse: Refuse) -> None:
    world = Installation()
    process = world.live()
    refuse("job:acme/poison")
    good = [world.register(f"job-{n}") for n in range(3)]
    poison = world.register("poison")
    good += [world.register(f"job-{n}") for n in range(3, 6)]
    world.until(lambda: world.committed()[0] == 7, process, steps=400)
    assert all(len(world.answers(each)) == 1 for each in good)
    assert set_aside(world) == [poison]
    assert process.running == [0]


@pytest.mark.parametrize("busy", [0, 1])
def test_it_is_found_although_work_never_ceases(refuse: Refuse, busy: int) -> None:
    """Only what the refused transaction had is decided alone, not what came since, there or elsewhere."""
    world = shared(3)
    process = world.live()
    refuse(f"job:{TENANT}/{job_in(world, 1)}")
    poison, good = world.register(job_in(world, 1)), world.register(job_in(world, 2))
    for _ in range(50):
        for _ in range(3):
            world.request(busy, credit=0)
        process.step()
        world.time.pass_ms(10)
    assert set_aside(world, 1) == [poison]
    assert len(world.answers(good)) == 1
    assert process.running == [0, 1, 2]


def test_a_partition_whose_timer_is_refused_stops_alone(refuse: Refuse) -> None:
    """Others must not be held up, and no record that comes meanwhile is to blame."""
    world = shared(3)
    process = world.live()
    for number in range(3):
        world.register(job_in(world, number), delay_sec=60)
    world.until(lambda: all(world.committed(n)[0] == 1 for n in range(3)), process)
    refuse(f"exec:{TENANT}/{job_in(world, 1)}.")
    world.time.pass_ms(60_000)
    for _ in range(20):
        world.cancel(job_in(world, 1, "none"))
        process.step()
        world.time.pass_ms(10)
    assert process.running == [0, 2]
    assert set_aside(world, 1) == []
    assert [world.types(n).count("ExecutionFired") for n in range(3)] == [1, 0, 1]


def test_a_partition_stops_whose_record_cannot_be_set_aside(refuse: Refuse) -> None:
    """The topic for that is gone, say: it must not be tried for ever."""
    world = shared(2)
    process = world.live()
    poison = job_in(world, 1)
    refuse(f"job:{TENANT}/{poison}")
    refuse("key")  # of every command, and so of what is set aside
    world.register(poison)
    good = world.register(job_in(world, 0))
    world.until(lambda: process.running == [0], process)
    world.until(lambda: len(world.answers(good)) == 1, process)
