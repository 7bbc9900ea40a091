"""Breaks of the runtime: transactions, ownership, recovery, time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from schemas.topics import HEADER_POSITION
from streams.ambient import UNTRUSTED_MS, Clock
from streams.core.engine import Engine
from streams.core.state import State
from streams.runtime import checkpoint
from streams.runtime.checkpoint import Checkpoint, Draft, Failure, Step
from streams.runtime.deciding import Turn
from streams.runtime.inquiries import Inquiries, Standing
from streams.runtime.mark import Mark, Positions, write_marked
from streams.runtime.ownership import Ownership
from streams.runtime.partition import Settlement
from streams.runtime.recovery import Recovery
from streams.runtime.snapshots import Library, Manifest
from streams.runtime.tail import Tail
from streams.runtime.turns import Turns
from streams.store.kv import Batch
from streams.transport.log import Isolation, TopicPartition
from streams.transport.memory import MemoryTransactionalWriter
from tests.simulation.mutants.mutation import Mutation, change


def _offsets_not_sent() -> None:
    def make(original: Any) -> Any:
        return lambda self, offsets, membership: None

    change(MemoryTransactionalWriter, "send_offsets", make)


def _replies_before_commit() -> None:
    def make(original: Any) -> Any:
        def commit(self: Checkpoint, drafts: Sequence[Draft], membership: object) -> Any:
            for draft in drafts:
                self.deliver(draft, draft.partition.mark.last_offset)
            return original(self, drafts, membership)

        return commit

    change(Checkpoint, "commit", make)


def _overlay_before_commit() -> None:
    def make(original: Any) -> Any:
        def commit(self: Checkpoint, drafts: Sequence[Draft], membership: object) -> list[Failure]:
            self._on_step(Step.DECIDED)
            for draft in drafts:
                partition = draft.partition
                if partition.engine is not None and partition.store is not None:
                    write_marked(partition.store, partition.engine.commit(), partition.mark)
                    partition.engine.written()
            last_offsets = self._transact(drafts, membership)
            self._on_step(Step.COMMITTED)
            for draft in drafts:
                number = draft.partition.number
                self.deliver(draft, last_offsets.get(number, draft.partition.mark.last_offset))
                self._write(draft, last_offsets.get(number))
            return []

        return commit

    change(Checkpoint, "commit", make)


def _positions_not_carried() -> None:
    def make(original: Any) -> Any:
        def events(self: Checkpoint, *args: Any) -> Any:
            records = original(self, *args)
            for record in records:
                record.headers.pop(HEADER_POSITION, None)
            return records

        return events

    change(Checkpoint, "_events", make)


def _work_positions_lost() -> None:
    def make(original: Any) -> Any:
        def furthest(self: Positions, other: Positions) -> Positions:
            return original(self, other)._replace(work=-1)  # type: ignore[no-any-return]

        return furthest

    change(Positions, "furthest", make)


def _batch_loses_a_key() -> None:
    def make(original: Any) -> Any:
        def write(store: Any, batch: Batch, mark: Mark) -> None:
            if len(batch.puts) > 1:
                batch.puts.popitem()
            original(store, batch, mark)

        return write

    change(checkpoint, "write_marked", make)


def _mark_ahead() -> None:
    """The store says that it holds an event more than it does, and nobody checks which."""

    def make(original: Any) -> Any:
        def mark_after(mark: Mark, draft: Draft, last_offset: int | None) -> Mark:
            ahead = last_offset + 2 if last_offset is not None else None
            return original(mark, draft, ahead)  # type: ignore[no-any-return]

        return mark_after

    change(checkpoint, "mark_after", make)
    change(Recovery, "_without_checked", lambda original: lambda self, mark, records: records[1:])


def _unknown_is_aborted() -> None:
    def make(original: Any) -> Any:
        def doubt(self: Turns, drafts: Sequence[Draft], error: Any) -> None:
            for draft in drafts:
                if draft.partition.engine is not None:
                    draft.partition.engine.abort()

        return doubt

    change(Turns, "_doubt", make)


def _unknown_is_committed() -> None:
    def make(original: Any) -> Any:
        def doubt(self: Turns, drafts: Sequence[Draft], error: Any) -> None:
            for draft in drafts:
                self._checkpoint._write(draft, None)

        return doubt

    change(Turns, "_doubt", make)


def _lost_is_kept() -> None:
    def make(original: Any) -> Any:
        def lost(self: Ownership, partitions: Sequence[int]) -> None:
            return None

        return lost

    change(Ownership, "lost", make)
    change(Ownership, "revoked", make)


def _settlement_ignored() -> None:
    def make(original: Any) -> Any:
        def fire(self: Engine, settled_ms: int, limit: int) -> Any:
            return original(self, self._open().now_ms, limit)

        return fire

    change(Engine, "fire", make)


def _clock_follows_the_wall() -> None:
    def make(original: Any) -> Any:
        return lambda self: self._wall()

    change(Clock, "now_ms", make)


def _clock_ahead_is_trusted() -> None:
    """As if brokers were never asked: what is read shows only that a clock is behind."""

    def make(original: Any) -> Any:
        return lambda self: self.offset_from_brokers_ms() >= -UNTRUSTED_MS

    change(Clock, "trustworthy", make)


def _clock_starts_anywhere() -> None:
    change(Clock, "floor", lambda original: lambda self, ms: True)


def _digests_not_checked() -> None:
    """A snapshot's file is believed to be what its manifest says."""

    def make(original: Any) -> Any:
        return lambda self, path, file, got: self._objects.get(path)

    change(Library, "_checked", make)


