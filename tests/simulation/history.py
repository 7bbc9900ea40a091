"""The events of a run in log order, as a reader sees them that misses nothing: taken before any compaction.

Owns the full record of the events topic, each decoded once. The checkers read this and nothing of the
processors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from schemas import codec
from schemas.entities import Record as LogRecord
from schemas.events import Event, ExecutionDeadLettered
from schemas.topics import HEADER_POSITION, Topics, unpack_positions
from streams.transport.log import Isolation, Record, TopicPartition
from streams.transport.memory import MemoryLog


@dataclass(frozen=True, slots=True)
class Happened:
    """One record of the log. `event` None: a tombstone. `stamped_ms`: the brokers' clock."""

    partition: int
    offset: int
    stamped_ms: int
    key: str
    value: bytes | None
    event: Event | None
    positions: tuple[int, int] | None
    """Next offsets of `commands` and `work`, on the last record of a transaction."""


class Readings:
    """The codec of those who follow the history: the same bytes are the same record, and are decoded once.
    Processors, API nodes and their log have the real one."""

    encode = staticmethod(codec.encode)

    def __init__(self) -> None:
        self._known: dict[bytes, LogRecord] = {}

    def decode(self, data: bytes) -> LogRecord:
        known = self._known.get(data)
        if known is None:
            known = self._known[data] = codec.decode(data)
        return known


class History:
    """Call `read` before the log is compacted, and when it is to be looked at."""

    def __init__(self, log: MemoryLog, topics: Topics, partitions: int) -> None:
        self.of: list[list[Happened]] = [[] for _ in range(partitions)]
        self.readings = Readings()
        self._given_up: list[list[ExecutionDeadLettered]] = [[] for _ in range(partitions)]
        self._log = log
        self._reader = log.reader(Isolation.COMMITTED)
        self._tps = [TopicPartition(topics.events, number) for number in range(partitions)]
        self._reader.assign(dict.fromkeys(self._tps, 0))

    def read(self) -> None:
        """Takes what was committed since."""
        for record in self._reader.poll(1_000_000, 0):
            happened = self._happened(record)
            self.of[record.partition].append(happened)
            if isinstance(happened.event, ExecutionDeadLettered):
                self._given_up[record.partition].append(happened.event)

    def dead_letters(self, tenant: str) -> list[str]:
        """Ids of the tenant's executions that were given up, as often as they were."""
        executions = (event.execution for part in self._given_up for event in part)
        return [execution.execution_id for execution in executions if execution.tenant == tenant]

    def end(self, partition: int) -> int:
        """The next offset that is not known yet."""
        return self._reader.position(self._tps[partition])

    def __iter__(self) -> Iterator[Happened]:
        for part in self.of:
            yield from part

    def __len__(self) -> int:
        return sum(map(len, self.of))

    def _happened(self, record: Record) -> Happened:
        event = self.readings.decode(record.value) if record.value is not None else None
        if event is not None and not isinstance(event, Event):
            raise TypeError(f"{type(event).__name__} in the events topic")
        key = (record.key or b"").decode()
        carried = record.headers.get(HEADER_POSITION)
        positions = unpack_positions(carried) if carried is not None else None
        stamped_ms = record.timestamp_ms
        return Happened(record.partition, record.offset, stamped_ms, key, record.value, event, positions)
