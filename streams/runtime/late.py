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
from streams.transport.log import Isolation, Log, LogError, Record, TopicPartition

LATE_MS = 60_000
"""Nobody waits longer for an answer."""
LATE_EVENTS = 4_000
"""More than a dead process can have left unanswered: its last transactions."""
SPAN_RECORDS = 20_000
"""How far apart the commands may lie that are read again; only the newest are."""
READS_MAX = 100
READ_SEC = 0.05

_CAUSE = re.compile(r"(commands|work)@(\d+)#(.*)", re.DOTALL)
_ACCEPTED: dict[type, tuple[type[Event], ...]] = {
    Completion: (ExecutionCompleted,),
    Failure: (AttemptFailed, ExecutionDeadLettered),
    Handback: (ExecutionReleased,),
}


class LateReplies:
    """Used by one thread, when a partition goes live with events that another may not have answered."""

    def __init__(
        self, log: Log, topics: Topics, codec: Codec, answer: Callable[[Answer, int, int], None]
    ) -> None:
        self._log = log
        self._topics = topics
        self._codec = codec
        self._answer = answer

    def send(self, partition: int, events: Sequence[Event], last_offset: int) -> int:
        """Answers the commands that caused these events; gives how many."""
        by_command: dict[tuple[str, int], list[Event]] = {}
        for event in events:
            cause = _CAUSE.fullmatch(event.cause)
            if cause is not None:
                by_command.setdefault((cause[1], int(cause[2])), []).append(event)
        sent = 0
        for name, topic in (("commands", self._topics.commands), ("work", self._topics.work)):
            offsets = {offset for short, offset in by_command if short == name}
            for record in self._read(TopicPartition(topic, partition), offsets):
                answer = self._reply(record, by_command[name, record.offset], partition)
                if answer is not None:
                    self._answer(answer, partition, last_offset)
                    sent += 1
        return sent

    def _read(self, tp: TopicPartition, offsets: set[int]) -> Iterable[Record]:
        if not offsets:
            return
        try:
            position = max(min(offsets), max(offsets) - SPAN_RECORDS, self._log.start_offset(tp))
            reader = self._log.reader(Isolation.COMMITTED)
        except LogError:
            return
        try:
            reader.assign({tp: position})
            for _ in range(READS_MAX):
                if reader.position(tp) > max(offsets):
                    return
                yield from (each for each in reader.poll(1_000, READ_SEC) if each.offset in offsets)
        except LogError:
            return
        finally:
            reader.close()

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
