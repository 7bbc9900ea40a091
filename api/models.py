"""Owns the bodies that callers send, as types: member names, kinds, defaults. Unknown members are refused.

Ranges and lengths are checked on the command made from a body (`streams.core.validation`), for HTTP and Kafka
alike; here stands only what a command cannot hold. The OpenAPI description is made from these same types.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from schemas.entities import RecordMeta
from streams.core.limits import EPOCH, LATENESS_ALERT_SEC, MAX_CONCURRENT, RUNNING, START_DEADLINE_SEC

WAIT_SEC_MAX = 20
CLAIM_MAX = 1_000

Epoch = Annotated[int, Meta(ge=EPOCH[0], le=EPOCH[1])]
Tenant = str | None
"""Whose execution it is, as the claim said: needed with keys of shared pools."""
LatenessSec = Annotated[int, Meta(ge=LATENESS_ALERT_SEC[0], le=LATENESS_ALERT_SEC[1])]
PoolMax = Annotated[int, Meta(ge=1, le=RUNNING[1])] | None | UnsetType
Overlap = Literal["queue", "skip", "allow", "cancel_running"]
Level = Literal["high", "normal", "low"]


class Body(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    forbid_unknown_fields=True,
    metaclass=RecordMeta,
):
    """Base of everything that a caller sends."""


class ScheduleBody(Body, kw_only=True):
    """Exactly one of `runAt`, `delaySec`, `cron`, `everySec`."""

    cron: str | None = None
    time_zone: str | None = None
    run_at: str | None = None
    delay_sec: int | None = None
    every_sec: int | None = None
    allow_past: bool = False
    start_at: str | None = None
    end_at: str | None = None
    max_runs: int | None = None
    jitter_sec: int | None = None


class TargetBody(Body, kw_only=True):
    """The workers' pool and what they shall do; the task is the job's name if left out."""

    pool: str = "default"
    task: str | None = None


class RetryBody(Body, kw_only=True):
    """Attempts in total and the backoff between them."""

    max_attempts: int = 4
    backoff_base_sec: int = 10
    backoff_factor: float = 3.0
    backoff_max_sec: int = 3600
    jitter: Literal["full", "none"] = "full"


class PayloadBody(Body, kw_only=True):
    """Data for the worker: `payload` (any JSON), or `payloadBase64` with `contentType`."""

    payload: msgspec.Raw | UnsetType = UNSET
    payload_base64: str | None = None
    content_type: str | None = None


class JobBody(PayloadBody, kw_only=True):
    """A job to register; only `schedule` is required."""

    schedule: ScheduleBody
    name: str = ""
    target: TargetBody = TargetBody()
    retry_policy: RetryBody = RetryBody()
    timeout_sec: int = 21_600
    lease_sec: int = 60
    max_deliveries: int = 5
    priority: Level = "normal"
    overlap_policy: Overlap = "queue"
    queue_limit: int = 1
    max_concurrent: Annotated[int, Meta(ge=1, le=MAX_CONCURRENT[1])] | None = None
    misfire_policy: Literal["fire_all", "fire_once", "skip"] = "fire_all"
    misfire_window_sec: int = 86_400
    start_deadline_sec: Annotated[int, Meta(ge=1, le=START_DEADLINE_SEC[1])] | None = None
    exclusion_group: Annotated[str, Meta(min_length=1)] | None = None
    idempotency_key_template: Annotated[str, Meta(min_length=1)] | None = None
    lateness_alert_sec: LatenessSec | None = None
    labels: dict[str, str] = {}
    reason: str = ""


def _patch_of(kind: type[Body]) -> dict[str, Any]:
    """The same members, none of them needed, each may be null."""
    fields = msgspec.structs.fields(kind)
    types = {field.name: field.type | None | UnsetType for field in fields}
    return {"__annotations__": types} | dict.fromkeys(types, UNSET)


JobPatch = RecordMeta(
    "JobPatch",
    (Body,),
    {"__doc__": "Members to change (RFC 7396): null takes one away, others stay.", "__module__": __name__}
    | _patch_of(JobBody),
)


class BatchItem(JobBody, kw_only=True):
    """A job within a batch, with its own idempotency key."""

    request_key: str | None = None


class BatchBody(Body, kw_only=True):
    """Up to 1,000 jobs."""

    jobs: list[BatchItem]


class ReasonBody(Body, kw_only=True):
    """Why, for the history."""

    reason: str = ""


class TriggerBody(PayloadBody, kw_only=True):
    """A run by hand; without a payload the job's own is used."""

    overlap_policy: Overlap | None = None
    reason: str = ""


class ResumeBody(ReasonBody, kw_only=True):
    """`missed`: what fell into the pause is skipped, unless this says otherwise."""

    missed: Literal["fire_once", "fire_all"] | None = None


