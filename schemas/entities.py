"""What the log is about: jobs, cursors, executions, leases, kept payloads, partitions and tenants.

Every entity is a value. An event carries the whole entity after the change, so the newest event of a key
is all that state needs (architecture: event-carried state). Times are integers in milliseconds since the
epoch, `_ms` last; 0 or "" says "not yet" in `Execution`, the one entity that is written several times a run,
because an Avro union costs twice the time of a plain field (measured). Attribute names are camelCase in Avro.
"""

from __future__ import annotations

import enum
from typing import dataclass_transform

import msgspec


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class RecordMeta(msgspec.StructMeta):
    """Tells type checkers that subclasses are frozen and keyword-only too."""


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False, metaclass=RecordMeta):
    """Base of everything that is written to the log.

    Values all the way down, so none can be part of a cycle, and the garbage collector need not know of them:
    walking over those that are kept in memory cost more than a tenth of the engine's time (measured).
    """


class JobStatus(enum.StrEnum):
    """Life of a job; the legal transitions are in `streams.core.lifecycle`."""

    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    CANCELLED = "CANCELLED"
    COMPLETED = "COMPLETED"


class ExecutionStatus(enum.StrEnum):
    """Life of an execution; the legal transitions are in `streams.core.lifecycle`."""

    SCHEDULED = "SCHEDULED"
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    SKIPPED = "SKIPPED"


class WaitingFor(enum.StrEnum):
    """What a PENDING execution waits for; NOTHING for every other status."""

    NOTHING = "NOTHING"
    WORKER = "WORKER"
    OVERLAP = "OVERLAP"
    EXCLUSION = "EXCLUSION"
    CAP = "CAP"
    BREAKER = "BREAKER"
    PAUSED_POOL = "PAUSED_POOL"
    REDELIVERY = "REDELIVERY"


class LeaseEnd(enum.StrEnum):
    """How the newest lease of an execution ended; NONE while it runs or before the first grant."""

    NONE = "NONE"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    RELEASED = "RELEASED"
    EXPIRED = "EXPIRED"
    TIMEOUT = "TIMEOUT"
    CANCELLED = "CANCELLED"


class SkipReason(enum.StrEnum):
    """Why an occurrence was not executed (semantics: misfire and overlap)."""

    PAUSED = "PAUSED"
    MISFIRE_POLICY = "MISFIRE_POLICY"
    MISFIRE_WINDOW = "MISFIRE_WINDOW"
    MISFIRE_LIMIT = "MISFIRE_LIMIT"
    OVERLAP = "OVERLAP"
    DEADLINE = "DEADLINE"
    CANCELLED = "CANCELLED"


class ExecutionKind(enum.StrEnum):
    """Where an execution came from."""

    SCHEDULE = "SCHEDULE"
    MANUAL = "MANUAL"
    BACKFILL = "BACKFILL"


class Priority(enum.StrEnum):
    """Order within a pool, by weight 16 : 4 : 1."""

    HIGH = "HIGH"
    NORMAL = "NORMAL"
    LOW = "LOW"


class BreakerStatus(enum.StrEnum):
    """CLOSED lets everything through, OPEN holds back, PROBING lets a few through to see."""

    CLOSED = "CLOSED"
    OPEN = "OPEN"
    PROBING = "PROBING"


class RetryJitter(enum.StrEnum):
    """FULL draws the delay from [0, backoff]; NONE waits the whole backoff."""

    FULL = "FULL"
    NONE = "NONE"


class ScheduleKind(enum.StrEnum):
    """The three kinds of schedule; a delay is a ONCE whose instant was computed at registration."""

    ONCE = "ONCE"
    CRON = "CRON"
    EVERY = "EVERY"


class MisfirePolicy(enum.StrEnum):
    """What becomes of missed occurrences."""

    FIRE_ALL = "FIRE_ALL"
    FIRE_ONCE = "FIRE_ONCE"
    SKIP = "SKIP"


class OverlapPolicy(enum.StrEnum):
    """What becomes of an occurrence while an earlier execution of the job is not final."""

    QUEUE = "QUEUE"
    SKIP = "SKIP"
    ALLOW = "ALLOW"
    CANCEL_RUNNING = "CANCEL_RUNNING"


