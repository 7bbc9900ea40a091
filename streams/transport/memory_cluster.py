"""What a broker does, in memory: partitions with offset gaps, transactions, groups and their offsets.

Owns the rules that make the in-memory log behave like Kafka where it matters to exactly-once: an open
transaction holds back the last stable offset, a marker takes an offset, an aborted record keeps its place,
a transactional id has one living epoch, a group one living generation. May not know readers and writers
(`memory`), threads or clocks: time is an argument.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from schemas.topics import TopicSpec
from streams.transport.log import Isolation, LogFatal, LogRefused, Outgoing, Record, TopicPartition

# Broker's default for `max.message.bytes`, and about what a batch of one record adds to its bytes.
DEFAULT_MAX_BYTES = 1048588
BATCH_OVERHEAD_BYTES = 70


class State(Enum):
    """Of a transaction. PREPARED: committed for its writer and its offsets, the markers still to come."""

    OPEN = "open"
    PREPARED = "prepared"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Transaction:
    """One transaction of one transactional id."""

    def __init__(self, transactional_id: str, started_ms: int) -> None:
        self.transactional_id = transactional_id
        self.started_ms = started_ms
        self.state = State.OPEN
        self.touched: dict[TopicPartition, Partition] = {}
        self.offsets: dict[tuple[str, TopicPartition], int] = {}


class Partition:
    """Records in offset order; `end` also counts markers, so offsets have gaps. `stamps`: timestamps are the
    broker's by its settings."""

    def __init__(self, tp: TopicPartition, spec: TopicSpec) -> None:
        self.tp = tp
        self.start = 0
        self.end = 0
        self.records: list[Record] = []
        self._transactions: list[Transaction | None] = []
        self._open: dict[Transaction, int] = {}
        self.stamps = spec.config.get("message.timestamp.type") == "LogAppendTime"
        self._compacted = "compact" in spec.config.get("cleanup.policy", "delete")
        self._max_bytes = int(spec.config.get("max.message.bytes", DEFAULT_MAX_BYTES))

    def check(self, record: Outgoing) -> None:
        """Raises LogRefused for what a broker would not take."""
        if self._compacted and record.key is None:
            raise LogRefused(f"{self.tp}: a compacted topic takes no record without a key")
        size = BATCH_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
        if record.headers:
            size += sum(len(name) + len(value) for name, value in record.headers.items())
        if size > self._max_bytes:
            raise LogRefused(f"{self.tp}: a record of {size} bytes is larger than {self._max_bytes}")

    def append(self, record: Outgoing, now_ms: int, transaction: Transaction | None) -> int:
        offset = self.end
        self.end += 1
        self.records.append(
            Record(
                self.tp.topic,
                self.tp.partition,
                offset,
                now_ms,
                record.key,
                record.value,
                dict(record.headers),
            )
        )
        self._transactions.append(transaction)
        if transaction is not None and transaction not in self._open:
            self._open[transaction] = offset
            transaction.touched[self.tp] = self
        return offset

    def mark(self, transaction: Transaction) -> None:
        """Writes the transaction's marker; it takes an offset like any record."""
        del self._open[transaction]
        self.end += 1

    @property
    def stable(self) -> int:
        """Last stable offset: the first record of the oldest open transaction, else the end."""
        return min(self._open.values()) if self._open else self.end

    def bound(self, isolation: Isolation) -> int:
        return self.stable if isolation is Isolation.COMMITTED else self.end

    def read(self, position: int, count: int, isolation: Isolation) -> tuple[list[Record], int]:
        """Up to `count` records from `position`, and the next position: beyond markers and aborted ones."""
        if not self.start <= position <= self.end:
            raise LogFatal(f"{self.tp}: offset {position} is outside of {self.start}..{self.end}")
        bound = self.bound(isolation)
        found: list[Record] = []
        index = bisect_left(self.records, position, key=_offset)
        while index < len(self.records):
            record, transaction = self.records[index], self._transactions[index]
            if record.offset >= bound:
                break
            index += 1
            if isolation is Isolation.COMMITTED and transaction and transaction.state is State.ABORTED:
                continue
            if len(found) == count:
                return found, record.offset
            found.append(record)
        return found, max(position, bound)

    def compact(self, drop_tombstones: bool) -> None:
        """Cleans all that is stable: newest record per key; aborted ones go; offsets stay what they were."""
        stable = self.stable
        newest: dict[bytes | None, int] = {}
        kept: list[int] = []
        for index, record in enumerate(self.records):
            transaction = self._transactions[index]
            aborted = transaction is not None and transaction.state is State.ABORTED
            if record.offset < stable and not aborted:
                newest[record.key] = index
        for index, record in enumerate(self.records):
            if record.offset < stable:
                dropped = drop_tombstones and record.value is None
                if newest.get(record.key) != index or dropped:
                    continue
            kept.append(index)
        self.records = [self.records[index] for index in kept]
        self._transactions = [self._transactions[index] for index in kept]

    def trim(self, start: int) -> None:
        """Moves the log's beginning, as retention does."""
        self.start = max(self.start, min(start, self.end))
        index = bisect_left(self.records, self.start, key=_offset)
        del self.records[:index]
        del self._transactions[:index]


