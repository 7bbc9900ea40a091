"""Late replies: a process died between a commit and its replies, and its successor sends them again.

Only what the log itself says: the event names the command that caused it, the command (read again, never
decided again) names its asker, and the events carry the entities that the answer showed. So a job command
that changed something is answered, and a work command whose every item did. What left no event (refusals,
repeats) or no asker (grants belong to a session, and parked requests are not logged) is not; their askers
repeat, which is idempotent, and a repeated claim is told what it holds. Askers drop what comes twice.

Owns those answers. May not touch state.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from schemas.commands import (
    Beat,
    CancelExecution,
    CancelJob,
    Command,
    Complete,
    Completion,
    ExtendLease,
    Fail,
    Failure,
    Handback,
    RegisterJob,
    Release,
    ReplayDeadLetter,
    TriggerJob,
)
from schemas.entities import ExecutionKind
from schemas.events import (
    AttemptFailed,
    Event,
    ExecutionCompleted,
    ExecutionDeadLettered,
    ExecutionEvent,
    ExecutionReleased,
    JobRegistered,
    LeaseExtended,
)
from schemas.replies import CommandDone, ItemResult, WorkDone
from schemas.topics import Topics
from streams.core.effects import Answer
from streams.core.state import beginning
from streams.runtime.partition import Codec
from streams.transport.log import Isolation, Log, LogError, Reader, Record, TopicPartition

LATE_MS = 60_000
"""Nobody waits longer for an answer."""
LATE_EVENTS = 4_000
"""More than a dead process can have left unanswered: its last transactions."""
SPAN_RECORDS = 20_000
"""How far apart the commands may lie that are read again; only the newest are."""
READ_RECORDS = 1_000
PATIENCE_MS = 10_000
"""An asker's own: then it has said `outcome_unknown`."""

_CAUSE = re.compile(r"(commands|work)@(\d+)#(.*)", re.DOTALL)
_ACCEPTED: dict[type, tuple[type[Event], ...]] = {
    Completion: (ExecutionCompleted,),
    Failure: (AttemptFailed, ExecutionDeadLettered),
    Handback: (ExecutionReleased,),
}


@dataclass(slots=True)
class _Owed:
    """What a partition's predecessor may owe of one topic: its last events by the offset of their command."""

    events: dict[int, list[Event]]
    last_offset: int
    until_ms: int
    reading: bool = False


