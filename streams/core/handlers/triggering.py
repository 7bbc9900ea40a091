"""TriggerJob, BackfillJob and ReplayDeadLetter: executions that a person asks for."""

from __future__ import annotations

from msgspec.structs import replace

from schemas import ids
from schemas.commands import BackfillJob, ReplayDeadLetter, TriggerJob
from schemas.entities import (
    Content,
    Cursor,
    Execution,
    ExecutionKind,
    ExecutionStatus,
    Job,
    KeptContent,
    LeaseEnd,
    WaitingFor,
)
from schemas.events import ContentKept, CursorMoved, DeadLetterReplayed
from schemas.replies import FieldProblem
from streams.core.handlers.answering import with_answer
from streams.core.handlers.discarding import is_discarded
from streams.core.handlers.ending import content_of
from streams.core.handlers.firing import Origin, fire, fire_skipped, scheduled
from streams.core.handlers.following import overlap, wait_in_line
from streams.core.handlers.gating import place
from streams.core.handlers.outcome import Done
from streams.core.handlers.registration import canonical
from streams.core.handlers.scheduling import settle
from streams.core.lifecycle import JOB_FINAL
from streams.core.planning import plan, seed_of
from streams.core.refusals import JOB_FINISHED, KEY_REUSED, NOT_DEAD_LETTERED, Refusal, invalid, not_found
from streams.core.schedule import next_occurrence
from streams.core.transaction import Transaction

_NOT_RUN = (ExecutionStatus.SKIPPED, ExecutionStatus.CANCELLED)


def trigger_job(tx: Transaction, command: TriggerJob) -> Done | Refusal:
    """A manual execution now, also of a paused job; the cursor stays."""
    job = tx.state.job(command.tenant, command.job_id)
    if job is None:
        return not_found("job")
    cursor = settle(tx, job)
    key = command.request_key or command.command_id
    earlier = tx.state.triggered(job, ids.manual_kind(job.job_id, key))
    if earlier is not None:
        if not _is_same(tx, job, earlier, command):
            return KEY_REUSED
        return Done(202, execution=earlier, replayed=True)
    if cursor.status in JOB_FINAL:
        return JOB_FINISHED
    execution_id = ids.manual_execution_id(job.job_id, job.incarnation, tx.now_ms, key)
    origin = Origin(execution_id=execution_id, kind=ExecutionKind.MANUAL)
    waiting = overlap(tx, job, command.overlap)
    if waiting is None:
        return Done(202, execution=fire_skipped(tx, job, origin, tx.now_ms))
    if command.payload is not None:
        content = replace(job.content, payload=command.payload, content_type=command.content_type)
        kept = KeptContent(
            tenant=job.tenant, execution_id=origin.execution_id, content=content, policies=job.policies
        )
        tx.emit(ContentKept, kept=kept)
    return Done(202, execution=fire(tx, job, origin, tx.now_ms, waiting))


def backfill_job(tx: Transaction, command: BackfillJob) -> Done | Refusal:
    """Executions for occurrences of the past, in order. What ran is not run again unless asked for, as far as
    the engine remembers; older runs are left out by the caller, who sees the read model."""
    job = tx.state.job(command.tenant, command.job_id)
    if job is None:
        return not_found("job")
    cursor = settle(tx, job)
    if cursor.status in JOB_FINAL:
        return JOB_FINISHED
    if _is_other_backfill(cursor, command):
        return KEY_REUSED
    if _was_of_earlier_making(job, cursor, command):
        return Done(202, job, cursor, replayed=True, count=len(command.scheduled_ms))
    past = plan(job.schedule, seed_of(job), past=True)
    for at, scheduled_ms in enumerate(command.scheduled_ms):
        found = next_occurrence(past, scheduled_ms - 1)
        if found is None or found.utc_ms != scheduled_ms or scheduled_ms > tx.now_ms:
            return invalid(FieldProblem(field=f"scheduledMs.{at}", detail="is no past occurrence of the job"))
    if not _is_known(cursor, command):
        known = with_answer(replace(cursor, skips=()), command, command.backfill_id, 202, job.version)
        cursor = tx.emit_cursor(CursorMoved, cursor, known)
    made = 0
    for scheduled_ms in command.scheduled_ms:
        ran = tx.state.execution(job.tenant, scheduled(job, scheduled_ms).execution_id)
        origin = Origin(
            execution_id=ids.backfill_execution_id(
                job.job_id, job.incarnation, scheduled_ms, command.backfill_id
            ),
            kind=ExecutionKind.BACKFILL,
            priority=command.priority,
            backfill=command.backfill_id,
        )
        if ran is not None and ran.status not in _NOT_RUN and not command.rerun:
            continue
        if tx.state.execution(job.tenant, origin.execution_id) is None:
            waiting = wait_in_line(tx, job, command.overlap)
            if waiting is None:
                fire_skipped(tx, job, origin, scheduled_ms)
            else:
                fire(tx, job, origin, scheduled_ms, waiting)
        made += 1
    return Done(202, job, cursor, count=made)


