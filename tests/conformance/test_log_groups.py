"""Every sentence of streams/transport/log.py about groups and offsets in transactions, on both logs."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from streams.ambient import monotonic_ms
from streams.transport.log import (
    GroupReader,
    LogAborted,
    LogFatal,
    LogRetriable,
    TopicPartition,
    TransactionalWriter,
)
from tests.conformance.log_setup import KINDS, PARTITIONS, Seen, Setup, reach, read, setups, values


@pytest.fixture(params=KINDS)
def setup(request: pytest.FixtureRequest, namespace: str) -> Iterator[Setup]:
    yield from setups(request, namespace)


def begin_batch(
    setup: Setup, writer: TransactionalWriter, offsets: dict[TopicPartition, int], member: GroupReader
) -> None:
    """A transaction with one event and these positions, not committed."""
    writer.begin()
    writer.send([setup.event(b"decided")])
    writer.send_offsets(offsets, member.membership())


# Offsets in transactions


def test_offsets_count_when_their_transaction_commits(setup: Setup) -> None:
    """`commands` and `work` under one membership, as the processors do it."""
    member, writer = setup.alone(), setup.writer()
    wanted = [setup.commands(0), setup.commands(1), setup.work(0)]
    assert setup.committed(wanted) == {}

    begin_batch(setup, writer, {setup.commands(0): 3, setup.work(0): 8}, member)
    writer.commit()
    assert setup.committed(wanted) == {setup.commands(0): 3, setup.work(0): 8}

    begin_batch(setup, writer, {setup.commands(0): 4, setup.commands(1): 1}, member)
    writer.abort()
    assert setup.committed(wanted) == {setup.commands(0): 3, setup.work(0): 8}


def test_committed_offsets_are_stable(setup: Setup) -> None:
    member, writer = setup.alone(), setup.writer()
    begin_batch(setup, writer, {setup.commands(0): 3, setup.work(1): 5}, member)

    started = monotonic_ms()
    for tps in ([setup.commands(0)], [setup.work(1)], [setup.commands(1), setup.commands(0)]):
        with pytest.raises(LogRetriable):
            setup.log.committed(setup.group, tps)
    assert monotonic_ms() - started < 5_000
    assert setup.committed([setup.commands(1)]) == {}

    # A taker does not wait for a dead predecessor: it ends the transaction by its id.
    setup.writer()
    assert setup.committed([setup.commands(0), setup.work(1)]) == {}
    with pytest.raises(LogFatal):
        writer.commit()


def test_transactions_follow_each_other_at_once_and_the_newest_counts(setup: Setup) -> None:
    """The markers of one may be written while the next is under way."""
    member, writer = setup.alone(), setup.writer()
    for number in range(50):
        begin_batch(setup, writer, {setup.commands(0): number, setup.work(0): 2 * number}, member)
        writer.commit()

    wanted = [setup.commands(0), setup.work(0)]
    assert setup.committed(wanted) == {setup.commands(0): 49, setup.work(0): 98}
    assert len(read(setup.reader(events0=0), 50)) == 50


def test_the_offset_committed_is_the_next_to_read(setup: Setup) -> None:
    """STR-004"""
    setup.say(setup.commands(), *(b"%d" % number for number in range(43)))
    member, writer = setup.alone(), setup.writer()
    member.start(0, 41)
    handled = read(member, 1)[0]
    assert handled.offset == 41
    assert member.known_end(0) == 43
    begin_batch(setup, writer, {setup.commands(): handled.offset + 1}, member)
    writer.commit()
    member.leave()

    again = setup.alone()
    again.start(0, setup.committed([setup.commands()])[setup.commands()])
    assert read(again, 1)[0].offset == 42


# Reading


def test_an_assigned_partition_is_read_from_start_until_hold_and_rewound(setup: Setup) -> None:
    setup.say(setup.commands(0), *(b"%d" % number for number in range(10)))
    setup.say(setup.commands(1), b"other")
    member = setup.alone()
    assert member.poll(10, 0.3) == []

    member.start(0, 4)
    assert [record.offset for record in read(member, 6)] == [4, 5, 6, 7, 8, 9]
    member.start(0, 8)
    assert [record.offset for record in read(member, 2)] == [8, 9]

    member.start(1, 0)
    assert values(read(member, 1)) == [b"other"]

    member.hold(0)
    setup.say(setup.commands(0), b"held")
    setup.say(setup.commands(1), b"goes on")
    assert values(read(member, 1)) == [b"goes on"]
    assert member.poll(10, 0.2) == []
    member.start(0, 10)
    assert values(read(member, 1)) == [b"held"]


def test_a_member_reads_committed_records_only(setup: Setup) -> None:
    member, writer = setup.alone(), setup.writer()
    member.start(0, 0)
    writer.begin()
    writer.send([setup.event(b"x")._replace(topic=setup.topics.commands)])
    setup.in_log(setup.commands(), 1)
    assert member.poll(10, 0.2) == []
    writer.abort()
    setup.say(setup.commands(), b"y")
    assert values(read(member, 1)) == [b"y"]


def test_starting_what_is_not_assigned_or_not_in_the_log_is_fatal(setup: Setup) -> None:
    member = setup.alone()
    with pytest.raises(LogFatal):
        member.start(PARTITIONS, 0)
    member.start(0, 99)
    with pytest.raises(LogFatal, match=setup.topics.commands):
        read(member, 1)


# Rebalances


def test_partitions_are_spread_and_handed_over_when_a_member_leaves(setup: Setup) -> None:
    first, second = Seen(), Seen()
    one = setup.member(first)
    setup.pump([one], lambda: first.owned == {0, 1})
    two = setup.member(second)
    setup.pump([one, two], lambda: len(first.owned) == len(second.owned) == 1)
    assert first.owned | second.owned == {0, 1}
    # Cooperative: what stays is not mentioned.
    kept = next(iter(first.owned))
    assert first.told == [("assigned", [0, 1]), ("revoked", [1 - kept])]
    assert first.threads == {threading.get_ident()}

    one.leave()
    assert first.told[-1] == ("revoked", [kept])
    assert first.owned == set()
    started = monotonic_ms()
    setup.pump([two], lambda: second.owned == {0, 1})
    assert monotonic_ms() - started < 5_000, "at once, not after the session time-out"
    one.leave()  # a second time: nothing


def test_orderly_revoke_commits_and_the_next_owner_goes_on(setup: Setup) -> None:
    """STR-003 a: the transaction was open when the partition was asked back."""
    setup.say(setup.commands(0), *(b"%d" % number for number in range(121)))
    setup.say(setup.commands(1), *(b"%d" % number for number in range(121)))
    writer = setup.writer("one")
    revoked_by: list[int] = []

    def finish(partitions: list[int]) -> None:
        if revoked_by:
            return
        revoked_by.extend(partitions)
        # The positions go out in here, under a membership that is fresh in here.
        writer.send_offsets({setup.commands(number): 120 for number in (0, 1)}, one.membership())
        writer.commit()

    first, second = Seen(finish), Seen()
    one = setup.member(first)
    setup.pump([one], lambda: first.owned == {0, 1})
    one.start(0, 100)
    one.start(1, 100)
    assert len(read(one, 40)) >= 40
    writer.begin()
    writer.send([setup.event(b"%d" % number) for number in range(100, 120)])

    two = setup.member(second)
    setup.pump([one, two], lambda: len(second.owned) == 1)
    (moved,) = second.owned
    assert revoked_by == [moved]
    position = setup.committed([setup.commands(moved)])[setup.commands(moved)]
    two.start(moved, position)

    assert read(two, 1)[0].offset == 120
    reader = setup.reader(events0=0)
    assert values(read(reader, 20)) == [b"%d" % number for number in range(100, 120)]


def test_what_a_callback_raises_comes_out_of_poll_and_the_partition_goes_all_the_same(setup: Setup) -> None:
    def fail(partitions: list[int]) -> None:
        raise LogFatal(f"cannot finish {partitions}")

    first, second = Seen(fail), Seen()
    one = setup.member(first)
    setup.pump([one], lambda: first.owned == {0, 1})
    two = setup.member(second)
    with pytest.raises(LogFatal, match="cannot finish"):
        setup.pump([one, two], lambda: False)
    setup.pump([one, two], lambda: len(second.owned) == 1)
    with pytest.raises(LogFatal, match="cannot finish"):
        one.leave()
    setup.pump([two], lambda: second.owned == {0, 1})


def test_a_stale_membership_is_refused_and_the_next_poll_brings_a_fresh_one(setup: Setup) -> None:
    first, second = Seen(), Seen()
    one = setup.member(first)
    setup.pump([one], lambda: first.owned == {0, 1})
    stale = one.membership()
    two = setup.member(second)
    setup.pump([one, two], lambda: len(first.owned) == len(second.owned) == 1)

    writer = setup.writer("one")
    writer.begin()
    writer.send([setup.event(b"zombie's")])
    with pytest.raises(LogAborted):
        writer.send_offsets({setup.commands(0): 7}, stale)
    with pytest.raises(LogAborted):
        writer.commit()
    with pytest.raises(LogAborted):
        writer.send([setup.event(b"more")])
    writer.abort()

    one.poll(1, 0)
    begin_batch(setup, writer, {setup.commands(0): 1}, one)
    writer.commit()
    assert setup.committed([setup.commands(0)]) == {setup.commands(0): 1}
    assert values(read(setup.reader(events0=0), 1)) == [b"decided"]


def test_a_member_that_left_commits_no_more(setup: Setup) -> None:
    member, writer = setup.alone(), setup.writer()
    membership = member.membership()
    member.leave()

    writer.begin()
    writer.send([setup.event(b"late")])
    with pytest.raises(LogAborted):
        writer.send_offsets({setup.commands(): 1}, membership)
    writer.abort()


@pytest.mark.slow
def test_lost_partitions_are_dropped_and_the_next_owner_repeats_the_work(setup: Setup) -> None:
    """STR-003 b: a member that polls no more loses its partitions; its open transaction comes to nothing."""
    setup.reopen(**{"max.poll.interval.ms": 6_000})
    setup.say(setup.commands(0), *(b"%d" % number for number in range(121)))
    first, second = Seen(), Seen()
    one = setup.member(first)
    setup.pump([one], lambda: first.owned == {0, 1})
    zombie = setup.writer("one")
    begin_batch(setup, zombie, {setup.commands(0): 100, setup.commands(1): 0}, one)
    zombie.commit()
    one.start(0, 100)
    assert read(one, 20)[0].offset == 100
    zombie.begin()
    zombie.send([setup.event(b"zombie's")])

    setup.silence(one)
    two = setup.member(second)
    setup.pump([two], lambda: second.owned == {0, 1})
    with pytest.raises(LogAborted):
        zombie.send_offsets({setup.commands(0): 120}, one.membership())
    zombie.abort()

    position = setup.committed([setup.commands(0)])[setup.commands(0)]
    assert position == 100
    two.start(0, position)
    assert read(two, 20)[0].offset == 100
    writer = setup.writer("two")
    begin_batch(setup, writer, {setup.commands(0): 120}, two)
    writer.commit()
    # decided, marker, zombie's, marker, decided, marker
    assert values(reach(setup.reader(events0=0), setup.events(), 6)) == [b"decided", b"decided"]

    before = len(first.told)
    setup.pump([one], lambda: first.owned == set())
    assert {what for what, _ in first.told[before:]} == {"lost"}


def test_before_joining_a_membership_is_refused(setup: Setup) -> None:
    """The broker would take it unchecked, also for a group with members."""
    setup.alone()
    writer, stranger = setup.writer(), setup.member(Seen())
    writer.begin()
    with pytest.raises(LogAborted):
        writer.send_offsets({setup.commands(): 1}, stranger.membership())
    writer.abort()
