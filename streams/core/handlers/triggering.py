"""TriggerJob and ReplayDeadLetter: executions that a person asks for."""

from __future__ import annotations

from msgspec.structs import replace

from schemas import ids
from schemas.commands import ReplayDeadLetter, TriggerJob
from schemas.entities import (
    Content,
    Execution,
    ExecutionKind,
    ExecutionStatus,
    KeptContent,
    LeaseEnd,
    WaitingFor,
)
from schemas.events import ContentKept, DeadLetterReplayed, ExecutionSkipped
from streams.core.handlers.ending import content_of
from streams.core.handlers.outcome import Done
from streams.core.handlers.registration import canonical
from streams.core.handlers.scheduling import fire, new_execution, overlap, settle
from streams.core.lifecycle import JOB_FINAL
from streams.core.refusals import JOB_FINISHED, KEY_REUSED, NOT_DEAD_LETTERED, Refusal, not_found
from streams.core.transaction import Transaction


def trigger_job(tx: Transaction, command: TriggerJob) -> Done | Refusal:
    """A manual execution now, also of a paused job; it follows the overlap policy, the cursor stays."""
    job = tx.state.job(command.tenant, command.job_id)
    if job is None:
        return not_found("job")
    cursor = settle(tx, job)
    key = command.request_key or command.command_id
    execution_id = ids.manual_execution_id(job.job_id, job.incarnation, key)
    repeated = tx.state.execution(command.tenant, execution_id)
    if repeated is not None:
        if not repeated.replays and not _is_same(content_of(tx, repeated)[0], job.content, command):
            return KEY_REUSED
        return Done(202, execution=repeated, replayed=True)
    if cursor.status in JOB_FINAL:
        return JOB_FINISHED
    if command.payload is not None:
        content = replace(job.content, payload=command.payload, content_type=command.content_type)
        kept = KeptContent(
            tenant=job.tenant, execution_id=execution_id, content=content, policies=job.policies
        )
        tx.emit(ContentKept, kept=kept)
    waiting = overlap(tx, job)
    if waiting is not None:
        fired = fire(tx, job, tx.now_ms, waiting, execution_id=execution_id, kind=ExecutionKind.MANUAL)
        return Done(202, execution=fired)
    skipped = replace(
        new_execution(job, execution_id, ExecutionKind.MANUAL, tx.now_ms, tx.now_ms, tx.now_ms),
        status=ExecutionStatus.SKIPPED,
        reason="overlap",
        finished_ms=tx.now_ms,
    )
    return Done(202, execution=tx.emit_execution(ExecutionSkipped, skipped))


def replay_dead_letter(tx: Transaction, command: ReplayDeadLetter) -> Done | Refusal:
    """Same id and key, unless the payload is corrected; the epoch goes on, attempts start at 1.

    It waits while another execution of its job is open, outside the queue limit.
    """
    execution = tx.state.execution(command.tenant, command.execution_id)
    if execution is None:
        return not_found("dead letter")
    request = command.request_key or command.command_id
    if execution.replay_key == request:
        sent = content_of(tx, execution)[0]
        return Done(202, execution=execution, replayed=True) if _is_same(sent, sent, command) else KEY_REUSED
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
    busy = tx.state.has_open(execution.tenant, execution.job_id)
    replayed = tx.emit_execution(DeadLetterReplayed, _anew(execution, tx.now_ms, key, replays, request, busy))
    if not busy:
        tx.want_work(replayed)
    return Done(202, execution=replayed)


def _is_same(sent: Content, default: Content, command: TriggerJob | ReplayDeadLetter) -> bool:
    """Whether a request with a key that was used means the payload that was sent with it."""
    asked = default
    if command.payload is not None:
        asked = replace(default, payload=command.payload, content_type=command.content_type)
    return canonical(asked) == canonical(sent) and asked.content_type == sent.content_type


def _anew(execution: Execution, now_ms: int, key: str, replays: int, request: str, busy: bool) -> Execution:
    return replace(
        execution,
        status=ExecutionStatus.PENDING,
        waiting_for=WaitingFor.OVERLAP if busy else WaitingFor.WORKER,
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