class BackfillBody(ReasonBody, kw_only=True):
    """Occurrences scheduled in [`from`, `to`); those that ran are left out unless `rerun`."""

    from_: str = msgspec.field(name="from")
    to: str
    dry_run: bool = False
    overlap_policy: Overlap | None = None
    rerun: bool = False
    priority: Level = "low"


class JobFilterBody(Body, kw_only=True):
    """Which jobs; what is left out does not matter."""

    pool: str = ""
    name: str = ""
    labels: dict[str, str] = {}


class BulkBody(ReasonBody, kw_only=True):
    """One action for many jobs. `dryRun`: only counts them."""

    filter: JobFilterBody
    action: Literal["pause", "resume", "cancel"]
    dry_run: bool = False


class DeadLetterFilterBody(Body, kw_only=True):
    """Which dead letters; what is left out does not matter. Given up in [`from`, `to`)."""

    job_id: str = ""
    pool: str = ""
    task: str = ""
    reason: str = ""
    from_: str | None = msgspec.field(name="from", default=None)
    to: str | None = None


class TenantBody(ReasonBody, kw_only=True):
    """Settings of a tenant; null is the default, what is left out stays."""

    weight: int | UnsetType | None = UNSET
    shards: int | UnsetType | None = UNSET
    max_running: int | UnsetType | None = UNSET
    max_jobs: int | UnsetType | None = UNSET
    registrations_per_sec: int | UnsetType | None = UNSET
    default_jitter_sec: int | UnsetType | None = UNSET
    lateness_alert_sec: int | UnsetType | None = UNSET


class OwnTenantPatch(ReasonBody, kw_only=True):
    """What a tenant sets itself (RFC 7396): null is the default, what is left out stays. `alertTarget`: a
    public https URL."""

    alert_target: str | UnsetType | None = UNSET
    lateness_alert_sec: int | UnsetType | None = UNSET
    default_jitter_sec: int | UnsetType | None = UNSET


class PoolBody(ReasonBody, kw_only=True):
    """Settings of a pool; null: no bound, what is left out stays. `tenantMaxRunning`: of one tenant in a
    shared pool; null is half of `maxRunning`."""

    max_running: PoolMax = UNSET
    tenant_max_running: PoolMax = UNSET


class ReplayBody(PayloadBody, kw_only=True):
    """A replay; a payload corrects the one that failed."""

    reason: str = ""


class ReplayManyBody(ReplayBody, kw_only=True):
    """A replay of every dead letter that the filter finds. `dryRun`: only counts them."""

    filter: DeadLetterFilterBody
    dry_run: bool = False


class ShortJobBody(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, metaclass=RecordMeta
):
    """The short form for one-off tasks; `target_topic` names the worker pool."""

    name: str
    execute_at: str
    target_topic: str
    payload: msgspec.Raw | UnsetType = UNSET


class ClaimBody(Body, kw_only=True):
    """Work for up to `max` free places of a worker, waited for up to `waitSec`."""

    worker_id: str
    max: Annotated[int, Meta(ge=1, le=CLAIM_MAX)] = 1
    wait_sec: Annotated[float, Meta(ge=0, le=WAIT_SEC_MAX)] = 0
    lease_sec: int | None = None
    claim_id: str | None = None


class Held(Body, kw_only=True):
    """What a worker must show to act on an execution."""

    worker_id: str
    lease_epoch: Epoch
    tenant: Tenant = None


class HeartbeatBody(Held, kw_only=True):
    """Extends a lease; `progress` (any JSON) is shown to the next attempt."""

    progress: msgspec.Raw | UnsetType = UNSET


class CompleteBody(Held, kw_only=True):
    """A success; `result` is any JSON."""

    result: msgspec.Raw | UnsetType = UNSET


class FailBody(Held, kw_only=True):
    """A failed attempt."""

    error: str
    retryable: bool = True
    retry_after_sec: int | None = None


class ReleaseBody(Held, kw_only=True):
    """Hands an execution back; neither attempt nor delivery is spent."""

    delay_sec: int = 0


class LeaseItem(Body, kw_only=True):
    """One lease of a batch of heartbeats."""

    execution_id: str
    lease_epoch: Epoch
    tenant: Tenant = None
    progress: msgspec.Raw | UnsetType = UNSET


class HeartbeatsBody(Body, kw_only=True):
    """Heartbeats of one worker."""

    worker_id: str
    leases: list[LeaseItem]


class OutcomeItem(Body, kw_only=True):
    """One outcome: `result` belongs to COMPLETED; `error` is needed with FAILED."""

    execution_id: str
    worker_id: str | None = None
    lease_epoch: Epoch
    tenant: Tenant = None
    status: Literal["COMPLETED", "FAILED"]
    result: msgspec.Raw | UnsetType = UNSET
    error: str | None = None
    retryable: bool | None = None
    retry_after_sec: int | None = None


class OutcomesBody(Body, kw_only=True):
    """Outcomes of up to 1,000 executions; `workerId` stands for the items that leave it out."""

    worker_id: str | None = None
    outcomes: list[OutcomeItem]
