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
class LastExecution:
    """The newest execution of a job."""

    execution_id: str
    status: str
    finished_at: datetime | None = None
    error: str | None = None
    raw: Mapping[str, Any] = _raw()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as the server understood it. `status`: ACTIVE, PAUSED, CANCELLED or COMPLETED.

    `last_execution`, `counts` (executions by status) and `payload` come with `get_job` only.
    """

    job_id: str
    status: str
    version: int = 1
    name: str = ""
    next_run_at: datetime | None = None
    schedule: Mapping[str, Any] = field(default_factory=dict)
    target: Mapping[str, Any] = field(default_factory=dict)
    retry_policy: Mapping[str, Any] = field(default_factory=dict)
    payload: Any = None
    timeout_sec: int | None = None
    lease_sec: int | None = None
    max_deliveries: int | None = None
    priority: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    created_at: datetime | None = None
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
    """One grant of an execution to a worker."""

    lease_epoch: int
    attempt: int = 1
    delivery_count: int = 1
    fencing_token: int | None = None
    worker_id: str | None = None
    status: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    error: str | None = None
    raw: Mapping[str, Any] = _raw()


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One occurrence of a job. `status`: SCHEDULED, PENDING, RUNNING, COMPLETED, FAILED, CANCELLED, SKIPPED.

    `attempts` and `result` come with `get_execution` only.
    """

    execution_id: str
    status: str
    job_id: str = ""
    kind: str | None = None
    pool: str | None = None
    task: str | None = None
    scheduled_time: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    attempt: int = 1
    delivery_count: int = 0
    lease_epoch: int = 0
    fencing_token: int | None = None
    worker_id: str | None = None
    waiting_for: str | None = None
    cancel_requested_at: datetime | None = None
    error: str | None = None
    reason: str | None = None
    result: Any = None
    attempts: tuple[Attempt, ...] = ()
    raw: Mapping[str, Any] = _raw()


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event of the log about a job or an execution; what changed is in `raw`."""

    type: str
    time: datetime | None = None
    actor: str | None = None
    raw: Mapping[str, Any] = _raw()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A given-up execution, with what is needed to judge and replay it."""

    execution_id: str
    job_id: str = ""
    pool: str | None = None
    task: str | None = None
    reason: str | None = None
    error: str | None = None
    attempt: int | None = None
    payload: Any = None
    attempts: tuple[Attempt, ...] = ()
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
    tz_version: str | None = None
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
class Claimed:
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
    payload: Any = None
    payload_base64: str | None = None
    content_type: str | None = None
    progress: Any = None
    labels: Mapping[str, str] = field(default_factory=dict)
    traceparent: str | None = None
    raw: Mapping[str, Any] = _raw()

    @property
    def content(self) -> Any:
        """The payload: a JSON value, or bytes if it was registered as bytes."""
        return self.payload if self.payload_base64 is None else base64.b64decode(self.payload_base64)


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
