"""The log in memory, for simulation and tests: deterministic, single-threaded, with faults on demand.

Owns readers, writers and group members on a `Cluster`, and what tests may do to them (`Faults`, rebalance,
evict, compact, trim). May not wait, start threads or read a clock: a timeout is ignored, `now_ms` is given,
and what would come later (markers, delayed sends, expiry) comes when the test asks or time has passed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from schemas.topics import TopicSpec
from streams.transport.log import (
    Done,
    Isolation,
    LogAborted,
    LogError,
    LogFatal,
    LogRefused,
    LogRetriable,
    OnLast,
    Outgoing,
    Rebalance,
    Record,
    TopicPartition,
    Written,
)
from streams.transport.memory_cluster import Cluster, Group, Membership, Transaction
from streams.transport.memory_faults import CommitFault, Faults, PlainFault

TRANSACTION_TIMEOUT_MS = 10_000  # as the real writer's


class MemoryReader:
    """`Reader`; partitions take turns."""

    def __init__(self, log: MemoryLog, isolation: Isolation) -> None:
        self._log = log
        self._isolation = isolation
        self._positions: dict[TopicPartition, int] = {}
        self._turn = 0

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        for topic, number in positions:
            self._log.cluster.partition(topic, number)
        self._positions = dict(positions)

    def poll(self, max_records: int, timeout_sec: float) -> list[Record]:
        self._log.expire()
        tps = list(self._positions)
        records: list[Record] = []
        for step in range(len(tps)):
            tp = tps[(self._turn + step) % len(tps)]
            room = max_records - len(records)
            try:
                partition = self._log.cluster.partition(tp.topic, tp.partition)
            except LogRefused as error:
                raise LogFatal(str(error)) from error
            position = self._positions[tp]
            if position == partition.end:
                continue
            found, position = partition.read(position, room, self._isolation)
            records += found
            self._positions[tp] = position
        self._turn += 1
        return records

    def position(self, tp: TopicPartition) -> int:
        return self._positions[tp]

    def known_end(self, tp: TopicPartition) -> int:
        return self._log.cluster.partition(tp.topic, tp.partition).end if tp in self._positions else 0

    def close(self) -> None:
        self._positions = {}


class MemoryGroupReader:
    """`GroupReader`: joins at its first poll; learns of a rebalance, or of its eviction, at its next."""

    def __init__(self, log: MemoryLog, group: str, topic: str, rebalance: Rebalance) -> None:
        self.member = log.next_member()
        self._log = log
        self._group = log.cluster.group(group)
        self._topic = topic
        self._rebalance = rebalance
        self._reader = MemoryReader(log, Isolation.COMMITTED)
        self._owned: set[int] = set()
        self._started: dict[TopicPartition, int] = {}
        self._membership = Membership(group, self.member, -1)
        self._left = False

    def poll(self, max_records: int, timeout_sec: float) -> list[Record]:
        self._serve()
        return self._reader.poll(max_records, timeout_sec)

    def start(self, partition: int, offset: int) -> None:
        if partition not in self._owned:
            raise LogFatal(f"{self._topic} [{partition}] is not assigned to {self.member}")
        self._restrict_to(self._owned)
        self._started[TopicPartition(self._topic, partition)] = offset
        self._reader.assign(self._started)

    def hold(self, partition: int) -> None:
        self._restrict_to(self._owned - {partition})

    def known_end(self, partition: int) -> int:
        return self._reader.known_end(TopicPartition(self._topic, partition))

    def membership(self) -> object:
        return self._membership

    def leave(self) -> None:
        if self._left:
            return
        self._left = True
        if self.member not in self._group.members:
            self._tell_lost()
            return
        try:
            self._refresh()
            self._give_up(self._owned)
        finally:
            self._group.remove(self.member)
            self._group.rebalance(self._numbers())

    def _serve(self) -> None:
        if self._left:
            raise LogFatal(f"{self.member} left group {self._group.name}")
        if self.member not in self._group.members:
            self._tell_lost()
            self._group.members.append(self.member)
            self._group.rebalance(self._numbers())
        while self._membership.generation != self._group.generation:
            self._refresh()
            targets = self._group.targets
            self._give_up({number for number in self._owned if targets.get(number) != self.member})
        gained = [
            number
            for number, member in sorted(self._group.targets.items())
            if member == self.member and number not in self._group.owners
        ]
        if gained:
            self._group.owners |= dict.fromkeys(gained, self.member)
            self._owned |= set(gained)
            self._rebalance.assigned(gained)

    def _tell_lost(self) -> None:
        lost, self._owned = sorted(self._owned), set()
        self._restrict_to(self._owned)
        if lost:
            self._rebalance.lost(lost)

    def _give_up(self, numbers: set[int]) -> None:
        if not numbers:
            return
        try:
            self._rebalance.revoked(sorted(numbers))
        finally:
            self._owned = self._owned - numbers
            self._restrict_to(self._owned)
            self._group.release(self.member, numbers)

    def _restrict_to(self, numbers: set[int]) -> None:
        """Goes on with these partitions from where they are."""
        self._started = {tp: self._reader.position(tp) for tp in self._started if tp.partition in numbers}
        self._reader.assign(self._started)

    def _refresh(self) -> None:
        self._membership = Membership(self._group.name, self.member, self._group.generation)

    def _numbers(self) -> range:
        return range(self._log.partitions(self._topic))


def _ids_of(transactional_id: str) -> tuple[str, str]:
    """As Kafka's writer has two producers: a transaction need not wait for the markers of the last one, but
    for those of the one before that."""
    return transactional_id, f"{transactional_id}.b"


class MemoryTransactionalWriter:
    """`TransactionalWriter`; records are in the partition at once, visible when committed."""

    def __init__(self, log: MemoryLog, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self._log = log
        self._cluster = log.cluster
        self._turns = deque((each, self._cluster.take_id(each)) for each in _ids_of(transactional_id))
        self._transaction: Transaction | None = None
        self._lasts: dict[TopicPartition, tuple[Outgoing, int, OnLast | None]] = {}
        self._failure: LogError | None = None

    def begin(self) -> None:
        self._check()
        if self._transaction is not None:
            raise LogFatal(f"{self.transactional_id}: a transaction is open already")
        self._turns.rotate()
        self._check()
        self._transaction = self._cluster.begin(self._turns[0][0], self._log.now_ms())
        self._lasts = {}

    def send(self, records: Iterable[Outgoing], on_last: OnLast | None = None) -> None:
        transaction = self._current()
        for record in records:
            try:
                partition = self._cluster.partition(record.topic, record.partition)
                partition.check(record)
            except LogAborted as error:
                self._failure = error
                raise
            offset = partition.append(record, self._log.now_ms(), transaction)
            self._lasts[partition.tp] = (record, offset, on_last)

    def send_offsets(self, offsets: Mapping[TopicPartition, int], membership: object) -> None:
        transaction = self._current()
        if not isinstance(membership, Membership):
            raise TypeError(f"{membership!r} is not a membership of this log")
        group = self._cluster.group(membership.group)
        if not group.valid(membership):
            self._failure = LogAborted(
                f"group {group.name} is at generation {group.generation}: {membership}"
            )
            raise self._failure
        for tp, offset in offsets.items():
            self._cluster.add_offset(transaction, group, tp, offset)

    def commit(self) -> None:
        transaction = self._current()
        fault = self._log.faults.of_commit(self.transactional_id)
        if fault is CommitFault.ABORTED:
            self._failure = LogAborted(f"{self.transactional_id}: commit refused (injected)")
            raise self._failure
        self._transaction = None
        if fault is not None:
            if fault is not CommitFault.UNKNOWN_OPEN:
                self._cluster.end(transaction, commit=fault is CommitFault.UNKNOWN_COMMITTED)
            self._failure = LogFatal(f"{self.transactional_id}: outcome of commit unknown (injected)")
            raise self._failure
        if self._log.faults.late_markers:
            self._cluster.prepare(transaction)
        else:
            self._cluster.end(transaction, commit=True)
        for record, offset, on_last in self._lasts.values():
            if on_last is not None:
                on_last(record, offset)

    def abort(self) -> None:
        if isinstance(self._failure, LogAborted):
            self._failure = None
        self._check()
        if self._transaction is not None:
            self._cluster.end(self._transaction, commit=False)
            self._transaction = None

    def close(self) -> None:
        """A simulated crash drops the writer instead: then its transaction stays open."""
        if not isinstance(self._failure, LogFatal):
            with suppress(LogFatal):
                self.abort()
        self._failure = LogFatal(f"{self.transactional_id}: the writer is closed")

    def _check(self) -> None:
        self._log.expire()
        if self._failure is not None:
            raise self._failure
        try:
            self._cluster.check_epoch(*self._turns[0])
        except LogFatal as error:
            self._failure = error
            raise

    def _current(self) -> Transaction:
        self._check()
        if self._transaction is None:
            raise LogFatal(f"{self.transactional_id}: no transaction is open")
        return self._transaction


class MemoryPlainWriter:
    """`PlainWriter`; `done` runs inside `send`, since there is no other thread."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    def send(self, record: Outgoing, done: Done | None = None) -> None:
        fault = self._log.faults.of_plain_send(record)
        if fault is PlainFault.DELAY:
            self._log.delayed.append((record, done))
        elif fault is PlainFault.DROP:
            _answer(done, None, LogRetriable(f"{record.topic} [{record.partition}]: dropped (injected)"))
        else:
            self._log.deliver(record, done)
            if fault is PlainFault.DUPLICATE:
                self._log.deliver(record, None)

    def flush(self, timeout_sec: float) -> bool:
        return not self._log.delayed

    def close(self) -> None:
        """Nothing is queued here."""


