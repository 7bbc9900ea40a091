"""Brings owned partitions to life: the local store if it is usable, then the tail of the log.

Per partition (architecture §4, §5.3): open and check the store, wiping it at most once; fetch the committed
offsets stably; only then ask for the read-uncommitted end of its events; replay to it; hand it over with the
positions to go on from. Small steps, so that partitions that run are not held up, and every step leaves a
store that says exactly what it holds: a restore can be ended anywhere and goes on there (STR-011).

Owns the reader of `events`. May not know how partitions run, nor write to the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

import msgspec

from schemas.events import Event
from schemas.topics import HEADER_POSITION, Topics, unpack_positions
from streams.runtime.late import LATE_EVENTS, LATE_MS
from streams.runtime.mark import NOWHERE, Mark, Positions, fingerprint, read_mark, why_unusable, write_marked
from streams.runtime.partition import Ambient, Codec, Engine, Partition
from streams.runtime.predecessor import Predecessors
from streams.runtime.telemetry import Telemetry
from streams.store.kv import KeyValue, StoreFolder
from streams.transport.log import Isolation, Log, LogFatal, LogRetriable, Reader, Record, TopicPartition

WAIT_MS = 500
"""A predecessor that lives commits within far less; a longer wait means that it died in a transaction."""
READ_RECORDS = 2_000
"""One step of a replay, and one batch of the store."""
PROGRESS_MS = 5_000
WIPES_MAX = 1
"""A second mismatch is no stale store any more, and wiping again would go on for ever (STR-009)."""

EngineFactory = Callable[[int, KeyValue], Engine]


class BrokenEvent(Exception):
    """An event that cannot be applied. The operator's action: keep the partition stopped, look at the log."""


class UnusableStore(Exception):
    """The local store cannot be completed from the log; the message says why."""


class _Stage(Enum):
    OPEN = 1
    STABLE = 2
    REPLAY = 3


@dataclass(slots=True)
class _Restore:
    """One partition on its way. `carried`: positions in the newest events' headers."""

    partition: Partition
    stage: _Stage = _Stage.OPEN
    wipes: int = 0
    committed: Positions = NOWHERE
    carried: Positions = NOWHERE
    target: int = 0
    started_ms: int = 0
    complete_ms: int = 0
    check_crc: bool = False
    reading: bool = False
    position: int = -1
    waiting_since_ms: int = 0
    """Since when nothing has moved."""
    ended: set[str] = field(default_factory=set)
    young: deque[Event] = field(default_factory=partial(deque[Event], maxlen=LATE_EVENTS))
    told_ms: int = 0
    in_time: bool = True


