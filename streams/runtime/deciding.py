"""One batch: which commands and timers of which partitions are decided now, on overlays.

`work` of all partitions comes before `commands` of any, so that a flood of registrations never looks like
dying workers. Records, timers and time are bounded over all partitions together, and who is first rotates.
A record that cannot be decoded goes to quarantine, and the partition goes on (STR-015); an engine that raises
stops its partition and no other.

Owns the batch until it is a list of drafts. May not know how drafts are committed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import TypeVar

from schemas.commands import Command
from schemas.replies import CommandDone
from schemas.topics import Topics
from streams.core.effects import Answer, Effect, Quarantine
from streams.core.invariants import InvariantError
from streams.core.transaction import Source
from streams.runtime.checkpoint import Checkpoint, Draft
from streams.runtime.mark import Positions
from streams.runtime.partition import Ambient, Codec, Engine, GivenUp, Partition
from streams.runtime.sharing import SHARE_MIN, timers_each
from streams.runtime.telemetry import Telemetry
from streams.transport.log import Outgoing, Record

BATCH_RECORDS = 500
"""Commands of one transaction over all partitions."""
BATCH_MS = 50
"""Deciding stops here, so that others are not kept waiting (architecture §5.6)."""
FIRE_STEP = 250
"""Timers between two looks at the clock: firing stops after `BATCH_MS`, too."""
QUARANTINE_BYTES = 64 * 1024

T = TypeVar("T")


class Part(Enum):
    """Of what a partition has to do: all, or one thing alone."""

    ALL = auto()
    WORK = auto()
    """One record of `work`."""
    COMMAND = auto()
    TIMERS = auto()
    ASIDE = auto()
    """Of one record, that it is set aside."""


@dataclass(slots=True, eq=False)
class Turn:
    """One partition's part of the batch."""

    partition: Partition
    engine: Engine
    now_ms: int
    positions: Positions
    part: Part
    taken_work: list[Record] = field(default_factory=list)
    taken_commands: list[Record] = field(default_factory=list)
    taken_alerts: list[tuple[str, str]] = field(default_factory=list)
    quarantined: list[Outgoing] = field(default_factory=list)
    effects: Sequence[Effect] = ()
    """The engine's, which grow as it decides."""
    effects_seen: int = 0
    more_due: bool = False
    cut: bool = False
    """Records were left, although it took its share."""

    def parts(self) -> list[Part]:
        """What it did, one thing at a time."""
        work, commands = len(self.taken_work), len(self.taken_commands)
        return [*[Part.WORK] * work, *[Part.COMMAND] * commands, Part.TIMERS]

    def give_back(self) -> None:
        """The transaction was refused: everything is decided again, from the same position."""
        self.partition.work.extendleft(reversed(self.taken_work))
        self.partition.commands.extendleft(reversed(self.taken_commands))
        self.partition.alerts[:0] = self.taken_alerts
        self.engine.abort()


