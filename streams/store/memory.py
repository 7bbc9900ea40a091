"""The in-memory twin of the RocksDB store, for simulation and tests.

Owns: plain dicts with sorted keys. May not know: files, or why a copy is taken.
`MemoryFolder.copy` is what a crash leaves behind, since every write is whole. Frozen, a store is two files:
one of state, one of indexes, so that there is one to miss.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import BinaryIO

import msgspec

from streams.store.kv import (
    INDEX_FAMILIES,
    TIME_FAMILY,
    Batch,
    Incoming,
    check_family,
    check_file_name,
    check_range,
)
from streams.store.sorted_keys import SortedKeys


class MemoryStore:
    def __init__(self, values: dict[bytes, bytes] | None = None) -> None:
        self._values = values if values is not None else {}
        self._keys = SortedKeys(self._values)
        self.closed = False

    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        check_family(keys)
        return [self._values.get(key) for key in keys]

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        check_range(start, end)
        return self._scan(start, end)

    def _scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        for piece in self._keys.pieces(start, end):
            for key in piece:
                value = self._values.get(key)
                if value is not None:
                    yield key, value

    def write(self, batch: Batch) -> None:
        # Checked before anything changes, so that a refused batch leaves nothing behind.
        for start, end in batch.range_deletes:
            check_range(start, end)
        if b"" in batch.puts:
            raise ValueError("a key is never empty")
        values, keys = self._values, self._keys
        for start, end in batch.range_deletes:
            for key in keys.between(start, end):
                del values[key]
                keys.remove(key)
        for key, value in batch.puts.items():
            if value is not None:
                if key not in values:
                    keys.add(key)
                values[key] = value
            elif key in values:
                del values[key]
                keys.remove(key)

    def close(self) -> None:
        self.closed = True

    def copy(self) -> "MemoryStore":
        return MemoryStore(dict(self._values))

    def freeze(self) -> "MemoryFrozen":
        return MemoryFrozen(self._values)


_STATE, _INDEX = "state.entries", "index.entries"


class MemoryFrozen:
    def __init__(self, values: Mapping[bytes, bytes]) -> None:
        indexes = INDEX_FAMILIES | {TIME_FAMILY}
        parts: dict[str, list[tuple[bytes, bytes]]] = {_STATE: [], _INDEX: []}
        for key, value in values.items():
            parts[_INDEX if key[0] in indexes else _STATE].append((key, value))
        self._files = {name: msgspec.msgpack.encode(sorted(part)) for name, part in parts.items()}

    def files(self) -> dict[str, int]:
        return {name: len(content) for name, content in self._files.items()}

    def read(self, name: str) -> BinaryIO:
        return BytesIO(self._files[name])

    def close(self) -> None:
        self._files.clear()


class MemoryIncoming:
    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        check_file_name(name)
        self._files[name] = b"".join(chunks)

    def close(self) -> None:
        self._files.clear()

    def store(self) -> "MemoryStore":
        """Files of which one is missing are no store, as with a real one."""
        store = MemoryStore()
        for name in (_STATE, _INDEX):
            if name not in self._files:
                raise ValueError(f"no store: {name} is missing")
            entries = msgspec.msgpack.decode(self._files[name], type=list[tuple[bytes, bytes]])
            store.write(Batch(dict(entries)))
        store.close()
        return store


class MemoryFolder:
    """Keeps its partitions as long as it lives: close and open again, as a restarted process would."""

    def __init__(self, stores: dict[int, MemoryStore] | None = None) -> None:
        self._stores = stores if stores is not None else {}

    def open(self, partition: int) -> MemoryStore:
        store = self._stores.get(partition)
        if store is None:
            store = self._stores[partition] = MemoryStore()
        elif not store.closed:
            raise ValueError(f"partition {partition} is open already")
        store.closed = False
        return store

    def wipe(self, partition: int) -> None:
        store = self._stores.get(partition)
        if store is not None and not store.closed:
            raise ValueError(f"partition {partition} is open")
        self._stores.pop(partition, None)

    def flush(self, partition: int) -> None:
        """Everything is in memory, and stays there."""

    def freeze(self, partition: int) -> MemoryFrozen:
        store = self._stores.get(partition)
        if store is None or store.closed:
            raise ValueError(f"partition {partition} is not open")
        return store.freeze()

    def receive(self, partition: int) -> MemoryIncoming:
        return MemoryIncoming()

    def install(self, partition: int, incoming: Incoming) -> None:
        if not isinstance(incoming, MemoryIncoming):
            raise TypeError("files of another folder")
        received = incoming.store()
        self.wipe(partition)
        self._stores[partition] = received
        incoming.close()

    def close(self) -> None:
        for store in self._stores.values():
            store.close()

    def copy(self) -> "MemoryFolder":
        """The same content, with nothing open: what the next process finds after a crash now."""
        copies = {partition: store.copy() for partition, store in self._stores.items()}
        for store in copies.values():
            store.close()
        return MemoryFolder(copies)
