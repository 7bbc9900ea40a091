"""The events of a run in log order, as a reader sees them that misses nothing: taken before any compaction.

Owns the full record of the events topic. The checkers read this and nothing of the processors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from schemas import codec
from schemas.events import Event
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


class History:
    """Call `read` before the log is compacted, and when it is to be looked at."""

    def __init__(self, log: MemoryLog, topics: Topics, partitions: int) -> None:
        self.of: list[list[Happened]] = [[] for _ in range(partitions)]
        self._log = log
        self._reader = log.reader(Isolation.COMMITTED)
        self._tps = [TopicPartition(topics.events, number) for number in range(partitions)]
        self._reader.assign(dict.fromkeys(self._tps, 0))

    def read(self) -> None:
        """Takes what was committed since."""
        for record in self._reader.poll(1_000_000, 0):
            self.of[record.partition].append(_happened(record))

    def end(self, partition: int) -> int:
        """The next offset that is not known yet."""
        return self._reader.position(self._tps[partition])

    def __iter__(self) -> Iterator[Happened]:
        for part in self.of:
            yield from part

    def __len__(self) -> int:
        return sum(map(len, self.of))


def _happened(record: Record) -> Happened:
    event = codec.decode(record.value) if record.value is not None else None
    if event is not None and not isinstance(event, Event):
        raise TypeError(f"{type(event).__name__} in the events topic")
    key = (record.key or b"").decode()
    carried = record.headers.get(HEADER_POSITION)
    positions = unpack_positions(carried) if carried is not None else None
    return Happened(record.partition, record.offset, record.timestamp_ms, key, record.value, event, positions)
