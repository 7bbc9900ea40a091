"""A log for the API's tests: topics in memory, and a processor behind them that decides with the real
engines.

Commands are decided on a thread of their own as they come; events and replies can be read like a broker's.
`hold` makes the broker stop taking records, `mute` makes processors decide without anybody hearing of it.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from schemas import codec
from schemas.commands import JobCommand, WorkCommand
from schemas.entities import Tenant
from schemas.events import TenantConfigured
from schemas.replies import PartitionStatus, Reply
from schemas.topics import REPLY_PARTITIONS, Topics, TopicSpec
from streams.transport.log import (
    Done,
    GroupReader,
    Isolation,
    LogRefused,
    LogRetriable,
    Outgoing,
    Rebalance,
    Record,
    TopicPartition,
    TransactionalWriter,
    Written,
)
from tests.unit.api.cluster import Cluster

NAMESPACE = "unit"


class FakeLog:
    """One cluster; used by the API, by a follower of the events and by the test."""

    def __init__(self, cluster: Cluster) -> None:
        self.topics = Topics(NAMESPACE)
        self.cluster = cluster
        self.hold = False
        self.full = False
        self.mute = False
        self.sent: list[JobCommand | WorkCommand] = []
        self._records: dict[TopicPartition, list[Record]] = defaultdict(list)
        self._changed = threading.Condition()
        self._queue: queue.Queue[tuple[Outgoing, Done | None] | None] = queue.Queue()
        self._held: list[tuple[Outgoing, Done | None]] = []
        self._decided = threading.Lock()
        self._reply_partitions: dict[str, int] = {}
        self._counts = {
            self.topics.commands: cluster.partitions,
            self.topics.work: cluster.partitions,
            self.topics.events: cluster.partitions,
            self.topics.replies: REPLY_PARTITIONS,
            self.topics.tenants: 1,
            self.topics.status: 1,
        }
        for tenant, shards in cluster.shards.items():
            configured = TenantConfigured(
                at_ms=0, actor="test", cause="test", configured=Tenant(tenant=tenant, shards=shards)
            )
            self._append(self.topics.tenants, 0, tenant.encode(), codec.encode(configured))
        for number in range(cluster.partitions):
            status = PartitionStatus(partition=number, owner="p0", state="RUNNING", at_ms=cluster.now_ms)
            self._append(self.topics.status, 0, str(number).encode(), codec.encode(status))
        self._thread = threading.Thread(target=self._process, name="fake-processor", daemon=True)
        self._thread.start()

    # -- for tests

    def advance(self, sec: float) -> None:
        """Virtual time passes, with everything that becomes due on the way."""
        with self._decided:
            target = self.cluster.now_ms + round(sec * 1000)
            while True:
                soonest = self.cluster.wakeup_ms()
                if soonest > target:
                    break
                self.cluster.now_ms = max(self.cluster.now_ms, soonest)
                self._fire()
            self.cluster.now_ms = target
            self._fire()

    def jump(self, sec: float) -> None:
        """Virtual time passes at once: nobody decided anything meanwhile."""
        with self._decided:
            self.cluster.now_ms += round(sec * 1000)
            self._fire()

    def release_held(self) -> None:
        """The broker takes again what was sent meanwhile."""
        self.hold = False
        held, self._held = self._held, []
        for item in held:
            self._queue.put(item)

    def status(self, status: PartitionStatus) -> None:
        """An owner says something."""
        key = str(status.partition).encode()
        self._append(self.topics.status, 0, key, codec.encode(status))

    def end(self) -> None:
        self._queue.put(None)
        self._thread.join(timeout=10)

    def _fire(self) -> None:
        for number in range(self.cluster.partitions):
            self._answer(self.cluster.run(number))
            self._publish(number)

    # -- the processor

    def _process(self) -> None:
        while (item := self._queue.get()) is not None:
            record, done = item
            command = codec.decode(record.value or b"")
            assert isinstance(command, JobCommand | WorkCommand)
            self._reply_partitions[command.session] = command.reply_partition
            with self._decided:
                self.sent.append(command)
                if done is not None:
                    done(Written(len(self.sent), None), None)
                replies = self.cluster.run(record.partition, command)
                self._publish(record.partition)
                if not self.mute:
                    self._answer(replies)

    def _answer(self, replies: Iterable[Reply]) -> None:
        for reply in replies:
            partition = self._reply_partitions.get(reply.session, -1)
            if partition >= 0:
                self._append(self.topics.replies, partition, None, codec.encode(reply))

    def _publish(self, number: int) -> None:
        tp = TopicPartition(self.topics.events, number)
        for event in self.cluster.events[number][len(self._records[tp]) :]:
            self._append(self.topics.events, number, event.key.encode(), event.value)
            if event.type == TenantConfigured.__name__:
                name = event.key.removeprefix("tenant:").encode()
                self._append(self.topics.tenants, 0, name, event.value)

    def _append(self, topic: str, partition: int, key: bytes | None, value: bytes | None) -> None:
        with self._changed:
            records = self._records[TopicPartition(topic, partition)]
            now_ms = self.cluster.now_ms
            records.append(Record(topic, partition, len(records), now_ms, key, value, {}))
            self._changed.notify_all()

    # -- the log

    def create_topics(self, specs: Sequence[TopicSpec]) -> None:
        raise NotImplementedError

    def partitions(self, topic: str) -> int:
        return self._counts.get(topic, 0)

    def topic_id(self, topic: str) -> str:
        return f"id-of-{topic}"

    def start_offset(self, tp: TopicPartition) -> int:
        return 0

    def end_offset(self, tp: TopicPartition, isolation: Isolation) -> int:
        return len(self._records[tp])

    def reader(self, isolation: Isolation) -> FakeReader:
        return FakeReader(self)

    def plain_writer(self) -> FakeWriter:
        return FakeWriter(self)

    def committed(self, group: str, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        raise NotImplementedError

    def group_reader(self, group: str, topic: str, rebalance: Rebalance) -> GroupReader:
        raise NotImplementedError

    def transactional_writer(self, transactional_id: str) -> TransactionalWriter:
        raise NotImplementedError

    def close(self) -> None:
        self.end()

    def read(self, positions: dict[TopicPartition, int], most: int, timeout_sec: float) -> list[Record]:
        deadline = time.monotonic() + min(timeout_sec, 0.02)  # tests end sooner
        with self._changed:
            while True:
                found: list[Record] = []
                for tp, position in positions.items():
                    new = self._records[tp][position : position + most - len(found)]
                    positions[tp] = position + len(new)
                    found += new
                if found or not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    return found

    def take(self, record: Outgoing, done: Done | None) -> None:
        if self.full:
            raise LogRetriable("the queue is full")
        if record.value is not None and len(record.value) > 1 << 20:
            raise LogRefused("too large")
        if self.hold:
            self._held.append((record, done))
        else:
            self._queue.put((record, done))


class FakeReader:
    def __init__(self, log: FakeLog) -> None:
        self._log = log
        self._positions: dict[TopicPartition, int] = {}

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self._positions = dict(positions)

    def poll(self, max_records: int, timeout_sec: float) -> list[Record]:
        return self._log.read(self._positions, max_records, timeout_sec)

    def position(self, tp: TopicPartition) -> int:
        return self._positions[tp]

    def known_end(self, tp: TopicPartition) -> int:
        raise NotImplementedError

    def close(self) -> None:
        self._positions = {}


class FakeWriter:
    def __init__(self, log: FakeLog) -> None:
        self._log = log

    def send(self, record: Outgoing, done: Done | None = None) -> None:
        self._log.take(record, done)

    def flush(self, timeout_sec: float) -> bool:
        return True

    def close(self) -> None:
        pass
