"""Decoded entities kept in memory, so that a herd, which touches each several times, decodes each once.

The room is a process's, whichever of its partitions needs it: so much a partition would be too little for
the one that is busy, and too much for many. A partition's engine is its store's only writer, so what is kept
is right until the overlay goes back.
"""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakSet

from schemas.entities import Entity

BYTES_MAX = 256 << 20
"""Of a process, by the estimate below: some 70,000 jobs with an execution each."""
ENCODED_MAX = 4_096
"""Larger ones are read again: few payloads must not push everything else out."""
BYTES_EACH, BYTES_PER_ENCODED = 150, 4
"""What an entity takes with its key, at most (measured: a job of 500 encoded bytes 1,900, an execution of 165
bytes 610, a known absence 120)."""

Sized = tuple[Entity | None, int]
"""An entity, or None if it is known that there is none, and its encoded size."""


class Room:
    """What the partitions of a process keep, in two generations: what is used while the newer one lasts moves
    into it, and the rest goes when the next begins. So nobody has to note who was used last."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._generation_max = bytes_max // 2
        self._used = 0
        self._partitions: WeakSet[Decoded] = WeakSet()

    def enter(self, partition: Decoded) -> None:
        """It keeps its entities here as long as it lives."""
        self._partitions.add(partition)

    def take(self, size: int) -> None:
        """So many bytes more are about to be kept in the newer generation."""
        self._used += size
        if self._used > self._generation_max:
            self._used = size
            for partition in self._partitions:
                partition.age()


class Decoded:
    """Entities of one partition, by log key."""

    def __init__(self, room: Room, read: Callable[[str], Sized]) -> None:
        """`read`: from the store, what is not kept."""
        self._room = room
        self._read = read
        self._newer: dict[str, Sized] = {}
        self._older: dict[str, Sized] = {}
        room.enter(self)

    def get(self, key: str) -> Entity | None:
        """What stands under the key."""
        found = self._newer.get(key)
        if found is None:
            found = self._older.get(key) or self._read(key)
            self.keep(key, *found)
        return found[0]

    def keep(self, key: str, entity: Entity | None, size: int) -> None:
        """What stands under the key from now on; `size`: encoded, in bytes."""
        if size > ENCODED_MAX:
            self._newer.pop(key, None)
            self._older.pop(key, None)
            return
        known = self._newer.get(key)
        if known is None:
            self._room.take(BYTES_EACH + BYTES_PER_ENCODED * size)
        elif size > known[1]:
            self._room.take(BYTES_PER_ENCODED * (size - known[1]))
        self._newer[key] = (entity, size)

    def age(self) -> None:
        """A new generation begins."""
        self._older, self._newer = self._newer, {}

    def clear(self) -> None:
        """The store's overlay went back to an earlier state."""
        self._newer.clear()
        self._older.clear()
