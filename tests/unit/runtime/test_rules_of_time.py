"""Rules 9 and 10 of architecture §5: log lag is not death, and time that never goes back or freezes."""

from __future__ import annotations

from schemas.commands import Command, RegisterJob, ScheduleSpec
from schemas.entities import Content, Policies
from streams.core.transaction import Source
from streams.runtime.partition import BEFORE_ALL_TIME, Settlement
from streams.transport.memory_faults import CommitFault
from tests.unit.runtime.installation import Installation, Time, engines

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
    for time in (ahead, world.time):
        time.pass_ms(1_500)
    world.until(lambda: bool(world.grants()), process)
    (grant,) = world.grants()
    world.beat(grant.execution)
    world.complete(grant.execution)
    world.until(lambda: world.types()[-1] == "ExecutionCompleted", process)
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
    slow = Time()
    slow.wall_ms -= 30_000
    process = world.start("a", time=slow)
    world.until(lambda: process.running == [0], process)
    world.request(credit=0)
    world.until(lambda: not process.owned, process)
    slow.wall_ms += 30_000
    for _ in range(10):
        slow.pass_ms(20)
        world.run(process)
    assert process.running == [0]


def test_rule_10_a_clock_that_is_set_right_goes_on_with_a_partition_that_waits_for_it() -> None:
    world = Installation()
    former = world.live("a")
    world.register()
    world.run(former)
    former.evict()
    slow = Time()
    slow.wall_ms += world.time.wall_ms - slow.wall_ms - 1_800_000
    process = world.start("b", time=slow)
    world.run(process, steps=20)
    assert (process.owned, process.running) == ([0], [])
    slow.wall_ms += 1_800_000
    for _ in range(20):
        slow.pass_ms(20)
        world.run(process)
    assert process.running == [0]


def test_str_021_a_step_back_of_the_wall_clock_neither_stalls_nor_repeats() -> None:
    world = Installation()
    process = world.live()
    for number in range(60):
        world.register(f"job-{number}", delay_sec=number + 1)
    world.run(process, steps=10)
    for _ in range(30):
        world.time.pass_ms(1_000)
        world.run(process, steps=2)
    fired = world.types().count("ExecutionFired")
    assert fired >= 29
    world.time.wall_ms -= 54_000
    for _ in range(30):
        world.time.pass_ms(1_000)
        world.run(process, steps=2)
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
