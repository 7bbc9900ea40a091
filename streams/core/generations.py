"""What a partition keeps decoded, in two generations (`streams.core.room`).

Apart from it, which is compiled where there is a C compiler: compiled objects cannot be weakly referred to.
"""

from __future__ import annotations

from streams.core.kept import Kept


class Generations:
    """What one partition keeps, by log key."""

    __slots__ = ("__weakref__", "newer", "older")

    def __init__(self) -> None:
        self.newer: dict[str, Kept] = {}
        self.older: dict[str, Kept] = {}

    def age(self) -> None:
        """A new generation begins."""
        self.older, self.newer = self.newer, {}

    def clear(self) -> None:
        """Nothing of it holds any more."""
        self.newer.clear()
        self.older.clear()
