"""Time moved: what becomes of an entity whose timer is due. The entity decides; the entry is a hint."""

from __future__ import annotations

from msgspec.structs import replace

from schemas import ids
from schemas.entities import (
    Alert,
    Breaker,
    Execution,
    ExecutionStatus,
    Job,
    JobStatus,
    LeaseEnd,
    Priority,
    WaitingFor,
)
from schemas.events import CursorMoved, ExecutionCancelled, ExecutionSkipped, JobPaused, LeaseExpired
from streams.core import keys
from streams.core.handlers.alarming import tell_of_pending, warn_of_expiry
from streams.core.handlers.breaking import visit_breaker
from streams.core.handlers.cancelling import cancel_left_over
from streams.core.handlers.ending import REAPED, content_of, dead_letter, end, fail_attempt
from streams.core.handlers.following import make_ready
from streams.core.handlers.gating import place
from streams.core.handlers.scheduling import fire_first, settle
from streams.core.lifecycle import FINAL, JOB_FINAL
from streams.core.limits import AFTER_ERROR_MS, FORGET_AFTER_MS
from streams.core.retry import redelivery_wait_ms
from streams.core.state import alarm_of_execution, due_of_execution, is_first
from streams.core.transaction import Transaction


def visit(tx: Transaction, key: str, settled_ms: int) -> None:
    """Looks at what stands under a log key. Lease ends are decided up to `settled_ms` only."""
    match tx.state.entity(key):
        case Job() as job:
            _visit_job(tx, job)
        case Execution() as execution:
            _visit_execution(tx, execution, settled_ms)
        case Breaker() as breaker:
            visit_breaker(tx, breaker)
        case Alert():
            tx.forget(key)


def _visit_execution(tx: Transaction, execution: Execution, settled_ms: int) -> None:
    if execution.status is ExecutionStatus.RUNNING:
        _visit_lease(tx, execution, settled_ms)
    elif (due_ms := due_of_execution(execution)) is not None and due_ms <= tx.now_ms:
        if execution.status in FINAL:
            _forget_execution(tx, execution)
        elif must_have_started(execution, tx.now_ms):
            miss_deadline(tx, execution)
        else:
            make_ready(tx, execution)
    elif (alarm_ms := alarm_of_execution(execution)) is not None and alarm_ms <= tx.now_ms:
        if execution.status in FINAL:
            warn_of_expiry(tx, execution, alarm_ms)
        else:
            tell_of_pending(tx, execution)


def must_have_started(execution: Execution, now_ms: int) -> bool:
    """Whether `startDeadlineSec` has passed before the first grant."""
    deadline_ms = execution.start_deadline_ms
    return bool(deadline_ms) and not execution.first_started_ms and deadline_ms <= now_ms


def miss_deadline(tx: Transaction, execution: Execution) -> None:
    """Too late to start it at all."""
    end(
        tx,
        ExecutionSkipped,
        execution,
        status=ExecutionStatus.SKIPPED,
        waiting_for=WaitingFor.NOTHING,
        reason="deadline",
    )
    detail = f"{execution.execution_id} did not start in time"
    tx.alert(
        "missed_window",
        execution.tenant,
        detail,
        job_id=execution.job_id,
        execution_id=execution.execution_id,
    )


def pause_after_error(tx: Transaction, key: str, error: str) -> None:
    """A time-driven decision raised: its job is paused, the partition goes on. It can still be cancelled, and
    what was looked at comes up again: a lease's end must not be missed for ever."""
    kind, _, rest = key.partition(":")
    tenant, _, name = rest.partition(":" if kind == "breaker" else "/")
    tx.state.timers.add(tx.now_ms + AFTER_ERROR_MS, keys.lane(Priority.LOW, tenant), key)
    if kind == "breaker":
        tx.alert("internal_error", tenant, f"breaker of {name}: {error}", target=name)
        return
    job_id = name if kind == "job" else ids.job_id_of(name) or name
    tx.alert("internal_error", tenant, f"job {job_id} is paused: {error}", job_id=job_id)
    job = tx.state.job(tenant, job_id)
    if job is None:
        return
    cursor = tx.state.cursor(job)
    if cursor.status is JobStatus.ACTIVE:
        paused = replace(
            cursor,
            status=JobStatus.PAUSED,
            skips=(),
            paused_ms=tx.now_ms,
            paused_by="system",
            paused_reason="internal_error",
        )
        tx.emit_cursor(JobPaused, cursor, paused)


