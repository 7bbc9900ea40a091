"""The log as its users see it: records, readers, writers, and the one transactional writer of a process.

Owns the contract between the runtime (and the API's and projections' ends of the log) and Kafka. May not
know what a record means. Implementations: `kafka` (confluent-kafka) and `memory` (simulation and tests);
`tests/conformance/test_log.py` holds both to what is written here.

Errors are three, by what the caller must do (stack: librdkafka's flags):
`LogRetriable` the same call again within a deadline; `LogAborted` abort, drop what was decided, rewind;
`LogFatal` throw the writer away, take the partitions again and rebuild from the log. Anything else is a bug.
`LogRefused` is a `LogAborted` whose cause stays: the same records would be refused again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from schemas.topics import TopicSpec

# A live predecessor commits within this; after it the taker ends a dead one's (architecture §5.5).
COMMITTED_WAIT_SEC = 0.2


class LogError(Exception):
    """Base of them all; the message names topic, partition and the broker's reason."""


class LogRetriable(LogError):
    """Call again."""


class LogAborted(LogError):
    """The transaction must be aborted; nothing of it will be seen by read-committed readers."""


class LogRefused(LogAborted):
    """A record the log will never take (too large, without a key on a compacted topic), or no such topic or
    partition. In a transaction: abort, then leave the record out. From a plain writer: this record only."""


class LogFatal(LogError):
    """The writer is unusable, or whether its transaction committed is unknown. From a reader: its position
    is not in the log (trimmed, or the topic was made anew)."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class Record(NamedTuple):
    """One record as read. `timestamp_ms` is the broker's where the topic says LogAppendTime."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes]


class Outgoing(NamedTuple):
    """One record to write; the partition is always explicit."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes] = {}


class Written(NamedTuple):
    """Where a plain record is. `timestamp_ms` is the broker's, None where the topic says CreateTime."""

    offset: int
    timestamp_ms: int | None


# How a plain record fared: (written, None) or (None, error).
Done = Callable[[Written | None, LogError | None], None]
# The newest record of a partition in a transaction, and its offset.
OnLast = Callable[[Outgoing, int], None]


class Isolation(Enum):
    """What a reader sees: committed records only, or everything."""

    COMMITTED = "read_committed"
    UNCOMMITTED = "read_uncommitted"


class Reader(Protocol):
    """Reads assigned partitions; used by one thread. Never commits, never joins a group."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Replaces the assignment; positions are the next offsets to read. A partition kept at the position
        it has keeps reading undisturbed; any other position rewinds or advances it. Nothing fetched before
        the call comes out after it. LogRefused, and no change, for a partition that does not exist."""
        ...

    def poll(self, max_records: int, timeout_sec: float) -> list[Record]:
        """Up to `max_records`, in offset order per partition; returns early once anything is there.
        LogFatal for a position outside of the log."""
        ...

    def position(self, tp: TopicPartition) -> int:
        """Next offset to be read. Moves over transaction markers and aborted records."""
        ...

    def known_end(self, tp: TopicPartition) -> int:
        """Next offset to be written, as far as reading an assigned partition has shown: the broker is not
        asked, so it costs no wait. 0 before that, and for a partition that is not assigned."""
        ...

    def close(self) -> None: ...


class Rebalance(Protocol):
    """What a group member is told, inside `GroupReader.poll` or `leave`, on its thread. Partitions that stay
    are not mentioned: hand-over is cooperative. `membership()` is fresh inside these calls. What they raise
    comes out of `poll` or `leave`, when the rebalance is done all the same."""

    def assigned(self, partitions: Sequence[int]) -> None:
        """New partitions of `commands`, not yet read from; the owner calls `GroupReader.start` when ready."""
        ...

    def revoked(self, partitions: Sequence[int]) -> None:
        """Finish and commit now; the partitions are gone when this returns. Reading goes on elsewhere only
        then, so a commit in here is in time."""
        ...

    def lost(self, partitions: Sequence[int]) -> None:
        """Already another's: drop, never commit."""
        ...


