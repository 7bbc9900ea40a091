"""Who is next: overlap policies, kept misfires, and the end of a job (semantics §5).

An execution is *active* if it is neither final nor waiting for another one of its job; a waiting retry is
active.
"""

from __future__ import annotations

from itertools import islice

from msgspec.structs import replace

from schemas.entities import (
    Cursor,
    Execution,
    ExecutionStatus,
    Job,
    JobStatus,
    OverlapPolicy,
    WaitingFor,
)
from schemas.events import CursorMoved, ExecutionBlocked, ExecutionReady, JobCompleted
from streams.core.handlers.firing import fire, scheduled
from streams.core.handlers.gating import place
from streams.core.handlers.stopping import stop
from streams.core.limits import ALLOWED_CATCH_UP_MAX, ENTITIES_PER_COMMAND_MAX
from streams.core.planning import plan_of
from streams.core.schedule import next_occurrence, occurrences
from streams.core.transaction import Transaction


def overlap(tx: Transaction, job: Job, policy: OverlapPolicy | None = None) -> WaitingFor | None:
    """What a new execution of the job waits for; None: it is skipped. `policy` None: the job's."""
    match policy or job.policies.overlap:
        case OverlapPolicy.QUEUE:
            if not tx.state.has_open(job.tenant, job.job_id):
                return WaitingFor.WORKER
            limit = job.policies.queue_limit
            waiting = tx.state.in_line(job.tenant, job.job_id, limit)
            return WaitingFor.OVERLAP if waiting < limit else None
        case OverlapPolicy.ALLOW:
            most = job.policies.max_concurrent
            is_full = most and tx.state.active(job.tenant, job.job_id) >= most
            return WaitingFor.OVERLAP if is_full else WaitingFor.WORKER
        case OverlapPolicy.SKIP:
            return None if tx.state.has_open(job.tenant, job.job_id) else WaitingFor.WORKER
        case OverlapPolicy.CANCEL_RUNNING:
            for execution in tx.state.open_executions(job.tenant, job.job_id, ENTITIES_PER_COMMAND_MAX):
                stop(tx, execution)
            return WaitingFor.OVERLAP if tx.state.active(job.tenant, job.job_id) else WaitingFor.WORKER


def wait_in_line(tx: Transaction, job: Job, policy: OverlapPolicy | None) -> WaitingFor | None:
    """As `overlap`, but outside the queue limit: for backfills, which wait in order."""
    if (policy or job.policies.overlap) is not OverlapPolicy.QUEUE:
        return overlap(tx, job, policy)
    return WaitingFor.OVERLAP if tx.state.has_open(job.tenant, job.job_id) else WaitingFor.WORKER


def follow_up(tx: Transaction, job: Job, cursor: Cursor) -> Cursor:
    """After an execution ended, or the cursor moved: the next in line runs, or the job is completed.

    Kept misfires and those that wait for overlap go by scheduled time.
    """
    state = tx.state
    while state.active(job.tenant, job.job_id) < _places(job):
        waiting = state.blocked(job.tenant, job.job_id, 1)
        oldest = state.execution(job.tenant, waiting[0]) if waiting else None
        kept = cursor.catch_up[0] if cursor.catch_up and cursor.status is JobStatus.ACTIVE else None
        if kept is not None and (oldest is None or kept.from_ms < oldest.scheduled_ms):
            cursor = _make_kept(tx, job, cursor)
        elif oldest is not None:
            make_ready(tx, oldest)
        else:
            break
    if (
        cursor.status is not JobStatus.ACTIVE
        or cursor.next_ms
        or cursor.catch_up
        or state.has_open(job.tenant, job.job_id)
    ):
        return cursor
    completed = replace(cursor, status=JobStatus.COMPLETED, finished_ms=tx.now_ms, skips=())
    return tx.emit_cursor(JobCompleted, cursor, completed)


def _places(job: Job) -> int:
    """How many executions of the job may be active. Kept misfires of ALLOW are bounded, too."""
    if job.policies.overlap is not OverlapPolicy.ALLOW:
        return 1
    return job.policies.max_concurrent or ALLOWED_CATCH_UP_MAX


def unblock(tx: Transaction, tenant: str, job_id: str) -> None:
    """The same for replayed executions of a job that is gone: one at a time."""
    waiting = tx.state.blocked(tenant, job_id, 1)
    if waiting and not tx.state.active(tenant, job_id):
        execution = tx.state.execution(tenant, waiting[0])
        if execution is not None:
            make_ready(tx, execution)


def make_ready(tx: Transaction, execution: Execution) -> None:
    """A wait ended: the execution may be granted, or there is something else that it has to wait for."""
    waiting = place(tx, execution)
    event = ExecutionReady if waiting is WaitingFor.WORKER else ExecutionBlocked
    ready = replace(execution, status=ExecutionStatus.PENDING, waiting_for=waiting)
    tx.want_work(tx.emit_execution(event, ready))


def make_all_kept(tx: Transaction, job: Job, cursor: Cursor) -> None:
    """Before the schedule changes: kept misfires become executions of the old one, which wait in line. They
    are no more than a command may touch (`MISFIRE_KEPT_MAX`)."""
    for kept in cursor.catch_up:
        found = occurrences(plan_of(job), kept.after_ms, kept.after_local or None)
        for made in islice(found, kept.count):
            origin = scheduled(job, made.utc_ms)
            if tx.state.execution(job.tenant, origin.execution_id) is None:
                fire(tx, job, origin, made.utc_ms, WaitingFor.OVERLAP)


def _make_kept(tx: Transaction, job: Job, cursor: Cursor) -> Cursor:
    """The oldest kept misfire becomes an execution."""
    head, *rest = cursor.catch_up
    plan = plan_of(job)
    made = next_occurrence(plan, head.after_ms, head.after_local or None)
    if made is None or made.utc_ms > head.to_ms:
        return tx.emit_cursor(CursorMoved, cursor, replace(cursor, catch_up=tuple(rest), skips=()))
    if head.count > 1:
        following = next_occurrence(plan, made.utc_ms, made.local)
        left = replace(
            head,
            after_ms=made.utc_ms,
            after_local=made.local,
            from_ms=following.utc_ms if following is not None else head.to_ms,
            count=head.count - 1,
        )
        rest = [left, *rest]
    moved = tx.emit_cursor(CursorMoved, cursor, replace(cursor, catch_up=tuple(rest), skips=()))
    origin = scheduled(job, made.utc_ms)
    if tx.state.execution(job.tenant, origin.execution_id) is None:
        fire(tx, job, origin, made.utc_ms, WaitingFor.WORKER)
    return moved
