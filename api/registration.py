"""Owns what a job's body means: the RegisterJob command made from it. Ranges are the command's check to
judge."""

from __future__ import annotations

import base64
import binascii

from msgspec import UNSET

from api.changes import Envelope
from api.models import JobBody, PayloadBody
from api.problems import too_large, wrong
from api.rendering import JSON_TYPE
from schemas.commands import RegisterJob, RegisterMode, ScheduleSpec
from schemas.entities import Content, Policies, Priority, RetryJitter, RetryPolicy
from streams.core.limits import PAYLOAD_BYTES_MAX

BYTES_TYPE = "application/octet-stream"
DEFAULT_TASK = "default"
_BASE64_CHARS_MAX = (PAYLOAD_BYTES_MAX + 2) // 3 * 4


def to_command(envelope: Envelope, body: JobBody, job_id: str, mode: RegisterMode) -> RegisterJob:
    """The command for a job's body."""
    payload, content_type = payload_of(body)
    schedule, retry = body.schedule, body.retry_policy
    return RegisterJob(
        **envelope,
        job_id=job_id,
        mode=mode,
        schedule=ScheduleSpec(
            run_at=schedule.run_at,
            delay_sec=schedule.delay_sec,
            cron=schedule.cron,
            every_sec=schedule.every_sec,
            time_zone=schedule.time_zone,
            allow_past=schedule.allow_past,
        ),
        pool=body.target.pool,
        content=Content(
            name=body.name,
            task=body.target.task if body.target.task is not None else body.name or DEFAULT_TASK,
            payload=payload or b"",
            content_type=content_type,
            labels=body.labels,
        ),
        policies=Policies(
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
        ),
    )


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
