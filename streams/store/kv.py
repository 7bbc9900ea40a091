"""The small store interface the state of a partition is kept behind, and its value types.

Owns: what a store promises. May not know: RocksDB, Kafka, the clock, or what keys and values mean.
Implementations: `memory` (simulation, tests), `rocks` (production), `overlay` (one transaction's changes).
`tests/conformance/test_store.py` holds all of them to the promises written here.

The first byte of a key is its *family*. Some families are index data that is written and deleted all the
time, and an implementation may keep them apart, so no scan and no range delete crosses families.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol

TIME_FAMILY = ord("t")
"""Time buckets: written in any order, read in time order, range-deleted by the minute."""
INDEX_FAMILIES = frozenset(b"qb")
"""Queues of runnable and of blocked work: short-lived keys, deleted one by one near the head."""


@dataclass(slots=True)
class Batch:
    """Changes applied as one: all range deletes first, then all puts (None deletes the key)."""

    puts: dict[bytes, bytes | None] = field(default_factory=dict)
    range_deletes: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Pairs of start and end: start <= key < end, within one family."""

    def __bool__(self) -> bool:
        return bool(self.puts or self.range_deletes)


class KeyValue(Protocol):
    """An ordered map from bytes to bytes, used by one thread at a time. Keys are never empty."""

    def get(self, key: bytes) -> bytes | None: ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """What `get` gives for each of them; all are of one family. Their order does not matter."""
        ...

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Entries with start <= key < end in byte order, read as the caller goes.

        Stopping early and writing afterwards are always safe. Writing to the store while its scan goes on
        is safe too, but whether the scan sees that write is left open; `Overlay` promises that it does not.
        """
        ...

    def write(self, batch: Batch) -> None:
        """All of it or, if the process dies meanwhile, nothing."""
        ...

    def close(self) -> None:
        """Idempotent. Nothing else may be called afterwards."""
        ...


class Frozen(Protocol):
    """What a store held at one instant, as files. Another thread than the store's may read them."""

    def files(self) -> Mapping[str, int]:
        """Names and sizes in bytes."""
        ...

    def read(self, name: str) -> BinaryIO:
        """One of the files; the caller closes it."""
        ...

    def close(self) -> None:
        """Lets go of the files. Idempotent."""
        ...


class Incoming(Protocol):
    """Files on their way to become a partition's store. Another thread than the store's may write them."""

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """A whole file, safe on its medium afterwards. ValueError if `name` is no plain file name."""
        ...

    def close(self) -> None:
        """Forgets what was not installed. Idempotent."""
        ...


class StoreFolder(Protocol):
    """The stores of the partitions one process owns."""

    def open(self, partition: int) -> KeyValue:
        """What was written before it was closed is there again; a partition never seen is empty."""
        ...

    def wipe(self, partition: int) -> None:
        """Forget all of a partition that is not open."""
        ...

    def flush(self, partition: int) -> None:
        """Begins to move what an open partition holds in memory into files, without waiting: a `freeze` a
        little later is then short."""
        ...

    def freeze(self, partition: int) -> Frozen:
        """All that was written to an open partition so far, and nothing of what is written from now on."""
        ...

    def receive(self, partition: int) -> Incoming:
        """A place for the files of another `freeze`."""
        ...

    def install(self, partition: int, incoming: Incoming) -> None:
        """What was received takes the place of what a partition that is not open held. If the process dies
        meanwhile, the partition holds the old, the new, or nothing. Files that are no store are found out by
        `open` at the latest (it raises); ValueError if none were received."""
        ...

    def close(self) -> None:
        """Closes what is open and lets another process have the folder."""
        ...


def check_file_name(name: str) -> None:
    """Names come from a place that others write to; none may lead out of the folder."""
    if name in {"", ".", ".."} or "/" in name or "\\" in name or "\0" in name:
        raise ValueError(f"{name!r} is no plain file name")


def check_family(keys: Sequence[bytes]) -> None:
    """Families may lie apart, and what is read at once lies in one place."""
    if len({key[0] for key in keys}) > 1:
        raise ValueError("keys of several families")


def check_range(start: bytes, end: bytes) -> None:
    """A broken range is a bug of the caller, and would read or delete another family's keys."""
    if not start or not end:
        raise ValueError("a range needs a start and an end")
    # The end itself is not part of the range, so the next family's bare byte is a fine end.
    crosses = end[0] > start[0] and end != bytes((start[0] + 1,))
    if crosses:
        raise ValueError(f"range {start!r} to {end!r} crosses key families")
