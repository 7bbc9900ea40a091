"""Brings owned partitions to life: a store to begin with, then the tail of the log.

Per partition (architecture §4, §5.3): open and check a store (`starting`); learn where it stands, which may
take long and is asked beside the loop (`inquiries`): the committed offsets, stably, then the read-uncommitted
end of its events and the end of the tenants topic; replay to the one, read to the other; hand it over with
the positions to go on from. Small steps, so that partitions that run are not held up, and every step leaves a
store that says exactly what it holds: a restore can be ended anywhere and goes on there (STR-011).

Owns the reader of `events`. May not know how partitions run, nor write to the log.
"""

from __future__ import annotations

import msgspec

from schemas.events import Event
from schemas.topics import HEADER_POSITION, Topics, unpack_positions
from streams.runtime.inquiries import Inquiries, Standing
from streams.runtime.late import LATE_MS
from streams.runtime.mark import Mark, Positions, fingerprint, write_marked
from streams.runtime.partition import Ambient, Codec, Partition
from streams.runtime.restore import Restore, Stage, UnusableStore
from streams.runtime.starting import StartingStores
from streams.runtime.telemetry import Telemetry
from streams.runtime.tenants import TenantDirectory
from streams.transport.log import (
    COMMITTED_WAIT_SEC,
    Isolation,
    Log,
    LogFatal,
    LogRetriable,
    Reader,
    Record,
    TopicPartition,
)

UNSTABLE_MS = int(COMMITTED_WAIT_SEC * 1000)
WAIT_MS = 500
"""A predecessor that lives commits within far less; a longer wait, of offsets or of a replay, means that it
died in a transaction. A replay may just wait for its turn."""
OPEN_MS = 50
"""Stores are opened for so long in one step, a store at least."""
READ_RECORDS = 2_000
APPLIED_RECORDS = 2_000
"""In one step of all replays: partitions that run wait for no more."""
ROOM_BYTES = 64 << 20
"""For what all replays have read and not applied. The more, the less there is to apply; and a chunk is one
batch of its store."""
PROGRESS_MS = 5_000


class BrokenEvent(Exception):
    """An event that cannot be applied. The operator's action: keep the partition stopped, look at the log."""


