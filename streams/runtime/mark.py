"""What a local store says of itself, and whether it can be completed from the log (architecture §4).

Owns the mark: written in the batch of the changes it speaks of, never ahead of them. May not know who writes
the changes, nor what they mean.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

import msgspec

from schemas.topics import DAY_MS, TOMBSTONE_RETENTION_MS
from streams.core.keys import CHECKPOINT, FORMAT
from streams.store.kv import Batch, KeyValue

USABLE_MS = TOMBSTONE_RETENTION_MS - DAY_MS
"""An older store may have missed tombstones that are gone from the log."""


class Positions(NamedTuple):
    """Next offsets to decide."""

    commands: int
    work: int

    def furthest(self, other: Positions) -> Positions:
        return Positions(max(self.commands, other.commands), max(self.work, other.work))


NOWHERE = Positions(-1, -1)


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """How far a local store is.

    `last_offset`, `last_crc` and `last_event_ms` are of the last applied event (-1: none). `complete_ms`: up
    to then the store had everything the log had; later tombstones cannot have been missed.
    """

    topic_id: str
    format: int = FORMAT
    complete_ms: int = 0
    last_offset: int = -1
    last_crc: int = 0
    last_event_ms: int = 0
    positions: Positions = NOWHERE

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1


NO_MARK = Mark(topic_id="")


def read_mark(store: KeyValue) -> Mark | None:
    """None for an empty store, or one that cannot say what it holds."""
    data = store.get(CHECKPOINT)
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=Mark)
    except msgspec.DecodeError:
        return None


def write_marked(store: KeyValue, batch: Batch, mark: Mark) -> None:
    """Changes and the mark that names them: both or neither."""
    batch.puts[CHECKPOINT] = msgspec.json.encode(mark)
    store.write(batch)


def fingerprint(key: bytes | None, value: bytes | None) -> int:
    """CRC of an event, to tell whether the log still holds the one that the store applied."""
    return crc32(value or b"", crc32(key or b""))


def why_unusable(store: KeyValue, mark: Mark | None, topic_id: str, start: int, end: int, now_ms: int) -> str:
    """ "" if the log, from `start` to its read-uncommitted `end`, can complete the store."""
    if mark is None:
        return "it does not say what it holds" if next(iter(store.scan(b"e", b"f")), None) else ""
    return why_behind(mark, topic_id, start, end, now_ms)


def why_behind(mark: Mark, topic_id: str, start: int, end: int, now_ms: int) -> str:
    """As `why_unusable`, by what a store or a snapshot says of itself."""
    if mark.format != FORMAT:
        return f"its keys have format {mark.format}, not {FORMAT}"
    if mark.topic_id != topic_id:
        return f"it belongs to another topic {mark.topic_id}"
    if not start <= mark.next_offset <= end:
        return f"it goes to {mark.next_offset}, the log from {start} to {end}"
    age_ms = now_ms - mark.complete_ms
    if age_ms > USABLE_MS:
        return f"it is {age_ms // DAY_MS} days old and may have missed tombstones"
    return ""
