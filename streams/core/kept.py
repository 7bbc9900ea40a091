"""One entry of what is kept decoded (`streams.core.decoded`)."""

from __future__ import annotations

from schemas.entities import Entity

Sized = tuple[Entity | None, int]
"""An entity, or None if there is none, and its encoded size."""


class Kept:
    """What stands under a log key: an entity, or None if it is known that there is none. `size`: encoded, in
    bytes. `bare`: whatever goes with it under another key is known not to be there."""

    __slots__ = ("bare", "entity", "size")

    def __init__(self, entity: Entity | None, size: int, *, bare: bool) -> None:
        self.entity = entity
        self.size = size
        self.bare = bare
