"""What callers were told is in the log: an answer says done only for what the log holds, by then."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from schemas.commands import Beat, Completion, Failure, Handback, LeaseRef, RegisterJob, TriggerJob
from schemas.entities import Cursor, Execution, JobStatus
from schemas.events import (
    AttemptFailed,
    CursorEvent,
    Event,
    ExecutionClaimed,
    ExecutionCompleted,
    ExecutionDeadLettered,
    ExecutionEvent,
    ExecutionReleased,
    JobEvent,
    LeaseExtended,
)
from schemas.replies import CommandDone, ItemResult, WorkDone
from tests.simulation.history import Happened
from tests.simulation.journal import Answer, Journal

_ACCEPTED: dict[type[LeaseRef], tuple[type[Event], ...]] = {
    Completion: (ExecutionCompleted,),
    Failure: (AttemptFailed, ExecutionDeadLettered),
    Handback: (ExecutionReleased,),
}


class Record:
    """The log as answers are looked up in it: what, and since when."""

    def __init__(self, parts: Sequence[Sequence[Happened]]) -> None:
        self.grants: dict[tuple[str, str, int], tuple[str, int]] = {}
        self.outcomes: dict[tuple[type[Event], str, str, str, int], int] = {}
        self.beats: dict[tuple[str, str, int, int], int] = {}
        self.cursors: dict[tuple[str, str, int, JobStatus], int] = {}
        self.jobs: dict[tuple[str, str, int], int] = {}
        self.stamps: list[dict[int, int]] = []
        self.executions: set[Execution] = set()
        for part in parts:
            self.stamps.append({each.offset: each.stamped_ms for each in part})
            for happened in part:
                if happened.event is not None:
                    self._take(happened.event, happened.stamped_ms)

    def _take(self, event: Event, at_ms: int) -> None:
        match event:
            case ExecutionEvent():
                execution = event.execution
                of = (execution.tenant, execution.execution_id)
                self.executions.add(execution)
                if isinstance(event, ExecutionClaimed):
                    self.grants[(*of, execution.lease_epoch)] = (execution.worker_id, at_ms)
                outcome = (type(event), *of, execution.worker_id, execution.lease_epoch)
                self.outcomes.setdefault(outcome, at_ms)
            case LeaseExtended():
                lease = event.lease
                beat = (lease.tenant, lease.execution_id, lease.lease_epoch, lease.until_ms)
                self.beats.setdefault(beat, at_ms)
            case JobEvent():
                job = event.job
                self.jobs.setdefault((job.tenant, job.job_id, job.version), at_ms)
            case CursorEvent():
                cursor = event.cursor
                self.cursors.setdefault(_of_cursor(cursor), at_ms)
            case _:
                pass


def _of_cursor(cursor: Cursor) -> tuple[str, str, int, JobStatus]:
    return (cursor.tenant, cursor.job_id, cursor.incarnation, cursor.status)


def check_replies(parts: Sequence[Sequence[Happened]], journal: Journal) -> Iterator[str]:
    """Answers and grants of the whole run."""
    record = Record(parts)
    for answer in journal.answers:
        for wrong in _check_answer(record, answer):
            yield f"{answer.reply.command_id} ({type(answer.command).__name__}): {wrong}"
    yield from _check_repeats(journal)
    yield from _check_grants(record, journal)


def _check_grants(record: Record, journal: Journal) -> Iterator[str]:
    """A grant is in the log before anybody hears of it, and goes to one worker."""
    workers: dict[tuple[str, str, int], str] = {}
    for granting in journal.grants:
        execution = granting.execution
        grant = (execution.tenant, execution.execution_id, execution.lease_epoch)
        worker_id, since_ms = record.grants.get(grant, ("", granting.at_ms + 1))
        if worker_id != execution.worker_id or since_ms > granting.at_ms:
            yield f"{grant} was granted to {execution.worker_id}; the log says {worker_id or 'nobody'}"
        if workers.setdefault(grant, execution.worker_id) != execution.worker_id:
            yield f"{grant} was granted to {execution.worker_id} and to {workers[grant]}"


def _check_answer(record: Record, answer: Answer) -> Iterator[str]:
    reply = answer.reply
    if reply.offset >= 0 and record.stamps[reply.partition].get(reply.offset, answer.at_ms) > answer.at_ms:
        yield f"answered before the event at {reply.offset} was written"
    match reply:
        case WorkDone():
            items: Sequence[LeaseRef] = answer.command.items  # type: ignore[union-attr]
            for item, result in zip(items, reply.results, strict=True):
                if not result.code and not _is_held(record, answer, item, result):
                    yield f"{type(item).__name__} of {item.execution_id} at {item.lease_epoch} was accepted"
        case CommandDone() if not reply.code:
            yield from _check_done(record, answer.at_ms, reply)
        case _:
            pass


def _is_held(record: Record, answer: Answer, item: LeaseRef, result: ItemResult) -> bool:
    """Whether the log has what an accepted word makes."""
    tenant = answer.command.tenant
    if isinstance(item, Beat):
        beat = (tenant, item.execution_id, item.lease_epoch, result.extend_until_ms)
        return record.beats.get(beat, answer.at_ms + 1) <= answer.at_ms
    of = (tenant, item.execution_id, item.worker_id, item.lease_epoch)
    since = [record.outcomes.get((kind, *of), answer.at_ms + 1) for kind in _ACCEPTED[type(item)]]
    return min(since) <= answer.at_ms


def _check_done(record: Record, at_ms: int, reply: CommandDone) -> Iterator[str]:
    never = at_ms + 1
    if reply.job is not None:
        job = reply.job
        if record.jobs.get((job.tenant, job.job_id, job.version), never) > at_ms:
            yield f"done, but the log has no version {job.version} of {job.job_id}"
    cursor = reply.cursor
    if cursor is not None and cursor.status is not JobStatus.ACTIVE:
        since_ms = record.cursors.get(_of_cursor(cursor), never)
        if since_ms > at_ms:
            yield f"done, but {cursor.job_id} was never {cursor.status}"
    if reply.execution is not None and reply.execution not in record.executions:
        yield f"done, but the log has no such {reply.execution.execution_id}"


def _check_repeats(journal: Journal) -> Iterator[str]:
    """What is repeated under its key is answered by the same job or execution. Jobs registered under
    several keys are left aside: one that is made anew remembers its own registration alone."""
    keys: dict[tuple[str, str], set[str]] = defaultdict(set)
    made: dict[tuple[str, str, str, str], set[object]] = defaultdict(set)
    for answer in journal.answers:
        command, reply = answer.command, answer.reply
        if isinstance(reply, WorkDone) or reply.code:
            continue
        match command:
            case RegisterJob() if reply.job is not None:
                job = (reply.job.incarnation, reply.job.first_version)
                keys[command.tenant, command.job_id].add(command.request_key)
                made["registration", command.tenant, command.job_id, command.request_key].add(job)
            case TriggerJob() if reply.execution is not None:
                execution_id = reply.execution.execution_id
                made["trigger", command.tenant, command.job_id, command.request_key].add(execution_id)
            case _:
                pass
    for (what, tenant, job_id, key), results in made.items():
        if len(results) > 1 and len(keys[tenant, job_id]) == 1:
            yield f"{tenant}/{job_id}: one {what} under {key}, and more than one result: {results}"