def _answer(done: Done | None, written: Written | None, error: LogError | None) -> None:
    if done is not None:
        done(written, error)


class MemoryLog:
    """`Log`, and the handles of the tests. `cluster` is for this module and for tests of the log itself."""

    def __init__(
        self, now_ms: Callable[[], int], transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS
    ) -> None:
        self.now_ms = now_ms
        self.faults = Faults()
        self.cluster = Cluster(transaction_timeout_ms)
        self.delayed: list[tuple[Outgoing, Done | None]] = []
        self._members_made = 0

    def create_topics(self, specs: Sequence[TopicSpec]) -> None:
        for spec in specs:
            self.cluster.create(spec)

    def partitions(self, topic: str) -> int:
        return self.cluster.count(topic)

    def topic_id(self, topic: str) -> str:
        return self.cluster.topic_id(topic)

    def start_offset(self, tp: TopicPartition) -> int:
        return self.cluster.partition(tp.topic, tp.partition).start

    def end_offset(self, tp: TopicPartition, isolation: Isolation) -> int:
        self.expire()
        return self.cluster.partition(tp.topic, tp.partition).bound(isolation)

    def committed(self, group: str, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        self.expire()
        known = self.cluster.group(group)
        for tp in tps:
            if known.pending.get(tp):
                raise LogRetriable(f"group {group}: a transaction is open on {tp}")
        return {tp: known.committed[tp] for tp in tps if tp in known.committed}

    def reader(self, isolation: Isolation) -> MemoryReader:
        return MemoryReader(self, isolation)

    def group_reader(self, group: str, topic: str, rebalance: Rebalance) -> MemoryGroupReader:
        return MemoryGroupReader(self, group, topic, rebalance)

    def transactional_writer(self, transactional_id: str) -> MemoryTransactionalWriter:
        return MemoryTransactionalWriter(self, transactional_id)

    def plain_writer(self) -> MemoryPlainWriter:
        return MemoryPlainWriter(self)

    def close(self) -> None:
        """Nothing to release."""

    # What tests do to it

    def expire(self) -> None:
        """Ends transactions older than the time-out; every call that looks at the log does so first."""
        self.cluster.expire(self.now_ms())

    def open_since_ms(self, transactional_id: str) -> int | None:
        """When the transaction began that the id's writer has open now."""
        found = (self.cluster.open_since_ms(each) for each in _ids_of(transactional_id))
        return next((since_ms for since_ms in found if since_ms is not None), None)

    def write_markers(self) -> None:
        """Makes visible what was committed under `Faults.late_markers`."""
        self.cluster.settle_all()

    def deliver_delayed(self) -> None:
        """Appends the delayed sends now, in the order they were sent."""
        delayed, self.delayed = self.delayed, []
        for record, done in delayed:
            self.deliver(record, done)

    def rebalance(self, group: str, topic: str) -> Group:
        """Starts a new generation: every membership is stale until its member polls. Tests may then set
        `targets` of the group for an assignment of their own."""
        known = self.cluster.group(group)
        known.rebalance(range(self.partitions(topic)))
        return known

    def evict(self, group: str, topic: str, member: str) -> None:
        """A session time-out: the member's partitions are free at once; it hears of it at its next poll."""
        self.cluster.group(group).remove(member)
        self.rebalance(group, topic)

    def compact(self, topic: str, partition: int, drop_tombstones: bool = False) -> None:
        """Keeps the newest record of each key up to the last stable offset."""
        self.cluster.partition(topic, partition).compact(drop_tombstones)

    def trim(self, tp: TopicPartition, start: int) -> None:
        """Drops what is before `start`, as retention does."""
        self.cluster.partition(tp.topic, tp.partition).trim(start)

    def delete_topic(self, topic: str) -> None:
        self.cluster.delete(topic)

    def next_member(self) -> str:
        """Members are numbered, so that a run repeats exactly."""
        self._members_made += 1
        return f"member-{self._members_made}"

    def deliver(self, record: Outgoing, done: Done | None) -> None:
        """Appends a plain record and answers."""
        try:
            partition = self.cluster.partition(record.topic, record.partition)
            partition.check(record)
        except LogError as error:
            _answer(done, None, error)
            return
        now_ms = self.now_ms()
        offset = partition.append(record, now_ms, None)
        _answer(done, Written(offset, now_ms if partition.stamps else None), None)
