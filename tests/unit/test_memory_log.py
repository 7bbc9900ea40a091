"""What only the in-memory log can do: faults, compaction, late markers, eviction, exact repetition."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from schemas.topics import Topics, catalogue
from streams.transport.log import (
    Isolation,
    LogAborted,
    LogError,
    LogFatal,
    LogRetriable,
    Outgoing,
    TopicPartition,
)
from streams.transport.memory import (
    MemoryGroupReader,
    MemoryLog,
    MemoryReader,
    MemoryTransactionalWriter,
)
from streams.transport.memory_faults import CommitFault, PlainFault

TOPICS = Topics("unit")
EVENTS = TopicPartition(TOPICS.events, 0)
COMMANDS = TopicPartition(TOPICS.commands, 0)


class Time:
    def __init__(self) -> None:
        self.ms = 1_000

    def now(self) -> int:
        return self.ms


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def log(time: Time) -> MemoryLog:
    log = MemoryLog(time.now)
    log.create_topics(catalogue("unit", 4, 1))
    return log


def event(key: str, value: str | None = "v") -> Outgoing:
    return Outgoing(TOPICS.events, 0, key.encode(), None if value is None else value.encode())


def reader(log: MemoryLog, isolation: Isolation = Isolation.COMMITTED) -> MemoryReader:
    made = log.reader(isolation)
    made.assign({EVENTS: 0})
    return made


def seen(log: MemoryLog) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in reader(log).poll(100, 0)]


def commit(writer: MemoryTransactionalWriter, *records: Outgoing) -> None:
    writer.begin()
    writer.send(records)
    writer.commit()


class Told:
    def __init__(self) -> None:
        self.told: list[tuple[str, list[int]]] = []

    def assigned(self, partitions: Sequence[int]) -> None:
        self.told.append(("assigned", list(partitions)))

    def revoked(self, partitions: Sequence[int]) -> None:
        self.told.append(("revoked", list(partitions)))

    def lost(self, partitions: Sequence[int]) -> None:
        self.told.append(("lost", list(partitions)))


def member(log: MemoryLog) -> tuple[MemoryGroupReader, Told]:
    told = Told()
    return log.group_reader("g", TOPICS.commands, told), told


# Faults of commit


def test_a_commit_refused_is_aborted_and_the_writer_goes_on(log: MemoryLog) -> None:
    writer = log.transactional_writer("a")
    log.faults.fail_next_commit(CommitFault.ABORTED)
    with pytest.raises(LogAborted):
        commit(writer, event("1"))
    writer.abort()
    commit(writer, event("2"))
    assert seen(log) == [(2, b"2", b"v")]


@pytest.mark.parametrize(
    ("fault", "visible"),
    [
        (CommitFault.UNKNOWN_COMMITTED, [(0, b"1", b"v")]),
        (CommitFault.UNKNOWN_ABORTED, []),
        (CommitFault.UNKNOWN_OPEN, []),
    ],
)
def test_an_unknown_commit_spoils_the_writer_whatever_became_of_it(
    log: MemoryLog, fault: CommitFault, visible: list[object]
) -> None:
    group_member, _ = member(log)
    group_member.poll(1, 0)
    writer = log.transactional_writer("a")
    log.faults.on_commit = lambda transactional_id: fault if transactional_id == "a" else None
    writer.begin()
    writer.send([event("1")])
    writer.send_offsets({COMMANDS: 1}, group_member.membership())
    with pytest.raises(LogFatal):
        writer.commit()
    for call in (writer.begin, writer.abort, writer.commit):
        with pytest.raises(LogFatal):
            call()

    assert seen(log) == visible
    if fault is CommitFault.UNKNOWN_OPEN:
        with pytest.raises(LogRetriable):
            log.committed("g", [COMMANDS])
        log.transactional_writer("a")
    assert log.committed("g", [COMMANDS]) == ({COMMANDS: 1} if visible else {})


def test_late_markers_hide_what_is_committed_and_its_offsets_are_stable(log: MemoryLog) -> None:
    """The take-over race of architecture §5.3: the target is the uncommitted end."""
    group_member, _ = member(log)
    group_member.poll(1, 0)
    log.faults.late_markers = True
    writer = log.transactional_writer("a")
    told: list[int] = []
    writer.begin()
    writer.send([event("1")], lambda _, offset: told.append(offset))
    writer.send_offsets({COMMANDS: 1}, group_member.membership())
    writer.commit()

    assert told == [0]
    assert log.committed("g", [COMMANDS]) == {COMMANDS: 1}
    assert seen(log) == []
    assert log.end_offset(EVENTS, Isolation.UNCOMMITTED) == 1

    log.write_markers()
    assert seen(log) == [(0, b"1", b"v")]
    commit(writer, event("2"))
    commit(writer, event("3"))  # no transaction waits for the markers of the last one
    assert seen(log) == [(0, b"1", b"v")]
    writer.begin()  # but for those of the one before that
    assert seen(log) == [(0, b"1", b"v"), (2, b"2", b"v")]


def test_whoever_takes_an_id_ends_what_either_turn_left(log: MemoryLog) -> None:
    log.faults.late_markers = True
    writer = log.transactional_writer("a")
    commit(writer, event("1"))
    writer.begin()
    writer.send([event("2")])
    assert log.open_since_ms("a") is not None
    taker = log.transactional_writer("a")
    assert log.open_since_ms("a") is None
    assert seen(log) == [(0, b"1", b"v")]
    assert log.end_offset(EVENTS, Isolation.COMMITTED) == log.end_offset(EVENTS, Isolation.UNCOMMITTED)
    with pytest.raises(LogFatal):
        writer.commit()
    for key in ("3", "4"):
        commit(taker, event(key))
    log.write_markers()
    assert [key for _, key, _ in seen(log)] == [b"1", b"3", b"4"]


def test_a_writer_that_waits_too_long_is_fenced(log: MemoryLog, time: Time) -> None:
    writer = log.transactional_writer("a")
    writer.begin()
    writer.send([event("1")])
    time.ms += 10_000
    assert seen(log) == []
    assert log.end_offset(EVENTS, Isolation.COMMITTED) == 2
    with pytest.raises(LogFatal):
        writer.commit()


# Faults of plain sends


def test_plain_sends_are_dropped_doubled_and_delayed(log: MemoryLog) -> None:
    faults = {b"drop": PlainFault.DROP, b"twice": PlainFault.DUPLICATE, b"late": PlainFault.DELAY}
    log.faults.on_plain_send = lambda record: faults.get(record.key or b"")
    writer = log.plain_writer()
    answers: list[tuple[int | None, type[LogError] | None]] = []
    for key in ("late", "drop", "twice", "fine"):
        writer.send(
            event(key),
            lambda written, error: answers.append(
                (written and written.offset, type(error) if error else None)
            ),
        )

    assert not writer.flush(1)
    log.deliver_delayed()
    assert writer.flush(1)
    assert [key for _, key, _ in seen(log)] == [b"twice", b"twice", b"fine", b"late"]
    assert answers == [(None, LogRetriable), (0, None), (2, None), (3, None)]


# Compaction and retention


def test_compaction_keeps_the_newest_of_each_key_at_its_offset(log: MemoryLog) -> None:
    writer = log.transactional_writer("a")
    commit(writer, event("a", "1"), event("b", "1"), event("a", "2"))  # 0 1 2, marker 3
    writer.begin()
    writer.send([event("b", "aborted")])  # 4
    writer.abort()  # 5
    commit(writer, event("c", "1"), event("c", None))  # 6 7, marker 8
    log.compact(TOPICS.events, 0)
    assert seen(log) == [(1, b"b", b"1"), (2, b"a", b"2"), (7, b"c", None)]

    log.compact(TOPICS.events, 0, drop_tombstones=True)
    assert seen(log) == [(1, b"b", b"1"), (2, b"a", b"2")]
    followed = reader(log)
    followed.poll(100, 0)
    assert followed.position(EVENTS) == log.end_offset(EVENTS, Isolation.COMMITTED) == 9


def test_compaction_stops_at_an_open_transaction(log: MemoryLog) -> None:
    plain, writer = log.plain_writer(), log.transactional_writer("a")
    plain.send(event("a", "1"))
    writer.begin()
    writer.send([event("x", "open")])
    plain.send(event("a", "2"))
    log.compact(TOPICS.events, 0)
    writer.commit()
    assert seen(log) == [(0, b"a", b"1"), (1, b"x", b"open"), (2, b"a", b"2")]


def test_retention_moves_the_beginning(log: MemoryLog) -> None:
    plain = log.plain_writer()
    for number in range(5):
        plain.send(event(str(number)))
    log.trim(EVENTS, 3)
    assert log.start_offset(EVENTS) == 3
    with pytest.raises(LogFatal):
        reader(log).poll(10, 0)
    late = log.reader(Isolation.COMMITTED)
    late.assign({EVENTS: 3})
    assert [record.offset for record in late.poll(10, 0)] == [3, 4]


# Groups


def test_a_rebalance_makes_memberships_stale_until_the_next_poll(log: MemoryLog) -> None:
    one, told = member(log)
    one.poll(1, 0)
    before = one.membership()
    log.rebalance("g", TOPICS.commands)
    writer = log.transactional_writer("a")
    writer.begin()
    with pytest.raises(LogAborted):
        writer.send_offsets({COMMANDS: 1}, before)
    writer.abort()
    one.poll(1, 0)
    writer.begin()
    writer.send_offsets({COMMANDS: 1}, one.membership())
    writer.commit()
    assert told.told == [("assigned", [0, 1, 2, 3])]


def test_a_partition_moves_when_its_owner_gave_it_up(log: MemoryLog) -> None:
    one, told_one = member(log)
    two, told_two = member(log)
    one.poll(1, 0)
    two.poll(1, 0)
    assert told_two.told == []
    one.poll(1, 0)
    two.poll(1, 0)
    assert told_one.told == [("assigned", [0, 1, 2, 3]), ("revoked", [2, 3])]
    assert told_two.told == [("assigned", [2, 3])]
    # The move was a generation of its own.
    writer = log.transactional_writer("a")
    writer.begin()
    one.poll(1, 0)
    writer.send_offsets({COMMANDS: 1}, one.membership())
    writer.commit()


def test_an_assignment_of_the_tests_own(log: MemoryLog) -> None:
    one, _ = member(log)
    two, told = member(log)
    for each in (one, two, one, two):
        each.poll(1, 0)
    log.rebalance("g", TOPICS.commands).targets = dict.fromkeys(range(4), two.member)
    for each in (one, two):
        each.poll(1, 0)
    assert told.told[-1] == ("assigned", [0, 1])


def test_an_evicted_member_hears_of_it_at_its_next_poll_and_joins_again(log: MemoryLog) -> None:
    one, told_one = member(log)
    two, told_two = member(log)
    one.poll(1, 0)
    stale = one.membership()
    two.poll(1, 0)
    log.evict("g", TOPICS.commands, one.member)
    two.poll(1, 0)
    assert told_two.told == [("assigned", [0, 1, 2, 3])]

    writer = log.transactional_writer("a")
    writer.begin()
    with pytest.raises(LogAborted):
        writer.send_offsets({COMMANDS: 1}, stale)
    one.poll(1, 0)
    assert told_one.told[-1] == ("lost", [0, 1, 2, 3])
    two.poll(1, 0)
    one.poll(1, 0)
    assert told_one.told[-1] == ("assigned", [2, 3])


def test_partitions_take_turns(log: MemoryLog) -> None:
    plain = log.plain_writer()
    for partition in (0, 0, 0, 1):
        plain.send(Outgoing(TOPICS.work, partition, None, b""))
    made = log.reader(Isolation.COMMITTED)
    made.assign({TopicPartition(TOPICS.work, 0): 0, TopicPartition(TOPICS.work, 1): 0})
    assert [record.partition for _ in range(4) for record in made.poll(1, 0)] == [0, 1, 0, 0]


def test_timestamps_are_the_given_time(log: MemoryLog, time: Time) -> None:
    plain = log.plain_writer()
    plain.send(event("a"))
    time.ms = 5_000
    plain.send(event("b"))
    assert [record.timestamp_ms for record in reader(log).poll(10, 0)] == [1_000, 5_000]