def _is_other_backfill(cursor: Cursor, command: BackfillJob) -> bool:
    """Whether the key came with another window before: an id says what is meant, a key who means it."""
    return any(
        answered.request_key == command.request_key and answered.body_hash != command.backfill_id
        for answered in cursor.answered
    )


def _is_known(cursor: Cursor, command: BackfillJob) -> bool:
    """Whether the key need not be remembered: there is none, or an earlier part of this backfill came."""
    keys = {answered.request_key for answered in cursor.answered}
    return not command.request_key or command.request_key in keys


def _was_of_earlier_making(job: Job, cursor: Cursor, command: BackfillJob) -> bool:
    """Whether the backfill was asked for before the job was made anew: it is not for the new one."""
    return any(
        answered.request_key == command.request_key and answered.version < job.first_version
        for answered in cursor.answered
    )


def replay_dead_letter(tx: Transaction, command: ReplayDeadLetter) -> Done | Refusal:
    """Same id and key, unless the payload is corrected; the epoch goes on, attempts start at 1.

    It waits while another execution of its job is open, outside the queue limit.
    """
    execution = tx.state.execution(command.tenant, command.execution_id)
    if execution is None:
        return not_found("dead letter")
    if is_discarded(execution):
        return NOT_DEAD_LETTERED
    request = command.request_key or command.command_id
    if execution.replay_key == request:
        sent = content_of(tx, execution)[0]
        return Done(202, execution=execution, replayed=True) if _is_payload(sent, command) else KEY_REUSED
    if execution.status is not ExecutionStatus.FAILED:
        return NOT_DEAD_LETTERED
    replays = execution.replays + 1
    key = execution.idempotency_key
    if command.payload is not None:
        content, policies = content_of(tx, execution)
        corrected = replace(content, payload=command.payload, content_type=command.content_type)
        kept = KeptContent(
            tenant=execution.tenant,
            execution_id=execution.execution_id,
            content=corrected,
            policies=policies,
        )
        tx.emit(ContentKept, kept=kept)
        original = key.rpartition(":r")[0] or execution.execution_id
        key = f"{original}:r{replays}"
    anew = _anew(execution, tx.now_ms, key, replays, request)
    busy = tx.state.has_open(execution.tenant, execution.job_id)
    anew = replace(anew, waiting_for=WaitingFor.OVERLAP if busy else place(tx, anew))
    replayed = tx.emit_execution(DeadLetterReplayed, anew)
    tx.want_work(replayed)
    return Done(202, execution=replayed)


def _is_same(tx: Transaction, job: Job, earlier: Execution, command: TriggerJob) -> bool:
    """Whether a trigger with a key that was used means the payload sent with it, as far as that is known."""
    if earlier.replays or earlier.status is ExecutionStatus.SKIPPED:
        return True
    kept = tx.state.kept_content(earlier)
    if kept is None:
        return command.payload is None
    if command.payload is not None:
        return _is_payload(kept.content, command)
    if earlier.status is not ExecutionStatus.FAILED:
        return False
    # A dead letter has a copy of what its job gave.
    given = (job.content.content_type, canonical(job.content))
    return job.version != earlier.job_version or given == (kept.content.content_type, canonical(kept.content))


def _is_payload(sent: Content, command: TriggerJob | ReplayDeadLetter) -> bool:
    if command.payload is None:
        return True
    asked = replace(sent, payload=command.payload, content_type=command.content_type)
    return canonical(asked) == canonical(sent) and asked.content_type == sent.content_type


def _anew(execution: Execution, now_ms: int, key: str, replays: int, request: str) -> Execution:
    return replace(
        execution,
        status=ExecutionStatus.PENDING,
        due_ms=now_ms,
        attempt=1,
        delivery_count=0,
        lease_end=LeaseEnd.NONE,
        finished_ms=0,
        cancel_requested_ms=0,
        reason="",
        idempotency_key=key,
        replays=replays,
        replay_key=request,
    )
