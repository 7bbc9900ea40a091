"""Rules 9 and 10 of architecture §5: log lag is not death, and time that never goes back or freezes."""

from __future__ import annotations

import dataclasses

import pytest

from schemas.commands import Command, RegisterJob, ScheduleSpec
from schemas.entities import Content, Policies
from schemas.topics import catalogue
from streams.core.transaction import Source
from streams.runtime.partition import BEFORE_ALL_TIME, GivenUp, Settlement
from streams.transport.memory_faults import CommitFault, PlainFault
from tests.unit.runtime.installation import Installation, Process, Time, engines

# -- 9


def test_rule_9_a_beat_in_the_log_in_time_is_never_reaped_by_a_successor() -> None:
    """The owner dies before it reads the beat, and many records lie before it."""
    world = Installation()
    process = world.live("a")
    world.register(delay_sec=0, lease_sec=60)
    world.request()
    world.until(lambda: bool(world.grants()), process)
    (grant,) = world.grants()
    process.evict()
    world.time.pass_ms(55_000)
    for _ in range(1_200):
        world.request(credit=0)
    world.beat(grant.execution)
    world.time.pass_ms(10_000)
    taker = world.start("b")
    world.until(lambda: taker.running == [0], taker)
    world.run(taker, steps=30)
    assert "LeaseExtended" in world.types()
    assert "LeaseExpired" not in world.types()
    world.time.pass_ms(60_000)
    world.run(taker, steps=200)
    assert world.types().count("LeaseExpired") == 1


def test_rule_9_beats_that_wait_behind_a_refused_transaction_count() -> None:
    world = Installation()
    process = world.live("a")
    world.register(delay_sec=0, lease_sec=60)
    world.request()
    world.until(lambda: bool(world.grants()), process)
    (grant,) = world.grants()
    world.time.pass_ms(59_000)
    for _ in range(1_200):
        world.request(credit=0)
    world.beat(grant.execution)
    world.time.pass_ms(2_000)
    for _ in range(3):
        world.log.faults.fail_next_commit(CommitFault.ABORTED)
    world.until(lambda: "LeaseExtended" in world.types(), process)
    assert "LeaseExpired" not in world.types()


def test_rule_9_the_clock_is_read_before_the_log_is_asked() -> None:
    settlement = Settlement()
    assert settlement.settled_ms == BEFORE_ALL_TIME
    settlement.ask(1_000, lambda: 7)
    assert not settlement.decided_to(6)
    assert settlement.settled_ms == BEFORE_ALL_TIME
    assert settlement.decided_to(7)
    assert settlement.settled_ms == 1_000
    assert not settlement.decided_to(8)


# -- 10


def test_rule_10_a_new_owner_starts_at_the_last_event() -> None:
    world = Installation()
    ahead = Time()
    ahead.pass_ms(3_000)
    process = world.live("a", time=ahead)
    world.register()
    world.run(process)
    process.processor.stop()
    taker = world.live("b")
    world.register("job-2")
    world.run(taker)
    times = [event.at_ms for event in world.decoded()]
    assert times == sorted(times)
    assert taker.clock.now_ms() >= times[-1]


def test_rule_10_a_new_owner_starts_at_the_last_event_though_a_tombstone_is_behind_it() -> None:
    world = Installation()
    ahead = Time()
    ahead.pass_ms(3_000)
    process = world.live("a", time=ahead)
    registration = RegisterJob(
        **world._who(),
        job_id="job-1",
        schedule=ScheduleSpec(every_sec=1),
        pool="default",
        content=Content(name="n", task="t"),
        policies=Policies(),
    )
    world.command(registration, 0)
    world.run(process)
    world.request()
    pass_on(world, ahead, process, 1_500)
    (grant,) = world.grants()
    world.beat(grant.execution)
    world.complete(grant.execution)
    pass_on(world, ahead, process, 100)
    assert world.types()[-1] == "ExecutionCompleted"
    assert world.events()[-1].value is None
    process.evict()
    taker = world.start("b")
    world.until(lambda: taker.running == [0], taker)
    world.register("job-2")
    world.run(taker)
    times = [event.at_ms for event in world.decoded()]
    assert times == sorted(times)


def test_rule_10_a_clock_far_off_the_brokers_gives_its_partitions_up() -> None:
    world = Installation()
    late = Time()
    process = world.live("a", time=late)
    world.time.pass_ms(6_000)
    world.request(credit=0)
    world.run(process, steps=3)
    assert process.owned == []
    assert process.metric("alerts_total", kind="clock_step") == 2
    other = world.start("b")
    world.until(lambda: other.running == [0], other, process)


def test_rule_10_a_clock_that_is_set_right_takes_partitions_again() -> None:
    world = Installation()
    for off_ms in (-30_000, 30_000, 3_600_000):
        machine = Time()
        machine.wall_ms = world.time.wall_ms + off_ms
        process = world.start("a", time=machine)
        world.run(process, steps=20)
        assert (process.owned, process.metric("clock_trusted")) == ([], 0)
        machine.wall_ms -= off_ms
        pass_on(world, machine, process, 1_500)
        assert (process.running, process.metric("clock_trusted")) == ([0], 1)
        assert abs(process.clock.now_ms() - world.time.wall_ms) < 100
        process.processor.stop()


