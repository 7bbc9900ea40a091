"""The loop in virtual time: commands are decided, timers fire, replies follow the commit."""

from __future__ import annotations

import pytest

from schemas import codec
from schemas.commands import Command
from schemas.events import PartitionOpened
from schemas.topics import HEADER_POSITION, HEADER_WRITER, unpack_positions
from streams.core.transaction import Source
from streams.runtime.partition import GivenUp, PartitionState
from streams.runtime.turns import PACE_MS, PACED_EVENTS
from streams.transport.log import Outgoing
from tests.unit.runtime.installation import Installation, engines


def test_a_job_lives_from_registration_to_completion() -> None:
    world = Installation()
    process = world.live()
    command = world.register(delay_sec=1)
    world.run(process)
    answer = world.answer(command)
    assert answer is not None
    assert (answer.status, answer.offset) == (201, world.events()[-1].offset)
    world.request()
    world.until(lambda: bool(world.grants()), process)
    (grant,) = world.grants()
    world.complete(grant.execution)
    world.until(lambda: "ExecutionCompleted" in world.types(), process)
    assert world.types()[:4] == ["PartitionOpened", "JobRegistered", "ExecutionFired", "ExecutionClaimed"]
    assert process.digest(0) == world.replayed_digest()


def test_the_first_event_of_a_partition_says_what_it_was_made_with() -> None:
    world = Installation(partitions=2)
    world.live()
    for number in (0, 1):
        event = codec.decode(world.events(number)[0].value or b"")
        assert isinstance(event, PartitionOpened)
        assert (event.meta.partition, event.meta.partition_count) == (number, 2)


def test_the_last_event_of_a_transaction_carries_writer_and_positions() -> None:
    world = Installation()
    process = world.live()
    world.register("job-1")
    world.request()
    world.run(process)
    last = world.events()[-1]
    assert last.headers[HEADER_WRITER] == b"unit.a.0"
    assert unpack_positions(last.headers[HEADER_POSITION]) == (1, 1)
    assert world.committed() == (1, 1)


def test_str_004_the_next_offset_is_committed() -> None:
    world = Installation()
    process = world.live()
    command = world.register("job-1")
    world.run(process)
    assert world.committed()[0] == 1
    process.processor.stop()
    again = world.live("a", process.folder)
    world.run(again, steps=20)
    assert len(world.answers(command)) == 1


def test_an_idle_partition_makes_no_transaction() -> None:
    world = Installation(partitions=4)
    process = world.live()
    before = process.metric("transactions_total", outcome="committed")
    world.run(process, steps=300)
    assert process.metric("transactions_total", outcome="committed") == before


def test_positions_that_nothing_came_of_are_committed_within_a_second() -> None:
    world = Installation()
    process = world.live()
    world.request(park_sec=30)
    world.run(process)
    assert world.committed()[1] in (-1, 0)
    world.time.pass_ms(1_001)
    world.run(process)
    assert world.committed()[1] == 1


def test_a_refusal_is_answered_after_a_commit() -> None:
    world = Installation()
    process = world.live()
    command = world.cancel("no-such-job")
    world.run(process)
    answer = world.answer(command)
    assert answer is not None
    assert answer.code == "not_found"
    assert world.committed()[0] == 1


def test_work_is_drained_before_commands() -> None:
    world = Installation()
    process = world.live()
    for number in range(600):
        world.register(f"job-{number}", delay_sec=600)
    for _ in range(600):
        world.request(credit=0)
    process.step()
    assert process.partition(0).positions.commands == 0
    assert process.partition(0).positions.work == 500
    world.run(process, steps=10)
    assert process.partition(0).positions.commands == 600


def test_no_command_is_decided_while_work_waits() -> None:
    world = Installation()
    time = world.time

    class Slow:
        def decide(self, command: Command, source: Source) -> None:
            time.pass_ms(20)
            super().decide(command, source)  # type: ignore[misc]

    process = world.live(make_engine=engines(world, Slow))
    world.register()
    for _ in range(5):
        world.request(credit=0)
    process.step()
    assert process.partition(0).positions == (0, 3)
    process.step()
    assert process.partition(0).positions == (1, 5)


