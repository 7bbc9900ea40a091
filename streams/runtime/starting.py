"""The store that a restore begins with: the local one or a snapshot, whichever goes further.

The local store first: nothing is quicker, so while its tail is short nobody looks for a snapshot. Else the
one that goes furthest is fetched in the background and takes its place. What turns out not to fit - foreign,
stale, damaged, incomplete - is never used: then comes the next snapshot, the local store if it is usable, and
in the end an empty one, to be filled from the log's beginning (architecture §4). Each snapshot is tried once,
so this ends.

Owns that choice, and the wiping. May not know how the log is replayed.
"""

from __future__ import annotations

from collections.abc import Callable

from schemas.topics import Topics
from streams.runtime.background import Background
from streams.runtime.mark import Mark, read_mark, why_unusable
from streams.runtime.partition import Ambient, Engine
from streams.runtime.restore import Fetch, Restore, UnusableStore
from streams.runtime.snapshots import Damaged, Found, Library, Manifest
from streams.runtime.telemetry import Telemetry
from streams.store.kv import KeyValue, StoreFolder
from streams.transport.log import Isolation, Log, TopicPartition

NEAR_EVENTS = 20_000
"""Replayed in a second or less, and so before a snapshot could be fetched."""
WIPES_MAX = 1
"""A second mismatch is no stale store any more, and wiping again would go on for ever (STR-009)."""

EngineFactory = Callable[[int, KeyValue], Engine]