class Schedule(Record):
    """A resolved schedule. `cron` is as sent, `cron_expanded` with every hashed field drawn."""

    kind: ScheduleKind
    run_at_ms: int = 0
    cron: str = ""
    cron_expanded: str = ""
    time_zone: str = "UTC"
    every_ms: int = 0
    anchor_ms: int = 0
    start_at_ms: int = 0
    end_at_ms: int = 0
    max_runs: int = 0
    jitter_ms: int = 0


class RetryPolicy(Record):
    """Attempts in total and the backoff between them."""

    max_attempts: int = 4
    backoff_base_sec: int = 10
    backoff_factor: float = 3.0
    backoff_max_sec: int = 3600
    jitter: RetryJitter = RetryJitter.FULL


class Policies(Record):
    """How executions of a job behave, as they were when the execution fired. `lateness_alert_sec` 0: as the
    tenant has it."""

    priority: Priority = Priority.NORMAL
    retry: RetryPolicy = RetryPolicy()
    timeout_sec: int = 21_600
    lease_sec: int = 60
    max_deliveries: int = 5
    misfire_window_sec: int = 86_400
    misfire: MisfirePolicy = MisfirePolicy.FIRE_ALL
    overlap: OverlapPolicy = OverlapPolicy.QUEUE
    queue_limit: int = 1
    max_concurrent: int = 0
    start_deadline_sec: int = 0
    idempotency_key_template: str = ""
    exclusion_group: str = ""
    lateness_alert_sec: int = 0


class Content(Record):
    """What a worker is given besides the execution itself."""

    name: str
    task: str
    payload: bytes = b""
    content_type: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class Job(Record):
    """Key `job:<tenant>/<job_id>`: the definition with its payload; changed rarely.

    `first_next_ms` and `first_next_local` are the cursor a job begins with and the answer that a repeated
    registration gets. `incarnation` is the registration time, raised above every earlier one of the id.
    """

    tenant: str
    job_id: str
    incarnation: int
    version: int
    pool: str
    schedule: Schedule
    content: Content
    policies: Policies
    created_ms: int
    created_by: str
    request_key: str
    body_hash: str
    first_next_ms: int
    first_next_local: str = ""
    tz_version: str = ""
    updated_ms: int = 0
    updated_by: str = ""
    first_due_ms: int = 0
    first_version: int = 1
    definition_hash: str = ""


class Skip(Record):
    """Occurrences that never became executions, counted exactly, one record a reason."""

    from_ms: int
    to_ms: int
    count: int
    reason: SkipReason


class CatchUp(Record):
    """Kept misfires still to be made: `count` occurrences after the given cursor, up to `to_ms`."""

    after_ms: int
    after_local: str
    from_ms: int
    to_ms: int
    count: int


class Answered(Record):
    """A command on a job, or on settings, that carried a key, and its answer."""

    request_key: str
    body_hash: str
    status: int
    version: int


class Cursor(Record):
    """Key `cursor:<tenant>/<job_id>`: where a job stands. A job without one stands at its beginning.

    `next_ms` 0: no further occurrence. `last_ms` and `last_local` (nominal) are the last occurrence in UTC
    and local time. `priority` is the job's: timers are filed by it. `catch_up` are
    ranges, oldest first, one an outage. `skips` are those of this very event, not a history.
    """

    tenant: str
    job_id: str
    incarnation: int
    status: JobStatus
    next_ms: int = 0
    next_local: str = ""
    last_ms: int = 0
    last_local: str = ""
    catch_up: tuple[CatchUp, ...] = ()
    skips: tuple[Skip, ...] = ()
    tz_version: str = ""
    finished_ms: int = 0
    paused_ms: int = 0
    paused_by: str = ""
    paused_reason: str = ""
    next_due_ms: int = 0
    runs: int = 0
    answered: tuple[Answered, ...] = ()
    priority: Priority = Priority.NORMAL


