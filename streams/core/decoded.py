"""Decoded entities kept in memory, so that a herd, which touches each several times, decodes each once.

A partition's engine is its store's only writer, so what is kept is right until the overlay goes back.
"""

from __future__ import annotations

from collections.abc import Callable

from schemas.entities import Entity
from streams.core.generations import Sized
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

    def get(self, key: str) -> Entity | None:
        """What stands under the key."""
        found = self._kept.newer.get(key)
        if found is None:
            found = self._kept.older.get(key) or self._read(key)
            self.keep(key, *found)
        return found[0]

    def keep(self, key: str, entity: Entity | None, size: int) -> None:
        """What stands under the key from now on; `size`: encoded, in bytes."""
        kept = self._kept
        if size > ENCODED_MAX:
            kept.newer.pop(key, None)
            kept.older.pop(key, None)
            return
        known = kept.newer.get(key)
        if known is None:
            self._room.take(BYTES_EACH + BYTES_PER_ENCODED * size)
        elif size > known[1]:
            self._room.take(BYTES_PER_ENCODED * (size - known[1]))
        kept.newer[key] = (entity, size)

    def clear(self) -> None:
        """The store's overlay went back to an earlier state."""
        self._kept.clear()