class Decider:
    """Used by one thread."""

    def __init__(
        self,
        topics: Topics,
        partition_count: int,
        codec: Codec,
        ambient: Ambient,
        checkpoint: Checkpoint,
        telemetry: Telemetry,
        stop: Callable[[Partition, Exception], None],
    ) -> None:
        self._topics = topics
        self._partition_count = partition_count
        self._codec = codec
        self._ambient = ambient
        self._checkpoint = checkpoint
        self._telemetry = telemetry
        self._stop = stop
        self._rotation = 0

    def decide(self, partitions: Sequence[Partition], part: Part) -> list[tuple[Turn, Draft]]:
        """Decides what is there and due in these partitions, which all have something to do."""
        self._rotation += 1
        first = self._rotation % len(partitions)
        turns = [
            turn for each in (*partitions[first:], *partitions[:first]) for turn in self._begin(each, part)
        ]
        deadline_ms = self._ambient.monotonic_ms() + BATCH_MS
        left = BATCH_RECORDS if part is Part.ALL else 1
        if part in (Part.ALL, Part.WORK):
            left = self._decide_some(turns, left, deadline_ms, work=True)
        if part is Part.COMMAND or (part is Part.ALL and not any(turn.partition.work for turn in turns)):
            self._decide_some(turns, left, deadline_ms, work=False)
        light, heavy = timers_each([turn.partition for turn in turns])
        drafts = []
        deadline_ms = self._ambient.monotonic_ms() + BATCH_MS
        for turn in turns:
            due = heavy if turn.partition.heavy else light
            if part not in (Part.ALL, Part.TIMERS):
                due = 0
            draft = self._guard(turn, partial(self._finish, turn, due, deadline_ms))
            if draft is not None:
                drafts.append((turn, draft))
        return drafts

    def _begin(self, partition: Partition, part: Part) -> Iterable[Turn]:
        engine = partition.engine
        if engine is None:
            return
        now_ms = self._ambient.clock.now_ms()
        turn = Turn(partition, engine, now_ms, partition.positions, part)
        if self._guard(turn, partial(self._open, turn)) is not None:
            yield turn

    def _open(self, turn: Turn) -> Turn:
        turn.engine.begin(turn.now_ms, self._ambient.chance)
        turn.effects = turn.engine.decided().effects
        if not turn.partition.opened:
            try:
                turn.engine.open_partition(self._partition_count)
            except InvariantError as error:
                raise GivenUp(f"HORARIUM_PARTITIONS: {error}; the number of partitions is fixed") from error
        turn.taken_alerts, turn.partition.alerts = turn.partition.alerts, []
        for kind, detail in turn.taken_alerts:
            turn.engine.alert(kind, detail)
        return turn

    def _guard(self, turn: Turn, call: Callable[[], T]) -> T | None:
        """What an engine raises is a broken invariant: its partition stops, the others go on."""
        try:
            return call()
        except GivenUp:
            raise
        except Exception as error:
            turn.give_back()
            self._stop(turn.partition, error)
            return None

    def _decide_some(self, turns: list[Turn], budget: int, deadline_ms: int, *, work: bool) -> int:
        waiting = [turn for turn in turns if (turn.partition.work if work else turn.partition.commands)]
        for at, turn in enumerate(waiting):
            share = max(SHARE_MIN, budget // (len(waiting) - at))
            count = min(share, budget)
            done = self._guard(turn, partial(self._take, turn, count, deadline_ms, work))
            if done is None:
                turns.remove(turn)
            else:
                budget -= done
        return budget

    def _take(self, turn: Turn, count: int, deadline_ms: int, work: bool) -> int:
        topic = "work" if work else "commands"  # as an event's cause names it
        queue: deque[Record] = turn.partition.work if work else turn.partition.commands
        taken = turn.taken_work if work else turn.taken_commands
        outcomes: list[tuple[str, str]] = []
        done = 0
        while done < count and queue and not (done and self._ambient.monotonic_ms() >= deadline_ms):
            record = queue.popleft()
            taken.append(record)
            outcomes.append(self._decide_one(turn, topic, record))
            done += 1
        if done:
            turn.cut = turn.cut or (done == count and bool(queue))
            behind = taken[-1].offset + 1
            turn.positions = turn.positions._replace(**{topic: behind})
        for (command, outcome), times in Counter(outcomes).items():
            self._telemetry.decided(command, outcome, times)
        return done

    def _decide_one(self, turn: Turn, topic: str, record: Record) -> tuple[str, str]:
        """The command's type, and what became of it."""
        try:
            command = self._codec.decode(record.value or b"")
            if not isinstance(command, Command):
                raise ValueError(f"a {type(command).__name__} is no command")
        except ValueError as error:
            self._quarantine(turn, record, str(error))
            return "undecodable", "quarantined"
        turn.engine.decide(command, Source(topic, record.offset, record.timestamp_ms))
        return type(command).__name__, self._outcome(turn, record)

    def _outcome(self, turn: Turn, record: Record) -> str:
        """Of the command just decided; one whose handler raised is set aside as it came."""
        outcome = "accepted"
        for effect in turn.effects[turn.effects_seen :]:
            match effect:
                case Quarantine():
                    self._quarantine(turn, record, effect.reason)
                    outcome = "quarantined"
                case Answer(reply=CommandDone(code=code)) if code and outcome == "accepted":
                    outcome = code
                case _:
                    pass
        turn.effects_seen = len(turn.effects)
        return outcome

    def quarantine_unseen(self, turn: Turn, reason: str) -> Draft | None:
        """A draft that sets a turn's only record aside undecided: the log refuses what comes of it."""
        partition, part, turn.part = turn.partition, turn.part, Part.ASIDE
        if part not in (Part.WORK, Part.COMMAND):
            return None
        queue, topic = (partition.work, "work") if part is Part.WORK else (partition.commands, "commands")
        if not queue:
            return None
        record = queue.popleft()
        turn.quarantined.clear()
        self._quarantine(turn, record, reason)
        positions = partition.positions._replace(**{topic: record.offset + 1})
        return self._checkpoint.draft(partition, positions, turn.now_ms, quarantined=turn.quarantined)

    def _quarantine(self, turn: Turn, record: Record, reason: str) -> None:
        number = turn.partition.number
        value = record.value or b""
        headers = {
            "topic": record.topic.encode(),
            "partition": str(record.partition).encode(),
            "offset": str(record.offset).encode(),
            "bytes": str(len(value)).encode(),
            "reason": reason[:1_000].encode(errors="replace"),
        }
        turn.quarantined.append(
            Outgoing(self._topics.quarantine, number, record.key, value[:QUARANTINE_BYTES], headers)
        )
        self._telemetry.warning(
            f"command set aside: {reason[:1_000]}",
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
        )

    def _finish(self, turn: Turn, due: int, deadline_ms: int) -> Draft:
        partition, engine = turn.partition, turn.engine
        turn.more_due = True
        while turn.more_due and due > 0:
            turn.more_due = engine.fire(partition.settlement.settled_ms, min(due, FIRE_STEP))
            due -= FIRE_STEP
            if self._ambient.monotonic_ms() >= deadline_ms:
                break
        engine.grant()
        decided = engine.decided()
        # A list of its own: the engine's goes on with its next transaction.
        return self._checkpoint.draft(
            partition,
            turn.positions,
            turn.now_ms,
            list(decided.events),
            list(decided.effects),
            turn.quarantined,
        )
