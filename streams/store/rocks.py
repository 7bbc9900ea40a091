"""Partition state in RocksDB: one database a partition, and the lock on the folder that holds them.

Owns: everything about rocksdict, which only this module imports: families as column families, tuning, safe
scans. May not know: what keys and values mean, Kafka, or when to write.

The write-ahead log is on and not synced: a dead process loses nothing, a dead machine loses a suffix, which
replay restores. `get`, `write` and each step of a scan hold the interpreter lock, so nothing here may grow
without a bound; write stalls are avoided rather than waited for.
"""

import fcntl
import os
import shutil
import threading
from bisect import bisect_left
from collections.abc import Generator, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any
from weakref import WeakSet

from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    Checkpoint,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteBufferManager,
)

from streams.store.files import FolderFrozen, FolderIncoming, sync_folder
from streams.store.kv import INDEX_FAMILIES, TIME_FAMILY, Batch, Incoming, check_family, check_range

MIB = 1024 * 1024
CACHE_BYTES = 128 * MIB
"""Blocks, index and filter blocks of all partitions of the process together."""
WRITE_BUFFERS_BYTES = 192 * MIB
"""Of all partitions together; beyond it buffers are flushed early, so 64 partitions do not take 1 GiB."""
STATE_BUFFER_BYTES = 8 * MIB
INDEX_BUFFER_BYTES = 4 * MIB
"""Smaller than the state's: it bounds the tombstones in memory that a scan of a queue's head walks over."""
WAL_BYTES = 32 * MIB
"""Of one partition: a family that is rarely written may not keep old log files, and so a slow open."""
OPEN_FILES = 64
"""Of one partition, so at most 4 096 with 64 of them: services need `nofile` above that."""
METADATA_BLOCK_BYTES = 4096
"""Of indexes and filters, which are cut into blocks: whole ones of a large file fit no shard of the cache,
and each `get` read them again (240 microseconds with 2,000,000 keys, 1.3 in blocks; measured)."""
HEADS = 256
"""Of one partition: scan starts whose first live key is remembered; each costs a write 0.3 microseconds."""
LOCK_WAIT_S = 10.0
LOCK_POLL_S = 0.05

WIPED, FROZEN, INCOMING = ".wiped", ".frozen", ".incoming"
"""Folders beside the partitions; whatever is left of them is swept at the start."""

_TIME = "time"
_INDEX = "index"


class StateFolderBusyError(Exception):
    """Another process holds the state folder."""


class _Tuning:
    """What the databases of one process share, and the options made of it."""

    def __init__(self, cache_bytes: int, write_buffers_bytes: int) -> None:
        self._cache = Cache(cache_bytes)
        # Never stalls: a stalled write would hold the interpreter lock and stop the whole process.
        self._write_buffers = WriteBufferManager(write_buffers_bytes, False)

    def database(self) -> Options:
        options = self._family(STATE_BUFFER_BYTES)
        options.create_if_missing(True)
        options.create_missing_column_families(True)
        options.set_write_buffer_manager(self._write_buffers)
        options.set_max_total_wal_size(WAL_BYTES)
        options.set_max_open_files(OPEN_FILES)
        # One shard: by default there are as many as files, and two in one of them close each other for ever
        # (540 microseconds a `get` with 40 files; measured).
        options.set_table_cache_num_shard_bits(0)
        options.set_max_background_jobs(2)
        options.set_keep_log_file_num(2)
        options.set_stats_dump_period_sec(0)
        return options

    def families(self) -> dict[str, Options]:
        return {name: self._churning(self._family(INDEX_BUFFER_BYTES)) for name in (_TIME, _INDEX)}

    def _family(self, write_buffer_bytes: int) -> Options:
        options = Options(raw_mode=True)
        options.set_write_buffer_size(write_buffer_bytes)
        options.set_compression_type(DBCompressionType.lz4())
        blocks = BlockBasedOptions()
        blocks.set_block_cache(self._cache)
        # Else every open file keeps its index outside the cache, with no bound over 64 partitions.
        blocks.set_cache_index_and_filter_blocks(True)
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
        blocks.set_bloom_filter(10, False)
        blocks.set_index_type(BlockBasedIndexType.two_level_index_search())
        blocks.set_partition_filters(True)
        blocks.set_metadata_block_size(METADATA_BLOCK_BYTES)
        blocks.set_pin_top_level_index_and_filter(True)
        options.set_block_based_table_factory(blocks)
        return options

    @staticmethod
    def _churning(options: Options) -> Options:
        """Compacts a file in which 50 of any 128 neighbours, or half of all entries, are deletions."""
        options.add_compact_on_deletion_collector_factory(128, 50, 0.5)
        return options


