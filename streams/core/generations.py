"""What a partition keeps decoded, in two generations (`streams.core.room`).

Apart from it, which is compiled where there is a C compiler: compiled objects cannot be weakly referred to.
"""

from __future__ import annotations

from schemas.entities import Entity

Sized = tuple[Entity | None, int]
"""An entity, or None if it is known that there is none, and its encoded size."""


class Generations:
    """What one partition keeps, by log key."""

    __slots__ = ("__weakref__", "newer", "older")

    def __init__(self) -> None:
        self.newer: dict[str, Sized] = {}
        self.older: dict[str, Sized] = {}

    def age(self) -> None:
        """A new generation begins."""
        self.older, self.newer = self.newer, {}

    def clear(self) -> None:
        """Nothing of it holds any more."""
        self.newer.clear()
        self.older.clear()
