"""What the log's conformance suite runs on: the in-memory log, or a real broker, behind the same handles.

Owns the few things the contract leaves to the environment: deleting a topic, a member that falls silent,
waiting. Both kinds run in real time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest

from schemas.topics import Topics, catalogue
from streams.ambient import monotonic_ms, wall_ms
from streams.transport.log import (
    GroupReader,
    Isolation,
    Log,
    LogRetriable,
    Outgoing,
    Reader,
    Rebalance,
    Record,
    TopicPartition,
    TransactionalWriter,
    Written,
)
from streams.transport.memory import MemoryGroupReader, MemoryLog

PARTITIONS = 2
DEADLINE_SEC = 60.0


def until(condition: Callable[[], bool], timeout_sec: float = DEADLINE_SEC) -> None:
    """Waits for it to come true."""
    deadline = monotonic_ms() + int(timeout_sec * 1000)
    while not condition():
        assert monotonic_ms() < deadline, "it did not come true in time"
        threading.Event().wait(0.005)


class Seen:
    """A `Rebalance` that writes down what it is told, and on which thread; `on_revoke` runs inside."""

    def __init__(self, on_revoke: Callable[[list[int]], None] | None = None) -> None:
        self.owned: set[int] = set()
        self.told: list[tuple[str, list[int]]] = []
        self.threads: set[int] = set()
        self._on_revoke = on_revoke

    def assigned(self, partitions: Sequence[int]) -> None:
        self._note("assigned", partitions)
        self.owned |= set(partitions)

    def revoked(self, partitions: Sequence[int]) -> None:
        self._note("revoked", partitions)
        if self._on_revoke is not None:
            self._on_revoke(list(partitions))
        self.owned -= set(partitions)

    def lost(self, partitions: Sequence[int]) -> None:
        self._note("lost", partitions)
        self.owned -= set(partitions)

    def _note(self, what: str, partitions: Sequence[int]) -> None:
        self.told.append((what, sorted(partitions)))
        self.threads.add(threading.get_ident())


class Setup:
    """One log under test with topics of its own; readers made here are closed at the end."""

    def __init__(self, namespace: str, bootstrap: str | None) -> None:
        self.topics = Topics(namespace)
        self.group = f"{namespace}.processors"
        self.bootstrap = bootstrap
        self.log: Log = self.open()
        mine = {self.topics.commands, self.topics.work, self.topics.events}
        self.specs = [spec for spec in catalogue(namespace, PARTITIONS, 1) if spec.name in mine]
        self.log.create_topics(self.specs)
        self._closers: list[Callable[[], None]] = []

    def open(self, transaction_timeout_ms: int = 10_000, **member_settings: Any) -> Log:
        """A log with other settings: the same cluster for Kafka, an empty one in memory."""
        if self.bootstrap is None:
            return MemoryLog(wall_ms, transaction_timeout_ms)
        from streams.transport.kafka.log import KafkaLog

        return KafkaLog(
            self.bootstrap, member_settings=member_settings, transaction_timeout_ms=transaction_timeout_ms
        )

    def reopen(self, transaction_timeout_ms: int = 10_000, **member_settings: Any) -> None:
        """Goes on with other settings."""
        self.log = self.open(transaction_timeout_ms, **member_settings)
        self.log.create_topics(self.specs)

    def events(self, partition: int = 0) -> TopicPartition:
        return TopicPartition(self.topics.events, partition)

    def commands(self, partition: int = 0) -> TopicPartition:
        return TopicPartition(self.topics.commands, partition)

    def work(self, partition: int = 0) -> TopicPartition:
        return TopicPartition(self.topics.work, partition)

    def writer(self, name: str = "a") -> TransactionalWriter:
        writer = self.log.transactional_writer(f"{self.topics.namespace}.{name}")
        self._closers.append(writer.close)
        return writer

    def committed(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Of the group, once a broker that is busy with others has answered."""
        found: list[dict[TopicPartition, int]] = []

        def answered() -> bool:
            with suppress(LogRetriable):
                found.append(self.log.committed(self.group, tps))
            return bool(found)

        until(answered)
        return found[0]

    def reader(self, isolation: Isolation = Isolation.COMMITTED, **starts: int) -> Reader:
        """`events0=5` reads partition 0 of events from 5."""
        reader = self.log.reader(isolation)
        self._closers.append(reader.close)
        reader.assign(
            {
                TopicPartition(getattr(self.topics, name[:-1]), int(name[-1])): offset
                for name, offset in starts.items()
            }
        )
        return reader

    def member(self, rebalance: Rebalance) -> GroupReader:
        member = self.log.group_reader(self.group, self.topics.commands, rebalance)
        self._closers.append(member.leave)
        return member

    def alone(self) -> GroupReader:
        """A member that owns every partition."""
        seen = Seen()
        member = self.member(seen)
        self.pump([member], lambda: len(seen.owned) == PARTITIONS)
        return member

    def pump(
        self, members: Sequence[GroupReader], condition: Callable[[], bool], timeout_sec: float = DEADLINE_SEC
    ) -> list[Record]:
        """Polls the members in turn until it comes true; gives what they read."""
        records: list[Record] = []

        def turn() -> bool:
            for member in members:
                records.extend(member.poll(100, 0.01))
            return condition()

        until(turn, timeout_sec)
        return records

    def commit(self, writer: TransactionalWriter, *values: bytes, partition: int = 0) -> None:
        """One transaction of records for events."""
        writer.begin()
        writer.send([self.event(value, partition) for value in values])
        writer.commit()

    def event(self, value: bytes, partition: int = 0) -> Outgoing:
        return Outgoing(self.topics.events, partition, b"key", value)

    def say(self, tp: TopicPartition, *values: bytes) -> list[int]:
        """Plain records; their offsets."""
        writer = self.log.plain_writer()
        written: list[Written | None] = []
        for value in values:
            writer.send(Outgoing(*tp, b"key", value), lambda where, _error: written.append(where))
        assert writer.flush(DEADLINE_SEC)
        writer.close()
        return [where.offset for where in written if where is not None]

    def in_log(self, tp: TopicPartition, count: int) -> None:
        """Waits until so many offsets of the partition are taken, committed or not."""

        def taken() -> bool:
            try:
                return self.log.end_offset(tp, Isolation.UNCOMMITTED) >= count
            except LogRetriable:
                return False  # a topic just made has no leader for a moment

        until(taken)

    def silence(self, member: GroupReader) -> None:
        """From here on the member is not heard of: the broker's session time-out, or at once in memory."""
        if isinstance(self.log, MemoryLog):
            assert isinstance(member, MemoryGroupReader)
            self.log.evict(self.group, self.topics.commands, member.member)

    def delete_topic(self, topic: str) -> None:
        if isinstance(self.log, MemoryLog):
            self.log.delete_topic(topic)
            return
        from confluent_kafka.admin import AdminClient

        assert self.bootstrap is not None
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.delete_topics([topic])[topic].result()
        until(lambda: self.log.partitions(topic) == 0)

    def close(self) -> None:
        for closer in reversed(self._closers):
            closer()
        self.log.close()


def read(reader: Reader | GroupReader, count: int) -> list[Record]:
    """Polls until so many records came."""
    records: list[Record] = []

    def enough() -> bool:
        records.extend(reader.poll(100, 0.05))
        return len(records) >= count

    until(enough)
    return records


def reach(reader: Reader, tp: TopicPartition, position: int) -> list[Record]:
    """Polls until the position is reached; gives what came."""
    records: list[Record] = []

    def reached() -> bool:
        records.extend(reader.poll(100, 0.05))
        return reader.position(tp) >= position

    until(reached)
    return records


def values(records: Sequence[Record]) -> list[bytes | None]:
    return [record.value for record in records]


KINDS = ["memory", pytest.param("kafka", marks=pytest.mark.kafka)]


def setups(request: pytest.FixtureRequest, namespace: str) -> Iterator[Setup]:
    """Body of the fixture `setup` of both test modules."""
    bootstrap = request.getfixturevalue("kafka") if request.param == "kafka" else None
    setup = Setup(namespace, bootstrap)
    yield setup
    setup.close()