def pass_on(world: Installation, machine: Time, process: Process, ms: int) -> None:
    """Time passes everywhere, and the process goes on."""
    for _ in range(ms // 20):
        for time in {machine, world.time}:
            time.pass_ms(20)
        process.step()


@pytest.mark.parametrize("off_ms", [-3_600_000, -30_000, 6_000, 30_000, 3_600_000])
def test_rule_10_a_process_that_starts_far_off_takes_nothing_and_fires_nothing(off_ms: int) -> None:
    """Also while it is the only one, and nothing was read that could tell it."""
    world = Installation()
    former = world.live("a")
    world.register(delay_sec=1_800)
    world.run(former)
    former.processor.stop()
    machine = Time()
    machine.wall_ms = world.time.wall_ms + off_ms
    process = world.start("b", time=machine)
    pass_on(world, machine, process, 40_000)
    assert process.owned == []
    assert "ExecutionFired" not in world.types()
    assert process.metric("clock_offset_seconds") == pytest.approx(off_ms / 1000, abs=0.01)
    assert process.metric("alerts_total", kind="clock_step") == 1


def test_rule_10_a_process_that_is_some_seconds_off_begins_with_the_brokers_time() -> None:
    world = Installation()
    machine = Time()
    machine.wall_ms += 4_000
    process = world.live("a", time=machine)
    assert process.clock.now_ms() == pytest.approx(world.time.wall_ms, abs=20)
    assert process.metric("alerts_total", kind="clock_step") == 1


def test_rule_10_no_partition_is_taken_before_the_brokers_said_what_the_time_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = Installation()
    world.log.faults.on_plain_send = lambda record: (
        PlainFault.DROP if record.topic == world.topics.clock else None
    )
    process = world.start("a")
    pass_on(world, world.time, process, 11_000)
    assert (process.owned, process.metric("clock_trusted")) == ([], 0)
    assert "the brokers have not said what the time is: unit.clock [0]: dropped" in caplog.text
    world.log.faults.on_plain_send = None
    pass_on(world, world.time, process, 1_100)
    assert (process.running, process.metric("clock_trusted")) == ([0], 1)
    world.log.faults.on_plain_send = lambda record: PlainFault.DROP
    pass_on(world, world.time, process, 200_000)
    assert process.running == [0]


def test_rule_10_a_process_asks_the_brokers_now_and_then() -> None:
    """Also one that nothing is read by: a clock that goes wrong later is found, too."""
    world = Installation()
    machine = Time()
    process = world.live("a", time=machine)
    pass_on(world, machine, process, 90_000)
    assert 3 <= len(world.read(world.topics.clock)) <= 5
    machine.wall_ms += 7_000
    machine.monotonic_ms += 7_000
    pass_on(world, machine, process, 31_000)
    assert process.owned == []


def test_rule_10_a_topic_that_its_writer_stamps_ends_the_process() -> None:
    world = Installation()
    clock = world.topics.clock
    world.log.delete_topic(clock)
    (spec,) = (each for each in catalogue(world.topics.namespace, 1, 1) if each.name == clock)
    stamped = {**spec.config, "message.timestamp.type": "CreateTime"}
    world.log.create_topics([dataclasses.replace(spec, config=stamped)])
    with pytest.raises(GivenUp, match=r"unit\.clock has message\.timestamp\.type=CreateTime"):
        world.start("a").step()


def test_rule_10_a_log_far_ahead_is_waited_for() -> None:
    """Brokers were, and are set right: no event goes before one that is there."""
    world = Installation()
    former = world.live("a")
    world.register()
    world.run(former)
    former.evict()
    last_ms = world.decoded()[-1].at_ms
    world.time.wall_ms -= 20_000
    process = world.start("b")
    pass_on(world, world.time, process, 12_000)
    assert (process.owned, process.running) == ([0], [])
    assert "too far ahead of this process's clock" in process.partition(0).reason
    pass_on(world, world.time, process, 3_500)
    assert process.running == [0]
    assert process.clock.now_ms() >= last_ms


def test_str_021_a_step_back_of_the_wall_clock_neither_stalls_nor_repeats() -> None:
    world = Installation()
    machine = Time()
    process = world.live(time=machine)
    for number in range(60):
        world.register(f"job-{number}", delay_sec=number + 1)
    world.run(process, steps=10)
    for _ in range(30):
        pass_on(world, machine, process, 1_000)
    fired = world.types().count("ExecutionFired")
    assert fired >= 29
    machine.wall_ms -= 54_000
    for _ in range(31):
        pass_on(world, machine, process, 1_000)
    ids = [execution.execution_id for kind, execution in world.executions() if kind == "ExecutionFired"]
    assert len(ids) == len(set(ids)) == 60
    assert process.metric("clock_steps") == process.metric("alerts_total", kind="clock_step") == 1
    assert all(e.fired_ms >= e.due_ms for kind, e in world.executions() if kind == "ExecutionFired")


def test_rule_9_what_is_read_but_not_decided_does_not_count() -> None:
    world = Installation()
    time = world.time

    class Slow:
        def decide(self, command: Command, source: Source) -> None:
            if len(slow):
                time.pass_ms(20)
            super().decide(command, source)  # type: ignore[misc]

    slow: list[int] = []
    process = world.live("a", make_engine=engines(world, Slow))
    world.register(delay_sec=0, lease_sec=60)
    world.request()
    world.until(lambda: bool(world.grants()), process)
    (grant,) = world.grants()
    world.time.pass_ms(59_000)
    for _ in range(20):
        world.request(credit=0)
    world.beat(grant.execution)
    world.time.pass_ms(2_000)
    slow.append(1)
    world.until(lambda: "LeaseExtended" in world.types(), process)
    assert "LeaseExpired" not in world.types()