class GroupReader(Protocol):
    """Member of the processors' group, subscribed to one topic; used by one thread."""

    def poll(self, max_records: int, timeout_sec: float) -> list[Record]:
        """As `Reader.poll`; runs rebalance callbacks and keeps the membership alive."""
        ...

    def start(self, partition: int, offset: int) -> None:
        """Begin (or rewind) reading an assigned partition at `offset`. Until then it is not fetched."""
        ...

    def hold(self, partition: int) -> None:
        """Stop fetching an assigned partition until `start`."""
        ...

    def known_end(self, partition: int) -> int:
        """As `Reader.known_end`, of a partition that was started."""
        ...

    def membership(self) -> object:
        """The group metadata as of the last poll: opaque, handed to `TransactionalWriter.send_offsets`.
        Stale after any rebalance since, kept partitions or not: the next poll brings the new one."""
        ...

    def leave(self) -> None:
        """Leave the group at once (revoked runs first)."""
        ...


class TransactionalWriter(Protocol):
    """The only writer of `events`: one open transaction at a time; used by one thread. After LogAborted only
    `abort` helps, after LogFatal nothing does."""

    transactional_id: str

    def begin(self) -> None: ...

    def send(self, records: Iterable[Outgoing], on_last: OnLast | None = None) -> None:
        """Queues records. When `commit` succeeds, before it returns, the `on_last` that came with the newest
        record of each partition of this transaction is called with that record and its offset."""
        ...

    def send_offsets(self, offsets: Mapping[TopicPartition, int], membership: object) -> None:
        """Next offsets to read, as part of the transaction; a stale membership is LogAborted. Checked here
        and not again at `commit`: who takes the partition waits for this transaction (`Log.committed`)."""
        ...

    def commit(self) -> None:
        """Raises LogAborted, or LogFatal when fenced or when the outcome is unknown. Markers may be written
        after it returns: readers see the records a little later."""
        ...

    def abort(self) -> None:
        """Nothing of the open transaction will be seen; no-op if there is none."""
        ...

    def close(self) -> None:
        """Aborts an open transaction and lets go of the connections; never raises. After LogFatal it asks
        nothing more of the broker: what is open stays so until its time-out or the next writer with the
        id."""
        ...


class PlainWriter(Protocol):
    """Idempotent, not transactional; thread-safe. Commands, work, replies, status."""

    def send(self, record: Outgoing, done: Done | None = None) -> None:
        """Queues; LogRetriable when the queue is full, never a wait. `done(written, error)` is called on the
        writer's own thread, perhaps before this returns. After LogRetriable from `done` the record may be
        in the log all the same."""
        ...

    def flush(self, timeout_sec: float) -> bool:
        """True when everything queued was answered."""
        ...

    def close(self) -> None: ...


class Log(Protocol):
    """One cluster (or memory): where readers and writers come from. Thread-safe. LogRetriable when the
    cluster does not answer in time, LogRefused for a topic or partition that does not exist."""

    def create_topics(self, specs: Sequence[TopicSpec]) -> None:
        """Makes what is missing; never changes what exists."""
        ...

    def partitions(self, topic: str) -> int:
        """How many partitions the topic has; 0 if there is none."""
        ...

    def topic_id(self, topic: str) -> str:
        """Changes when a topic is deleted and made anew. Any text: Kafka's clients write base64, with its
        `/` and `+`."""
        ...

    def start_offset(self, tp: TopicPartition) -> int: ...

    def end_offset(self, tp: TopicPartition, isolation: Isolation) -> int:
        """Next offset to be written (UNCOMMITTED) or the last stable offset (COMMITTED), asked of the
        broker."""
        ...

    def committed(self, group: str, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Stable committed offsets: waits up to COMMITTED_WAIT_SEC for an open transaction of the group on
        any of them, then LogRetriable, and nothing is known of the others either. Partitions without an
        offset are left out."""
        ...

    def reader(self, isolation: Isolation) -> Reader: ...

    def group_reader(self, group: str, topic: str, rebalance: Rebalance) -> GroupReader: ...

    def transactional_writer(self, transactional_id: str) -> TransactionalWriter:
        """Initialised: the id's former holder is fenced and its open transaction ended."""
        ...

    def plain_writer(self) -> PlainWriter: ...

    def close(self) -> None: ...
