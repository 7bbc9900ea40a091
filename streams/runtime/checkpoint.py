"""The commit of what was decided, as numbered steps (architecture §4, §5).

1 everything is decided on overlays; 2 one transaction: begin, events with dead letters and quarantine,
offsets of both topics for every partition in it, commit; 3 only then replies; 4 one batch a partition: state
and the mark that names it. A crash anywhere leaves the log right: before the commit nothing happened, after
it the tail is replayed.

Owns the transactional writer. May not know how drafts came about. Every step is announced to `on_step`, so
that tests can end the process there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import msgspec

from schemas.entities import Alert
from schemas.events import ExecutionFired, TenantConfigured
from schemas.ids import key_of
from schemas.replies import CommandDone, Reply, WorkDone
from schemas.topics import HEADER_POSITION, HEADER_WRITER, Topics, pack_positions
from streams.core.effects import Answer, Bury, Effect
from streams.core.transaction import Logged
from streams.runtime.mark import Mark, Positions, fingerprint, write_marked
from streams.runtime.partition import Ambient, Codec, Partition
from streams.runtime.telemetry import Telemetry
from streams.transport.log import (
    Done,
    Log,
    LogAborted,
    LogError,
    LogFatal,
    Outgoing,
    PlainWriter,
    TopicPartition,
    TransactionalWriter,
)

FIRED = ExecutionFired.__name__


class Step(IntEnum):
    """Where a crash leaves different things behind."""

    DECIDED = 1
    BEGUN = 2
    SENT = 3
    OFFSETS_SENT = 4
    COMMITTED = 5
    REPLIED = 6
    WRITTEN = 7


@dataclass(slots=True)
class Draft:
    """What one partition contributes to a transaction."""

    partition: Partition
    positions: Positions
    now_ms: int
    events: Sequence[Logged] = ()
    effects: Sequence[Effect] = ()
    records: list[Outgoing] = field(default_factory=list)
    """Events first, then dead letters and quarantined commands."""

    @property
    def speaks(self) -> bool:
        """Something leaves the partition: it must be committed before anybody sees it."""
        return bool(self.records or self.effects)


Failure = tuple[Partition, Exception]
"""A partition whose state could not follow the log, and why."""


class Checkpoint:
    """Commits drafts; used by one thread."""

    def __init__(
        self,
        log: Log,
        topics: Topics,
        transactional_id: str,
        codec: Codec,
        ambient: Ambient,
        telemetry: Telemetry,
        on_step: Callable[[Step], None],
    ) -> None:
        self._log = log
        self._topics = topics
        self._id = transactional_id
        self._codec = codec
        self._clock = ambient.clock
        self._monotonic_ms = ambient.monotonic_ms
        self._telemetry = telemetry
        self._on_step = on_step
        # Made first of all: whatever this instance left open ends here (§5.5).
        self._writer: TransactionalWriter | None = log.transactional_writer(transactional_id)
        self._plain: PlainWriter = log.plain_writer()

    def draft(
        self,
        partition: Partition,
        positions: Positions,
        now_ms: int,
        events: Sequence[Logged] = (),
        effects: Sequence[Effect] = (),
        quarantined: Iterable[Outgoing] = (),
    ) -> Draft:
        """What can fail for the partition's own reasons is done here, before a transaction is open."""
        records = self._events(partition.number, positions, events)
        records += [
            self._dead_letter(partition.number, effect) for effect in effects if isinstance(effect, Bury)
        ]
        records += [
            Outgoing(self._topics.tenants, 0, event.key.partition(":")[2].encode(), event.value)
            for event in events
            if event.type == TenantConfigured.__name__
        ]
        records += quarantined
        return Draft(partition, positions, now_ms, events, effects, records)

    def _events(self, number: int, positions: Positions, events: Sequence[Logged]) -> list[Outgoing]:
        topic = self._topics.events
        records = [Outgoing(topic, number, event.key.encode(), event.value) for event in events]
        if records:
            # On the first one too: of a transaction that was cut off, the last may be missing.
            writer = {HEADER_WRITER: self._id.encode()}
            records[0] = records[0]._replace(headers=writer)
            position = {HEADER_POSITION: pack_positions(*positions)}
            records[-1] = records[-1]._replace(headers=writer | position)
        return records

    def _dead_letter(self, number: int, effect: Bury) -> Outgoing:
        key = key_of(effect.letter.execution).encode()
        return Outgoing(self._topics.dead_letters, number, key, self._codec.encode(effect.letter))

    def commit(self, drafts: Sequence[Draft], membership: object) -> list[Failure]:
        """Steps 1 to 4. Raises LogAborted (nothing happened) or LogFatal (unknown; the writer is gone)."""
        self._on_step(Step.DECIDED)
        last_offsets = self._transact(drafts, membership)
        self._on_step(Step.COMMITTED)
        for draft in drafts:
            self.deliver(draft, last_offsets.get(draft.partition.number, draft.partition.mark.last_offset))
        self._on_step(Step.REPLIED)
        failures = []
        for draft in drafts:
            try:
                self._write(draft, last_offsets.get(draft.partition.number))
            except Exception as error:
                # The log has it, the state does not: the partition stops and a restart replays it.
                failures.append((draft.partition, error))
        self._on_step(Step.WRITTEN)
        return failures

    def _transact(self, drafts: Sequence[Draft], membership: object) -> dict[int, int]:
        """Step 2. Gives the offset of the last event of each partition."""
        last_offsets: dict[int, int] = {}

        def on_last(record: Outgoing, offset: int) -> None:
            if record.topic == self._topics.events:
                last_offsets[record.partition] = offset

        started_ms = self._monotonic_ms()
        outcome = "unknown"
        try:
            writer = self._writer or self._renew()
            try:
                writer.begin()
                self._on_step(Step.BEGUN)
                for draft in drafts:
                    writer.send(draft.records, on_last)
                self._on_step(Step.SENT)
                # For every partition in it, both topics, even if only a timer caused it: without them the
                # group does not fence (§5.1).
                writer.send_offsets(self._offsets(drafts), membership)
                self._on_step(Step.OFFSETS_SENT)
                writer.commit()
                outcome = "committed"
            except LogAborted:
                writer.abort()
                outcome = "aborted"
                raise
        except Exception as error:
            if outcome == "aborted":
                raise
            # Fatal, out of time, or nothing that the log is known to say: all the same (§5.6).
            raise self._broken(error) from error
        finally:
            self._telemetry.transaction(outcome, (self._monotonic_ms() - started_ms) / 1000)
        return last_offsets

    def _offsets(self, drafts: Sequence[Draft]) -> dict[TopicPartition, int]:
        offsets: dict[TopicPartition, int] = {}
        for draft in drafts:
            number = draft.partition.number
            offsets[TopicPartition(self._topics.commands, number)] = draft.positions.commands
            offsets[TopicPartition(self._topics.work, number)] = draft.positions.work
        return offsets

    def _broken(self, error: Exception) -> LogFatal:
        """After a time-out the writer is gone: a late answer could hit its next transaction (§5.6)."""
        self.discard()
        return LogFatal(str(error))

    def discard(self) -> None:
        """Throws the writer away."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()

    def _renew(self) -> TransactionalWriter:
        """Ends what the former writer left open, one way or the other."""
        self._writer = self._log.transactional_writer(self._id)
        return self._writer

    def renew(self) -> None:
        """To be called before the log is asked what became of an unknown transaction."""
        if self._writer is None:
            self._renew()

    def deliver(self, draft: Draft, last_offset: int) -> None:
        """Step 3: replies and alerts, once the commit is known good."""
        self._telemetry.committed(draft.events)
        self._observe_lateness(draft)
        self.answer(
            [effect for effect in draft.effects if isinstance(effect, Answer)],
            draft.partition.number,
            last_offset,
        )
        for effect in draft.effects:
            if isinstance(effect, Alert):
                where: dict[str, object] = {"partition": draft.partition.number, "offset": last_offset}
                if effect.tenant:
                    where["tenant"] = effect.tenant
                self._telemetry.alert(effect.kind, effect.detail, **where)

    def _observe_lateness(self, draft: Draft) -> None:
        """Of the earliest only: the others of the transaction are no later, and decoding costs."""
        value = next((event.value for event in draft.events if event.type == FIRED), None)
        event = self._codec.decode(value) if value else None
        if isinstance(event, ExecutionFired):
            late_ms = self._clock.now_ms() - event.execution.due_ms
            self._telemetry.lateness.observe(max(0, late_ms) / 1000)

    def answer(self, answers: Iterable[Answer], number: int, last_offset: int) -> None:
        """`last_offset`: the event that a read must have seen to include the change. All are encoded before
        the first is sent: what comes at once goes out in few requests."""
        replies = self._topics.replies
        records = [
            Outgoing(replies, answer.reply_partition, None, value)
            for answer in answers
            if (value := self._reply(answer.reply, number, last_offset)) is not None
        ]
        for record in records:
            try:
                self._send_plainly(record)
            except LogError as error:
                self._not_sent(error, number, last_offset)

    def _reply(self, reply: Reply, number: int, last_offset: int) -> bytes | None:
        if isinstance(reply, (CommandDone, WorkDone)):
            reply = msgspec.structs.replace(reply, offset=last_offset)
        try:
            return self._codec.encode(reply)
        except ValueError as error:
            self._not_sent(error, number, last_offset)
            return None

    def _not_sent(self, error: Exception, number: int, last_offset: int) -> None:
        """A lost reply is repeated by its asker; a partition must not stop for it."""
        self._telemetry.warning(f"reply not sent: {error}", partition=number, offset=last_offset)

    def _write(self, draft: Draft, last_offset: int | None) -> None:
        """Step 4: state, indexes and the mark in one batch."""
        partition = draft.partition
        if partition.engine is None or partition.store is None:
            raise LogFatal(f"partition {partition.number} was closed under its own commit")
        batch = partition.engine.commit()
        partition.mark = mark_after(partition.mark, draft, last_offset)
        write_marked(partition.store, batch, partition.mark)
        partition.engine.written()
        partition.positions = partition.committed = draft.positions
        partition.behind_since_ms = None

    def settle_quietly(self, draft: Draft) -> None:
        """For a draft that says nothing: no transaction; its positions go out with the next one."""
        partition = draft.partition
        if partition.engine is None or partition.store is None:
            return
        batch = partition.engine.commit()
        if batch:
            write_marked(partition.store, batch, partition.mark)
        partition.engine.written()
        if draft.positions != partition.positions:
            partition.positions = draft.positions
            if partition.behind_since_ms is None:
                partition.behind_since_ms = self._monotonic_ms()

    def publish(self, record: Outgoing, done: Done | None = None) -> None:
        """A record outside of any transaction (status, clock); losing it is no harm."""
        try:
            self._send_plainly(record, done)
        except LogError as error:
            self._telemetry.warning(f"not published: {error}", topic=record.topic)

    def _send_plainly(self, record: Outgoing, done: Done | None = None) -> None:
        try:
            self._plain.send(record, done)
        except LogFatal:
            # An idempotent writer that lost its place never recovers.
            self._plain.close()
            self._plain = self._log.plain_writer()
            self._plain.send(record, done)

    def close(self, flush_sec: float) -> None:
        self.discard()
        self._plain.flush(flush_sec)
        self._plain.close()


def mark_after(mark: Mark, draft: Draft, last_offset: int | None) -> Mark:
    """The store's mark once the draft is applied."""
    if last_offset is None or not draft.events:
        return msgspec.structs.replace(mark, positions=draft.positions)
    last = draft.events[-1]
    return msgspec.structs.replace(
        mark,
        complete_ms=draft.now_ms,
        last_offset=last_offset,
        last_crc=fingerprint(last.key.encode(), last.value),
        last_event_ms=draft.now_ms,
        positions=draft.positions,
    )
