"""Rules 1 to 6 of architecture §5 in virtual time; each test fails when its rule is removed.

Rule 7 is about the writer's settings and rule 8 about the group's: both are the transport's, and measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from schemas.commands import Command
from schemas.topics import HEADER_WRITER, pack_positions
from streams.core.transaction import Source
from streams.runtime.checkpoint import Step
from streams.transport.log import Isolation, Outgoing, TopicPartition
from streams.transport.memory import MemoryTransactionalWriter
from streams.transport.memory_faults import CommitFault, PlainFault
from tests.unit.runtime.installation import GROUP, NAMESPACE, Crash, Installation, Process, engines

Offsets = list[tuple[set[int], Mapping[TopicPartition, int]]]


@pytest.fixture
def transactions(monkeypatch: pytest.MonkeyPatch) -> Offsets:
    """Of each transaction: the partitions whose events it holds, and the offsets it sends."""
    seen: Offsets = []
    begin, send, offsets = (
        MemoryTransactionalWriter.begin,
        MemoryTransactionalWriter.send,
        MemoryTransactionalWriter.send_offsets,
    )

    def spy_begin(self: MemoryTransactionalWriter) -> None:
        seen.append((set(), {}))
        begin(self)

    def spy_send(self: MemoryTransactionalWriter, records: Sequence[Outgoing], on_last: Any = None) -> None:
        seen[-1][0].update(each.partition for each in records if each.topic.endswith(".events"))
        send(self, records, on_last)

    def spy_offsets(
        self: MemoryTransactionalWriter, found: Mapping[TopicPartition, int], membership: object
    ) -> None:
        seen[-1] = (seen[-1][0], dict(found))
        offsets(self, found, membership)

    monkeypatch.setattr(MemoryTransactionalWriter, "begin", spy_begin)
    monkeypatch.setattr(MemoryTransactionalWriter, "send", spy_send)
    monkeypatch.setattr(MemoryTransactionalWriter, "send_offsets", spy_offsets)
    return seen


def two_jobs(world: Installation, delay_sec: int = 60) -> None:
    """One in each of two partitions."""
    for number in (0, 1):
        job_id = next(f"job-{n}" for n in range(100) if world.where(f"job-{n}") == number)
        world.register(job_id, delay_sec=delay_sec)


def sharded() -> Installation:
    """Two partitions, and a tenant that lives in both."""
    world = Installation(partitions=2)
    world.shards = {"acme": 2}
    return world


# -- 1


def test_rule_1_offsets_of_both_topics_for_every_partition_with_events(transactions: Offsets) -> None:
    world = sharded()
    process = world.live()
    two_jobs(world, delay_sec=1)
    world.run(process)
    world.time.pass_ms(1_000)
    world.run(process)
    assert world.types(0)[-1] == world.types(1)[-1] == "ExecutionFired"
    assert max(len(partitions) for partitions, _ in transactions) == 2
    for partitions, offsets in transactions:
        for topic in (world.topics.commands, world.topics.work):
            assert {TopicPartition(topic, number) for number in partitions} <= set(offsets)


def test_rule_1_a_zombie_whose_timer_fires_is_refused() -> None:
    """It lost its partition between its poll and its commit, and no command moved its positions."""
    world = Installation()
    zombie = world.live("a")
    world.register(delay_sec=1)
    world.run(zombie)
    successor = world.start("b")

    def moved() -> None:
        zombie.evict()
        world.until(lambda: world.types().count("ExecutionFired") == 1, successor)

    zombie.at[Step.DECIDED] = moved
    world.time.pass_ms(1_000)
    zombie.step()
    world.until(lambda: zombie.owned == [], zombie, successor)
    assert world.types().count("ExecutionFired") == 1
    assert zombie.metric("fenced_writes_total") == 1
    assert successor.digest(0) == world.replayed_digest()


def test_rule_1_a_zombie_that_lost_only_some_partitions_is_refused() -> None:
    world = sharded()
    zombie = world.live("a")
    two_jobs(world, delay_sec=1)
    world.run(zombie)
    successor = world.start("b")

    def moved() -> None:
        # A new generation in which the zombie keeps partition 1 and has not heard of it.
        group = world.log.rebalance(GROUP, world.topics.commands)
        del group.owners[0]
        group.members.append(successor_member)
        group.rebalance([0, 1])
        group.targets = {0: successor_member, 1: zombie.member}
        world.until(lambda: "ExecutionFired" in world.types(0), successor)

    successor.step()
    successor_member = successor.member
    world.log.cluster.group(GROUP).remove(successor_member)
    zombie.step()
    zombie.at[Step.DECIDED] = moved
    world.time.pass_ms(1_000)
    zombie.step()
    world.until(lambda: zombie.running == [1] and successor.running == [0], zombie, successor)
    world.run(zombie, successor, steps=20)
    for number in (0, 1):
        assert world.types(number).count("ExecutionFired") == 1


# -- 2


def test_rule_2_a_partition_that_moved_is_not_touched_by_its_former_owner() -> None:
    world = sharded()
    first = world.live("a")
    two_jobs(world, delay_sec=1)
    world.run(first)
    second = world.start("b")
    world.until(lambda: len(first.running) == len(second.running) == 1, first, second)
    world.time.pass_ms(1_000)
    world.run(first, second, steps=20)
    for number in (0, 1):
        assert world.types(number).count("ExecutionFired") == 1


def test_rule_2_the_owner_of_commands_reads_work_of_the_same_number() -> None:
    world = sharded()
    first = world.live("a")
    second = world.start("b")
    world.until(lambda: len(first.running) == len(second.running) == 1, first, second)
    for number in (0, 1):
        world.request(number, credit=0)
    world.run(first, second)
    for process in (first, second):
        (number,) = process.running
        assert process.partition(number).positions.work == 1


def test_rule_2_a_transaction_is_committed_under_the_membership_of_its_poll() -> None:
    """A rebalance between poll and commit makes it stale, even if the member keeps all it had."""
    world = Installation()
    rebalances = [lambda: world.log.rebalance(GROUP, world.topics.commands)]

    class Rebalanced:
        def decide(self, command: Command, source: Source) -> None:
            if rebalances:
                rebalances.pop()()
            super().decide(command, source)  # type: ignore[misc]

    process = world.live(make_engine=engines(world, Rebalanced))
    command = world.register()
    process.step()
    assert process.metric("transactions_total", outcome="aborted") == 1
    assert world.types() == ["PartitionOpened"]
    world.until(lambda: world.answer(command) is not None, process)
    assert world.types() == ["PartitionOpened", "JobRegistered"]


# -- 3


def test_rule_3_a_taker_waits_for_an_open_transaction() -> None:
    world = Installation()
    process = world.live("a")
    command = world.register()
    process.crash_at = Step.OFFSETS_SENT
    with pytest.raises(Crash):
        process.step()
    process.evict()
    taker = world.start("b")
    world.until(lambda: taker.owned == [0], taker)
    world.run(taker, steps=50)
    assert taker.running == []
    world.until(lambda: taker.running == [0], taker, steps=1_500)
    world.until(lambda: world.answer(command) is not None, taker)
    assert world.types().count("JobRegistered") == 1


def test_rule_3_a_taker_waits_for_offsets_that_nothing_but_a_reply_depends_on() -> None:
    """A refusal is a transaction of offsets alone: decided twice, it could be answered in two ways."""
    world = Installation()
    process = world.live("a")
    world.cancel("no-such-job")
    process.crash_at = Step.OFFSETS_SENT
    with pytest.raises(Crash):
        process.step()
    process.evict()
    taker = world.start("b")
    world.run(taker, steps=50)
    assert (taker.owned, taker.running) == ([0], [])


def test_rule_3_a_taker_replays_to_the_read_uncommitted_end() -> None:
    """The commit returned, offsets count, but the markers of the events are still to be written."""
    world = Installation()
    process = world.live("a")
    world.log.faults.late_markers = True
    command = world.register()
    process.step()
    assert world.committed()[0] == 1
    assert world.types() == ["PartitionOpened"]
    process.evict()
    world.log.faults.late_markers = False
    taker = world.start("b")
    world.run(taker, steps=20)
    assert (taker.owned, taker.running) == ([0], [])
    world.log.write_markers()
    world.until(lambda: taker.running == [0], taker)
    world.run(taker)
    assert taker.digest(0) == world.replayed_digest()
    assert world.types() == ["PartitionOpened", "JobRegistered"]
    assert len(world.answers(command)) == 1


def test_rule_3_the_end_is_asked_after_the_stable_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """What commits while the offsets are waited for belongs to what is replayed."""
    world = Installation()
    process = world.live("a")
    writer = process.processor._checkpoint._writer
    assert isinstance(writer, MemoryTransactionalWriter)
    world.register()
    source = Installation()
    template = source.live("a")
    source.register()
    source.run(template)
    registered = source.events()[-1]
    process.evict()
    asked = world.log.committed

    def committed(group: str, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        if not commits:
            # The predecessor's transaction, valid when it sent its offsets, ends now; markers come later.
            commits.append(1)
            world.log.faults.late_markers = True
            writer._cluster.prepare(transaction)
        return asked(group, tps)

    commits: list[int] = []
    transaction = world.log.cluster.begin(writer.transactional_id, world.time.wall_ms)
    partition = world.log.cluster.partition(world.topics.events, 0)
    headers = {HEADER_WRITER: b"unit.a.0", "pos": pack_positions(1, 0)}
    monkeypatch.setattr(world.log, "committed", committed)
    end_offset = world.log.end_offset

    def end(tp: TopicPartition, isolation: Isolation) -> int:
        if commits == [1] and tp.topic == world.topics.events:
            commits.append(2)
            partition.append(
                Outgoing(tp.topic, 0, registered.key, registered.value, headers),
                world.time.wall_ms,
                transaction,
            )
        return end_offset(tp, isolation)

    monkeypatch.setattr(world.log, "end_offset", end)
    taker = world.start("b")
    world.run(taker, steps=20)
    assert taker.running == []
    world.log.write_markers()
    world.until(lambda: taker.running == [0], taker)
    assert taker.digest(0) == world.replayed_digest()


def test_rule_3_positions_carried_by_events_count_where_offsets_are_gone() -> None:
    world = Installation()
    process = world.live("a")
    command = world.register()
    world.run(process)
    process.processor.stop()
    world.log.cluster.group(GROUP).committed.clear()
    for folder in (process.folder, None):
        again = world.live("a", folder)
        world.run(again)
        assert len(world.answers(command)) == 1
        again.processor.stop()
        world.log.cluster.group(GROUP).committed.clear()


def test_rule_3_committed_offsets_count_beyond_those_carried_by_events() -> None:
    world = Installation()
    process = world.live("a")
    refused = world.cancel("no-such-job")
    world.run(process)
    process.processor.stop()
    again = world.live("b")
    world.run(again)
    said = [each for each in world.replies() if getattr(each, "command_id", "") == refused]
    assert len(said) == 1


def test_rule_3_without_either_the_log_is_read_from_its_beginning() -> None:
    world = Installation()
    command = world.register()
    process = world.live("a")
    world.run(process)
    assert len(world.answers(command)) == 1


# -- 4


def test_rule_4_a_revoke_commits_and_hands_over() -> None:
    """STR-003 a: what was handled is committed, the new owner goes on behind it."""
    world = Installation()
    process = world.live("a")
    world.request(park_sec=30)
    world.run(process)
    assert world.committed()[1] != 1
    process.processor.stop()
    assert world.committed()[1] == 1
    again = world.live("b")
    assert again.partition(0).positions.work == 1


def test_rule_4_a_lost_partition_is_dropped_and_never_committed() -> None:
    """STR-003 b: its new owner handles the records again."""
    world = Installation()
    process = world.live("a")
    world.request(park_sec=30)
    world.run(process)
    before = process.metric("transaction_seconds_count")
    process.evict()
    taker = world.start("b")
    world.until(lambda: taker.running == [0], taker)
    process.step()
    assert process.owned == []
    assert process.metric("transaction_seconds_count") == before
    world.run(taker)
    assert taker.partition(0).positions.work == 1


# -- 5


def died_in_transaction(world: Installation, step: Step = Step.OFFSETS_SENT) -> Process:
    process = world.live("a")
    world.register()
    process.crash_at = step
    with pytest.raises(Crash):
        process.step()
    process.evict()
    return process


def test_rule_5_a_restarted_instance_ends_its_own_open_transaction() -> None:
    world = Installation()
    process = died_in_transaction(world)
    again = world.start("a", process.crash())
    world.run(again, steps=3)
    assert again.running == [0]


def test_rule_5_the_open_transaction_of_a_dead_predecessor_is_ended() -> None:
    world = Installation()
    died_in_transaction(world)
    died_ms = world.time.wall_ms
    world.time.pass_ms(6_000)  # its session
    taker = world.start("b")
    world.until(lambda: taker.running == [0], taker, ms=50)
    assert world.time.wall_ms - died_ms < 7_000
    world.run(taker)
    assert world.types().count("JobRegistered") == 1


def test_rule_5_a_predecessor_that_never_told_its_status_is_named_by_its_events() -> None:
    world = Installation()
    status = world.topics.status
    world.log.faults.on_plain_send = lambda record: PlainFault.DROP if record.topic == status else None
    died_in_transaction(world)
    died_ms = world.time.wall_ms
    world.time.pass_ms(6_000)
    taker = world.start("b")
    world.until(lambda: taker.running == [0], taker, ms=50)
    assert world.time.wall_ms - died_ms < 7_000


def test_rule_5_a_predecessor_that_only_sent_offsets_is_found_by_its_status() -> None:
    world = Installation()
    former = world.live("old")
    former.processor.stop()
    process = world.live("a")
    world.cancel("no-such-job")
    process.crash_at = Step.OFFSETS_SENT
    with pytest.raises(Crash):
        process.step()
    process.evict()
    died_ms = world.time.wall_ms
    world.time.pass_ms(6_000)
    taker = world.start("b")
    world.until(lambda: taker.running == [0], taker, ms=50)
    assert world.time.wall_ms - died_ms < 7_000


def test_rule_5_a_living_writer_is_not_fenced() -> None:
    """The newest event names it, but it was another that died in a transaction of offsets alone."""
    world = sharded()
    living = world.live("a")
    dead = world.start("c")
    world.until(lambda: len(living.running) == len(dead.running) == 1, living, dead)
    (number,) = dead.running
    world.send(world.topics.commands, number, b"no command")
    dead.crash_at = Step.OFFSETS_SENT
    with pytest.raises(Crash):
        dead.step()
    for _ in range(120):  # its session; the living one goes on
        living.step()
        world.time.pass_ms(50)
    epoch = world.log.cluster._epochs["unit.a.0"]
    dead.evict()
    taker = world.start("b")
    world.until(lambda: number in taker.running or len(living.running) == 2, living, taker, ms=50)
    assert world.log.cluster._epochs["unit.a.0"] == epoch


def test_rule_5_transactional_ids_are_stable() -> None:
    world = Installation()
    process = world.start("a")
    writer = process.processor._checkpoint._writer
    assert writer is not None
    assert writer.transactional_id == f"{NAMESPACE}.a.0"


# -- 6


def test_rule_6_no_transaction_is_open_while_deciding(transactions: Offsets) -> None:
    world = Installation()
    process = world.live()
    opened: list[int] = []
    process.at[Step.DECIDED] = lambda: opened.append(len(world.log.cluster._unfinished))
    world.register()
    before = len(transactions)
    process.step()
    assert opened == [0]
    assert len(transactions) == before + 1


def test_rule_6_an_aborted_transaction_is_decided_again() -> None:
    world = Installation()
    process = world.live()
    command = world.register()
    world.request()
    world.log.faults.fail_next_commit(CommitFault.ABORTED)
    world.until(lambda: world.answer(command) is not None, process)
    assert len(world.answers(command)) == 1
    assert world.types().count("JobRegistered") == 1
    assert process.digest(0) == world.replayed_digest()


@pytest.mark.parametrize(
    "fault", [CommitFault.UNKNOWN_COMMITTED, CommitFault.UNKNOWN_ABORTED, CommitFault.UNKNOWN_OPEN]
)
def test_rule_6_an_unknown_outcome_is_read_from_the_log(fault: CommitFault) -> None:
    world = Installation()
    process = world.live()
    command, refused = world.register(), world.cancel("no-such-job")
    world.log.faults.fail_next_commit(fault)
    writer = process.processor._checkpoint._writer
    world.until(lambda: world.answer(command) is not None, process)
    assert process.processor._checkpoint._writer is not writer
    assert len(world.answers(command)) == len(world.answers(refused)) == 1
    assert world.types().count("JobRegistered") == 1
    assert process.digest(0) == world.replayed_digest()


@pytest.mark.parametrize("fault", [CommitFault.UNKNOWN_COMMITTED, CommitFault.UNKNOWN_OPEN])
def test_rule_6_a_timer_of_unknown_outcome_fires_once(fault: CommitFault) -> None:
    world = Installation()
    process = world.live()
    world.register(delay_sec=1)
    world.run(process)
    world.time.pass_ms(1_000)
    world.log.faults.fail_next_commit(fault)
    world.run(process, steps=20)
    assert world.types().count("ExecutionFired") == 1
    assert process.digest(0) == world.replayed_digest()