def _offset(record: Record) -> int:
    return record.offset


class Membership(NamedTuple):
    """Group metadata of one member."""

    group: str
    member: str
    generation: int


class Group:
    """A consumer group on one topic: who is in it, which generation lives, what it committed.

    Models the classic protocol with cooperative hand-over. `rebalance` makes every membership stale until
    its member polls again; a partition goes to its new owner when the old one has given it up, and that
    is another generation.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.generation = 0
        self.members: list[str] = []
        self.owners: dict[int, str] = {}
        self.targets: dict[int, str] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.pending: dict[TopicPartition, list[Transaction]] = {}

    def rebalance(self, partitions: Iterable[int]) -> None:
        """Spreads the partitions evenly; owners keep theirs up to a fair share."""
        numbers = sorted(partitions)
        self.generation += 1
        self.targets = {}
        if not self.members:
            return
        share, rest = divmod(len(numbers), len(self.members))
        counts = dict.fromkeys(self.members, 0)
        for number in numbers:
            owner = self.owners.get(number)
            if owner in counts:
                extra = sum(1 for count in counts.values() if count > share)
                if counts[owner] < share or (counts[owner] == share and extra < rest):
                    self.targets[number] = owner
                    counts[owner] += 1
        for number in numbers:
            if number not in self.targets:
                member = min(self.members, key=lambda name: counts[name])
                self.targets[number] = member
                counts[member] += 1

    def release(self, member: str, numbers: Iterable[int]) -> None:
        """Partitions given up, so that their new owners can have them: the protocol's second round."""
        for number in numbers:
            if self.owners.get(number) == member:
                del self.owners[number]
        self.generation += 1

    def remove(self, member: str) -> None:
        if member in self.members:
            self.members.remove(member)
            self.release(member, [number for number, owner in self.owners.items() if owner == member])

    def valid(self, membership: Membership) -> bool:
        return membership.member in self.members and membership.generation == self.generation