def test_a_partition_that_was_handed_over_is_nobodys() -> None:
    world = Installation()
    world.live().processor.stop()
    last = world.statuses()[-1]
    assert (last.owner, last.state, last.reason) == ("", "RESTORING", "handed over")


def test_a_lost_partition_is_left_to_what_its_new_owner_says() -> None:
    world = Installation()
    process = world.live("a")
    process.evict()
    taker = world.live("b")
    process.step()
    assert process.owned == []
    assert world.statuses()[-1].owner == taker.name


def test_statuses_say_who_runs_what() -> None:
    world = Installation()
    process = world.live()
    world.run(process)
    assert [each.state for each in world.statuses()] == ["RESTORING", "RUNNING"]
    world.time.pass_ms(5_000)
    world.run(process)
    last = world.statuses()[-1]
    assert (last.owner, last.state, last.position) == ("a", "RUNNING", 1)
    assert len(world.statuses()) == 3


def test_str_015_a_command_that_cannot_be_decoded_goes_to_quarantine() -> None:
    world = Installation()
    process = world.live()
    first = world.register("job-1")
    bad = bytes.fromhex("000000002affff")
    world.send(world.topics.commands, 0, bad)
    second, third = world.cancel("job-1"), world.register("job-2")
    world.run(process)
    assert [world.answer(each).status for each in (first, second, third)] == [201, 200, 201]  # type: ignore[union-attr]
    (record,) = world.read(world.topics.quarantine)
    assert record.value == bad
    assert record.headers["topic"] == world.topics.commands.encode()
    assert (record.headers["partition"], record.headers["offset"]) == (b"0", b"1")
    assert b"single-object" in record.headers["reason"]
    assert world.committed()[0] == 4


def test_quarantine_keeps_the_first_64_kib() -> None:
    world = Installation()
    process = world.live()
    world.send(world.topics.work, 0, b"x" * 100_000)
    world.run(process)
    (record,) = world.read(world.topics.quarantine)
    assert record.value == b"x" * 65_536
    assert record.headers["bytes"] == b"100000"


def test_str_015_an_event_that_cannot_be_decoded_stops_its_partition() -> None:
    world = Installation(partitions=2)
    process = world.live()
    world.register("job-1")
    world.run(process)
    process.processor.stop()
    world.send(world.topics.events, 1, b"\x00\x00\x00\x00\x2a\xff\xff")
    broken_at = world.events(1)[-1].offset
    again = world.start("b")
    world.until(lambda: again.owned == [0, 1], again)
    stopped = again.partition(1)
    world.until(lambda: again.running == [0] and stopped.state is PartitionState.STOPPED, again)
    assert f"[1] at {broken_at}" in stopped.reason
    assert again.metric("alerts_total", kind="partition_stopped") == 1
    world.run(again, steps=50)
    assert world.statuses()[-1].state == "STOPPED"


def test_a_process_of_another_partition_count_is_refused() -> None:
    world = Installation(partitions=2)
    world.live().processor.stop()
    world.partitions = 3
    with pytest.raises(GivenUp, match="HORARIUM_PARTITIONS is 3"):
        world.start()


def test_a_recorded_count_of_another_installation_is_refused() -> None:
    world = Installation(partitions=2)
    process = world.live()
    world.run(process)
    opened = world.events(0)[0]
    process.processor.stop()
    other = Installation(partitions=3)
    other.writer.send(Outgoing(other.topics.events, 0, opened.key, opened.value))
    starting = other.start()
    with pytest.raises(GivenUp, match="made for 2 partitions, not 3"):
        other.run(starting, steps=20)


def test_small_transactions_begin_no_closer_together_than_the_pace() -> None:
    world = Installation()
    process = world.live()
    world.time.pass_ms(PACE_MS)
    world.register("job-1")
    process.step()
    world.register("job-2")
    for waits_ms, decided in ((0, 1), (PACE_MS - 1, 1), (1, 2)):
        world.time.pass_ms(waits_ms)
        process.step()
        assert world.types().count("JobRegistered") == decided


def test_a_large_transaction_is_followed_by_the_next_at_once() -> None:
    world = Installation()
    process = world.live()
    world.time.pass_ms(PACE_MS)
    for number in range(PACED_EVENTS):
        world.register(f"job-{number}")
    process.step()
    world.register("another")
    process.step()
    assert world.types().count("JobRegistered") == PACED_EVENTS + 1
