"""What a take-over has to learn from the log, asked beside the loop.

Offsets are stable only once no transaction on them is open (architecture §5.3), and a dead predecessor's may
stay open for as long as its time-out. Partitions that run must not wait for that: one thread asks for the
taken partitions, one after the other, so that each goes on as soon as its own offsets are stable; another
ends meanwhile what a dead predecessor left open; a third looks for partitions that stood still.

Owns the questions and their answers. May not know stores or replays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from schemas.topics import Topics
from streams.runtime.background import Background, Task, Work, once
from streams.runtime.mark import Positions
from streams.runtime.partition import Ambient
from streams.runtime.predecessor import Predecessors
from streams.runtime.telemetry import Telemetry
from streams.transport.log import Isolation, Log, TopicPartition


class Span(NamedTuple):
    """What a partition of a topic holds: its first offset, and the next to be written."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a partition stood once its offsets were stable."""

    committed: Positions
    target: int
    """The read-uncommitted end of its events, seen after that."""
    tenants_end: int
    commands: Span
    work: Span


@dataclass(slots=True, eq=False)
class Question:
    """Of one restore. `answer` is set once: LogRetriable as long as a transaction is open."""

    number: int
    answer: Standing | Exception | None = None
    wanted: bool = True


class Inquiries:
    """Used by one thread; what it starts runs beside it."""

    def __init__(
        self,
        log: Log,
        topics: Topics,
        group: str,
        predecessors: Predecessors,
        tenants_end: Callable[[], int],
        background: Background,
        ambient: Ambient,
        telemetry: Telemetry,
    ) -> None:
        self._log = log
        self._topics = topics
        self._group = group
        self._predecessors = predecessors
        self._tenants_end = tenants_end
        self._background = background
        self._clock = ambient.clock
        self._telemetry = telemetry
        self._questions: deque[Question] = deque()
        self._asking: Task[None] | None = None
        self._held_back: set[int] = set()
        self._ending: Task[None] | None = None
        self._looking: Task[dict[int, str]] | None = None
        self._stopped: dict[int, str] = {}

    def step(self) -> None:
        """Part of every turn of the loop."""
        if self._questions and (self._asking is None or self._asking.done):
            self._asking = self._background.start(self._ask_all(), _nothing)
        if self._held_back and not self._is_ending():
            numbers = sorted(self._held_back)
            self._held_back.clear()
            # The clock is the loop's: read here.
            work = self._predecessors.end_transactions(numbers, self._clock.now_ms())
            self._ending = self._background.start(work, _nothing)
        self._background.step()

    def close(self) -> None:
        """Nobody waits for an answer any more."""
        self._questions.clear()
        self._background.close()

    # -- where a partition stands

    def ask(self, number: int) -> Question:
        """To be called once the partition is ours: what its former owner can still commit is waited for."""
        question = Question(number)
        self._questions.append(question)
        return question

    def forget(self, number: int) -> None:
        """The partition is not restored any more: nothing holds it back."""
        self._held_back.discard(number)

    def _ask_all(self) -> Work[None]:
        """One in a slice. A single request for all would be answered when the last of them is stable."""
        while self._questions:
            question = self._questions.popleft()
            if not question.wanted:
                continue
            try:
                question.answer = self._standing(question.number)
            except Exception as error:  # for whoever asked: it is that partition's
                question.answer = error
            yield

    def _standing(self, number: int) -> Standing:
        """First the stable offsets, then the ends: no event of before them can be behind it (§5.3)."""
        commands = TopicPartition(self._topics.commands, number)
        work = TopicPartition(self._topics.work, number)
        events = TopicPartition(self._topics.events, number)
        found = self._log.committed(self._group, [commands, work])
        return Standing(
            Positions(found.get(commands, -1), found.get(work, -1)),
            self._log.end_offset(events, Isolation.UNCOMMITTED),
            self._tenants_end(),
            self._span(commands),
            self._span(work),
        )

    def _span(self, tp: TopicPartition) -> Span:
        return Span(self._log.start_offset(tp), self._log.end_offset(tp, Isolation.UNCOMMITTED))

    # -- positions that can be read

    def within_log(self, number: int, positions: Positions) -> Positions:
        """As `within`, asked at once."""
        commands = self._span(TopicPartition(self._topics.commands, number))
        work = self._span(TopicPartition(self._topics.work, number))
        return self.within(number, positions, commands, work)

    def within(self, number: int, positions: Positions, commands: Span, work: Span) -> Positions:
        """Positions that can be read: what retention took, or a topic made anew, is past helping."""
        return Positions(
            self._within(TopicPartition(self._topics.commands, number), positions.commands, commands),
            self._within(TopicPartition(self._topics.work, number), positions.work, work),
        )

    def _within(self, tp: TopicPartition, position: int, span: Span) -> int:
        if position < 0 or span.start <= position <= span.end:
            return max(position, span.start)
        self._telemetry.warning(
            f"{tp.topic} holds {span.start} to {span.end}, not the next position {position}: "
            f"going on at {span.start}",
            partition=tp.partition,
            offset=position,
        )
        return span.start

    # -- predecessors

    def end_predecessor(self, number: int) -> None:
        """An open transaction holds the partition back: if it is a dead one's, it is ended (§5.5)."""
        if not self._is_ending():
            self._held_back.add(number)

    def _is_ending(self) -> bool:
        """True while what holds partitions back is looked for."""
        if self._ending is None:
            return False
        if not self._ending.done:
            return True
        ending, self._ending = self._ending, None
        try:
            ending.result()
        except Exception as error:  # whatever it is: the broker ends the transaction, only later
            self._telemetry.warning(f"a predecessor's transaction cannot be ended: {error}")
        return False

    def look_for_stopped(self) -> None:
        """One look for all partitions that come together; who stopped them could not record it."""
        self._looking = self._background.start(once(self._predecessors.stopped), _nothing)

    def knows_stopped(self) -> bool:
        """Whether that look is over."""
        if self._looking is None:
            return True
        if not self._looking.done:
            return False
        looking, self._looking = self._looking, None
        try:
            self._stopped = looking.result()
        except Exception as error:  # whatever it is: only an alert depends on it
            self._telemetry.warning(f"whether partitions stood still is not known: {error}")
        return True

    def why_stopped(self, number: int) -> str | None:
        """Why the partition stood still when it was heard of last, if it did; told once."""
        return self._stopped.pop(number, None)


def _nothing() -> None:
    """What is to be undone of a question without an answer."""