def _visit_job(tx: Transaction, job: Job) -> None:
    if fire_first(tx, job):
        return
    cursor = settle(tx, job)
    if cursor.status in JOB_FINAL:
        if cursor.status is JobStatus.CANCELLED:
            cancel_left_over(tx, job, cursor)
        _forget_job(tx, job)


def _forget_job(tx: Transaction, job: Job) -> None:
    """A finished job goes a day after its last execution; that one's own end tries again."""
    cursor = tx.state.cursor(job)
    old_enough = tx.now_ms >= cursor.finished_ms + FORGET_AFTER_MS
    if old_enough and not tx.state.has_open(job.tenant, job.job_id):
        tx.forget(ids.cursor_key(job.tenant, job.job_id))
        tx.forget(ids.job_key(job.tenant, job.job_id))


def _forget_execution(tx: Transaction, execution: Execution) -> None:
    job = tx.state.job_of(execution)
    if job is not None and is_first(job, execution):
        if execution.closes_job and tx.state.moved(job) is None:
            _forget_closed(tx, job, execution)
            return
        # A one-off whose trigger still runs is not completed: from here on only a cursor says that it fired.
        cursor = tx.state.cursor(job)
        if cursor.status is JobStatus.ACTIVE:
            tx.emit_cursor(CursorMoved, cursor, replace(cursor, skips=()))
    _drop(tx, execution)
    if job is not None and tx.state.cursor(job).status in JOB_FINAL:
        _forget_job(tx, job)


def _forget_closed(tx: Transaction, job: Job, execution: Execution) -> None:
    """The job goes first: without its execution it would stand at its beginning, and fire again. Both stay
    while another execution of it is unfinished, a replayed dead letter."""
    _forget_job(tx, job)
    if tx.state.job(job.tenant, job.job_id) is None:
        _drop(tx, execution)
    else:
        lane = keys.lane(Priority.LOW, job.tenant)
        tx.state.timers.add(tx.now_ms + FORGET_AFTER_MS, lane, ids.key_of(execution))


def _drop(tx: Transaction, execution: Execution) -> None:
    tx.forget(ids.content_key(execution.tenant, execution.execution_id))
    tx.forget(ids.execution_key(execution.tenant, execution.execution_id))


def _visit_lease(tx: Transaction, execution: Execution, settled_ms: int) -> None:
    """A lease ended without a word: cancelled, timed out, given up, or delivered again."""
    until_ms = tx.state.lease_until_ms(execution)
    if until_ms > settled_ms:
        return  # a heartbeat moved it, and filed its own entry
    if execution.cancel_requested_ms:
        end(
            tx,
            ExecutionCancelled,
            execution,
            status=ExecutionStatus.CANCELLED,
            lease_end=LeaseEnd.CANCELLED,
        )
    elif until_ms >= execution.deadline_ms:
        fail_attempt(tx, execution, "TIMEOUT", LeaseEnd.TIMEOUT)
    elif execution.delivery_count >= content_of(tx, execution)[1].max_deliveries:
        error = f"the lease expired {execution.delivery_count} times without a word from a worker"
        dead_letter(tx, execution, error, REAPED, LeaseEnd.EXPIRED)
    else:
        _redeliver(tx, execution)


def _redeliver(tx: Transaction, execution: Execution) -> None:
    wait_ms = redelivery_wait_ms(execution.delivery_count)
    expired = replace(
        execution,
        status=ExecutionStatus.PENDING,
        waiting_for=WaitingFor.REDELIVERY if wait_ms else place(tx, execution),
        due_ms=tx.now_ms + wait_ms if wait_ms else execution.due_ms,
        lease_end=LeaseEnd.EXPIRED,
    )
    tx.want_work(tx.emit_execution(LeaseExpired, expired))