class Recovery:
    """All partitions of the process that do not run yet; used by one thread."""

    def __init__(
        self,
        log: Log,
        topics: Topics,
        group: str,
        folder: StoreFolder,
        make_engine: EngineFactory,
        codec: Codec,
        ambient: Ambient,
        predecessors: Predecessors,
        telemetry: Telemetry,
    ) -> None:
        self._log = log
        self._topics = topics
        self._group = group
        self._folder = folder
        self._make_engine = make_engine
        self._codec = codec
        self._clock = ambient.clock
        self._monotonic_ms = ambient.monotonic_ms
        self._predecessors = predecessors
        self._telemetry = telemetry
        self._restores: dict[int, _Restore] = {}
        self._reader: Reader | None = None

    def __bool__(self) -> bool:
        return bool(self._restores)

    def add(self, partition: Partition) -> None:
        """From nothing, or again after a transaction whose outcome is unknown."""
        self._restores[partition.number] = _Restore(partition)

    def drop(self, number: int) -> None:
        """The partition is not ours any more, or stands still; what was applied stays in its store."""
        if self._restores.pop(number, None) is not None:
            self._assign()

    def close(self) -> None:
        self._restores.clear()
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def step(self, wait_sec: float) -> tuple[list[Partition], list[tuple[Partition, Exception]]]:
        """Partitions that are ready to run, and those that cannot be restored."""
        ready: list[Partition] = []
        failed: list[tuple[Partition, Exception]] = []
        records = self._poll(wait_sec)
        for restore in list(self._restores.values()):
            number = restore.partition.number
            try:
                self._advance(restore, records.get(number, []))
                done = self._caught_up(restore) and self._in_time(restore)
                if done:
                    self._finish(restore)
            except LogRetriable:
                continue
            except Exception as error:
                failed.append((restore.partition, error))
            else:
                if not done:
                    continue
                ready.append(restore.partition)
            self.drop(number)
        return ready, failed

    def _poll(self, wait_sec: float) -> dict[int, list[Record]]:
        replaying = any(restore.stage is _Stage.REPLAY for restore in self._restores.values())
        if not replaying or self._reader is None:
            return {}
        found: dict[int, list[Record]] = {}
        try:
            for record in self._reader.poll(READ_RECORDS, wait_sec):
                found.setdefault(record.partition, []).append(record)
        except LogFatal:
            # A position is not in the log any more: whose, the check of the store finds out.
            for restore in self._restores.values():
                restore.stage = _Stage.OPEN
        return found

    def _advance(self, restore: _Restore, records: list[Record]) -> None:
        if restore.stage is _Stage.OPEN:
            self._open(restore)
        if restore.stage is _Stage.STABLE:
            self._fetch_stable(restore)
        elif restore.stage is _Stage.REPLAY:
            try:
                self._replay(restore, records)
            except UnusableStore as error:
                self._wipe(restore, str(error))
                restore.stage = _Stage.OPEN
        self._show_progress(restore)

    # -- the store

    def _open(self, restore: _Restore) -> None:
        partition = restore.partition
        restore.started_ms = self._clock.now_ms()
        restore.waiting_since_ms = restore.told_ms = self._monotonic_ms()
        if partition.store is None:
            partition.store = self._folder.open(partition.number)
        tp = self._events(partition)
        topic_id = self._log.topic_id(tp.topic)
        start = self._log.start_offset(tp)
        mark = read_mark(partition.store)
        end = self._log.end_offset(tp, Isolation.UNCOMMITTED)
        why = why_unusable(partition.store, mark, topic_id, start, end, restore.started_ms)
        if why:
            self._wipe(restore, why)
            mark = None
        if mark is None:
            mark = Mark(topic_id=topic_id, complete_ms=restore.started_ms, last_offset=start - 1)
            restore.check_crc = False
        else:
            restore.check_crc = mark.last_offset >= start
        partition.mark = mark
        restore.reading = False
        restore.complete_ms = mark.complete_ms
        restore.carried = mark.positions
        # A new engine: what a former one knew beside its state (parked requests) may be out of date.
        partition.engine = self._make_engine(partition.number, partition.store)
        restore.stage = _Stage.STABLE

    def _wipe(self, restore: _Restore, why: str) -> None:
        partition = restore.partition
        if restore.wipes >= WIPES_MAX:
            raise UnusableStore(f"the store was rebuilt and does not fit the log again: {why}")
        restore.wipes += 1
        self._telemetry.warning(
            f"local store is thrown away and rebuilt from the log: {why}", partition=partition.number
        )
        partition.close()
        self._folder.wipe(partition.number)
        partition.store = self._folder.open(partition.number)

    # -- the log

    def _fetch_stable(self, restore: _Restore) -> None:
        """First the stable offsets, then the end: no event of before them can be behind it (§5.3)."""
        number = restore.partition.number
        commands = TopicPartition(self._topics.commands, number)
        work = TopicPartition(self._topics.work, number)
        try:
            found = self._log.committed(self._group, [commands, work])
        except LogRetriable:
            self._lose_patience(restore)
            return
        restore.committed = Positions(found.get(commands, -1), found.get(work, -1))
        restore.target = self._log.end_offset(self._events(restore.partition), Isolation.UNCOMMITTED)
        restore.stage = _Stage.REPLAY
        self._assign()

    def _lose_patience(self, restore: _Restore) -> None:
        """Waiting for the end of an open transaction: if it is a dead one's, it is ended (§5.5)."""
        now_ms = self._monotonic_ms()
        if now_ms - restore.waiting_since_ms >= WAIT_MS:
            restore.waiting_since_ms = now_ms
            self._predecessors.end_transaction(restore.partition.number, restore.ended)

    def _assign(self) -> None:
        replaying = [each for each in self._restores.values() if each.stage is _Stage.REPLAY]
        if self._reader is None:
            if not replaying:
                return
            self._reader = self._log.reader(Isolation.COMMITTED)
        positions: dict[TopicPartition, int] = {}
        for restore in replaying:
            tp, mark = self._events(restore.partition), restore.partition.mark
            if restore.reading:
                positions[tp] = self._reader.position(tp)
            else:
                # From the checked event itself, if it is to be checked.
                positions[tp] = mark.last_offset if restore.check_crc else mark.next_offset
                restore.reading = True
        self._reader.assign(positions)

    def _replay(self, restore: _Restore, records: list[Record]) -> None:
        """Evolve only; the mark names what is applied and nothing more."""
        if not records:
            return
        partition = restore.partition
        engine, store = partition.engine, partition.store
        if engine is None or store is None:
            raise UnusableStore("the partition is not open")
        if restore.check_crc:
            restore.check_crc = False
            records = self._without_checked(partition.mark, records)
            if not records:
                return
        for record in records:
            try:
                self._apply(restore, engine, record)
            except Exception as error:
                # Nothing is skipped: the store stays at what came before this batch (STR-015).
                raise BrokenEvent(
                    f"{record.topic} [{record.partition}] at {record.offset}: {error}"
                ) from error
        last = records[-1]
        mark = msgspec.structs.replace(
            partition.mark,
            complete_ms=restore.complete_ms,
            last_offset=last.offset,
            last_crc=fingerprint(last.key, last.value),
            last_event_ms=max(partition.mark.last_event_ms, self._time_of(last)),
            positions=restore.carried,
        )
        write_marked(store, engine.commit(), mark)
        partition.mark = mark
        engine.written()

    def _apply(self, restore: _Restore, engine: Engine, record: Record) -> None:
        key = (record.key or b"").decode()
        engine.apply(key, record.value)
        if record.value is not None and record.timestamp_ms >= restore.started_ms - LATE_MS:
            event = self._codec.decode(record.value)
            if isinstance(event, Event) and event.at_ms >= restore.started_ms - LATE_MS:
                restore.young.append(event)
        carried = record.headers.get(HEADER_POSITION)
        if carried is not None:
            restore.carried = restore.carried.furthest(Positions(*unpack_positions(carried)))

    def _without_checked(self, mark: Mark, records: list[Record]) -> list[Record]:
        """Compaction may have removed the event; if it is there, it must be the one that was applied."""
        first = records[0]
        if first.offset != mark.last_offset:
            return records
        if fingerprint(first.key, first.value) != mark.last_crc:
            raise UnusableStore(f"the event at {mark.last_offset} is not the one it applied")
        return records[1:]

    def _time_of(self, record: Record) -> int:
        if record.value is None:
            return record.timestamp_ms
        event = self._codec.decode(record.value)
        return event.at_ms if isinstance(event, Event) else record.timestamp_ms

    def _in_time(self, restore: _Restore) -> bool:
        """A partition's time never goes back: our clock starts at its last event at least (§5.10)."""
        restore.in_time = self._clock.floor(restore.partition.mark.last_event_ms)
        return restore.in_time

    def _caught_up(self, restore: _Restore) -> bool:
        if restore.stage is not _Stage.REPLAY or self._reader is None:
            return False
        position = self._reader.position(self._events(restore.partition))
        restore.partition.restore_remaining = max(0, restore.target - position)
        if position >= restore.target:
            return True
        if position != restore.position:
            restore.position = position
            restore.waiting_since_ms = self._monotonic_ms()
        # Events sent in a transaction that never got to its offsets hold the replay back, nothing else.
        self._lose_patience(restore)
        return False

    def _finish(self, restore: _Restore) -> None:
        """Where to go on: what was committed or what the newest events carry, else the log's beginning."""
        partition = restore.partition
        mark = partition.mark
        positions = restore.committed.furthest(restore.carried)
        partition.positions = partition.committed = self.within_log(partition.number, positions)
        partition.behind_since_ms = None
        partition.unanswered = tuple(restore.young)
        partition.mark = msgspec.structs.replace(mark, complete_ms=restore.started_ms)
        partition.restore_remaining = 0
        self._telemetry.restore_remaining.labels(str(partition.number)).set(0)

    def within_log(self, number: int, positions: Positions) -> Positions:
        """Positions that can be read: what retention took, or a topic made anew, is past helping."""
        return Positions(
            self._within(TopicPartition(self._topics.commands, number), positions.commands),
            self._within(TopicPartition(self._topics.work, number), positions.work),
        )

    def _within(self, tp: TopicPartition, position: int) -> int:
        start = self._log.start_offset(tp)
        if position < 0:
            return start
        end = self._log.end_offset(tp, Isolation.UNCOMMITTED)
        if start <= position <= end:
            return position
        self._telemetry.warning(
            f"{tp.topic} holds {start} to {end}, not the next position {position}: going on at {start}",
            partition=tp.partition,
            offset=position,
        )
        return start

    def _events(self, partition: Partition) -> TopicPartition:
        return TopicPartition(self._topics.events, partition.number)

    def _show_progress(self, restore: _Restore) -> None:
        partition = restore.partition
        self._telemetry.restore_remaining.labels(str(partition.number)).set(partition.restore_remaining)
        now_ms = self._monotonic_ms()
        if now_ms - restore.told_ms < PROGRESS_MS:
            return
        restore.told_ms = now_ms
        waiting = "" if restore.stage is _Stage.REPLAY else ", waiting for a predecessor's open transaction"
        if not restore.in_time:
            waiting = ", its last event is too far ahead of this process's clock"
        self._telemetry.info(
            f"restoring: {partition.restore_remaining} offsets to go{waiting}",
            partition=partition.number,
            offset=partition.mark.next_offset,
        )
