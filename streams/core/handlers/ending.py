"""How an execution, an attempt or a lease ends: shared by outcomes, cancels and expiries."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from schemas.entities import (
    Content,
    Execution,
    ExecutionStatus,
    Job,
    KeptContent,
    LeaseEnd,
    Policies,
    WaitingFor,
)
from schemas.events import (
    AttemptFailed,
    ContentKept,
    ExecutionCompleted,
    ExecutionDeadLettered,
    ExecutionEvent,
)
from schemas.replies import DeadLetter
from streams.core.effects import Bury
from streams.core.handlers.breaking import note_outcome
from streams.core.handlers.following import follow_up, unblock
from streams.core.handlers.stopping import let_go_of_version
from streams.core.invariants import InvariantError
from streams.core.limits import ERROR_CHARS_MAX
from streams.core.retry import backoff_ms
from streams.core.state import is_first
from streams.core.transaction import Transaction

REAPED = "reaped"
ATTEMPTS_SPENT = "attempts"
NOT_RETRYABLE = "not_retryable"


def content_of(tx: Transaction, execution: Execution, job: Job | None = None) -> tuple[Content, Policies]:
    """Payload and policies as fired: the execution's own, else its job's. `job`: who has read it."""
    kept = tx.state.kept_content(execution)
    if kept is not None:
        return kept.content, kept.policies
    if job is None:
        job = tx.state.job_of(execution)
    if job is not None and job.version == execution.job_version:
        return job.content, job.policies
    superseded = tx.state.superseded(execution)
    if superseded is None:
        raise InvariantError(f"{execution.execution_id} has neither its job nor a payload of its own")
    return superseded.content, superseded.policies


def end(tx: Transaction, event: type[ExecutionEvent], execution: Execution, **changes: Any) -> Execution:
    """The execution is final: its lease record goes, and the next in line of its job may run."""
    job = tx.state.job_of(execution)
    closes = event is ExecutionCompleted and job is not None and closes_job(tx, job, execution)
    ended = replace(execution, finished_ms=tx.now_ms, closes_job=closes, **changes)
    tx.emit_execution(event, ended)
    tx.forget_lease(execution)
    let_go_of_version(tx, execution, job)
    if job is None:
        unblock(tx, execution.tenant, execution.job_id)
    elif not closes:
        follow_up(tx, job, tx.state.cursor(job))
    return ended


def closes_job(tx: Transaction, job: Job, execution: Execution) -> bool:
    """Whether with the success of an execution that runs its job is completed, so that no event of the job
    need say so: a one-off that stands where this execution says, and has nothing else unfinished."""
    return is_first(job, execution) and tx.state.moved(job) is None and tx.state.is_alone(job)


def fail_attempt(
    tx: Transaction,
    execution: Execution,
    error: str,
    lease_end: LeaseEnd,
    *,
    retryable: bool = True,
    retry_after_ms: int | None = None,
) -> Execution:
    """The attempt failed: another one after a backoff, or the dead letters."""
    _, policies = content_of(tx, execution)
    cut = error[:ERROR_CHARS_MAX]
    if not retryable or execution.attempt >= policies.retry.max_attempts:
        reason = ATTEMPTS_SPENT if retryable else NOT_RETRYABLE
        failed = dead_letter(tx, execution, cut, reason, lease_end)
    else:
        failed = _retry_later(tx, execution, cut, lease_end, policies, retry_after_ms)
    if retryable:
        note_outcome(tx, execution, failed=True)
    return failed


def _retry_later(
    tx: Transaction,
    execution: Execution,
    error: str,
    lease_end: LeaseEnd,
    policies: Policies,
    retry_after_ms: int | None,
) -> Execution:
    if retry_after_ms is None:
        retry_after_ms = backoff_ms(policies.retry, execution.attempt, tx.chance())
    return tx.emit_execution(
        AttemptFailed,
        replace(
            execution,
            status=ExecutionStatus.SCHEDULED,
            waiting_for=WaitingFor.NOTHING,
            due_ms=tx.now_ms + retry_after_ms,
            attempt=execution.attempt + 1,
            delivery_count=0,
            lease_end=lease_end,
            error=error,
        ),
    )


def dead_letter(
    tx: Transaction, execution: Execution, error: str, reason: str, lease_end: LeaseEnd
) -> Execution:
    """Given up, with payload and reason; the payload is kept even if the job goes."""
    content, policies = content_of(tx, execution)
    if tx.state.kept_content(execution) is None:
        kept = KeptContent(
            tenant=execution.tenant,
            execution_id=execution.execution_id,
            content=content,
            policies=policies,
        )
        tx.emit(ContentKept, kept=kept)
    ended = end(
        tx,
        ExecutionDeadLettered,
        execution,
        status=ExecutionStatus.FAILED,
        error=error,
        reason=reason,
        lease_end=lease_end,
    )
    tx.effects.append(Bury(DeadLetter(at_ms=tx.now_ms, execution=ended, content=content)))
    kind = REAPED if reason == REAPED else "dead_letter"
    tx.alert(
        kind,
        execution.tenant,
        f"{execution.execution_id} is given up: {reason}",
        job_id=execution.job_id,
        execution_id=execution.execution_id,
        target=f"pool:{execution.pool}",
    )
    return ended