class Cluster:
    """Topics, transactional ids and groups."""

    def __init__(self, transaction_timeout_ms: int) -> None:
        self._timeout_ms = transaction_timeout_ms
        self._topics: dict[str, list[Partition]] = {}
        self._topic_ids: dict[str, str] = {}
        self._topics_made = 0
        self._epochs: dict[str, int] = {}
        self._unfinished: dict[str, Transaction] = {}
        self._groups: dict[str, Group] = {}

    def create(self, spec: TopicSpec) -> None:
        if spec.name in self._topics:
            return
        self._topics_made += 1
        self._topic_ids[spec.name] = f"//topic+{self._topics_made}"
        self._topics[spec.name] = [
            Partition(TopicPartition(spec.name, number), spec) for number in range(spec.partitions)
        ]

    def delete(self, topic: str) -> None:
        del self._topics[topic]
        del self._topic_ids[topic]

    def count(self, topic: str) -> int:
        return len(self._topics.get(topic, ()))

    def topic_id(self, topic: str) -> str:
        if topic not in self._topic_ids:
            raise LogRefused(f"no topic {topic}")
        return self._topic_ids[topic]

    def partition(self, topic: str, number: int) -> Partition:
        partitions = self._topics.get(topic, [])
        if not 0 <= number < len(partitions):
            raise LogRefused(f"no partition {number} of topic {topic}")
        return partitions[number]

    def group(self, name: str) -> Group:
        return self._groups.setdefault(name, Group(name))

    # Transactions

    def take_id(self, transactional_id: str) -> int:
        """A new epoch: the former holder is fenced, its transaction ended."""
        self.settle(transactional_id)
        open_ = self._unfinished.get(transactional_id)
        if open_ is not None:
            self.end(open_, commit=False)
        self._epochs[transactional_id] = self._epochs.get(transactional_id, -1) + 1
        return self._epochs[transactional_id]

    def check_epoch(self, transactional_id: str, epoch: int) -> None:
        if self._epochs[transactional_id] != epoch:
            raise LogFatal(
                f"transactional id {transactional_id}: fenced by a newer holder or by its time-out"
            )

    def begin(self, transactional_id: str, now_ms: int) -> Transaction:
        self.settle(transactional_id)
        transaction = Transaction(transactional_id, now_ms)
        self._unfinished[transactional_id] = transaction
        return transaction

    def open_since_ms(self, transactional_id: str) -> int | None:
        transaction = self._unfinished.get(transactional_id)
        return transaction.started_ms if transaction and transaction.state is State.OPEN else None

    def add_offset(self, transaction: Transaction, group: Group, tp: TopicPartition, offset: int) -> None:
        transaction.offsets[group.name, tp] = offset
        pending = group.pending.setdefault(tp, [])
        if transaction not in pending:
            pending.append(transaction)

    def prepare(self, transaction: Transaction) -> None:
        """Commit as its writer sees it: offsets count, the partitions' markers are written later."""
        transaction.state = State.PREPARED
        self._apply_offsets(transaction, commit=True)

    def settle(self, transactional_id: str) -> None:
        """Writes the markers of a prepared transaction: the id's next one has to wait for them."""
        transaction = self._unfinished.get(transactional_id)
        if transaction is not None and transaction.state is State.PREPARED:
            self.end(transaction, commit=True)

    def settle_all(self) -> None:
        for transactional_id in list(self._unfinished):
            self.settle(transactional_id)

    def end(self, transaction: Transaction, commit: bool) -> None:
        if transaction.state is State.OPEN:
            self._apply_offsets(transaction, commit)
        transaction.state = State.COMMITTED if commit else State.ABORTED
        for partition in transaction.touched.values():
            partition.mark(transaction)
        if self._unfinished.get(transaction.transactional_id) is transaction:
            del self._unfinished[transaction.transactional_id]

    def _apply_offsets(self, transaction: Transaction, commit: bool) -> None:
        for (name, tp), offset in transaction.offsets.items():
            group = self._groups[name]
            group.pending[tp].remove(transaction)
            if commit:
                group.committed[tp] = offset

    def expire(self, now_ms: int) -> None:
        """Ends what was left open too long, and fences its writer (measured: its next call is fatal)."""
        if not self._unfinished:
            return
        for transaction in list(self._unfinished.values()):
            if transaction.state is State.OPEN and now_ms - transaction.started_ms >= self._timeout_ms:
                self.end(transaction, commit=False)
                self._epochs[transaction.transactional_id] += 1
