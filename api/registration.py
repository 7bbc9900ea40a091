"""Owns what a job's body means: the commands made from it. Ranges are the command's check to judge."""

from __future__ import annotations

import base64
import binascii
from typing import TypedDict

from msgspec import UNSET

from api.changes import Envelope
from api.models import JobBody, PayloadBody, ScheduleBody
from api.problems import too_large, wrong
from api.rendering import JSON_TYPE
from schemas.commands import RegisterJob, RegisterMode, ScheduleSpec, UpdateJob
from schemas.entities import (
    Content,
    MisfirePolicy,
    OverlapPolicy,
    Policies,
    Priority,
    RetryJitter,
    RetryPolicy,
)
from streams.core.limits import PAYLOAD_BYTES_MAX

BYTES_TYPE = "application/octet-stream"
DEFAULT_TASK = "default"
_BASE64_CHARS_MAX = (PAYLOAD_BYTES_MAX + 2) // 3 * 4


class Definition(TypedDict):
    """What a registration and an update have in common."""

    schedule: ScheduleSpec
    pool: str
    content: Content
    policies: Policies


def to_command(envelope: Envelope, body: JobBody, job_id: str, mode: RegisterMode) -> RegisterJob:
    """The command for a job's body."""
    return RegisterJob(**envelope, job_id=job_id, mode=mode, **definition_of(body))


def to_update(envelope: Envelope, body: JobBody, job_id: str, version: int) -> UpdateJob:
    """The command that puts a body in the place of the definition of that version."""
    return UpdateJob(**envelope, job_id=job_id, version=version, **definition_of(body))


def definition_of(body: JobBody) -> Definition:
    """What a job's body means."""
    payload, content_type = payload_of(body)
    return Definition(
        schedule=schedule_of(body.schedule),
        pool=body.target.pool,
        content=Content(
            name=body.name,
            task=body.target.task if body.target.task is not None else body.name or DEFAULT_TASK,
            payload=payload or b"",
            content_type=content_type,
            labels=body.labels,
        ),
        policies=_policies_of(body),
    )


def schedule_of(body: ScheduleBody) -> ScheduleSpec:
    """A schedule as the caller wrote it."""
    return ScheduleSpec(
        run_at=body.run_at,
        delay_sec=body.delay_sec,
        cron=body.cron,
        every_sec=body.every_sec,
        time_zone=body.time_zone,
        allow_past=body.allow_past,
        start_at=body.start_at,
        end_at=body.end_at,
        max_runs=body.max_runs,
        jitter_sec=body.jitter_sec,
    )


def _policies_of(body: JobBody) -> Policies:
    retry = body.retry_policy
    return Policies(
        priority=Priority(body.priority.upper()),
        retry=RetryPolicy(
            max_attempts=retry.max_attempts,
            backoff_base_sec=retry.backoff_base_sec,
            backoff_factor=retry.backoff_factor,
            backoff_max_sec=retry.backoff_max_sec,
            jitter=RetryJitter(retry.jitter.upper()),
        ),
        timeout_sec=body.timeout_sec,
        lease_sec=body.lease_sec,
        max_deliveries=body.max_deliveries,
        misfire_window_sec=body.misfire_window_sec,
        misfire=MisfirePolicy(body.misfire_policy.upper()),
        overlap=OverlapPolicy(body.overlap_policy.upper()),
        queue_limit=body.queue_limit,
        max_concurrent=body.max_concurrent or 0,
        start_deadline_sec=body.start_deadline_sec or 0,
        idempotency_key_template=body.idempotency_key_template or "",
        exclusion_group=body.exclusion_group or "",
        lateness_alert_sec=body.lateness_alert_sec or 0,
    )


def overlap_of(word: str | None) -> OverlapPolicy | None:
    """The overlap policy of one request; None: the job's."""
    return OverlapPolicy(word.upper()) if word is not None else None


def payload_of(body: PayloadBody) -> tuple[bytes | None, str]:
    """The payload's bytes exactly as sent, and what they are; None if there is none."""
    if body.payload is not UNSET:
        if body.payload_base64 is not None:
            raise wrong("payloadBase64", "cannot come with payload")
        if body.content_type not in (None, JSON_TYPE):
            raise wrong("contentType", f"of payload is {JSON_TYPE}; other data come as payloadBase64")
        payload = bytes(body.payload)
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise too_large("payload", PAYLOAD_BYTES_MAX)
        return payload, JSON_TYPE
    if body.payload_base64 is None:
        if body.content_type is not None:
            raise wrong("contentType", "needs payload or payloadBase64")
        return None, ""
    if len(body.payload_base64) > _BASE64_CHARS_MAX:
        raise too_large("payloadBase64", PAYLOAD_BYTES_MAX)
    try:
        payload = base64.b64decode(body.payload_base64, validate=True)
    except (binascii.Error, ValueError):
        raise wrong("payloadBase64", "is not standard base64 with padding") from None
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise too_large("payloadBase64", PAYLOAD_BYTES_MAX)
    return payload, body.content_type or BYTES_TYPE
