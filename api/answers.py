"""Owns what callers get, as types: member names and order. The OpenAPI description is made from these.

`api.rendering` fills them from entities; nothing else makes an answer.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from api.problems import ProblemBody
from schemas.entities import RecordMeta

Json = msgspec.Raw
Time = str
"""RFC 3339, UTC, with `Z`."""


class Answer(msgspec.Struct, frozen=True, kw_only=True, rename="camel", metaclass=RecordMeta):
    """Base of everything that callers get."""


class ScheduleAnswer(Answer, kw_only=True, omit_defaults=True):
    """The schedule as understood."""

    cron: str | None = None
    cron_expanded: str | None = None
    time_zone: str | None = None
    run_at: Time | None = None
    every_sec: int | None = None
    anchored_at: Time | None = None
    start_at: Time | None = None
    end_at: Time | None = None
    max_runs: int | None = None
    jitter_sec: int | None = None


class TargetAnswer(Answer, kw_only=True):
    """Who does it."""

    pool: str
    task: str


class RetryAnswer(Answer, kw_only=True):
    """Attempts and backoff."""

    max_attempts: int
    backoff_base_sec: int
    backoff_factor: float
    backoff_max_sec: int
    jitter: str


class LastExecutionAnswer(Answer, kw_only=True):
    """The newest occurrence that was fired."""

    execution_id: str
    status: str
    scheduled_time: Time
    finished_at: Time | None
    error: str | None


class PausedAnswer(Answer, kw_only=True):
    """Who paused a job, when and why."""

    by: str
    at: Time
    reason: str


class JobAnswer(Answer, kw_only=True):
    """A job as understood, defaults shown. The payload is only in the answer to a read of this one job."""

    job_id: str
    name: str
    status: str
    version: int
    next_run_at: Time | None
    next_execution_id: str | None
    schedule: ScheduleAnswer
    target: TargetAnswer
    retry_policy: RetryAnswer
    timeout_sec: int
    lease_sec: int
    max_deliveries: int
    priority: str
    overlap_policy: str
    queue_limit: int
    max_concurrent: int | None
    misfire_policy: str
    misfire_window_sec: int
    start_deadline_sec: int | None
    exclusion_group: str | None
    idempotency_key_template: str | None
    lateness_alert_sec: int | None
    labels: dict[str, str]
    created_at: Time
    created_by: str
    updated_at: Time | None
    updated_by: str | None
    paused: PausedAnswer | None = None
    payload: Json | UnsetType = UNSET
    payload_base64: str | UnsetType = UNSET
    content_type: str | UnsetType = UNSET
    last_execution: LastExecutionAnswer | UnsetType | None = UNSET
    counts: dict[str, int] | UnsetType = UNSET


class AttemptAnswer(Answer, kw_only=True):
    """One grant."""

    attempt: int
    delivery_count: int
    lease_epoch: int
    fencing_token: int
    worker_id: str
    started_at: Time
    ended_at: Time | None
    ended_by: str | None
    error: str | None
    reported: str | None


class ExecutionAnswer(Answer, kw_only=True):
    """One occurrence from due to done."""

    execution_id: str
    job_id: str
    name: str | UnsetType = UNSET
    task: str | UnsetType = UNSET
    pool: str
    kind: str
    status: str
    waiting_for: str | None
    priority: str
    scheduled_time: Time
    due_at: Time
    fired_at: Time | None
    started_at: Time | None
    first_started_at: Time | None
    finished_at: Time | None
    attempt: int
    delivery_count: int
    lease_epoch: int
    fencing_token: int | None
    worker_id: str | None
    lease_until: Time | None
    deadline: Time | None
    cancel_requested_at: Time | None
    error: str | None
    reason: str | None
    reported: str | None
    idempotency_key: str
    start_deadline: Time | None
    exclusion_group: str | None
    backfill_id: str | None
    result: Json | None
    progress: Json | UnsetType = UNSET
    labels: dict[str, str] | UnsetType = UNSET
    max_attempts: int | UnsetType = UNSET
    discarded_by: str | UnsetType = UNSET
    attempts: list[AttemptAnswer] | UnsetType = UNSET
    payload: Json | UnsetType = UNSET
    payload_base64: str | UnsetType = UNSET
    content_type: str | UnsetType = UNSET


class ExecutionRef(Answer, kw_only=True):
    """Which execution; to be read under /v1/executions."""

    execution_id: str
    status: str


class PreviewedAnswer(Answer, kw_only=True, omit_defaults=True):
    """An occurrence of a schedule. `dueAt`: with its jitter; `note`: what a skipped or repeated local time
    does."""

    utc: Time
    local: str
    due_at: Time | None = None
    note: str | None = None


class PreviewAnswer(Answer, kw_only=True):
    """What a schedule will do, by the code that does it."""

    schedule: ScheduleAnswer
    occurrences: list[PreviewedAnswer]


class OccurrenceAnswer(Answer, kw_only=True, omit_defaults=True):
    """What became of an occurrence, or will. `to` and `count`: of as many, from `scheduledTime` to `to`."""

    scheduled_time: Time
    status: str | None = None
    to: Time | None = None
    count: int | None = None
    reason: str | None = None
    execution_id: str | None = None
    kind: str | None = None


class OccurrencesAnswer(Answer, kw_only=True):
    """Occurrences of a job, oldest first. `nextFrom`: the rest begins there; null: that was all."""

    occurrences: list[OccurrenceAnswer]
    next_from: Time | None


class BackfillAnswer(Answer, kw_only=True):
    """How many executions were made, or would be; at most 1,000 of their occurrences are shown."""

    backfill_id: str
    count: int
    occurrences: list[OccurrenceAnswer]


class CountAnswer(Answer, kw_only=True):
    """To how many it was done, or would be."""

    count: int


class TzShiftAnswer(Answer, kw_only=True):
    """A job whose next occurrence new zone data moved."""

    tenant: str
    job_id: str
    time_zone: str
    at: Time
    next_run_before: Time | None
    next_run_after: Time | None


class TzShiftList(Answer, kw_only=True):
    """What one version of the zone data moved: how many jobs, and the newest of them."""

    tz_version: str
    count: int
    shifts: list[TzShiftAnswer]


class EventAnswer(Answer, kw_only=True):
    """One event of the log. `changes`: member to [before, after]."""

    partition: int
    offset: int
    at: Time
    type: str
    entity: str
    actor: str
    cause: str
    changes: dict[str, tuple[Any, Any]]


class JobList(Answer, kw_only=True):
    """One page of jobs, newest first."""

    jobs: list[JobAnswer]
    next_page_token: str


class ExecutionList(Answer, kw_only=True):
    """One page of executions, newest first."""

    executions: list[ExecutionAnswer]
    next_page_token: str


class DeadLetterList(Answer, kw_only=True):
    """One page of dead letters, newest first."""

    dead_letters: list[ExecutionAnswer]
    next_page_token: str


class EventList(Answer, kw_only=True):
    """One page of events, newest first."""

    events: list[EventAnswer]
    next_page_token: str


class BatchResult(Answer, kw_only=True, omit_defaults=True):
    """What became of one job of a batch."""

    status: int
    job: JobAnswer | None = None
    problem: ProblemBody | None = None
    replayed: bool = False


class BatchAnswer(Answer, kw_only=True):
    """One result for each job, in their order."""

    results: list[BatchResult]


class ShortJobAnswer(msgspec.Struct, frozen=True, kw_only=True, metaclass=RecordMeta):
    """A one-off task that was registered."""

    job_id: str
    instance_id: str
    status: str
    scheduled_time: Time


class GrantAnswer(Answer, kw_only=True):
    """An execution under a lease, with all that its worker needs."""

    execution_id: str
    job_id: str
    tenant: str
    task: str
    name: str
    kind: str
    scheduled_time: Time
    attempt: int
    max_attempts: int
    delivery_count: int
    lease_epoch: int
    fencing_token: int
    lease_until: Time
    deadline: Time
    idempotency_key: str
    payload: Json | UnsetType = UNSET
    payload_base64: str | UnsetType = UNSET
    content_type: str
    progress: Json | None
    labels: dict[str, str]
    traceparent: str | None


class ClaimAnswer(Answer, kw_only=True):
    """What a worker got; empty when there was nothing within `waitSec`."""

    executions: list[GrantAnswer]


class HeartbeatAnswer(Answer, kw_only=True):
    """Until when the lease holds now."""

    extend_until: Time


class ReportAnswer(Answer, kw_only=True):
    """The outcome was accepted."""

    execution_id: str


class ReportResult(Answer, kw_only=True, omit_defaults=True):
    """What became of one item."""

    execution_id: str
    status: int
    extend_until: Time | None = None
    problem: ProblemBody | None = None


class ReportResults(Answer, kw_only=True):
    """One result for each item, in their order."""

    results: list[ReportResult]


class PartitionAnswer(Answer, kw_only=True):
    """Who runs a partition, and how far it is."""

    partition: int
    owner: str
    state: str
    reason: str
    position: int
    lag: int
    restore_remaining: int
    tz_version: str
    at: Time | None


class PartitionList(Answer, kw_only=True):
    """Every partition, also those nobody ever ran."""

    partitions: list[PartitionAnswer]


class HealthAnswer(Answer, kw_only=True):
    """Whether the process can serve; what is missing if not."""

    status: str
    missing: list[str]
