"""CancelJob and CancelExecution: pending ends at once, running ends when its worker was told."""

from __future__ import annotations

from msgspec.structs import replace

from schemas import ids
from schemas.commands import CancelExecution, CancelJob
from schemas.entities import Cursor, Execution, ExecutionStatus, Job, JobStatus, Priority, Skip, SkipReason
from schemas.events import CursorMoved, JobCancelled
from streams.core import keys
from streams.core.handlers.firing import new_execution, scheduled
from streams.core.handlers.following import follow_up
from streams.core.handlers.outcome import Done
from streams.core.handlers.pausing import skip_missed
from streams.core.handlers.scheduling import Moving, move, settle
from streams.core.handlers.stopping import stop
from streams.core.lifecycle import FINAL
from streams.core.limits import ENTITIES_PER_COMMAND_MAX
from streams.core.refusals import ALREADY_FINISHED, JOB_FINISHED, Refusal, not_found
from streams.core.schedule import Occurrence
from streams.core.transaction import Transaction


def cancel_job(tx: Transaction, command: CancelJob) -> Done | Refusal:
    """Repeating it is answered alike; a completed job cannot be cancelled."""
    job = tx.state.job(command.tenant, command.job_id)
    if job is None:
        return not_found("job")
    cursor = settle(tx, job)
    if cursor.status is JobStatus.CANCELLED:
        return Done(200, job, cursor)
    if cursor.status is JobStatus.COMPLETED:
        return JOB_FINISHED
    settled = skip_missed(tx, job, cursor)
    moving = Moving(settled, list(settled.skips))
    for kept in cursor.catch_up:
        reason = SkipReason.CANCELLED
        moving.skip(Skip(from_ms=kept.from_ms, to_ms=kept.to_ms, count=kept.count, reason=reason))
    cancelled = replace(
        moving.result(),
        status=JobStatus.CANCELLED,
        next_ms=0,
        next_local="",
        next_due_ms=0,
        catch_up=(),
        finished_ms=tx.now_ms,
    )
    tx.emit_cursor(JobCancelled, cursor, cancelled)
    for execution in tx.state.open_executions(job.tenant, job.job_id, ENTITIES_PER_COMMAND_MAX):
        stop(tx, execution)
    follow_up(tx, job, cancelled)
    return Done(200, job, cancelled)


def cancel_left_over(tx: Transaction, job: Job, cursor: Cursor) -> None:
    """A job's cancel is too much for one command: it goes on, a thousand unfinished executions at a time.

    They come up as the timer of the cancelled cursor, and none is granted meanwhile (`granting`).
    """
    unfinished = tx.state.open_executions(job.tenant, job.job_id, ENTITIES_PER_COMMAND_MAX)
    ours = [one for one in unfinished if not one.cancel_requested_ms and is_left_over(job, cursor, one)]
    for execution in ours:
        stop(tx, execution)
    follow_up(tx, job, cursor)
    if ours and len(unfinished) == ENTITIES_PER_COMMAND_MAX:
        lane = keys.lane(Priority.LOW, job.tenant)
        tx.state.timers.add(tx.now_ms, lane, ids.job_key(job.tenant, job.job_id))


def is_left_over(job: Job, moved: Cursor | None, execution: Execution) -> bool:
    """Whether its job was cancelled (and perhaps made anew since), and the cancel has not reached it yet.

    `moved`: the job's own cursor, if any. What was replayed from the dead letters after the cancel is wanted.
    """
    if not ids.is_of(execution.execution_id, job.job_id, job.incarnation):
        return not execution.replays
    if moved is None or moved.status is not JobStatus.CANCELLED:
        return False
    return not execution.replays or execution.due_ms < moved.finished_ms


def cancel_execution(tx: Transaction, command: CancelExecution) -> Done | Refusal:
    """Also of the next occurrence, not an execution yet: it ends CANCELLED and the cursor moves on."""
    job_id = ids.job_part(command.execution_id)
    job = tx.state.job(command.tenant, job_id)
    cursor = settle(tx, job) if job is not None else None
    execution = tx.state.execution(command.tenant, command.execution_id)
    if execution is None:
        if job is None or cursor is None or not _is_next(job, cursor, command.execution_id):
            return not_found("execution")
        return Done(202, execution=_cancel_next(tx, job, cursor))
    if execution.status is ExecutionStatus.CANCELLED or execution.cancel_requested_ms:
        return Done(202, execution=execution)
    if execution.status in FINAL:
        return ALREADY_FINISHED
    stopped = stop(tx, execution)
    if job is not None:
        follow_up(tx, job, tx.state.cursor(job))
    return Done(202, execution=stopped)


def _is_next(job: Job, cursor: Cursor, execution_id: str) -> bool:
    if cursor.status not in (JobStatus.ACTIVE, JobStatus.PAUSED) or not cursor.next_ms:
        return False
    return execution_id == ids.scheduled_execution_id(job.job_id, job.incarnation, cursor.next_ms)


def _cancel_next(tx: Transaction, job: Job, cursor: Cursor) -> Execution:
    execution = new_execution(job, scheduled(job, cursor.next_ms), cursor.next_ms, tx.now_ms)
    cancelled = stop(tx, execution)
    moving = Moving(replace(cursor, runs=cursor.runs + 1), [])
    move(job, moving, Occurrence(cursor.next_ms, cursor.next_local))
    follow_up(tx, job, tx.emit_cursor(CursorMoved, cursor, moving.result()))
    return cancelled