class StartingStores:
    """Opens the stores of all partitions that are restored; used by one thread."""

    def __init__(
        self,
        log: Log,
        topics: Topics,
        folder: StoreFolder,
        make_engine: EngineFactory,
        library: Library | None,
        background: Background,
        ambient: Ambient,
        telemetry: Telemetry,
    ) -> None:
        self._log = log
        self._topics = topics
        self._folder = folder
        self._make_engine = make_engine
        self._library = library
        self._background = background
        self._clock = ambient.clock
        self._monotonic_ms = ambient.monotonic_ms
        self._telemetry = telemetry

    def open(self, restore: Restore) -> bool:
        """A step. True once store, mark and engine of the partition are there. Raises UnusableStore."""
        if restore.fetch is not None and not self._fetched(restore, restore.fetch):
            return False
        if restore.search is not None and not self._searched(restore):
            return False
        tp = TopicPartition(self._topics.events, restore.partition.number)
        topic_id = self._log.topic_id(tp.topic)
        start = self._log.start_offset(tp)
        end = self._log.end_offset(tp, Isolation.UNCOMMITTED)
        mark = self._open_store(restore, topic_id, start, end)
        reached = start if mark is None else mark.next_offset
        if self._look_further(restore, topic_id, start, end, mark, reached):
            restore.partition.restore_remaining = max(0, end - reached)
            return False
        self._begin_with(restore, mark, topic_id, start)
        return True

    def reject(self, restore: Restore, why: str) -> None:
        """The store does not fit the log after all."""
        self._wipe(restore, why)

    def give_up(self, restore: Restore) -> None:
        """Nobody waits for the restore any more."""
        if restore.search is not None:
            restore.search.cancel()
        if restore.fetch is not None and restore.fetch.task is not None:
            restore.fetch.task.cancel()

    # -- the local store

    def _open_store(self, restore: Restore, topic_id: str, start: int, end: int) -> Mark | None:
        partition = restore.partition
        restore.started_ms = self._clock.now_ms()
        restore.waiting_since_ms = self._monotonic_ms()
        restore.told_ms = restore.told_ms or restore.waiting_since_ms
        if partition.store is None:
            partition.store = self._folder.open(partition.number)
        mark = read_mark(partition.store)
        why = why_unusable(partition.store, mark, topic_id, start, end, restore.started_ms)
        if why:
            self._wipe(restore, why)
            return None
        return mark

    def _begin_with(self, restore: Restore, mark: Mark | None, topic_id: str, start: int) -> None:
        partition = restore.partition
        if partition.store is None:
            raise UnusableStore("the partition is not open")
        restore.check_crc = mark is not None and mark.last_offset >= start
        if mark is None:
            mark = Mark(topic_id=topic_id, complete_ms=restore.started_ms, last_offset=start - 1)
        partition.mark = mark
        restore.complete_ms = mark.complete_ms
        # A new engine: what a former one knew beside its state (parked requests) may be out of date.
        partition.engine = self._make_engine(partition.number, partition.store)

    def _wipe(self, restore: Restore, why: str) -> None:
        partition = restore.partition
        if restore.wipes >= WIPES_MAX:
            raise UnusableStore(f"the store was rebuilt and does not fit the log again: {why}")
        restore.wipes += 1
        self._telemetry.warning(f"local store is thrown away: {why}", partition=partition.number)
        partition.close()
        self._folder.wipe(partition.number)
        partition.store = self._folder.open(partition.number)

    # -- snapshots

    def _look_further(
        self, restore: Restore, topic_id: str, start: int, end: int, mark: Mark | None, reached: int
    ) -> bool:
        """Whether something is on its way that may go further than the local store."""
        if self._library is None or (end - reached <= NEAR_EVENTS if mark is not None else end == start):
            return False
        number = restore.partition.number
        if restore.candidates is None:
            work = self._library.find(number, topic_id)
            restore.search = self._background.start(work, lambda: None)
            return True
        for manifest in list(restore.candidates):
            why = manifest.why_unusable(
                self._library.namespace, number, topic_id, start, end, restore.started_ms
            )
            if why:
                self._refused(number, manifest, why)
            elif mark is not None and manifest.mark.next_offset <= reached + NEAR_EVENTS:
                # They come in order: none of the others goes further. They may be needed yet.
                return False
            restore.candidates.remove(manifest)
            if not why:
                self._fetch(restore, self._library, manifest)
                return True
        return False

    def _searched(self, restore: Restore) -> bool:
        if restore.search is None or not restore.search.done:
            return False
        number = restore.partition.number
        try:
            found = restore.search.result()
        except Exception as error:  # whatever is wrong there, the local store or the log will do
            self._telemetry.warning(f"snapshots cannot be looked for: {error}", partition=number)
            found = Found([], [])
        restore.search = None
        for why in found.refused:
            self._telemetry.snapshot_refused(number, why)
        restore.candidates = found.manifests
        return True

    def _fetch(self, restore: Restore, library: Library, manifest: Manifest) -> None:
        partition = restore.partition
        partition.close()
        incoming = self._folder.receive(partition.number)
        restore.fetch = fetch = Fetch(manifest, incoming)
        fetch.task = self._background.start(library.fetch(manifest, incoming, fetch.got), incoming.close)
        self._telemetry.info(
            f"fetching a snapshot of {manifest.size >> 20} MiB",
            partition=partition.number,
            offset=manifest.mark.next_offset,
        )

    def _fetched(self, restore: Restore, fetch: Fetch) -> bool:
        """True once it is decided, one way or the other."""
        if fetch.task is None or not fetch.task.done:
            return False
        restore.fetch = None
        partition = restore.partition
        number = partition.number
        installed = False
        try:
            fetch.task.result()
            self._folder.install(number, fetch.incoming)
            installed = True
            partition.store = self._folder.open(number)
            if read_mark(partition.store) != fetch.manifest.mark:
                raise Damaged("its store is not as far as its manifest says")
        except Exception as error:  # whatever is wrong with it, another one or the log will do
            fetch.incoming.close()
            self._refused(number, fetch.manifest, str(error))
            partition.close()
            if installed:
                self._folder.wipe(number)
        else:
            restore.wipes = 0
            partition.snapshot = fetch.manifest
            self._telemetry.info(
                "begins with a snapshot", partition=number, offset=fetch.manifest.mark.next_offset
            )
        return True

    def _refused(self, number: int, manifest: Manifest, why: str) -> None:
        self._telemetry.snapshot_refused(number, f"of {manifest.instance} at {manifest.taken_ms}: {why}")
