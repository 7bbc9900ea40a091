"""What a caller asks for: schedules and the definition of a job, and how they look in JSON."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from horarium.convert import camel

BINARY = "application/octet-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """When a schedule begins and ends, how often it runs, and the jitter of each occurrence."""

    start_at: datetime | str | None = None
    end_at: datetime | str | None = None
    max_runs: int | None = None
    jitter_sec: int | None = None

    def bounds_json(self) -> dict[str, Any]:
        times = {"startAt": self.start_at, "endAt": self.end_at}
        bounds: dict[str, Any] = {name: format_time(at) for name, at in times.items() if at is not None}
        numbers = {"maxRuns": self.max_runs, "jitterSec": self.jitter_sec}
        return bounds | {name: number for name, number in numbers.items() if number is not None}


@dataclass(frozen=True, slots=True)
class Cron(Bounds):
    """5 fields, or 6 with seconds first, in the local time of an IANA zone."""

    expression: str
    time_zone: str = "UTC"

    def to_json(self) -> dict[str, Any]:
        return {"cron": self.expression, "timeZone": self.time_zone} | self.bounds_json()


@dataclass(frozen=True, slots=True)
class At:
    """Once: at an aware datetime, at RFC 3339 text with an offset, or at local time (text) in `time_zone`."""

    when: datetime | str
    allow_past: bool = False
    time_zone: str | None = None

    def to_json(self) -> dict[str, Any]:
        spec: dict[str, Any] = {"runAt": format_time(self.when)}
        if self.time_zone is not None:
            spec["timeZone"] = self.time_zone
        return spec | {"allowPast": True} if self.allow_past else spec


@dataclass(frozen=True, slots=True)
class Delay:
    """Once, so many seconds after the registration."""

    seconds: int

    def to_json(self) -> dict[str, Any]:
        return {"delaySec": self.seconds}


@dataclass(frozen=True, slots=True)
class Every(Bounds):
    """Again and again, anchored at `start_at` or else at the registration; an update keeps the anchor unless
    it changes the interval."""

    seconds: int

    def to_json(self) -> dict[str, Any]:
        return {"everySec": self.seconds} | self.bounds_json()


Schedule = Cron | At | Delay | Every | Mapping[str, Any]
"""A mapping goes to the server as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Attempts in total, and the backoff between them; what is None is left to the server."""

    max_attempts: int | None = None
    backoff_base_sec: int | None = None
    backoff_factor: float | None = None
    backoff_max_sec: int | None = None
    jitter: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {camel(name): value for name in self.__slots__ if (value := getattr(self, name)) is not None}


_PLAIN = (
    "name",
    "timeout_sec",
    "lease_sec",
    "max_deliveries",
    "priority",
    "overlap_policy",
    "queue_limit",
    "max_concurrent",
    "misfire_policy",
    "misfire_window_sec",
    "start_deadline_sec",
    "exclusion_group",
    "idempotency_key_template",
    "lateness_alert_sec",
    "labels",
    "request_key",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A job to register. Only `schedule` is needed; what is None is left to the server.

    `payload` is any JSON value, or bytes that reach the worker as they are (`content_type` says what they
    are). `request_key` makes the registration repeatable inside a batch. `extra` holds further members of
    the API by their JSON names.
    """

    schedule: Schedule
    name: str | None = None
    pool: str | None = None
    task: str | None = None
    payload: Any = None
    content_type: str | None = None
    retry_policy: RetryPolicy | None = None
    timeout_sec: int | None = None
    lease_sec: int | None = None
    max_deliveries: int | None = None
    priority: str | None = None
    overlap_policy: str | None = None
    queue_limit: int | None = None
    max_concurrent: int | None = None
    misfire_policy: str | None = None
    misfire_window_sec: int | None = None
    start_deadline_sec: int | None = None
    exclusion_group: str | None = None
    idempotency_key_template: str | None = None
    lateness_alert_sec: int | None = None
    labels: Mapping[str, str] | None = None
    request_key: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        spec: dict[str, Any] = {
            camel(name): value for name in _PLAIN if (value := getattr(self, name)) is not None
        }
        spec["schedule"] = schedule_json(self.schedule)
        target = {"pool": self.pool, "task": self.task}
        if any(target.values()):
            spec["target"] = {name: value for name, value in target.items() if value is not None}
        if self.retry_policy is not None:
            spec["retryPolicy"] = self.retry_policy.to_json()
        return spec | payload_json(self.payload, self.content_type) | dict(self.extra)


def schedule_json(schedule: Schedule) -> dict[str, Any]:
    """The member `schedule` of a job."""
    return dict(schedule) if isinstance(schedule, Mapping) else schedule.to_json()


def payload_json(payload: Any, content_type: str | None = None) -> dict[str, Any]:
    """The members that carry a payload; none for None."""
    if payload is None:
        return {}
    if isinstance(payload, bytes | bytearray | memoryview):
        text = base64.b64encode(payload).decode("ascii")
        return {"payloadBase64": text, "contentType": content_type or BINARY}
    return {"payload": payload}


def format_time(when: datetime | str) -> str:
    """RFC 3339 in UTC; text goes as it is, so that the server judges it."""
    if isinstance(when, str):
        return when
    if when.tzinfo is None:
        raise ValueError("a datetime without a time zone is no instant; give it one, e.g. datetime.UTC")
    return when.astimezone(UTC).isoformat().replace("+00:00", "Z")