class Execution(Record):
    """Key `exec:<tenant>/<execution_id>`: one occurrence from due to done; never the payload.

    `due_ms` is when it may start (scheduled time and delays; the end of a backoff for a retry).
    `started_ms`, `worker_id`, `claim_id`, `lease_*`, `deadline_ms` belong to the newest grant.
    `delivery_count` counts grants of this attempt. `fired_ms` is when the partition decided it.
    `replay_key` is the request that put it back from the dead letters, `replays` how often that happened.
    `closes_job`: a one-off needs no cursor of its own to be completed, its execution says so.
    """

    tenant: str
    execution_id: str
    job_version: int
    kind: ExecutionKind
    pool: str
    priority: Priority
    scheduled_ms: int
    due_ms: int
    fired_ms: int
    status: ExecutionStatus
    waiting_for: WaitingFor = WaitingFor.NOTHING
    attempt: int = 1
    delivery_count: int = 0
    lease_epoch: int = 0
    fencing_token: int = 0
    worker_id: str = ""
    claim_id: str = ""
    first_started_ms: int = 0
    started_ms: int = 0
    lease_until_ms: int = 0
    lease_sec: int = 0
    deadline_ms: int = 0
    lease_end: LeaseEnd = LeaseEnd.NONE
    cancel_requested_ms: int = 0
    finished_ms: int = 0
    error: str = ""
    reason: str = ""
    reported: str = ""
    result: bytes = b""
    idempotency_key: str = ""
    replays: int = 0
    replay_key: str = ""
    start_deadline_ms: int = 0
    backfill: str = ""
    exclusion_group: str = ""
    lateness_alert_sec: int = 0
    closes_job: bool = False

    @property
    def job_id(self) -> str:
        """The job's id: an execution id begins with it (`schemas.ids`)."""
        return self.execution_id.rsplit(".", 3)[0]


class Lease(Record):
    """Key `lease:<tenant>/<execution_id>`: all that a heartbeat writes. Void unless its epoch is current."""

    tenant: str
    execution_id: str
    lease_epoch: int
    until_ms: int
    progress: bytes = b""


class KeptContent(Record):
    """Key `pay:<tenant>/<execution_id>`: an own payload (trigger, replay) or a dead letter's copy. With
    `<job_id>@<version>` as id: what a superseded version gave its unfinished executions."""

    tenant: str
    execution_id: str
    content: Content
    policies: Policies


class PartitionMeta(Record):
    """Key `meta:partition`: what this partition was made with; checked at every start."""

    partition: int
    partition_count: int
    tz_version: str


class Pool(Record):
    """Settings of a worker pool. `max_running` 0: no bound of its own. `tenant_max_running`: of one tenant in
    a shared pool; 0: half of `max_running`."""

    name: str
    paused: bool = False
    max_running: int = 0
    tenant_max_running: int = 0


class Tenant(Record):
    """Key `<tenant>` on the tenants topic, `tenant:<tenant>` in the tenant's home partition.

    `shards` is fixed while the tenant has jobs; `max_running` and `max_jobs` are split over them; `max_jobs`
    0 closes registration. `version` counts changes. The pools of tenant `shared` serve all tenants.
    `answered`: the newest commands, those on a pool under `<pool>/<key>`. The defaults hold for tenants that
    nobody has configured (semantics §6).
    """

    tenant: str
    shards: int = 1
    default_jitter_sec: int = 0
    version: int = 0
    paused: bool = False
    weight: int = 1
    max_running: int = 1_000
    max_jobs: int = 100_000
    registrations_per_sec: int = 500
    lateness_alert_sec: int = 60
    alert_target: str = ""
    pools: tuple[Pool, ...] = ()
    answered: tuple[Answered, ...] = ()


class Breaker(Record):
    """Key `breaker:<tenant>:<target>`: the circuit breaker of one target (`pool:<name>`) in one partition.

    `until_ms`: end of the pause while OPEN. `openings`: in a row, each doubles the pause. `probes`: ids of
    the executions that are tried while PROBING. `outcomes`, `failures`: those of the window that opened it.
    """

    tenant: str
    target: str
    status: BreakerStatus
    changed_ms: int
    until_ms: int = 0
    openings: int = 0
    probes: tuple[str, ...] = ()
    outcomes: int = 0
    failures: int = 0


class Alert(Record):
    """Key `alert:<tenant>/<alert_id>`: something a person should see. `tenant` "": operators.

    `kind` as in semantics §6. `target`: a pool or a breaker's target. `count`: how many this one stands for.
    """

    tenant: str
    alert_id: str
    kind: str
    at_ms: int
    detail: str
    job_id: str = ""
    execution_id: str = ""
    target: str = ""
    count: int = 1


Entity = Job | Cursor | Execution | Lease | KeptContent | PartitionMeta | Tenant | Breaker | Alert