class LateReplies:
    """Used by one thread. Reads a little in each step: a log that gives nothing holds up nobody."""

    def __init__(
        self,
        log: Log,
        topics: Topics,
        codec: Codec,
        monotonic_ms: Callable[[], int],
        answer: Callable[[Iterable[Answer], int, int], None],
    ) -> None:
        self._log = log
        self._topics = topics
        self._codec = codec
        self._monotonic_ms = monotonic_ms
        self._answer = answer
        self._owed: dict[TopicPartition, _Owed] = {}
        self._reader: Reader | None = None

    def owe(self, partition: int, events: Sequence[Event], last_offset: int) -> None:
        """A partition goes live with these events, which another may not have answered."""
        until_ms = self._monotonic_ms() + PATIENCE_MS
        for event in events:
            cause = _CAUSE.fullmatch(event.cause)
            if cause is not None:
                topic = self._topics.commands if cause[1] == "commands" else self._topics.work
                owed = self._owed.setdefault(
                    TopicPartition(topic, partition), _Owed({}, last_offset, until_ms)
                )
                owed.events.setdefault(int(cause[2]), []).append(event)
        self._assign()

    def step(self) -> None:
        """Answers the commands that have come."""
        if self._reader is None:
            return
        try:
            for record in self._reader.poll(READ_RECORDS, 0):
                tp = TopicPartition(record.topic, record.partition)
                owed = self._owed.get(tp)
                events = owed.events.get(record.offset) if owed is not None else None
                answer = self._reply(record, events, tp.partition) if events else None
                if owed is not None and answer is not None:
                    self._answer([answer], tp.partition, owed.last_offset)
            done = [tp for tp, owed in self._owed.items() if self._is_through(tp, owed)]
        except LogError:
            # Retention has overtaken a command: nobody waits for what is so old.
            self.close()
            return
        for tp in done:
            del self._owed[tp]
        if done:
            self._assign()

    def forget(self, partition: int) -> None:
        """It is another's now."""
        for tp in [tp for tp in self._owed if tp.partition == partition]:
            del self._owed[tp]
        self._assign()

    def close(self) -> None:
        """Whatever is still owed is not answered; askers repeat."""
        self._owed.clear()
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _is_through(self, tp: TopicPartition, owed: _Owed) -> bool:
        if self._reader is None or self._monotonic_ms() >= owed.until_ms:
            return True
        return self._reader.position(tp) > max(owed.events)

    def _assign(self) -> None:
        if not self._owed:
            self.close()
            return
        try:
            reader = self._reader = self._reader or self._log.reader(Isolation.COMMITTED)
            reader.assign(
                {
                    tp: reader.position(tp) if owed.reading else self._first(tp, owed)
                    for tp, owed in self._owed.items()
                }
            )
        except LogError:
            self.close()
        for owed in self._owed.values():
            owed.reading = True

    def _first(self, tp: TopicPartition, owed: _Owed) -> int:
        newest = max(owed.events)
        return max(min(owed.events), newest - SPAN_RECORDS, self._log.start_offset(tp))

    def _reply(self, record: Record, events: Sequence[Event], partition: int) -> Answer | None:
        try:
            command = self._codec.decode(record.value or b"")
        except ValueError:
            return None
        if not isinstance(command, Command) or command.reply_partition < 0:
            return None
        done: CommandDone | WorkDone | None
        match command:
            case RegisterJob() | CancelJob() | CancelExecution() | TriggerJob() | ReplayDeadLetter():
                done = job_answer(command, events, partition)
            case ExtendLease() | Complete() | Fail() | Release():
                done = work_answer(command, events, partition)
            case _:
                return None
        return Answer(command.reply_partition, done) if done is not None else None


def job_answer(
    command: RegisterJob | CancelJob | CancelExecution | TriggerJob | ReplayDeadLetter,
    events: Sequence[Event],
    partition: int,
) -> CommandDone | None:
    """What the handler answered when it emitted these events."""
    answer = CommandDone(
        session=command.session, command_id=command.command_id, status=202, partition=partition
    )
    if isinstance(command, RegisterJob):
        for event in events:
            if isinstance(event, JobRegistered):
                job = event.job
                bare = replace(job, content=replace(job.content, payload=b""))
                return replace(answer, status=201, job=bare, cursor=beginning(job))
        return None
    if isinstance(command, CancelJob):
        # Its answer shows the whole job, which is in none of its events.
        return None
    executions = [event.execution for event in events if isinstance(event, ExecutionEvent)]
    if isinstance(command, TriggerJob):
        # Occurrences that were due are settled first, under the same cause.
        shown = [each for each in executions if each.kind is ExecutionKind.MANUAL]
    else:
        shown = [each for each in executions if each.execution_id == command.execution_id]
    return replace(answer, execution=shown[-1]) if shown else None


def work_answer(
    command: ExtendLease | Complete | Fail | Release, events: Sequence[Event], partition: int
) -> WorkDone | None:
    """Only if every item left its event: what was refused or repeated did not."""
    results = [_item_result(item, events) for item in command.items]
    accepted = tuple(each for each in results if each is not None)
    if len(accepted) < len(results):
        return None
    return WorkDone(
        session=command.session, command_id=command.command_id, results=accepted, partition=partition
    )


def _item_result(item: Beat | Completion | Failure | Handback, events: Sequence[Event]) -> ItemResult | None:
    for event in events:
        if isinstance(item, Beat):
            if isinstance(event, LeaseExtended) and event.lease.execution_id == item.execution_id:
                return ItemResult(status=200, extend_until_ms=event.lease.until_ms)
        elif (
            isinstance(event, ExecutionEvent)
            and isinstance(event, _ACCEPTED[type(item)])
            and event.execution.execution_id == item.execution_id
        ):
            return ItemResult(status=200)
    return None
