"""Which partitions this process owns, as its group tells it (architecture §5.2, §5.4).

Assigned: a partition to restore. Revoked: finish and commit, then it is gone. Lost: already another's, so it
is dropped and never committed. The broker checks the member and not who owns what, so this set is what
keeps the process off other processes' partitions.

Owns the set. May not know how a partition is restored, run or committed: the processor gives those as hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from streams.runtime.partition import Partition

HANDED_OVER = "handed over"


class Ownership:
    """`Rebalance` of the group reader; called inside its poll, on the one thread."""

    def __init__(
        self,
        taken: Callable[[Partition], None],
        finish: Callable[[Sequence[Partition]], None],
        gone: Callable[[Partition, str], None],
    ) -> None:
        self._taken = taken
        self._finish = finish
        self._gone = gone
        self._owned: dict[int, Partition] = {}

    def __len__(self) -> int:
        return len(self._owned)

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._owned.values())

    def get(self, number: int) -> Partition | None:
        return self._owned.get(number)

    def running(self) -> list[Partition]:
        return [partition for partition in self._owned.values() if partition.running]

    def assigned(self, partitions: Sequence[int]) -> None:
        for number in partitions:
            # One that is still here was given up without our hearing of it: nothing of it may be kept.
            self._drop([number], "assigned anew")
            self._owned[number] = partition = Partition(number)
            self._taken(partition)

    def revoked(self, partitions: Sequence[int]) -> None:
        mine = [self._owned[number] for number in partitions if number in self._owned]
        self._finish([partition for partition in mine if partition.running])
        self._drop(partitions, HANDED_OVER)

    def lost(self, partitions: Sequence[int]) -> None:
        self._drop(partitions, "lost")

    def _drop(self, partitions: Sequence[int], why: str) -> None:
        for number in partitions:
            partition = self._owned.pop(number, None)
            if partition is not None:
                self._gone(partition, why)
