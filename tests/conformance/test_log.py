"""Every sentence of streams/transport/log.py about records, readers, writers and topics, on both logs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import pytest

from streams.ambient import wall_ms
from streams.transport.log import (
    Isolation,
    LogAborted,
    LogError,
    LogFatal,
    LogRefused,
    LogRetriable,
    Outgoing,
    TopicPartition,
    TransactionalWriter,
    Written,
)
from tests.conformance.log_setup import KINDS, PARTITIONS, Setup, reach, read, setups, until, values

TOO_LARGE = b"x" * (1 << 20)


@pytest.fixture(params=KINDS)
def setup(request: pytest.FixtureRequest, namespace: str) -> Iterator[Setup]:
    yield from setups(request, namespace)


def test_topics_are_made_once_and_counted(setup: Setup) -> None:
    setup.log.create_topics(setup.specs)

    assert setup.log.partitions(setup.topics.events) == PARTITIONS
    assert setup.log.partitions(f"{setup.topics.prefix}nothing") == 0


def test_a_topic_made_anew_has_another_id(setup: Setup) -> None:
    before = setup.log.topic_id(setup.topics.work)
    assert setup.log.topic_id(setup.topics.work) == before

    setup.delete_topic(setup.topics.work)
    setup.log.create_topics(setup.specs)

    until(lambda: setup.log.partitions(setup.topics.work) == PARTITIONS)
    assert setup.log.topic_id(setup.topics.work) != before


def test_what_does_not_exist_is_refused(setup: Setup) -> None:
    reader = setup.reader()
    for missing in (setup.events(PARTITIONS), TopicPartition(f"{setup.topics.prefix}nothing", 0)):
        with pytest.raises(LogRefused, match=missing.topic):
            setup.log.end_offset(missing, Isolation.COMMITTED)
        with pytest.raises(LogRefused, match=missing.topic):
            setup.log.start_offset(missing)
        with pytest.raises(LogRefused, match=missing.topic):
            reader.assign({missing: 0})
    with pytest.raises(LogRefused):
        setup.log.topic_id(f"{setup.topics.prefix}nothing")


def test_records_come_back_as_they_went_in_order_and_partition(setup: Setup) -> None:
    started = wall_ms()
    topic = setup.topics.work
    sent = [
        Outgoing(topic, 0, b"a", b"1", {"type": b"Beat", "empty": b""}),
        Outgoing(topic, 1, b"a", b"2"),
        Outgoing(topic, 0, None, b"3"),
        Outgoing(topic, 0, b"a", None),  # a tombstone
        Outgoing(topic, 0, b"", b""),
    ]
    writer = setup.log.plain_writer()
    for record in sent:
        writer.send(record)
    assert writer.flush(20)
    writer.close()

    records = read(setup.reader(work0=0, work1=0), len(sent))

    for partition in range(PARTITIONS):
        came = [record for record in records if record.partition == partition]
        assert [record.offset for record in came] == list(range(len(came)))
        assert [Outgoing(r.topic, r.partition, r.key, r.value, r.headers) for r in came] == [
            record for record in sent if record.partition == partition
        ]
    assert all(started - 1000 <= record.timestamp_ms <= wall_ms() + 1000 for record in records)


def test_poll_takes_no_more_than_asked_and_goes_on_after_it(setup: Setup) -> None:
    setup.say(setup.work(), b"1", b"2", b"3")
    reader = setup.reader(work0=0)
    polled: list[list[bytes | None]] = []

    def three() -> bool:
        polled.append(values(reader.poll(1, 1)))
        return len(polled) - polled.count([]) == 3

    until(three)
    assert [batch for batch in polled if batch] == [[b"1"], [b"2"], [b"3"]]
    assert reader.position(setup.work()) == 3
    assert reader.poll(10, 0) == []


def test_the_end_is_known_from_reading_alone(setup: Setup) -> None:
    setup.say(setup.work(), *(b"%d" % number for number in range(7)))
    reader = setup.reader(work0=0)

    until(lambda: bool(reader.poll(1, 0.05)))  # the others wait on this side

    assert reader.known_end(setup.work()) == 7
    assert reader.known_end(setup.work(1)) == 0  # it is not read here


def test_assign_replaces_and_a_kept_partition_reads_on(setup: Setup) -> None:
    setup.say(setup.work(0), b"1", b"2", b"3")
    setup.say(setup.work(1), b"4", b"5")
    reader = setup.reader(work0=1)
    assert values(read(reader, 2)) == [b"2", b"3"]

    reader.assign({setup.work(0): 3, setup.work(1): 1})
    assert values(read(reader, 1)) == [b"5"]

    setup.say(setup.work(0), b"6")
    assert values(read(reader, 1)) == [b"6"]

    reader.assign({setup.work(1): 0})
    setup.say(setup.work(0), b"7")
    assert values(read(reader, 2)) == [b"4", b"5"]


def test_assign_to_another_position_rewinds_and_drops_what_was_fetched(setup: Setup) -> None:
    setup.say(setup.work(), *(b"%d" % number for number in range(50)))
    reader = setup.reader(work0=0)
    until(lambda: bool(reader.poll(1, 0.05)))  # the other 49 are on this side already

    reader.assign({setup.work(): 40})
    assert reader.position(setup.work()) == 40
    assert [record.offset for record in read(reader, 10)] == list(range(40, 50))

    reader.assign({setup.work(): 0})
    assert [record.offset for record in read(reader, 50)] == list(range(50))


def test_a_position_outside_of_the_log_is_fatal(setup: Setup) -> None:
    reader = setup.reader(work0=7)
    with pytest.raises(LogFatal, match=setup.topics.work):
        read(reader, 1)


def test_open_is_invisible_committed_is_not_and_the_uncommitted_reader_sees_all(setup: Setup) -> None:
    committed, everything = setup.reader(events0=0), setup.reader(Isolation.UNCOMMITTED, events0=0)
    writer = setup.writer()
    writer.begin()
    writer.send([setup.event(b"1"), setup.event(b"2")])

    assert values(read(everything, 2)) == [b"1", b"2"]
    assert committed.poll(10, 0.3) == []
    assert committed.position(setup.events()) == 0
    assert setup.log.end_offset(setup.events(), Isolation.COMMITTED) == 0
    assert setup.log.end_offset(setup.events(), Isolation.UNCOMMITTED) == 2

    writer.commit()
    assert values(read(committed, 2)) == [b"1", b"2"]


def test_nothing_of_an_aborted_transaction_is_seen_and_positions_pass_it_and_the_markers(
    setup: Setup,
) -> None:
    writer = setup.writer()
    setup.commit(writer, b"1")
    writer.begin()
    writer.send([setup.event(b"2"), setup.event(b"3", partition=1)])
    setup.in_log(setup.events(), 3)
    setup.in_log(setup.events(1), 1)
    writer.abort()
    setup.commit(writer, b"4")
    # 1, marker, 2, marker, 4, marker
    until(lambda: setup.log.end_offset(setup.events(), Isolation.COMMITTED) == 6)
    until(lambda: setup.log.end_offset(setup.events(1), Isolation.COMMITTED) == 2)

    reader = setup.reader(events0=0, events1=0)
    records = reach(reader, setup.events(), 6)

    assert values(records) == [b"1", b"4"]
    reach(reader, setup.events(1), 2)
    assert values(reach(setup.reader(Isolation.UNCOMMITTED, events0=0), setup.events(), 6)) == [
        b"1",
        b"2",
        b"4",
    ]


def test_an_open_transaction_holds_back_its_partition_only(setup: Setup) -> None:
    slow, quick = setup.writer("slow"), setup.writer("quick")
    slow.begin()
    slow.send([setup.event(b"open")])
    setup.in_log(setup.events(), 1)
    setup.commit(quick, b"behind")
    setup.commit(quick, b"beside", partition=1)

    reader = setup.reader(events0=0, events1=0)
    assert values(read(reader, 1)) == [b"beside"]
    assert reader.poll(10, 0.3) == []

    slow.commit()
    assert values(read(reader, 2)) == [b"open", b"behind"]


def test_on_last_tells_the_newest_record_of_each_partition(setup: Setup) -> None:
    writer = setup.writer()
    setup.commit(writer, b"before")
    told: list[tuple[Outgoing, int]] = []
    writer.begin()
    writer.send([setup.event(b"1"), setup.event(b"2", 1)], lambda *last: told.append(last))
    writer.send((setup.event(value) for value in (b"3", b"4")), lambda *last: told.append(last))
    writer.commit()

    # A marker of the transaction before may be written between any two of these.
    there = read(setup.reader(events0=0, events1=0), 5)
    offsets = {record.value: record.offset for record in there}
    assert sorted(told) == [(setup.event(b"4"), offsets[b"4"]), (setup.event(b"2", 1), offsets[b"2"])]

    told.clear()
    writer.begin()
    writer.send([setup.event(b"5")], lambda *last: told.append(last))
    writer.abort()
    assert told == []


def test_an_empty_transaction_commits_and_abort_without_one_does_nothing(setup: Setup) -> None:
    writer = setup.writer()
    writer.abort()
    writer.begin()
    writer.commit()
    writer.begin()
    writer.abort()
    setup.commit(writer, b"1")
    assert values(read(setup.reader(events0=0), 1)) == [b"1"]


def test_close_aborts_what_is_open(setup: Setup) -> None:
    writer = setup.log.transactional_writer(f"{setup.topics.namespace}.closing")
    writer.begin()
    writer.send([setup.event(b"open")])
    setup.in_log(setup.events(), 1)
    writer.close()
    writer.close()  # whoever gave it up and whoever made it may both close it

    assert reach(setup.reader(events0=0), setup.events(), 2) == []
    with pytest.raises(LogFatal):
        writer.begin()


def test_close_leaves_alone_what_a_newer_writer_has_ended(setup: Setup) -> None:
    writer = setup.log.transactional_writer(f"{setup.topics.namespace}.part-7")
    writer.begin()
    writer.send([setup.event(b"open")])
    setup.in_log(setup.events(), 1)
    second = setup.writer("part-7")
    writer.close()

    setup.commit(second, b"second's")
    assert values(read(setup.reader(events0=0), 1)) == [b"second's"]


@pytest.mark.parametrize("bad", ["too large", "no key on a compacted topic", "no such topic"])
def test_a_record_never_taken_names_itself_and_spoils_its_transaction_only(setup: Setup, bad: str) -> None:
    record = {
        "too large": Outgoing(setup.topics.events, 1, b"key", TOO_LARGE),
        "no key on a compacted topic": Outgoing(setup.topics.events, 1, None, b"value"),
        "no such topic": Outgoing(f"{setup.topics.prefix}nothing", 0, b"key", b"value"),
    }[bad]
    writer = setup.writer()

    writer.begin()
    with pytest.raises(LogRefused, match=record.topic):
        _send_and_commit(writer, [setup.event(b"innocent"), record])
    with pytest.raises(LogAborted):
        writer.commit()
    writer.abort()
    setup.commit(writer, b"next")

    assert values(read(setup.reader(events0=0), 1)) == [b"next"]


def _send_and_commit(writer: TransactionalWriter, records: list[Outgoing]) -> None:
    writer.send(records)
    writer.commit()


@pytest.mark.parametrize("earlier", [0, 1])
def test_the_older_of_two_writers_with_one_id_is_fenced(setup: Setup, earlier: int) -> None:
    """STR-001; whichever of its producers has its turn."""
    first = setup.writer("part-7")
    for _ in range(earlier):
        first.begin()
        first.abort()
    first.begin()
    first.send([setup.event(b"1"), setup.event(b"2"), setup.event(b"3")])
    setup.in_log(setup.events(), 3)

    second = setup.writer("part-7")
    setup.commit(second, b"second's")

    with pytest.raises(LogFatal):
        first.commit()
    with pytest.raises(LogFatal):
        first.abort()
    with pytest.raises(LogFatal):
        first.begin()
    assert values(read(setup.reader(events0=0), 1)) == [b"second's"]
    setup.commit(second, b"and goes on")


@pytest.mark.timeout(240)
def test_a_dead_writers_transaction_ends_by_its_time_out(setup: Setup) -> None:
    """STR-005: 15 s in the case, 2 s here, and our broker looks for such once a minute."""
    setup.reopen(transaction_timeout_ms=2_000)
    alive = setup.writer("alive")
    setup.commit(alive, *(b"before" for _ in range(20)))
    dead = setup.writer("dead")
    dead.begin()
    dead.send([setup.event(b"never")])
    setup.in_log(setup.events(), 22)
    hanging = setup.log.end_offset(setup.events(), Isolation.UNCOMMITTED) - 1
    setup.commit(alive, *(b"after" for _ in range(1463)))

    reader = setup.reader(events0=0)
    assert values(reach(reader, setup.events(), hanging)) == [b"before"] * 20
    assert reader.poll(10, 0.3) == []
    # What the alert compares: nothing left to read, and yet the log goes on.
    assert (
        setup.log.end_offset(setup.events(), Isolation.COMMITTED)
        == hanging
        == reader.position(setup.events())
    )
    assert setup.log.end_offset(setup.events(), Isolation.UNCOMMITTED) >= hanging + 1 + 1463

    until(lambda: setup.log.end_offset(setup.events(), Isolation.COMMITTED) > hanging, timeout_sec=120)
    assert values(read(reader, 1463)) == [b"after"] * 1463
    with pytest.raises(LogFatal):
        dead.commit()


def test_done_tells_offsets_and_flush_waits_for_all_of_them(setup: Setup) -> None:
    writer = setup.log.plain_writer()
    answers: list[Written | None] = []
    for number in range(500):
        writer.send(
            Outgoing(setup.topics.work, 0, None, b"%d" % number), lambda written, _: answers.append(written)
        )

    assert writer.flush(20)
    assert [written and written.offset for written in answers] == list(range(500))
    writer.close()


def test_done_tells_when_the_broker_wrote_it_where_the_topic_says_so(setup: Setup) -> None:
    writer = setup.log.plain_writer()
    answers: dict[str, Written | None] = {}
    before_ms = wall_ms()

    def tell(topic: str, written: Written | None, error: LogError | None) -> None:
        answers[topic] = written

    for topic in (setup.topics.work, setup.topics.commands):
        writer.send(Outgoing(topic, 0, b"k", b""), partial(tell, topic))
    assert writer.flush(20)
    writer.close()
    assert answers[setup.topics.commands] == Written(0, None)
    stamped = answers[setup.topics.work]
    assert stamped is not None
    assert stamped.timestamp_ms is not None
    assert before_ms <= stamped.timestamp_ms <= wall_ms()


def test_a_plain_record_never_taken_fails_alone(setup: Setup) -> None:
    writer = setup.log.plain_writer()
    answers: dict[bytes | None, tuple[int | None, LogError | None]] = {}

    def tell(key: bytes | None, written: Written | None, error: LogError | None) -> None:
        answers[key] = (written and written.offset, error)

    records = [
        Outgoing(setup.topics.work, 0, b"before", b"1"),
        Outgoing(setup.topics.work, 0, b"large", TOO_LARGE),
        Outgoing(f"{setup.topics.prefix}nothing", 0, b"missing", b"1"),
        Outgoing(setup.topics.work, 0, b"after", b"2"),
    ]
    for record in records:
        writer.send(record, partial(tell, record.key))
    assert writer.flush(20)
    writer.close()

    assert answers[b"before"] == (0, None)
    assert answers[b"after"] == (1, None)
    for key in (b"large", b"missing"):
        offset, error = answers[key]
        assert offset is None
        assert isinstance(error, LogRefused)


def test_a_plain_writer_takes_records_from_many_threads(setup: Setup) -> None:
    if setup.bootstrap is None:
        pytest.skip("the in-memory log is single-threaded")
    writer = setup.log.plain_writer()

    def talk() -> None:
        for _ in range(200):
            writer.send(Outgoing(setup.topics.work, 1, b"k", b"v"))

    threads = [threading.Thread(target=talk) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert writer.flush(20)
    writer.close()
    assert setup.log.end_offset(setup.work(1), Isolation.UNCOMMITTED) == 800


def test_a_full_queue_is_told_at_once(setup: Setup) -> None:
    if setup.bootstrap is None:
        pytest.skip("nothing is queued in memory")
    from streams.transport.kafka.log import KafkaLog

    log = KafkaLog("127.0.0.1:1", {"queue.buffering.max.messages": 2, "message.timeout.ms": 100})
    writer = log.plain_writer()
    answers: list[LogError | None] = []
    record = Outgoing("nowhere", 0, None, b"")
    writer.send(record, lambda _, error: answers.append(error))
    writer.send(record, lambda _, error: answers.append(error))
    with pytest.raises(LogRetriable):
        writer.send(record)
    assert not writer.flush(0)
    assert writer.flush(20)
    assert [type(error) for error in answers] == [LogRetriable, LogRetriable]
    writer.close()
