"""One batch: bounds, turns, poison, and engines that fail."""

from __future__ import annotations

from typing import Any

import pytest

from schemas import codec
from schemas.commands import Command
from schemas.events import AlertRaised
from streams.core.invariants import InvariantError
from streams.core.timebuckets import ENTRY_MAX
from streams.core.transaction import Source
from streams.runtime.deciding import FIRE_STEP
from streams.runtime.partition import GivenUp, PartitionState
from streams.runtime.tenants import TenantDirectory
from streams.transport.log import TopicPartition
from tests.unit.runtime.installation import Installation, engines


def test_deciding_ends_after_50_ms() -> None:
    world = Installation()
    time = world.time

    class Slow:
        def decide(self, command: Command, source: Source) -> None:
            time.pass_ms(20)
            super().decide(command, source)  # type: ignore[misc]

    process = world.live(make_engine=engines(world, Slow))
    for number in range(10):
        world.register(f"job-{number}")
    process.step()
    assert world.committed()[0] == 3
    world.run(process, steps=10)
    assert world.committed()[0] == 10


def test_firing_ends_after_50_ms() -> None:
    """A flood must not make transactions long: what others have due waits for the next one."""
    world = Installation()
    time = world.time

    class Slow:
        def fire(self, settled_ms: int, limit: int) -> bool:
            time.pass_ms(limit // 5)
            return bool(super().fire(settled_ms, limit))  # type: ignore[misc]

    process = world.live(make_engine=engines(world, Slow))
    for number in range(2 * FIRE_STEP):
        world.register(f"job-{number}", delay_sec=60)
    world.run(process, steps=30)
    time.pass_ms(120_000)
    process.step()
    assert FIRE_STEP <= world.types().count("ExecutionFired") < FIRE_STEP + ENTRY_MAX
    process.step()
    assert world.types().count("ExecutionFired") == 2 * FIRE_STEP


def test_a_batch_has_a_bounded_number_of_records() -> None:
    world = Installation()
    process = world.live()
    for number in range(700):
        world.register(f"job-{number}")
    process.step()
    assert world.committed()[0] == 500


def test_a_broken_invariant_stops_its_partition_and_no_other() -> None:
    world = Installation(partitions=2)
    broken = world.where("job-1")

    class Broken:
        partition: int

        def decide(self, command: Command, source: Source) -> None:
            if self.partition == broken:
                raise InvariantError("the lease epoch fell")
            super().decide(command, source)  # type: ignore[misc]

    process = world.live(make_engine=engines(world, Broken))
    world.register("job-1")
    world.request(1 - broken, credit=0)
    world.run(process)
    assert process.running == [1 - broken]
    stopped = process.partition(broken)
    assert (stopped.state, stopped.reason) == (PartitionState.STOPPED, "the lease epoch fell")
    assert process.metric("partitions_stopped") == 1
    assert process.partition(1 - broken).positions.work == 1
    assert world.statuses()[-1].state in {"STOPPED", "RUNNING"}
    assert world.types(broken) == ["PartitionOpened"]
    process.processor.stop()
    again = world.live("b")
    world.run(again)
    alerts = [
        event.alert
        for event in (codec.decode(each.value or b"") for each in world.events(broken))
        if isinstance(event, AlertRaised)
    ]
    assert [(alert.kind, alert.tenant) for alert in alerts] == [("partition_stopped", "")]
    assert "the lease epoch fell" in alerts[0].detail
    assert again.metric("alerts_total", kind="partition_stopped") == 0  # told by who stopped it
    again.processor.stop()
    world.run(world.live("c"))
    assert world.types(broken).count("AlertRaised") == 1


def test_a_handler_that_raises_quarantines_its_command_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Installation()
    process = world.live()

    def bug(*_: Any) -> None:
        raise KeyError("bug")

    monkeypatch.setattr("streams.core.engine.cancel_job", bug)
    first, bad, second = world.register("job-1"), world.cancel("job-1"), world.register("job-2")
    world.run(process)
    assert [world.answer(each).status for each in (first, bad, second)] == [201, 500, 201]  # type: ignore[union-attr]
    (record,) = world.read(world.topics.quarantine)
    assert codec.decode(record.value or b"").command_id == bad  # type: ignore[attr-defined]
    assert b"KeyError" in record.headers["reason"]
    assert process.metric("commands_total", type="CancelJob", outcome="quarantined") == 1


def test_dev_shards_are_fixed() -> None:
    world = Installation(partitions=4)
    world.shards = {"acme": 4}
    world.start("a").processor.stop()
    world.start("b").processor.stop()
    world.shards = {"acme": 2}
    with pytest.raises(GivenUp, match="'acme' was made with 4 shards and cannot have 2"):
        world.start("c")


def test_a_default_jitter_can_be_set_and_changed() -> None:
    world = Installation(partitions=4)
    directory = world.live().processor._tenants
    assert isinstance(directory, TenantDirectory)
    for sec in (30, 10):
        directory.configure({"acme": 2}, {"acme": sec}, world.time.wall_ms)
        assert (directory.shards("acme"), directory.settings_of("acme").default_jitter_sec) == (2, sec)
    directory.configure({}, {}, world.time.wall_ms)
    assert directory.settings_of("acme").default_jitter_sec == 10


def test_tenants_are_followed() -> None:
    world = Installation(partitions=4)
    process = world.live()
    directory = process.processor._tenants
    assert isinstance(directory, TenantDirectory)
    assert directory.shards("late") == 1
    world.shards = {"late": 4}
    world.start("b")
    world.time.pass_ms(200)
    process.step()
    assert directory.shards("late") == 4
    assert sorted(directory.partitions_of("late")) == [0, 1, 2, 3]


def test_two_processes_of_one_name_do_not_fence_each_other_for_ever() -> None:
    """STR-001: the fenced one ends within bounded time."""
    world = Installation(partitions=2)
    world.shards = {"acme": 2}
    processes = (world.start("a"), world.start("a"))

    def use() -> None:
        for number in range(100):
            world.register(f"job-{number}")
            world.run(*processes)

    with pytest.raises(GivenUp, match="HORARIUM_INSTANCE"):
        use()


def test_readers_that_retention_overtook_go_on_at_the_logs_beginning() -> None:
    world = Installation()
    process = world.live()
    for _ in range(5):
        world.send(world.topics.commands, 0, b"junk")
        world.send(world.topics.work, 0, b"junk")
    world.log.trim(TopicPartition(world.topics.commands, 0), 4)
    world.log.trim(TopicPartition(world.topics.work, 0), 5)
    command = world.register()
    world.until(lambda: world.answer(command) is not None, process)
    assert process.running == [0]
    assert process.metric("alerts_total", kind="internal_error") >= 1