class RocksStore:
    """One partition's database. Made by `RocksFolder.open`."""

    def __init__(self, path: Path, tuning: _Tuning) -> None:
        self._db = Rdict(str(path), tuning.database(), column_families=tuning.families())
        names = {TIME_FAMILY: _TIME} | dict.fromkeys(INDEX_FAMILIES, _INDEX)
        apart = {name: self._db.get_column_family(name) for name in (_TIME, _INDEX)}
        handles = {name: self._db.get_column_family_handle(name) for name in (_TIME, _INDEX)}
        self._apart = {family: apart[name] for family, name in names.items()}
        self._handles = {family: handles[name] for family, name in names.items()}
        self._scans: WeakSet[Generator[tuple[bytes, bytes], None, None]] = WeakSet()
        self._heads: dict[bytes, bytes] = {}
        self.closed = False

    def get(self, key: bytes) -> bytes | None:
        value: bytes | None = self._apart.get(key[0], self._db).get(key)
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        check_family(keys)
        if not keys:
            return []
        database: Any = self._apart.get(keys[0][0], self._db)  # by its types it takes no list of bytes
        values: list[bytes | None] = database.get(list(keys))
        return values

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        check_range(start, end)
        entries = self._scan(start, end)
        self._scans.add(entries)
        return entries

    def _scan(self, start: bytes, end: bytes) -> Generator[tuple[bytes, bytes], None, None]:
        options = ReadOptions()
        # Without the bound, the step behind the last entry walks over all the tombstones that follow. RocksDB
        # keeps a pointer to these very bytes: `end` must live, unchanged, as long as this frame does.
        options.set_iterate_upper_bound(end)
        iterator = self._apart.get(start[0], self._db).iter(options)
        iterator.seek(self._heads.get(start, start))
        key = iterator.key()
        if start[0] in INDEX_FAMILIES:
            self._remember_head(start, end if key is None else key)
        while key is not None:
            yield key, iterator.value()
            iterator.next()
            key = iterator.key()
        # A failed read looks like the end; this raises it, since a short list would be taken for the truth.
        iterator.status()

    def write(self, batch: Batch) -> None:
        handles = self._handles
        changes = WriteBatch(raw_mode=True)
        for start, end in batch.range_deletes:
            check_range(start, end)
            if start < end:
                changes.delete_range(start, end, handles.get(start[0]))
        if b"" in batch.puts:
            raise ValueError("a key is never empty")
        put, delete = changes.put, changes.delete
        for key, value in batch.puts.items():
            if value is None:
                delete(key, handles.get(key[0]))
            else:
                put(key, value, handles.get(key[0]))
        self._lower_heads(batch.puts)
        self._db.write(changes)

    def _remember_head(self, start: bytes, first: bytes) -> None:
        """Nothing is alive in start <= key < first.

        Takers delete at the head of a queue, so a scan from its start would walk over all their tombstones,
        up to a full write buffer of them (10 ms, measured), in every transaction.
        """
        heads = self._heads
        heads.pop(start, None)  # to the end of the order, which is the order of forgetting
        heads[start] = first
        if len(heads) > HEADS:
            del heads[next(iter(heads))]

    def _lower_heads(self, puts: dict[bytes, bytes | None]) -> None:
        """Before the write: were it to fail, a head that is too low does no harm."""
        if not self._heads:
            return
        alive = sorted(key for key, value in puts.items() if value is not None and key[0] in INDEX_FAMILIES)
        for start, first in self._heads.items():
            at = bisect_left(alive, start)
            if at < len(alive) and alive[at] < first:
                self._heads[start] = alive[at]

    def flush(self) -> None:
        for database in (self._db, *set(self._apart.values())):
            database.flush(False)

    def freeze(self, path: Path) -> None:
        """Hard links, so it takes as long as what is in memory takes to get into files: with 16 MiB 80 ms in
        which nothing else runs, soon after `flush` 3 to 13 (measured)."""
        Checkpoint(self._db).create_checkpoint(str(path))

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        # An iterator, even a forgotten one, would keep the database open and its files locked.
        for entries in list(self._scans):
            entries.close()
        self._handles.clear()
        for database in set(self._apart.values()):
            database.close()
        self._apart.clear()
        self._db.close()


