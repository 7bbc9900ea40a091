"""Decoded entities kept in memory, so that a herd, which touches each several times, decodes each once.

A partition's engine is its store's only writer, so what is kept is right until the overlay goes back. That
something is not there costs as much to ask as that it is: so an entity can be known to be *bare*, without
what may go with it under another key, as nearly all one-offs are without a cursor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from schemas.entities import Entity
from streams.core.kept import Kept, Sized
from streams.core.room import Room

ENCODED_MAX = 4_096
"""Larger ones are read again: few payloads must not push everything else out."""
BYTES_EACH, BYTES_PER_ENCODED = 150, 4
"""What an entity takes with its key, at most (measured: a job of 500 encoded bytes 1,900, an execution of 165
bytes 610, a known absence 120)."""


class Decoded:
    """Entities of one partition, by log key."""

    def __init__(self, room: Room, read: Callable[[str], Sized]) -> None:
        """`read`: from the store, what is not kept."""
        self._room = room
        self._read = read
        self._kept = room.enter()
        self._last: Kept | None = None

    def get(self, key: str) -> Entity | None:
        """What stands under the key."""
        kept = self._kept.newer.get(key)
        if kept is None:
            older = self._kept.older.get(key)
            entity, size = self._read(key) if older is None else (older.entity, older.size)
            kept = self.keep(key, entity, size)
        self._last = kept
        return kept.entity

    def missing(self, keys: Iterable[str]) -> list[str]:
        """Those of the keys for which nothing is kept."""
        newer, older = self._kept.newer, self._kept.older
        return [key for key in keys if key not in newer and key not in older]

    def keep(self, key: str, entity: Entity | None, size: int) -> Kept:
        """What stands under the key from now on; `size`: encoded, in bytes."""
        newer, older = self._kept.newer, self._kept.older
        if size > ENCODED_MAX:
            newer.pop(key, None)
            older.pop(key, None)
            self._last = Kept(entity, size, bare=False)
            return self._last
        known = newer.get(key)
        if known is None:
            self._room.take(BYTES_EACH + BYTES_PER_ENCODED * size)
            known = older.get(key)
        elif size > known.size:
            self._room.take(BYTES_PER_ENCODED * (size - known.size))
        kept = self._last = Kept(entity, size, bare=known is not None and known.bare)
        self._kept.newer[key] = kept
        return kept

    def is_bare(self, entity: Entity) -> bool:
        """Whether what was asked for or came last is this one, and bare. False: nobody knows."""
        return self._last is not None and self._last.entity is entity and self._last.bare

    def mark(self, key: str, *, bare: bool) -> None:
        """It is bare, if it is kept, or is so no longer."""
        for generation in (self._kept.newer, self._kept.older):
            kept = generation.get(key)
            if kept is not None:
                kept.bare = bare
        self._last = None

    def clear(self) -> None:
        """The store's overlay went back to an earlier state."""
        self._kept.clear()
        self._last = None
