"""One transaction's changes over a store: read your own writes, undo to a savepoint, hand over as a batch.

Owns: the pending changes and their undo journal. May not know: which store lies beneath, or when the
transaction commits. The runtime writes what `take` returns to that store once the commit is known good, and
calls `clear` when it failed. The base must not change while changes are pending.

`put` is the hot path, so it pays for nothing but the change and its journal entry. Sorted keys are kept only
for families that are scanned, and catch up from the journal when the next scan asks for them.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from itertools import chain
from typing import Final

from streams.store.kv import Batch, KeyValue, check_family, check_range
from streams.store.sorted_keys import SortedKeys


class _Unset(Enum):
    """In the journal: the key had no pending change before."""

    UNSET = 0


class _Range(Enum):
    """In the journal: not a key but one more range delete."""

    RANGE = 0


_UNSET: Final = _Unset.UNSET
_RANGE: Final = _Range.RANGE

REMEMBER_FROM = 4
"""Changes at which a scan remembers where the first live key was; for fewer, walking costs less."""


class Overlay:
    """A `KeyValue` whose writes stay pending. `rollback`, `take` and `clear` end the scans that are open."""

    __slots__ = ("_base", "_first_live", "_indexed", "_journal", "_pending", "_ranges", "_sorted")

    def __init__(self, base: KeyValue) -> None:
        self._base = base
        self._reset()

    def _reset(self) -> None:
        self._pending: dict[bytes, bytes | None] = {}
        self._ranges: list[tuple[bytes, bytes]] = []
        self._journal: list[tuple[bytes, bytes | _Unset | _Range | None]] = []
        self._sorted: dict[int, SortedKeys] = {}
        self._indexed = 0  # the journal entries that `_sorted` has seen
        self._first_live: dict[bytes, tuple[bytes, int]] = {}

    def get(self, key: bytes) -> bytes | None:
        value = self._pending.get(key, _UNSET)
        if value is not _UNSET:
            return value
        if self._ranges and any(start <= key < end for start, end in self._ranges):
            return None
        return self._base.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        check_family(keys)
        if keys and any(start[0] == keys[0][0] for start, _ in self._ranges):
            return [self.get(key) for key in keys]
        pending = self._pending
        below = iter(self._base.get_many([key for key in keys if key not in pending]))
        return [pending[key] if key in pending else next(below) for key in keys]

    def put(self, key: bytes, value: bytes | None) -> None:
        """None deletes."""
        pending = self._pending
        self._journal.append((key, pending.get(key, _UNSET)))
        pending[key] = value

    def delete(self, key: bytes) -> None:
        self.put(key, None)

    def delete_range(self, start: bytes, end: bytes) -> None:
        """For a whole bucket at a time: each range costs every later `get` and `scan` a comparison."""
        check_range(start, end)
        if start >= end:
            return
        for key in self._keys(start[0]).between(start, end):
            self.put(key, None)
        self._ranges.append((start, end))
        self._journal.append((start, _RANGE))

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The entries as they are now; changes made while the scan goes on are not seen by it."""
        check_range(start, end)
        begin = self._behind_deleted(start)
        if not self._pending and not self._ranges:
            return self._base.scan(begin, end)
        pieces = self._keys(start[0]).pieces(begin, end)
        first = next(pieces, None)
        base = (
            self._base_scan(begin, end, tuple(self._ranges)) if self._ranges else self._base.scan(begin, end)
        )
        if first is None:
            return base
        now = len(self._journal)
        merged = _merge(self._changes(chain((first,), pieces), now), base)
        if len(first) < REMEMBER_FROM:
            return merged
        return self._remember_first(start, merged, now)

    def write(self, batch: Batch) -> None:
        for start, end in batch.range_deletes:
            self.delete_range(start, end)
        for key, value in batch.puts.items():
            self.put(key, value)

    def savepoint(self) -> int:
        return len(self._journal)

    def rollback(self, savepoint: int) -> None:
        """Undo what came after the savepoint; it stays valid."""
        journal = self._journal
        while len(journal) > savepoint:
            key, old = journal.pop()
            if old is _RANGE:
                self._ranges.pop()
            elif old is _UNSET:
                del self._pending[key]
                family = self._sorted.get(key[0])
                if family is not None and len(journal) < self._indexed:
                    family.remove(key)
            else:
                self._pending[key] = old
        self._indexed = min(self._indexed, savepoint)
        self._first_live.clear()

    def take(self) -> Batch:
        """All pending changes, for one write to the base; the overlay is empty afterwards."""
        puts, ranges = self._pending, self._ranges
        if ranges:
            # The range delete covers these already; a point delete more would be one more tombstone to skip.
            covered = [
                key
                for key, value in puts.items()
                if value is None and any(start <= key < end for start, end in ranges)
            ]
            for key in covered:
                del puts[key]
        self._reset()
        return Batch(puts, ranges)

    def clear(self) -> None:
        self._reset()

    def close(self) -> None:
        """Drops what is pending and closes the base."""
        self._reset()
        self._base.close()

    def _keys(self, family: int) -> SortedKeys:
        """The keys of this family with pending changes."""
        journal = self._journal
        for at in range(self._indexed, len(journal)) if self._sorted else ():
            key, old = journal[at]
            if old is _UNSET:
                keys = self._sorted.get(key[0])
                if keys is not None:
                    keys.add(key)
        self._indexed = len(journal)
        keys = self._sorted.get(family)
        if keys is None:
            keys = self._sorted[family] = SortedKeys(key for key in self._pending if key[0] == family)
        return keys

    def _changes(self, pieces: Iterable[list[bytes]], savepoint: int) -> Iterator[tuple[bytes, bytes | None]]:
        """The pending changes of these keys as they were at the savepoint, read no further than asked for."""
        pending, journal = self._pending, self._journal
        before: dict[bytes, bytes | _Unset | None] = {}
        seen = savepoint
        for piece in pieces:
            for key in piece:
                while seen < len(journal):
                    changed, old = journal[seen]
                    if old is not _RANGE:
                        before.setdefault(changed, old)
                    seen += 1
                value = before[key] if key in before else pending[key]
                if value is not _UNSET:
                    yield key, value

    def _base_scan(
        self, start: bytes, end: bytes, ranges: tuple[tuple[bytes, bytes], ...]
    ) -> Iterator[tuple[bytes, bytes]]:
        """Seeks over deleted ranges rather than walking through them."""
        for low, high in sorted(ranges):
            if high <= start or low >= end:
                continue
            if low > start:
                yield from self._base.scan(start, low)
            start = high
        if start < end:
            yield from self._base.scan(start, end)

    def _behind_deleted(self, start: bytes) -> bytes:
        """The key a scan from `start` may begin at, because no key before it is alive.

        Takers of work scan the head of the same queue again and again and delete what they found. Without
        this, the n-th of them in a transaction walks over the n entries deleted before it.
        """
        known = self._first_live.get(start)
        if known is None:
            return start
        first, seen = known
        journal = self._journal
        for at in range(seen, len(journal)):
            key = journal[at][0]
            if start <= key < first and self._pending.get(key) is not None:
                del self._first_live[start]
                return start
        self._first_live[start] = (first, len(journal))
        return first

    def _remember_first(
        self, start: bytes, entries: Iterator[tuple[bytes, bytes]], journal_length: int
    ) -> Iterator[tuple[bytes, bytes]]:
        for first in entries:
            self._first_live[start] = (first[0], journal_length)
            yield first
            break
        yield from entries


def _merge(
    changes: Iterator[tuple[bytes, bytes | None]], base: Iterator[tuple[bytes, bytes]]
) -> Iterator[tuple[bytes, bytes]]:
    """Both in key order; a change wins over the base's entry of the same key, and None hides it."""
    change = next(changes, None)
    for entry in base:
        key = entry[0]
        while change is not None and change[0] < key:
            if change[1] is not None:
                yield change[0], change[1]
            change = next(changes, None)
        if change is None or change[0] != key:
            yield entry
            continue
        if change[1] is not None:
            yield key, change[1]
        change = next(changes, None)
    while change is not None:
        if change[1] is not None:
            yield change[0], change[1]
        change = next(changes, None)