class RocksFolder:
    """Holds the lock of a state folder and opens the partitions in it."""

    def __init__(
        self,
        path: Path,
        holder: str,
        *,
        wait_s: float = LOCK_WAIT_S,
        cache_bytes: int = CACHE_BYTES,
        write_buffers_bytes: int = WRITE_BUFFERS_BYTES,
    ) -> None:
        self._path = path
        path.mkdir(parents=True, exist_ok=True)
        self._lock = _lock_folder(path, holder, wait_s)
        self._tuning = _Tuning(cache_bytes, write_buffers_bytes)
        self._stores: dict[int, RocksStore] = {}
        self._numbers = count(1)
        for kind in (WIPED, FROZEN, INCOMING):
            for leftover in path.glob(f"p*{kind}*"):
                shutil.rmtree(leftover)

    def open(self, partition: int) -> RocksStore:
        store = self._stores.get(partition)
        if store is not None and not store.closed:
            raise ValueError(f"partition {partition} is open already")
        store = self._stores[partition] = RocksStore(self._partition(partition), self._tuning)
        return store

    def wipe(self, partition: int) -> None:
        store = self._stores.pop(partition, None)
        if store is not None and not store.closed:
            self._stores[partition] = store
            raise ValueError(f"partition {partition} is open")
        path = self._partition(partition)
        if path.exists():
            # Renamed first: a database of which a crash left half would open, with half its entries.
            wiped = path.with_suffix(WIPED)
            path.rename(wiped)
            shutil.rmtree(wiped)

    def flush(self, partition: int) -> None:
        self._opened(partition).flush()

    def freeze(self, partition: int) -> FolderFrozen:
        path = self._beside(partition, FROZEN)
        self._opened(partition).freeze(path)
        return FolderFrozen(path)

    def receive(self, partition: int) -> FolderIncoming:
        return FolderIncoming(self._beside(partition, INCOMING))

    def install(self, partition: int, incoming: Incoming) -> None:
        if not isinstance(incoming, FolderIncoming):
            raise TypeError("files of another folder")
        incoming.complete()
        self.wipe(partition)
        incoming.move(self._partition(partition))
        sync_folder(self._path)

    def _opened(self, partition: int) -> RocksStore:
        store = self._stores.get(partition)
        if store is None or store.closed:
            raise ValueError(f"partition {partition} is not open")
        return store

    def _beside(self, partition: int, kind: str) -> Path:
        """A path that was not used before: what was given up may still be worked on."""
        return self._path / f"p{partition:03d}{kind}-{next(self._numbers)}"

    def close(self) -> None:
        for store in self._stores.values():
            store.close()
        self._stores.clear()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _partition(self, partition: int) -> Path:
        return self._path / f"p{partition:03d}"


def _lock_folder(path: Path, holder: str, wait_s: float) -> int:
    """The lock goes with the descriptor, so it is free again when its process dies, in whatever way."""
    descriptor = os.open(path / "LOCK", os.O_RDWR | os.O_CREAT, 0o644)
    never = threading.Event()
    for _ in range(max(round(wait_s / LOCK_POLL_S), 1)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            never.wait(min(LOCK_POLL_S, wait_s))
            continue
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{holder} (pid {os.getpid()})".encode(), 0)
        return descriptor
    held_by = os.pread(descriptor, 1000, 0).decode(errors="replace") or "a process that did not name itself"
    os.close(descriptor)
    raise StateFolderBusyError(f"state folder {path.absolute()} is held by {held_by}; nothing was touched")
