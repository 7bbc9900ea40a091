"""Events of a partition that were read and are not applied yet: of each key only the newest.

State follows from the newest event of each key (`core.state`), so what a later one replaced need not be
applied: as if the log had been compacted up to here. Heartbeats, and runs that began and ended, cost their
reading and no more. Cut into chunks, each of which is applied whole or not at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from streams.transport.log import Record

RECORD_BYTES = 500
"""Of a record in memory beside its key and value, about."""


class Tail:
    """Grows by `read` until it is `cut`; then `take` empties it, and `clear` lets the next one begin."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """The chunk is applied, or what was read does not count."""
        self._newest: dict[bytes | None, Record] = {}
        self._chunk: deque[Record] = deque()
        self.last: Record | None = None
        self.last_event: bytes | None = None
        """The newest one that is no tombstone: of that, too, the log may hold a newer record of its key."""
        self.bytes = 0

    def __bool__(self) -> bool:
        return self.last is not None

    @property
    def is_cut(self) -> bool:
        """A chunk is waiting to be applied, and nothing more may be read."""
        return bool(self._chunk)

    def read(self, records: Iterable[Record]) -> None:
        """The next ones of the log."""
        newest = self._newest
        for record in records:
            older = newest.pop(record.key, None)  # the newer one comes later than all others, as in the log
            newest[record.key] = record
            self.bytes += _size(record) - (0 if older is None else _size(older))
            self.last = record
            self.last_event = record.value or self.last_event

    def cut(self) -> None:
        """What was read is the chunk."""
        self._chunk.extend(self._newest.values())
        self._newest.clear()
        self.bytes = 0

    def take(self, count: int) -> list[Record]:
        """The next ones of the chunk to be applied."""
        return [self._chunk.popleft() for _ in range(min(count, len(self._chunk)))]


def _size(record: Record) -> int:
    return RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
