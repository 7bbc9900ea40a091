"""Owns how entities become answers, in one place: the answer to a change and the read that follows look
alike.

Times become RFC 3339, "not yet" becomes null, enumerations are spelled as callers spell them.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from api.answers import (
    AttemptAnswer,
    EventAnswer,
    ExecutionAnswer,
    GrantAnswer,
    JobAnswer,
    LastExecutionAnswer,
    PartitionAnswer,
    PausedAnswer,
    PreviewedAnswer,
    RetryAnswer,
    ScheduleAnswer,
    TargetAnswer,
)
from projections.views import Attempt, EventView, ExecutionDetail, ExecutionView, JobDetail, JobView
from schemas.entities import (
    Content,
    Cursor,
    Execution,
    ExecutionStatus,
    Job,
    JobStatus,
    LeaseEnd,
    Schedule,
    ScheduleKind,
    WaitingFor,
)
from schemas.ids import scheduled_execution_id
from schemas.replies import Grant, PartitionStatus
from streams.core.instants import format_instant, format_local
from streams.core.preview import Previewed
from streams.core.zones import get_zone

JSON_TYPE = "application/json"

_ACTIVE = JobStatus.ACTIVE
_whole = msgspec.json.Decoder(msgspec.Raw)


def instant(at_ms: int) -> str | None:
    """An instant, or null for "not yet"."""
    return format_instant(at_ms) if at_ms else None


def json_or_none(data: bytes) -> msgspec.Raw | None:
    """Bytes that are to be a JSON value of the answer; null if they are none."""
    return msgspec.Raw(data) if data and _is_json(data) else None


def content_members(content: Content) -> dict[str, Any]:
    """`payload`, byte for byte as it was sent, or `payloadBase64`; nothing if there is none."""
    if not content.payload:
        return {}
    # Trusted services write commands too, and nobody checked that what they call JSON is.
    if content.content_type == JSON_TYPE and _is_json(content.payload):
        return {"payload": msgspec.Raw(content.payload), "content_type": JSON_TYPE}
    return {
        "payload_base64": base64.b64encode(content.payload).decode(),
        "content_type": content.content_type,
    }


def job_at_beginning(job: Job) -> JobAnswer:
    """The answer to a registration, the first and every repeated one."""
    return _job(job, _ACTIVE, job.first_next_ms, _next_id(job, job.first_next_ms), None)


def job(job: Job, cursor: Cursor | None) -> JobAnswer:
    """A job as a partition answered it."""
    if cursor is None:
        return job_at_beginning(job)
    next_ms = cursor.next_ms if cursor.status is _ACTIVE else 0
    return _job(job, cursor.status, next_ms, _next_id(job, next_ms), cursor)


def job_view(view: JobView) -> JobAnswer:
    """A job of a list."""
    return _job(view.job, view.status, view.next_run_ms, view.next_execution_id, view.cursor)


def job_detail(detail: JobDetail) -> JobAnswer:
    """One job with payload and what became of it."""
    last = detail.last_execution
    return replace(
        job_view(detail.view),
        **content_members(detail.view.job.content),
        last_execution=last
        and LastExecutionAnswer(
            execution_id=last.execution_id,
            status=last.status,
            scheduled_time=format_instant(last.scheduled_ms),
            finished_at=instant(last.finished_ms),
            error=last.error or None,
        ),
        counts={str(status): count for status, count in detail.counts.items()},
    )


def _next_id(job: Job, next_ms: int) -> str:
    return scheduled_execution_id(job.job_id, job.incarnation, next_ms) if next_ms else ""


def _job(job: Job, status: JobStatus, next_ms: int, next_id: str, cursor: Cursor | None) -> JobAnswer:
    policies, retry = job.policies, job.policies.retry
    return JobAnswer(
        job_id=job.job_id,
        name=job.content.name,
        status=status,
        version=job.version,
        next_run_at=instant(next_ms),
        next_execution_id=next_id or None,
        schedule=schedule(job.schedule),
        target=TargetAnswer(pool=job.pool, task=job.content.task),
        retry_policy=RetryAnswer(
            max_attempts=retry.max_attempts,
            backoff_base_sec=retry.backoff_base_sec,
            backoff_factor=retry.backoff_factor,
            backoff_max_sec=retry.backoff_max_sec,
            jitter=retry.jitter.lower(),
        ),
        timeout_sec=policies.timeout_sec,
        lease_sec=policies.lease_sec,
        max_deliveries=policies.max_deliveries,
        priority=policies.priority.lower(),
        overlap_policy=policies.overlap.lower(),
        queue_limit=policies.queue_limit,
        max_concurrent=policies.max_concurrent or None,
        misfire_policy=policies.misfire.lower(),
        misfire_window_sec=policies.misfire_window_sec,
        start_deadline_sec=policies.start_deadline_sec or None,
        exclusion_group=policies.exclusion_group or None,
        idempotency_key_template=policies.idempotency_key_template or None,
        lateness_alert_sec=policies.lateness_alert_sec or None,
        labels=job.content.labels,
        created_at=format_instant(job.created_ms),
        created_by=job.created_by,
        updated_at=instant(job.updated_ms),
        updated_by=job.updated_by or None,
        paused=_paused(status, cursor),
    )


def _paused(status: JobStatus, cursor: Cursor | None) -> PausedAnswer | None:
    if status is not JobStatus.PAUSED or cursor is None:
        return None
    return PausedAnswer(by=cursor.paused_by, at=format_instant(cursor.paused_ms), reason=cursor.paused_reason)


def schedule(schedule: Schedule) -> ScheduleAnswer:
    """A schedule as understood: hashed fields drawn, a delay as the instant it became."""
    match schedule.kind:
        case ScheduleKind.CRON:
            kind = ScheduleAnswer(
                cron=schedule.cron, cron_expanded=schedule.cron_expanded, time_zone=schedule.time_zone
            )
        case ScheduleKind.EVERY:
            kind = ScheduleAnswer(
                every_sec=schedule.every_ms // 1000, anchored_at=format_instant(schedule.anchor_ms)
            )
        case ScheduleKind.ONCE:
            kind = _once(schedule)
    return replace(
        kind,
        start_at=instant(schedule.start_at_ms),
        end_at=instant(schedule.end_at_ms),
        max_runs=schedule.max_runs or None,
        jitter_sec=schedule.jitter_ms // 1000 or None,
    )


def _once(schedule: Schedule) -> ScheduleAnswer:
    """As it was written: an instant, or a local time of a zone. Sent back, it means the same."""
    if schedule.time_zone == "UTC":
        return ScheduleAnswer(run_at=format_instant(schedule.run_at_ms))
    seconds, millis = divmod(schedule.run_at_ms, 1000)
    local = format_local(seconds + get_zone(schedule.time_zone).offset_at(seconds))
    run_at = f"{local}.{millis:03d}" if millis else local
    return ScheduleAnswer(run_at=run_at, time_zone=schedule.time_zone)


def previewed(one: Previewed, with_due: bool) -> PreviewedAnswer:
    """An occurrence of a preview; its jitter shows only for a job that is known."""
    due_at = format_instant(one.due_ms) if with_due and one.due_ms != one.utc_ms else None
    return PreviewedAnswer(utc=one.utc, local=one.local, due_at=due_at, note=one.note)


def execution(execution: Execution) -> ExecutionAnswer:
    """An execution as a partition answered it."""
    return _execution(execution, execution.lease_until_ms)


def execution_view(view: ExecutionView, waits_for: WaitingFor | None = None) -> ExecutionAnswer:
    """An execution of a list. `waits_for`: what holds its whole queue, if anything (`api.waiting`)."""
    execution = view.execution if waits_for is None else replace(view.execution, waiting_for=waits_for)
    return replace(
        _execution(execution, view.lease_until_ms),
        name=view.name,
        task=view.task,
        labels=dict(view.labels),
        progress=json_or_none(view.progress) or UNSET,
        discarded_by=view.discarded_by or UNSET,
    )


def execution_detail(detail: ExecutionDetail, waits_for: WaitingFor | None = None) -> ExecutionAnswer:
    """One execution with payload and every attempt; `waits_for` as in a list."""
    return replace(
        execution_view(detail.view, waits_for),
        **content_members(detail.content),
        max_attempts=detail.policies.retry.max_attempts,
        attempts=[_attempt(attempt) for attempt in detail.attempts],
    )


def _execution(e: Execution, lease_until_ms: int) -> ExecutionAnswer:
    running = e.status is ExecutionStatus.RUNNING
    return ExecutionAnswer(
        execution_id=e.execution_id,
        job_id=e.job_id,
        pool=e.pool,
        kind=e.kind.lower(),
        status=e.status,
        waiting_for=None if e.waiting_for is WaitingFor.NOTHING else e.waiting_for.lower(),
        priority=e.priority.lower(),
        scheduled_time=format_instant(e.scheduled_ms),
        due_at=format_instant(e.due_ms),
        fired_at=instant(e.fired_ms),
        started_at=instant(e.started_ms),
        first_started_at=instant(e.first_started_ms),
        finished_at=instant(e.finished_ms),
        attempt=e.attempt,
        delivery_count=e.delivery_count,
        lease_epoch=e.lease_epoch,
        fencing_token=e.fencing_token or None,
        worker_id=e.worker_id or None,
        lease_until=instant(lease_until_ms) if running else None,
        deadline=instant(e.deadline_ms) if running else None,
        cancel_requested_at=instant(e.cancel_requested_ms),
        error=e.error or None,
        reason=e.reason or None,
        reported=e.reported or None,
        idempotency_key=e.idempotency_key or e.execution_id,
        start_deadline=instant(e.start_deadline_ms),
        exclusion_group=e.exclusion_group or None,
        backfill_id=e.backfill or None,
        result=json_or_none(e.result),
    )


def _attempt(attempt: Attempt) -> AttemptAnswer:
    return AttemptAnswer(
        attempt=attempt.attempt,
        delivery_count=attempt.delivery_count,
        lease_epoch=attempt.lease_epoch,
        fencing_token=attempt.fencing_token,
        worker_id=attempt.worker_id,
        started_at=format_instant(attempt.claimed_ms),
        ended_at=instant(attempt.ended_ms),
        ended_by=None if attempt.lease_end is LeaseEnd.NONE else attempt.lease_end.lower(),
        error=attempt.error or None,
        reported=attempt.reported or None,
    )


def grant(grant: Grant) -> GrantAnswer:
    """What a worker is given."""
    e, content = grant.execution, grant.content
    payload: msgspec.Raw | UnsetType = UNSET
    encoded: str | UnsetType = UNSET
    if content.payload:
        if content.content_type == JSON_TYPE and _is_json(content.payload):
            payload = msgspec.Raw(content.payload)
        else:
            encoded = base64.b64encode(content.payload).decode()
    return GrantAnswer(
        execution_id=e.execution_id,
        job_id=e.job_id,
        tenant=e.tenant,
        task=content.task,
        name=content.name,
        kind=e.kind.lower(),
        scheduled_time=format_instant(e.scheduled_ms),
        attempt=e.attempt,
        max_attempts=grant.policies.retry.max_attempts,
        delivery_count=e.delivery_count,
        lease_epoch=e.lease_epoch,
        fencing_token=e.fencing_token,
        lease_until=format_instant(e.lease_until_ms),
        deadline=format_instant(e.deadline_ms),
        idempotency_key=e.idempotency_key or e.execution_id,
        payload=payload,
        payload_base64=encoded,
        content_type=content.content_type,
        progress=json_or_none(grant.progress),
        labels=content.labels,
        traceparent=None,
    )


def event(view: EventView) -> EventAnswer:
    """One event of a history."""
    return EventAnswer(
        partition=view.partition,
        offset=view.offset,
        at=format_instant(view.at_ms),
        type=view.type,
        entity=view.entity,
        actor=view.actor,
        cause=view.cause,
        changes=_changes(view.changes),
    )


def _changes(changes: Mapping[str, tuple[object, object]]) -> dict[str, tuple[Any, Any]]:
    return {name: (before, after) for name, (before, after) in changes.items()}


def partition(number: int, status: PartitionStatus | None) -> PartitionAnswer:
    """One partition; `status` None: nobody ever said anything about it."""
    status = status or PartitionStatus(partition=number, owner="", state="STOPPED", reason="never run")
    return PartitionAnswer(
        partition=number,
        owner=status.owner,
        state=status.state,
        reason=status.reason,
        position=status.position,
        lag=status.lag,
        restore_remaining=status.restore_remaining,
        tz_version=status.tz_version,
        at=instant(status.at_ms),
    )


def _is_json(data: bytes) -> bool:
    try:
        _whole.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