class Recovery:
    """All partitions of the process that do not run yet; used by one thread."""

    def __init__(
        self,
        log: Log,
        topics: Topics,
        stores: StartingStores,
        codec: Codec,
        ambient: Ambient,
        inquiries: Inquiries,
        tenants: TenantDirectory,
        telemetry: Telemetry,
    ) -> None:
        self._log = log
        self._topics = topics
        self._stores = stores
        self._codec = codec
        self._clock = ambient.clock
        self._monotonic_ms = ambient.monotonic_ms
        self._inquiries = inquiries
        self._tenants = tenants
        self._telemetry = telemetry
        self._restores: dict[int, Restore] = {}
        self._reader: Reader | None = None
        self._applicable = 0
        self._open_until_ms = 0

    def __bool__(self) -> bool:
        return bool(self._restores)

    def add(self, partition: Partition) -> None:
        """From nothing, or again after a transaction whose outcome is unknown."""
        if not self._restores:
            self._inquiries.look_for_stopped()
        self._restores[partition.number] = Restore(partition)

    def drop(self, number: int) -> None:
        """The partition is not ours any more, or stands still; what was applied stays in its store."""
        restore = self._restores.pop(number, None)
        if restore is not None:
            self._give_up(restore)
            self._assign()

    def _give_up(self, restore: Restore) -> None:
        self._stores.give_up(restore)
        self._inquiries.forget(restore.partition.number)
        if restore.question is not None:
            restore.question.wanted = False

    @property
    def replaying(self) -> bool:
        """Something can be done without waiting for others."""
        return any(restore.stage is Stage.REPLAY for restore in self._restores.values())

    def close(self) -> None:
        for restore in self._restores.values():
            self._give_up(restore)
        self._restores.clear()
        self._inquiries.close()
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def step(self, wait_sec: float) -> tuple[list[Partition], list[tuple[Partition, Exception]]]:
        """Partitions that are ready to run, and those that cannot be restored."""
        ready: list[Partition] = []
        failed: list[tuple[Partition, Exception]] = []
        self._inquiries.step()
        records = self._poll(wait_sec)
        self._applicable = APPLIED_RECORDS
        self._open_until_ms = self._monotonic_ms() + OPEN_MS
        for restore in list(self._restores.values()):
            number = restore.partition.number
            try:
                self._advance(restore, records.get(number, []))
                done = self._is_ready(restore)
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

    def _is_ready(self, restore: Restore) -> bool:
        return (
            self._caught_up(restore)
            and self._knows_tenants(restore)
            and self._in_time(restore)
            and self._inquiries.knows_stopped()
        )

    def _poll(self, wait_sec: float) -> dict[int, list[Record]]:
        if not self.replaying or self._reader is None:
            return {}
        if any(restore.tail.is_cut for restore in self._restores.values()):
            return {}
        found: dict[int, list[Record]] = {}
        try:
            for record in self._reader.poll(READ_RECORDS, wait_sec):
                found.setdefault(record.partition, []).append(record)
        except LogFatal:
            # A position is not in the log any more: whose, the check of the store finds out.
            for restore in self._restores.values():
                restore.stage = Stage.OPEN
        return found

    def _advance(self, restore: Restore, records: list[Record]) -> None:
        if restore.stage is Stage.OPEN:
            self._open(restore)
        if restore.stage is Stage.STABLE:
            self._await_standing(restore)
        elif restore.stage is Stage.REPLAY:
            try:
                self._replay(restore, records)
            except UnusableStore as error:
                self._stores.reject(restore, str(error))
                restore.stage = Stage.OPEN
        self._show_progress(restore)

    def _open(self, restore: Restore) -> None:
        if self._monotonic_ms() <= self._open_until_ms and self._stores.open(restore):
            restore.reading = False
            restore.tail.clear()
            restore.carried = restore.partition.mark.positions
            restore.question = self._inquiries.ask(restore.partition.number)
            restore.stage = Stage.STABLE

    # -- the log

    def _await_standing(self, restore: Restore) -> None:
        answer = None if restore.question is None else restore.question.answer
        if answer is None:
            return
        if isinstance(answer, LogRetriable):
            restore.question = self._inquiries.ask(restore.partition.number)
            self._lose_patience(restore, UNSTABLE_MS)
        elif isinstance(answer, Exception):
            raise answer
        else:
            restore.question = None
            self._begin_replay(restore, answer)

    def _begin_replay(self, restore: Restore, standing: Standing) -> None:
        restore.standing = standing
        restore.stage = Stage.REPLAY
        partition = restore.partition
        partition.restore_remaining = max(0, standing.target - partition.mark.next_offset)
        self._telemetry.tail_at(partition.number, partition.restore_remaining)
        self._assign()

    def _lose_patience(self, restore: Restore, wait_ms: int) -> None:
        """Waiting for the end of an open transaction: if it is a dead one's, it is ended (§5.5)."""
        now_ms = self._monotonic_ms()
        if now_ms - restore.waiting_since_ms >= wait_ms:
            restore.waiting_since_ms = now_ms
            self._inquiries.end_predecessor(restore.partition.number)

    def _assign(self) -> None:
        replaying = [each for each in self._restores.values() if each.stage is Stage.REPLAY]
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

    def _replay(self, restore: Restore, records: list[Record]) -> None:
        """Reads on, and applies a chunk once it is whole."""
        if records and restore.check_crc:
            restore.check_crc = False
            records = self._without_checked(restore.partition.mark, records)
        self._read(restore, records)
        tail = restore.tail
        if tail and not tail.is_cut:
            room = ROOM_BYTES // len(self._restores)
            if tail.bytes >= room or self._remaining(restore) == 0:
                tail.cut()
        if tail.is_cut:
            self._apply(restore)

    def _remaining(self, restore: Restore) -> int:
        """Offsets that are to be read yet."""
        if self._reader is None:
            return restore.stands.target
        return max(0, restore.stands.target - self._reader.position(self._events(restore.partition)))

    def _read(self, restore: Restore, records: list[Record]) -> None:
        restore.tail.read(records)
        young_ms = restore.started_ms - LATE_MS
        for record in records:
            if record.value is not None and record.timestamp_ms >= young_ms:
                restore.young.append(record.value)
            carried = record.headers.get(HEADER_POSITION)
            if carried is not None:
                restore.carried = restore.carried.furthest(Positions(*unpack_positions(carried)))

    def _apply(self, restore: Restore) -> None:
        """Evolve only; the mark names what is applied and nothing more."""
        partition, tail = restore.partition, restore.tail
        engine, store = partition.engine, partition.store
        if engine is None or store is None:
            raise UnusableStore("the partition is not open")
        records = tail.take(self._applicable)
        self._applicable -= len(records)
        for record in records:
            try:
                engine.apply((record.key or b"").decode(), record.value)
            except Exception as error:
                # Nothing is skipped: the store stays at what came before this chunk (STR-015).
                raise BrokenEvent(
                    f"{record.topic} [{record.partition}] at {record.offset}: {error}"
                ) from error
        if tail.is_cut:
            return
        partition.mark = self._mark_of(restore)
        write_marked(store, engine.commit(), partition.mark)
        engine.written()
        tail.clear()

    def _mark_of(self, restore: Restore) -> Mark:
        """What the store holds with the chunk. A tombstone does not say when it was decided: its timestamp is
        the brokers' or another machine's."""
        mark, last, newest = restore.partition.mark, restore.tail.last, restore.tail.last_event
        if last is None:
            return mark
        event = self._codec.decode(newest) if newest is not None else None
        return msgspec.structs.replace(
            mark,
            complete_ms=restore.complete_ms,
            last_offset=last.offset,
            last_crc=fingerprint(last.key, last.value),
            last_event_ms=max(mark.last_event_ms, event.at_ms if isinstance(event, Event) else 0),
            positions=restore.carried,
        )

    def _without_checked(self, mark: Mark, records: list[Record]) -> list[Record]:
        """Compaction may have removed the event; if it is there, it must be the one that was applied."""
        first = records[0]
        if first.offset != mark.last_offset:
            return records
        if fingerprint(first.key, first.value) != mark.last_crc:
            raise UnusableStore(f"the event at {mark.last_offset} is not the one it applied")
        return records[1:]

    def _in_time(self, restore: Restore) -> bool:
        """A partition's time never goes back: our clock starts at its last event at least (§5.10)."""
        restore.in_time = self._clock.floor(restore.partition.mark.last_event_ms)
        return restore.in_time

    def _caught_up(self, restore: Restore) -> bool:
        if restore.stage is not Stage.REPLAY or self._reader is None:
            return False
        restore.partition.restore_remaining = self._remaining(restore)
        if not restore.partition.restore_remaining:
            return not restore.tail
        tp = self._events(restore.partition)
        position = self._reader.position(tp)
        now_ms = self._monotonic_ms()
        if position != restore.position:
            restore.position = position
            restore.waiting_since_ms = now_ms
        elif now_ms - restore.waiting_since_ms >= WAIT_MS:
            if position < self._log.end_offset(tp, Isolation.COMMITTED):
                # There is something to read: the reader gave other partitions theirs first.
                restore.waiting_since_ms = now_ms
            # Events sent in a transaction that never got to its offsets hold the replay back, nothing else.
            self._lose_patience(restore, WAIT_MS)
        return False

    def _knows_tenants(self, restore: Restore) -> bool:
        """Settings that the predecessor decided by hold here too: what it said is closed stays closed."""
        return self._tenants.has_reached(restore.stands.tenants_end)

    def _finish(self, restore: Restore) -> None:
        """Where to go on: what was committed or what the newest events carry, else the log's beginning."""
        partition, standing = restore.partition, restore.stands
        mark = partition.mark
        partition.positions = partition.committed = self._inquiries.within(
            partition.number,
            standing.committed.furthest(restore.carried),
            standing.commands,
            standing.work,
        )
        partition.behind_since_ms = None
        partition.unanswered = self._unanswered(restore)
        partition.mark = msgspec.structs.replace(mark, complete_ms=restore.started_ms)
        partition.restore_remaining = 0
        partition.reason = ""
        reason = self._inquiries.why_stopped(partition.number)
        if reason is not None:
            detail = f"partition {partition.number} runs again; it stood still: {reason}"
            partition.alerts.append(("partition_stopped", detail))
        self._telemetry.restore_remaining.labels(str(partition.number)).set(0)

    def _unanswered(self, restore: Restore) -> tuple[Event, ...]:
        events = (self._codec.decode(value) for value in restore.young)
        young_ms = restore.started_ms - LATE_MS
        return tuple(event for event in events if isinstance(event, Event) and event.at_ms >= young_ms)

    def within_log(self, number: int, positions: Positions) -> Positions:
        """Positions that can be read, of a partition that runs."""
        return self._inquiries.within_log(number, positions)

    def _events(self, partition: Partition) -> TopicPartition:
        return TopicPartition(self._topics.events, partition.number)

    def _show_progress(self, restore: Restore) -> None:
        partition = restore.partition
        self._telemetry.restore_remaining.labels(str(partition.number)).set(partition.restore_remaining)
        now_ms = self._monotonic_ms()
        if now_ms - restore.told_ms < PROGRESS_MS:
            return
        restore.told_ms = now_ms
        waiting = ""
        if restore.stage is Stage.OPEN:
            waiting = f", {restore.awaits}"
        elif restore.stage is Stage.STABLE:
            waiting = ", waiting for a predecessor's open transaction"
        elif not restore.in_time:
            waiting = ", its last event is too far ahead of this process's clock"
        partition.reason = f"{partition.restore_remaining} offsets to go{waiting}"
        self._telemetry.info(
            f"restoring: {partition.reason}", partition=partition.number, offset=partition.mark.next_offset
        )