def _foreign_snapshot() -> None:
    """Nobody asks whose a snapshot is, nor whether its last event is the log's."""

    def make(original: Any) -> Any:
        def why_unusable(self: Manifest, namespace: str, partition: int, *log: Any) -> str:
            return original(self, self.namespace, self.partition, *log)  # type: ignore[no-any-return]

        return why_unusable

    change(Manifest, "why_unusable", make)
    change(Recovery, "_without_checked", lambda original: lambda self, mark, records: records[1:])


def _tombstone_missed() -> None:
    def make(original: Any) -> Any:
        return lambda self, records: original(self, [each for each in records if each.value is not None])

    change(Tail, "read", make)


def _tail_keeps_the_oldest() -> None:
    def make(original: Any) -> Any:
        def read(self: Tail, records: Any) -> None:
            for record in records:
                if record.key not in self._newest:
                    original(self, [record])

        return read

    change(Tail, "read", make)


def _settlement_end_is_stale() -> None:
    """What `work` held is asked once, and taken for what it holds whenever a lease is about to end."""
    ends: dict[Settlement, int] = {}

    def make(original: Any) -> Any:
        def ask(self: Settlement, now_ms: int, end_offset: Any) -> None:
            original(self, now_ms, lambda: ends.setdefault(self, end_offset()))

        return ask

    change(Settlement, "ask", make)


def _replay_to_the_stable_end() -> None:
    def make(original: Any) -> Any:
        def standing(self: Inquiries, number: int) -> Standing:
            found: Standing = original(self, number)
            events = TopicPartition(self._topics.events, number)
            stable = self._log.end_offset(events, Isolation.COMMITTED)
            return replace(found, target=min(found.target, stable))

        return standing

    change(Inquiries, "_standing", make)


def _own_transaction_left_open() -> None:
    change(Checkpoint, "renew", lambda original: lambda self: None)


def _refused_batch_forgotten() -> None:
    change(Turn, "give_back", lambda original: lambda self: self.engine.abort())


def _cache_survives_an_abort() -> None:
    change(State, "forget_decoded", lambda original: lambda self: None)


OF_RUNTIME = (
    Mutation("offsets not sent", "transactions are not fenced by the group", _offsets_not_sent),
    Mutation("replies before commit", "callers hear of what may not come true", _replies_before_commit),
    Mutation("overlay before commit", "the store is written before the log", _overlay_before_commit),
    Mutation("positions not carried", "events do not say what they followed from", _positions_not_carried),
    Mutation("work positions lost", "a take-over decides all of work again", _work_positions_lost),
    Mutation("batch loses a key", "the store misses a change of a transaction", _batch_loses_a_key),
    Mutation("mark ahead of the log", "a restart leaves events out", _mark_ahead),
    Mutation("unknown taken for aborted", "no look at the log after an unknown commit", _unknown_is_aborted),
    Mutation("unknown taken for committed", "likewise, the other way", _unknown_is_committed),
    Mutation("lost partition kept", "an owner goes on with what is another's", _lost_is_kept),
    Mutation("settlement ignored", "log lag is taken for death", _settlement_ignored),
    Mutation("clock follows the wall", "time steps and goes back", _clock_follows_the_wall),
    Mutation("clock ahead trusted", "who starts with a clock ahead fires early", _clock_ahead_is_trusted),
    Mutation("clock starts anywhere", "a new owner's time is before its last event", _clock_starts_anywhere),
    Mutation("digests not checked", "a damaged snapshot is begun with", _digests_not_checked),
    Mutation("foreign snapshot", "a take-over begins with another partition's state", _foreign_snapshot),
    Mutation("tombstone missed", "replay keeps what was forgotten", _tombstone_missed),
    Mutation("tail keeps the oldest", "replay misses the newest event of a key", _tail_keeps_the_oldest),
    Mutation(
        "settlement end stale", "a lease ends before a word that came late was read", _settlement_end_is_stale
    ),
    Mutation(
        "replay to the stable end",
        "a new owner misses what is committed and unmarked",
        _replay_to_the_stable_end,
    ),
    Mutation(
        "own transaction left", "who is in doubt waits for its own transaction", _own_transaction_left_open
    ),
    Mutation(
        "refused batch forgotten", "what was decided in vain is not decided again", _refused_batch_forgotten
    ),
    Mutation("cache survives an abort", "decisions see what never happened", _cache_survives_an_abort),
)
