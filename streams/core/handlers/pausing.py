"""PauseJob and ResumeJob: the cursor stays, and what fell into the pause is accounted for (semantics §4)."""

from __future__ import annotations

from msgspec.structs import replace

from schemas.commands import MissedInPause, PauseJob, ResumeJob
from schemas.entities import Cursor, Job, JobStatus, MisfirePolicy, SkipReason
from schemas.events import JobPaused, JobResumed
from streams.core.handlers.ahead import open_spans
from streams.core.handlers.answering import meaning_of, repeated, with_answer
from streams.core.handlers.following import follow_up
from streams.core.handlers.outcome import Done
from streams.core.handlers.scheduling import Moving, alert_skips, keep, point, recorded, settle
from streams.core.lifecycle import JOB_FINAL
from streams.core.planning import plan_of
from streams.core.refusals import JOB_FINISHED, NOT_PAUSED, Refusal, not_found
from streams.core.schedule import skip_range
from streams.core.transaction import Transaction
from streams.core.zones import TZ_VERSION

_POLICY = {
    MissedInPause.FIRE_ONCE: MisfirePolicy.FIRE_ONCE,
    MissedInPause.FIRE_ALL: MisfirePolicy.FIRE_ALL,
}


def pause_job(tx: Transaction, command: PauseJob) -> Done | Refusal:
    """No further occurrence fires; unfinished executions go on. Pausing a paused job changes nothing."""
    job = tx.state.job(command.tenant, command.job_id)
    if job is None:
        return not_found("job")
    cursor = settle(tx, job)
    meaning = meaning_of(command)
    answer = repeated(job, cursor, command, meaning)
    if answer is not None:
        return answer
    if cursor.status in JOB_FINAL:
        return JOB_FINISHED
    if cursor.status is JobStatus.PAUSED:
        return Done(200, job, cursor)
    paused = replace(
        cursor,
        status=JobStatus.PAUSED,
        skips=(),
        paused_ms=tx.now_ms,
        paused_by=command.actor,
        paused_reason=command.reason,
    )
    paused = with_answer(paused, command, meaning, 200, job.version)
    return Done(200, job, tx.emit_cursor(JobPaused, cursor, paused))


def resume_job(tx: Transaction, command: ResumeJob) -> Done | Refusal:
    """An occurrence due at this very instant still belongs to the pause."""
    job = tx.state.job(command.tenant, command.job_id)
    if job is None:
        return not_found("job")
    cursor = settle(tx, job)
    meaning = meaning_of(command)
    answer = repeated(job, cursor, command, meaning)
    if answer is not None:
        return answer
    if cursor.status in JOB_FINAL:
        return JOB_FINISHED
    if cursor.status is not JobStatus.PAUSED:
        return NOT_PAUSED
    settled = _account(tx, job, cursor, command.missed)
    resumed = replace(settled, status=JobStatus.ACTIVE, paused_ms=0, paused_by="", paused_reason="")
    resumed = with_answer(resumed, command, meaning, 200, job.version)
    return Done(200, job, follow_up(tx, job, tx.emit_cursor(JobResumed, cursor, resumed)))


def _account(tx: Transaction, job: Job, cursor: Cursor, missed: MissedInPause) -> Cursor:
    """Where the job goes on, with what became of the occurrences in its pause."""
    due = bool(cursor.next_ms) and cursor.next_ms <= tx.now_ms
    policy = _POLICY.get(missed)
    if policy is not None:
        moving = Moving(cursor, [])
        if due:
            keep(tx, job, moving, policy, tx.now_ms, tx.now_ms)
            alert_skips(tx, job, moving.skips)
        return moving.result()
    if due:
        skipped = skip_missed(tx, job, cursor)
        return point(job, replace(skipped, last_ms=tx.now_ms, last_local=""), tx.now_ms, "")
    return replace(cursor, skips=())


def skip_missed(tx: Transaction, job: Job, cursor: Cursor) -> Cursor:
    """The cursor with what fell due since the job was paused as skipped, if anything did: one record, and the
    version of the zone data that it goes by."""
    if cursor.status is not JobStatus.PAUSED or not cursor.next_ms:
        return replace(cursor, skips=())
    plan, after_local = plan_of(job), cursor.last_local or None
    moving = Moving(cursor, [])
    for after_ms, upto_ms in open_spans(tx, job, cursor.next_ms - 1, tx.now_ms):
        skipped = skip_range(plan, after_ms, after_local, upto_ms, SkipReason.PAUSED)
        if skipped is not None:
            moving.skip(recorded(skipped))
    missed = moving.result()
    return replace(missed, tz_version=TZ_VERSION) if missed.skips else missed
