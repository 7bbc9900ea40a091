"""What the API answers with, as frozen dataclasses. Members unknown here are found in `raw`."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from horarium.errors import ApiError

T = TypeVar("T")


def _raw() -> Any:
    return field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list, newest first; `next_page_token` None: the end."""

    items: tuple[T, ...]
    next_page_token: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Carrier:
    """What has a payload: a JSON value, or bytes in base64."""

    payload: Any = None
    payload_base64: str | None = None
    content_type: str | None = None

    @property
    def content(self) -> Any:
        """The payload: a JSON value, or bytes if it was registered as bytes."""
        return self.payload if self.payload_base64 is None else base64.b64decode(self.payload_base64)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastExecution:
    """The newest execution of a job."""

    execution_id: str
    status: str
    finished_at: datetime | None = None
    error: str | None = None
    raw: Mapping[str, Any] = _raw()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(_Carrier):
    """A job as the server understood it. `status`: ACTIVE, PAUSED, CANCELLED or COMPLETED.

    `last_execution`, `counts` (executions by status) and the payload come with `get_job` only.
    """

    job_id: str
    status: str
    version: int = 1
    name: str = ""
    next_run_at: datetime | None = None
    next_execution_id: str | None = None
    schedule: Mapping[str, Any] = field(default_factory=dict)
    target: Mapping[str, Any] = field(default_factory=dict)
    retry_policy: Mapping[str, Any] = field(default_factory=dict)
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
    labels: Mapping[str, str] = field(default_factory=dict)
    created_at: datetime | None = None
    created_by: str | None = None
    updated_at: datetime | None = None
    updated_by: str | None = None
    last_execution: LastExecution | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    paused: Mapping[str, Any] | None = None
    raw: Mapping[str, Any] = _raw()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchItem:
    """The answer to one item of a batch: a job, or the problem as an exception that was not raised."""

    status: int
    job: Job | None = None
    error: ApiError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One grant of an execution to a worker. `ended_by`: completed, failed, released, expired, timeout …"""

    lease_epoch: int
    attempt: int = 1
    delivery_count: int = 1
    fencing_token: int | None = None
    worker_id: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    ended_by: str | None = None
    error: str | None = None
    reported: str | None = None
    raw: Mapping[str, Any] = _raw()


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution(_Carrier):
    """One occurrence of a job. `status`: SCHEDULED, PENDING, RUNNING, COMPLETED, FAILED, CANCELLED, SKIPPED.

    A FAILED one is a dead letter. `attempts` (every grant) and the payload come with reads of one execution
    only.
    """

    execution_id: str
    status: str
    job_id: str = ""
    name: str | None = None
    task: str | None = None
    pool: str | None = None
    kind: str | None = None
    waiting_for: str | None = None
    scheduled_time: datetime | None = None
    due_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    attempt: int = 1
    max_attempts: int | None = None
    delivery_count: int = 0
    lease_epoch: int = 0
    fencing_token: int | None = None
    worker_id: str | None = None
    lease_until: datetime | None = None
    deadline: datetime | None = None
    cancel_requested_at: datetime | None = None
    error: str | None = None
    reason: str | None = None
    reported: str | None = None
    idempotency_key: str = ""
    start_deadline: datetime | None = None
    exclusion_group: str | None = None
    discarded_by: str | None = None
    backfill_id: str | None = None
    result: Any = None
    progress: Any = None
    labels: Mapping[str, str] = field(default_factory=dict)
    attempts: tuple[Attempt, ...] = ()
    raw: Mapping[str, Any] = _raw()


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event of the log. `changes`: each changed member with its value before and after."""

    type: str
    partition: int = 0
    offset: int = 0
    at: datetime | None = None
    entity: str = ""
    actor: str = ""
    cause: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)
    raw: Mapping[str, Any] = _raw()


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Who runs a partition of the log, and how far it is. `state`: RUNNING, RESTORING or STOPPED."""

    partition: int
    state: str
    owner: str | None = None
    reason: str | None = None
    position: int | None = None
    lag: int | None = None
    restore_remaining: int | None = None
    tz_version: str | None = None
    at: datetime | None = None
    raw: Mapping[str, Any] = _raw()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledTask:
    """The answer of the short form: `instance_id` is the execution's id."""

    job_id: str
    instance_id: str
    status: str
    scheduled_time: datetime
    raw: Mapping[str, Any] = _raw()


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed(_Carrier):
    """An execution under a lease. `progress` is what an earlier attempt left; times are the server's."""

    execution_id: str
    job_id: str
    task: str
    lease_epoch: int
    lease_until: datetime
    fencing_token: int = 0
    tenant: str = ""
    name: str = ""
    kind: str | None = None
    scheduled_time: datetime | None = None
    attempt: int = 1
    max_attempts: int | None = None
    delivery_count: int = 1
    deadline: datetime | None = None
    idempotency_key: str = ""
    progress: Any = None
    labels: Mapping[str, str] = field(default_factory=dict)
    traceparent: str | None = None
    raw: Mapping[str, Any] = _raw()


@dataclass(frozen=True, slots=True)
class Grants:
    """What a claim got. `server_time` is the server's clock at the answer (whole seconds), if it said so."""

    executions: tuple[Claimed, ...]
    server_time: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseAnswer:
    """The answer to one heartbeat or outcome: 200, or a problem's status and code (`lease_lost` …)."""

    status: int
    code: str = ""
    detail: str = ""
    extend_until: datetime | None = None
    server_time: datetime | None = None

    @property
    def accepted(self) -> bool:
        """Whether it was taken; also if it had been taken before."""
        return self.status == 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Previewed:
    """An occurrence of a schedule. `local` is the zone's wall clock with its offset, `due_at` includes the
    jitter, `note` says what a skipped or repeated local time does."""

    utc: datetime
    local: str
    due_at: datetime | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a schedule will do, by the code that does it."""

    schedule: Mapping[str, Any]
    occurrences: tuple[Previewed, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """What became of an occurrence, or will. `to` and `count`: of as many, from `scheduled_time` to `to`."""

    scheduled_time: datetime
    status: str | None = None
    to: datetime | None = None
    count: int = 1
    reason: str | None = None
    execution_id: str | None = None
    kind: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrences:
    """Occurrences of a job, oldest first; the rest begins at `next_from`, None: that was all."""

    occurrences: tuple[Occurrence, ...]
    next_from: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """How many executions were made, or would be; at most 1,000 of their occurrences are shown."""

    backfill_id: str
    count: int
    occurrences: tuple[Occurrence, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TzShift:
    """A job whose next occurrence new zone data moved."""

    tenant: str
    job_id: str
    time_zone: str
    at: datetime
    next_run_before: datetime | None = None
    next_run_after: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TzShifts:
    """What one version of the zone data moved: how many jobs, and the newest of them."""

    tz_version: str
    count: int
    shifts: tuple[TzShift, ...] = ()
