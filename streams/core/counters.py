"""Counters of a partition: numbers while a transaction lasts, written to the store once at its end.

A herd moves the same few counters at each step, and the next transaction those of the last one. Owns what was
read and changed of them, and the way back to a savepoint. A partition's engine is its store's only writer, so
what is known stays right after a transaction. Who scans counters has them written first.
"""

from __future__ import annotations

from collections.abc import Iterable

from streams.core.invariants import InvariantError
from streams.store.overlay import Overlay

KNOWN_MAX = 8_192
"""Counters known between two transactions (some 1.5 MB); if there are more, all are forgotten."""
_BORROWED = 1 << 31
"""Of a counter that holds two numbers (`keys.unfinished`), this bit tells that the lower one is negative."""


class Counters:
    """Of one partition. A counter that was never set is 0; none is negative, and none is moved to 2^31."""

    def __init__(self, kv: Overlay) -> None:
        self._kv = kv
        self._known: dict[bytes, int] = {}
        self._journal: list[tuple[bytes, int]] = []
        """Key and number before each change."""
        self._scannable = 0
        """The changes that a scan sees."""

    def get(self, key: bytes) -> int:
        count = self._known.get(key)
        if count is None:
            stored = self._kv.get(key)
            count = self._known[key] = int.from_bytes(stored, "big") if stored else 0
        return count

    def add(self, key: bytes, change: int) -> None:
        before = self._known.get(key)
        if before is None:
            before = self.get(key)
        count = before + change
        if count < 0 or count & _BORROWED:
            raise InvariantError(f"the counter {key!r} is negative")
        self._journal.append((key, before))
        self._known[key] = count

    def raise_to(self, key: bytes, least: int) -> None:
        before = self.get(key)
        if before < least:
            self._journal.append((key, before))
            self._known[key] = least

    def savepoint(self) -> int:
        return len(self._journal)

    def rollback(self, savepoint: int) -> None:
        """Undo what came after the savepoint. The store beneath goes back, too, and with it what was written
        for scans."""
        while len(self._journal) > savepoint:
            key, before = self._journal.pop()
            self._known[key] = before
        self._scannable = 0

    def show(self, prefix: bytes) -> None:
        """From here on a scan sees those that begin with the prefix; it is always the same one."""
        if self._scannable < len(self._journal):
            changed = dict(self._journal[self._scannable :])
            self._write(key for key in changed if key.startswith(prefix))
            self._scannable = len(self._journal)

    def write(self) -> None:
        """The end of the transaction: all that changed goes to the store."""
        self._write(dict(self._journal))
        self._journal.clear()
        self._scannable = 0
        if len(self._known) > KNOWN_MAX:
            self._known.clear()

    def clear(self) -> None:
        """The transaction is undone: as if nothing had been read or changed."""
        self._known.clear()
        self._journal.clear()
        self._scannable = 0

    def _write(self, changed: Iterable[bytes]) -> None:
        for key in changed:
            count = self._known[key]
            self._kv.put(key, count.to_bytes(8, "big") if count else None)
