"""PauseJob and ResumeJob: the cursor stays, and what fell into the pause is accounted for (semantics §4)."""

from __future__ import annotations

from msgspec.structs import replace

from schemas.commands import MissedInPause, PauseJob, ResumeJob
from schemas.entities import Cursor, Job, JobStatus, MisfirePolicy, Skip, SkipReason
from schemas.events import JobPaused, JobResumed
from streams.core.handlers.answering import meaning_of, repeated, with_answer
from streams.core.handlers.following import follow_up
from streams.core.handlers.outcome import Done
from streams.core.handlers.scheduling import Moving, alert_skips, keep, point, settle
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
            keep(job, moving, policy, tx.now_ms, tx.now_ms)
            alert_skips(tx, job, moving.skips)
        return moving.result()
    if due:
        skipped = skip_missed(job, cursor, tx.now_ms)
        return point(job, replace(skipped, last_ms=tx.now_ms, last_local=""), tx.now_ms, "")
    return replace(cursor, skips=())


def skip_missed(job: Job, cursor: Cursor, now_ms: int) -> Cursor:
    """The cursor with what fell due since the job was paused as skipped, if anything did: one record, and the
    version of the zone data that it goes by."""
    skipped = None
    if cursor.status is JobStatus.PAUSED and cursor.next_ms:
        after_ms, after_local = cursor.next_ms - 1, cursor.last_local or None
        skipped = skip_range(plan_of(job), after_ms, after_local, now_ms, "paused")
    if skipped is None:
        return replace(cursor, skips=())
    reason = SkipReason.PAUSED
    record = Skip(from_ms=skipped.from_ms, to_ms=skipped.to_ms, count=skipped.count, reason=reason)
    return replace(cursor, skips=(record,), tz_version=TZ_VERSION)
