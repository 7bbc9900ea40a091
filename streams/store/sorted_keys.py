"""Keys in byte order, for the stores that live in memory.

Owns: one sorted set of keys. May not know: values, families or what the keys mean.
Blocks bound the cost of an insertion: one flat list of 100 000 keys would move 400 kB for each.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator

BLOCK_KEYS = 512
"""A full block splits in two. 256 to 1 024 keys are equally fast (measured)."""
FIRST_PIECE_KEYS = 16
"""Most scans stop after a few keys."""


class SortedKeys:
    __slots__ = ("_blocks", "_firsts")

    def __init__(self, keys: Iterable[bytes] = ()) -> None:
        ordered = sorted(keys)
        half = BLOCK_KEYS // 2
        self._blocks = [ordered[at : at + half] for at in range(0, len(ordered), half)]
        self._firsts = [block[0] for block in self._blocks]

    def add(self, key: bytes) -> None:
        """The key must not be in the set."""
        if not self._blocks:
            self._blocks.append([key])
            self._firsts.append(key)
            return
        at = max(bisect_right(self._firsts, key) - 1, 0)
        block = self._blocks[at]
        insort(block, key)
        self._firsts[at] = block[0]
        if len(block) > BLOCK_KEYS:
            upper = block[BLOCK_KEYS // 2 :]
            del block[BLOCK_KEYS // 2 :]
            self._blocks.insert(at + 1, upper)
            self._firsts.insert(at + 1, upper[0])

    def remove(self, key: bytes) -> None:
        """The key must be in the set."""
        at = bisect_right(self._firsts, key) - 1
        block = self._blocks[at]
        del block[bisect_left(block, key)]
        if block:
            self._firsts[at] = block[0]
        else:
            del self._blocks[at]
            del self._firsts[at]

    def pieces(self, start: bytes, end: bytes) -> Iterator[list[bytes]]:
        """Copies of start <= key < end, a few keys first; the set may change between two pieces."""
        size = FIRST_PIECE_KEYS
        while start < end:
            at = max(bisect_right(self._firsts, start) - 1, 0)
            if at < len(self._blocks) and self._blocks[at][-1] < start:
                at += 1  # start falls into the gap behind this block
            if at >= len(self._blocks):
                return
            block = self._blocks[at]
            low = bisect_left(block, start)
            piece = block[low : bisect_left(block, end, low, min(low + size, len(block)))]
            if not piece:
                return
            yield piece
            start = piece[-1] + b"\0"
            size = BLOCK_KEYS

    def between(self, start: bytes, end: bytes) -> list[bytes]:
        return [key for piece in self.pieces(start, end) for key in piece]
