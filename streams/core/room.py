"""The room that decoded entities have in a process, whichever of its partitions needs it.

So much a partition would be too little for the one that is busy, and too much for many.
"""

from __future__ import annotations

from weakref import WeakSet

from streams.core.generations import Generations

BYTES_MAX = 256 << 20
"""Of a process, by estimate (`streams.core.decoded`): some 70,000 jobs with an execution each."""


class Room:
    """What the partitions of a process keep, in two generations: what is used while the newer one lasts moves
    into it, and the rest goes when the next begins. So nobody has to note who was used last."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._generation_max = bytes_max // 2
        self._used = 0
        self._partitions: WeakSet[Generations] = WeakSet()

    def enter(self) -> Generations:
        """A partition's part, which ages here as long as the partition lives."""
        entered = Generations()
        self._partitions.add(entered)
        return entered

    def take(self, size: int) -> None:
        """So many bytes more are about to be kept in the newer generation."""
        self._used += size
        if self._used > self._generation_max:
            self._used = size
            for partition in self._partitions:
                partition.age()
