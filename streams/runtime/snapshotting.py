"""Takes snapshots of the partitions that run, one after the other, without stopping them.

When one is due its store is asked to move to files what it holds in memory; a second later freezing it takes
milliseconds, and the rest (reading, comparing, carrying) is done in the background. A snapshot that fails
is reported, and the next one is taken when it is due; the partition does not notice.

Owns when. May not know where snapshots go (`snapshots`) or how a store is frozen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streams.runtime.background import Background, Task
from streams.runtime.partition import Ambient, Partition
from streams.runtime.snapshots import Library, Manifest, Written
from streams.runtime.telemetry import Telemetry
from streams.store.kv import StoreFolder

FLUSH_MS = 1_000
"""From the wish to freeze to the freezing: what is in memory then is what came meanwhile."""
IDLE_MS = 3_600_000
"""How often one is taken of a partition in which nothing happens: it says until when nothing was missed."""
GAUGES_MS = 1_000


@dataclass(slots=True)
class _Flushing:
    partition: Partition
    since_ms: int


@dataclass(slots=True)
class _Taking:
    partition: Partition
    task: Task[Written]
    frozen_ms: int
    """How long nothing else ran."""
    since_ms: int


class Snapshotter:
    """Used by one thread."""

    def __init__(
        self,
        folder: StoreFolder,
        library: Library | None,
        background: Background,
        instance: str,
        every_ms: int,
        ambient: Ambient,
        telemetry: Telemetry,
    ) -> None:
        self._folder = folder
        self._library = library
        self._background = background
        self._instance = instance
        self._every_ms = every_ms
        self._clock = ambient.clock
        self._monotonic_ms = ambient.monotonic_ms
        self._telemetry = telemetry
        self._due: dict[int, int] = {}
        """By partition, the monotonic instant."""
        self._flushing: _Flushing | None = None
        self._taking: _Taking | None = None
        self._gauges_ms = 0

    def step(self, running: Sequence[Partition]) -> None:
        """Part of every turn of the loop; no transaction is open."""
        self._background.step()
        if self._library is None:
            return
        self._show(running)
        if self._taking is not None:
            self._end(self._taking)
        elif self._flushing is not None:
            self._freeze(self._flushing, self._library)
        elif self._every_ms:
            self._begin(running)

    def forget(self, partition: Partition) -> None:
        """It is not ours any more, or stands still."""
        self._due.pop(partition.number, None)
        self._telemetry.snapshot_gone(partition.number)
        if self._flushing is not None and self._flushing.partition is partition:
            self._flushing = None
        if self._taking is not None and self._taking.partition is partition:
            self._taking.task.cancel()

    def close(self) -> None:
        self._background.close()

    def _begin(self, running: Sequence[Partition]) -> None:
        """With the partition that waits for longest, if any is due."""
        now_ms = self._monotonic_ms()
        for partition in running:
            self._due.setdefault(partition.number, now_ms + self._every_ms)
        for partition in sorted(running, key=lambda each: self._due[each.number]):
            if self._due[partition.number] > now_ms:
                return
            self._due[partition.number] = now_ms + self._every_ms
            if not self._says_nothing_new(partition):
                try:
                    self._folder.flush(partition.number)
                    self._flushing = _Flushing(partition, now_ms)
                except Exception as error:  # a full disk; the partition will say so if it cannot go on
                    self._failed(partition, error)
                return

    def _says_nothing_new(self, partition: Partition) -> bool:
        known = partition.snapshot
        if known is None or known.mark.last_offset != partition.mark.last_offset:
            return False
        return self._clock.now_ms() - known.mark.complete_ms < IDLE_MS

    def _freeze(self, flushing: _Flushing, library: Library) -> None:
        if self._monotonic_ms() - flushing.since_ms < FLUSH_MS:
            return
        partition = flushing.partition
        if not partition.running:
            # It is restored, since what became of its newest transaction is not known.
            self._flushing = None
            return
        self._flushing = None
        now_ms = self._clock.now_ms()
        began_ms = self._monotonic_ms()
        try:
            partition.mark_complete(now_ms)
            frozen = self._folder.freeze(partition.number)
        except Exception as error:  # as above
            self._failed(partition, error)
            return
        head = Manifest(
            namespace=library.namespace,
            partition=partition.number,
            instance=self._instance,
            taken_ms=now_ms,
            mark=partition.mark,
        )
        since_ms = self._monotonic_ms()
        task = self._background.start(library.write(frozen, head), frozen.close)
        self._taking = _Taking(partition, task, since_ms - began_ms, since_ms)

    def _end(self, taking: _Taking) -> None:
        if not taking.task.done:
            return
        self._taking = None
        partition = taking.partition
        try:
            written = taking.task.result()
        except Exception as error:  # of disks and networks; the next one may be luckier
            self._failed(partition, error)
            return
        partition.snapshot = written.manifest
        self._telemetry.snapshots.labels("taken").inc()
        self._telemetry.snapshot_bytes.inc(written.carried)
        self._telemetry.info(
            f"snapshot taken: {written.manifest.size} bytes, {written.carried} of them new",
            partition=partition.number,
            offset=written.manifest.mark.next_offset,
            frozen_ms=taking.frozen_ms,
            carried_ms=self._monotonic_ms() - taking.since_ms,
        )
        if written.trouble:
            self._telemetry.warning(
                f"old snapshots were not deleted: {written.trouble}", partition=partition.number
            )

    def _failed(self, partition: Partition, error: Exception) -> None:
        self._telemetry.snapshots.labels("failed").inc()
        self._telemetry.warning(f"no snapshot: {error}", partition=partition.number)

    def _show(self, running: Sequence[Partition]) -> None:
        now_ms = self._monotonic_ms()
        if now_ms - self._gauges_ms < GAUGES_MS:
            return
        self._gauges_ms = now_ms
        for partition in running:
            known = partition.snapshot
            if known is not None:
                number = str(partition.number)
                age_ms = self._clock.now_ms() - known.mark.complete_ms
                self._telemetry.snapshot_age.labels(number).set(max(0, age_ms) / 1000)
                tail = partition.mark.next_offset - known.mark.next_offset
                self._telemetry.snapshot_tail.labels(number).set(max(0, tail))
