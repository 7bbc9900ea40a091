"""Readers on confluent-kafka: assigned partitions, and the member of a group.

Owns consumers, their settings and the order of their calls. A consumer passes a gate that spins when two
threads meet in it (confluent-kafka-python#2322), so each reader is used by one thread. May not know what a
record means, nor write or commit anything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Tp

from streams.ambient import monotonic_ms
from streams.transport.kafka.errors import TRANSIENT, translate
from streams.transport.kafka.membership import is_member
from streams.transport.log import Isolation, LogFatal, LogRefused, Rebalance, Record, TopicPartition

logger = logging.getLogger(__name__)

READER_SETTINGS: Mapping[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # A position outside of the log is an error: any reset would skip or repeat in silence.
    "auto.offset.reset": "error",
    # A partition assigned or rewound waits for the running fetch to return: 500 ms by default. No shorter
    # than this, since each return of an idle reader costs the broker half a millisecond of CPU (measured).
    "fetch.wait.max.ms": 250,
    "fetch.error.backoff.ms": 50,
    # Default 1 s: a reader that fell behind and filled its queue would stand still for as long.
    "fetch.queue.backoff.ms": 10,
    # Per reader; the default of 64 MiB is most of a small process.
    "queued.max.messages.kbytes": 16_384,
}

MEMBER_SETTINGS: Mapping[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    # Classic protocol: the client's own session time-out of 6 s is allowed, where the new protocol's is the
    # broker's and 45 s by default. Cooperative: whoever keeps a partition keeps its state.
    "partition.assignment.strategy": "cooperative-sticky",
    "session.timeout.ms": 6_000,
    # Members learn of a rebalance by it, twice when a partition moves.
    "heartbeat.interval.ms": 1_000,
    # A thread that polls no more gives up its partitions although heartbeats go on in the background.
    "max.poll.interval.ms": 60_000,
    "isolation.level": "read_committed",
}

METADATA_SEC = 10.0
# How long a poll waits for records before it looks at the group again.
MEMBER_SLICE_SEC = 0.05


def _raise_unless_passing(error: KafkaError, where: str) -> None:
    """librdkafka retries what is transient by itself; the rest means the position cannot be read."""
    if error.code() in TRANSIENT or (error.retriable() and not error.fatal()):
        logger.warning("%s: %s", where, error)
        return
    raise LogFatal(str(translate(error, where)))


class KafkaReader:
    """`Reader`."""

    def __init__(self, settings: Mapping[str, Any], isolation: Isolation) -> None:
        self._consumer = Consumer({**READER_SETTINGS, **settings, "isolation.level": isolation.value})
        self._starts: dict[TopicPartition, int] = {}
        self._counts: dict[str, int] = {}

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        for tp in positions:
            self._check_exists(tp)
        kept = {tp for tp in self._starts if tp in positions and self.position(tp) == positions[tp]}
        gone = [Tp(tp.topic, tp.partition) for tp in self._starts if tp not in kept]
        new = [Tp(tp.topic, tp.partition, offset) for tp, offset in positions.items() if tp not in kept]
        # Incremental: assign() would restart the kept ones, too. What was fetched for a partition that goes
        # is dropped by its version, also when it comes back in the next call (measured).
        if gone:
            self._consumer.incremental_unassign(gone)
        if new:
            self._consumer.incremental_assign(new)
        self._starts = {tp: self._starts[tp] if tp in kept else positions[tp] for tp in positions}

    def poll(self, max_records: int, timeout_sec: float) -> list[Record]:
        # consume(n, timeout) returns at n or at the timeout only (#407): wait for one, then take what is
        # there. An empty consume(n, 0) costs 1 µs (measured).
        first = self._consumer.poll(timeout_sec)
        if first is None:
            return []
        messages = [first]
        if max_records > 1:
            messages += self._consumer.consume(max_records - 1, 0)
        return _records(messages)

    def position(self, tp: TopicPartition) -> int:
        # Unknown (negative) until something was read; over markers it moves inside poll (measured).
        offset: int = self._consumer.position([Tp(tp.topic, tp.partition)])[0].offset
        return offset if offset >= 0 else self._starts[tp]

    def known_end(self, tp: TopicPartition) -> int:
        if tp not in self._starts:
            return 0
        # What the newest fetch brought; negative before the first.
        ends = self._consumer.get_watermark_offsets(Tp(tp.topic, tp.partition), cached=True)
        return max(0, ends[1])

    def close(self) -> None:
        self._consumer.close()

    def _check_exists(self, tp: TopicPartition) -> None:
        # A consumer waits for a missing partition without a word (measured: 40 s and more).
        if tp.partition < self._counts.get(tp.topic, 0):
            return
        try:
            found = self._consumer.list_topics(tp.topic, METADATA_SEC).topics[tp.topic]
        except KafkaException as error:
            raise translate(error.args[0], tp.topic) from error
        self._counts[tp.topic] = len(found.partitions)
        if tp.partition >= self._counts[tp.topic]:
            raise LogRefused(f"no partition {tp.partition} of topic {tp.topic}")


def _records(messages: Sequence[Message]) -> list[Record]:
    records: list[Record] = []
    append, new = records.append, tuple.__new__
    for message in messages:
        error = message.error()
        if error is not None:
            _raise_unless_passing(error, f"{message.topic()} [{message.partition()}]")
            continue
        headers = message.headers()
        fields = (
            message.topic(),
            message.partition(),
            message.offset(),
            message.timestamp()[1],
            message.key(),
            message.value(),
            dict(headers) if headers else {},
        )
        append(new(Record, fields))  # half the cost of Record(...)
    return records


class KafkaGroupReader:
    """`GroupReader`: one consumer is the member and fetches nothing, a `KafkaReader` reads.

    So a partition can be held, started and rewound while the group goes on, without seek and resume on a
    consumer in the middle of a rebalance.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        reader: KafkaReader,
        group: str,
        topic: str,
        rebalance: Rebalance,
    ) -> None:
        self._topic = topic
        self._group = group
        self._rebalance = rebalance
        self._reader = reader
        self._owned: set[int] = set()
        self._started: set[TopicPartition] = set()
        self._left = False
        self._called = False
        self._raised: Exception | None = None
        self._member = Consumer({**MEMBER_SETTINGS, **settings, "group.id": group})
        self._membership: object = self._member.consumer_group_metadata()
        self._member.subscribe(
            [topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def poll(self, max_records: int, timeout_sec: float) -> list[Record]:
        deadline = monotonic_ms() + int(timeout_sec * 1000)
        while True:
            self._serve()
            left_sec = max(0.0, (deadline - monotonic_ms()) / 1000)
            records = self._reader.poll(max_records, min(left_sec, MEMBER_SLICE_SEC))
            if records or left_sec <= MEMBER_SLICE_SEC:
                return records

    def start(self, partition: int, offset: int) -> None:
        if partition not in self._owned:
            raise LogFatal(f"{self._topic} [{partition}] is not assigned to this member of {self._group}")
        tp = TopicPartition(self._topic, partition)
        self._reader.assign(self._positions() | {tp: offset})
        self._started.add(tp)

    def hold(self, partition: int) -> None:
        self._drop([partition])

    def known_end(self, partition: int) -> int:
        return self._reader.known_end(TopicPartition(self._topic, partition))

    def membership(self) -> object:
        return self._membership

    def leave(self) -> None:
        if self._left:
            return
        # Told here and not from within close(): there the metadata may be gone already, and what a callback
        # raises becomes a SystemError (both measured).
        self._left = True
        self._refresh()
        numbers = sorted(self._owned)
        try:
            if numbers:
                self._tell_gone(numbers, lost=not is_member(self._membership))
            self._raise_what_callbacks_raised()
        finally:
            self._member.close()
            self._reader.close()

    def _serve(self) -> None:
        # Metadata first, callbacks after it, until a round without any: whatever had cost us a partition when
        # the metadata was taken has been told by then. The other way round, that of a rejoined member could
        # be handed out before its loss was.
        while True:
            membership = self._member.consumer_group_metadata()  # 10 µs (measured)
            self._called = False
            message = self._member.poll(0)
            self._raise_what_callbacks_raised()
            if message is not None and (error := message.error()) is not None:
                self._note(error)
            elif not self._called:
                self._membership = membership
                return

    def _raise_what_callbacks_raised(self) -> None:
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised

    def _note(self, error: KafkaError) -> None:
        # The partitions are gone; on_lost comes with the next poll.
        if error.code() == KafkaError._MAX_POLL_EXCEEDED:
            logger.error("group %s: not polled in time, partitions lost", self._group)
            return
        _raise_unless_passing(error, f"group {self._group}")

    def _refresh(self) -> None:
        """For the callbacks."""
        self._called = True
        self._membership = self._member.consumer_group_metadata()

    def _positions(self) -> dict[TopicPartition, int]:
        return {tp: self._reader.position(tp) for tp in self._started}

    def _drop(self, numbers: Sequence[int]) -> None:
        self._started -= {TopicPartition(self._topic, number) for number in numbers}
        self._reader.assign(self._positions())

    def _on_assign(self, consumer: Consumer, partitions: list[Tp]) -> None:
        if self._left:
            return
        # Paused at the end: owned, and never fetched by the member.
        consumer.incremental_assign([Tp(tp.topic, tp.partition, OFFSET_END) for tp in partitions])
        consumer.pause(partitions)
        numbers = sorted(tp.partition for tp in partitions)
        self._owned.update(numbers)
        self._refresh()
        if numbers:
            self._tell(self._rebalance.assigned, numbers)

    def _on_revoke(self, consumer: Consumer, partitions: list[Tp]) -> None:
        if self._left:
            return
        self._refresh()
        # A revoke still queued when the member is thrown out comes late (measured, librdkafka#5604): lost.
        self._give_up(consumer, partitions, lost=not is_member(self._membership))

    def _on_lost(self, consumer: Consumer, partitions: list[Tp]) -> None:
        if self._left:
            return
        self._refresh()
        self._give_up(consumer, partitions, lost=True)

    def _give_up(self, consumer: Consumer, partitions: list[Tp], lost: bool) -> None:
        # To unassign what was never handed to us is an error.
        mine = [tp for tp in partitions if tp.partition in self._owned]
        if mine:
            self._tell_gone(sorted(tp.partition for tp in mine), lost)
            consumer.incremental_unassign(mine)

    def _tell_gone(self, numbers: list[int], lost: bool) -> None:
        self._tell(self._rebalance.lost if lost else self._rebalance.revoked, numbers)
        self._owned.difference_update(numbers)
        self._drop(numbers)

    def _tell(self, callback: Callable[[Sequence[int]], None], numbers: list[int]) -> None:
        # Kept until we are out of librdkafka: the rebalance has to be finished first.
        try:
            callback(numbers)
        except Exception as error:
            self._raised = self._raised or error
