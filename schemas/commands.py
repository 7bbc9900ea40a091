"""What callers ask for: imperative records on the topics `commands` and `work`.

A command may be refused; it is never replayed. Everything in it is checked again by the core, since trusted
services produce commands without passing through the API.
"""

from __future__ import annotations

import enum

from schemas.entities import Content, OverlapPolicy, Policies, Priority, Record


class Command(Record):
    """Fields of every command. `reply_partition` -1: nobody waits. `request_key`: Idempotency-Key or ""."""

    command_id: str
    tenant: str
    actor: str
    reply_partition: int = -1
    session: str = ""
    request_key: str = ""
    reason: str = ""


class RegisterMode(enum.StrEnum):
    """CREATE refuses another definition under the same id; PUT makes a finished job anew."""

    CREATE = "CREATE"
    PUT = "PUT"


class ScheduleSpec(Record):
    """A schedule as the caller wrote it; exactly one of `run_at`, `delay_sec`, `cron`, `every_sec`."""

    run_at: str | None = None
    delay_sec: int | None = None
    cron: str | None = None
    every_sec: int | None = None
    time_zone: str | None = None
    allow_past: bool = False
    start_at: str | None = None
    end_at: str | None = None
    max_runs: int | None = None
    jitter_sec: int | None = None


class RegisterJob(Command, kw_only=True):
    """Makes a job. `job_id` is chosen by the caller or derived (`schemas.ids.derived_job_id`)."""

    job_id: str
    mode: RegisterMode = RegisterMode.CREATE
    schedule: ScheduleSpec
    pool: str
    content: Content
    policies: Policies


class UpdateJob(Command, kw_only=True):
    """Replaces the definition of a living job; `version` is what the caller saw."""

    job_id: str
    version: int
    schedule: ScheduleSpec
    pool: str
    content: Content
    policies: Policies


class PauseJob(Command, kw_only=True):
    """The job does not fire until it is resumed; the cursor stays."""

    job_id: str


class MissedInPause(enum.StrEnum):
    """What becomes of occurrences that fell into a pause."""

    SKIP = "SKIP"
    FIRE_ONCE = "FIRE_ONCE"
    FIRE_ALL = "FIRE_ALL"


class ResumeJob(Command, kw_only=True):
    """The job fires again."""

    job_id: str
    missed: MissedInPause = MissedInPause.SKIP


class BackfillJob(Command, kw_only=True):
    """Makes executions for occurrences of the past, at most 1,000; larger ones are cut up by their caller."""

    job_id: str
    backfill_id: str
    scheduled_ms: tuple[int, ...]
    overlap: OverlapPolicy | None = None
    rerun: bool = False
    priority: Priority = Priority.LOW


class CancelJob(Command, kw_only=True):
    """No further occurrences; pending executions end, running ones are asked to."""

    job_id: str


class CancelExecution(Command, kw_only=True):
    """Ends one execution, also the scheduled next one of a job."""

    execution_id: str


class TriggerJob(Command, kw_only=True):
    """Makes a manual execution now; the cursor stays. `payload` None: the job's own."""

    job_id: str
    payload: bytes | None = None
    content_type: str = ""
    overlap: OverlapPolicy | None = None


class ReplayDeadLetter(Command, kw_only=True):
    """Puts a dead-lettered execution back to PENDING. A payload corrects it and changes its key."""

    execution_id: str
    payload: bytes | None = None
    content_type: str = ""


class DiscardDeadLetter(Command, kw_only=True):
    """A dead letter is dealt with: it is forgotten without another run."""

    execution_id: str


class ConfigureTenant(Command, kw_only=True):
    """Changes settings of `tenant`; None leaves one as it is. Decided by the tenant's home partition.

    Other `shards` of a tenant with several partitions: it is sent to each of the others first, which only say
    whether they agree, and to the home last, all with the `version` of the settings that the caller saw.
    """

    shards: int | None = None
    weight: int | None = None
    max_running: int | None = None
    max_jobs: int | None = None
    registrations_per_sec: int | None = None
    default_jitter_sec: int | None = None
    lateness_alert_sec: int | None = None
    alert_target: str | None = None
    paused: bool | None = None
    version: int | None = None


class ConfigurePool(Command, kw_only=True):
    """Changes settings of a pool of `tenant` (`shared`: of a pool that serves all); None leaves one as it is.
    `pool` is the name without `shared/`."""

    pool: str
    paused: bool | None = None
    max_running: int | None = None
    tenant_max_running: int | None = None


class Slot(Record):
    """Free places of one worker. `lease_sec` 0: as the job says. `claim_id` "": not repeatable; `known`: the
    asker has heard from this partition what the claim holds here, it is not looked up again."""

    worker_id: str
    credit: int
    claim_id: str = ""
    lease_sec: int = 0
    known: bool = False


class RequestWork(Command, kw_only=True):
    """Interest and credit of one asker session in one pool at one partition; the newest `seq` replaces.

    `grants_seen`: grants of this partition to this session and pool that the asker had seen when it sent
    this. `park_sec` counts from the broker's timestamp. `ack`: answer with `WorkSeen` whatever happens.
    `running_max`: its credit is used only while fewer of the pool run in this partition; 0: no such bound.
    """

    pool: str
    seq: int
    grants_seen: int
    park_sec: int
    slots: tuple[Slot, ...] = ()
    ack: bool = False
    running_max: int = 0


class LeaseRef(Record):
    """What a worker must show to act on an execution."""

    execution_id: str
    worker_id: str
    lease_epoch: int


class Beat(LeaseRef, kw_only=True):
    """One heartbeat; `progress` None leaves the stored one."""

    progress: bytes | None = None


class Completion(LeaseRef, kw_only=True):
    """A success and its result (JSON bytes or empty)."""

    result: bytes = b""


class Failure(LeaseRef, kw_only=True):
    """A failed attempt. `retry_after_sec` -1: by the job's policy."""

    error: str
    retryable: bool = True
    retry_after_sec: int = -1


class Handback(LeaseRef, kw_only=True):
    """A release: neither attempt nor delivery is spent. `delay_sec` 0: pending at once."""

    delay_sec: int = 0


class ExtendLease(Command, kw_only=True):
    """Heartbeats of any number of workers of a tenant in one partition (at most 1,000).

    `pools`, also in `Complete`, `Fail` and `Release`: those that the workers' key is for; empty means every
    pool of the tenant's own, no shared one.
    """

    items: tuple[Beat, ...]
    pools: tuple[str, ...] = ()


class Complete(Command, kw_only=True):
    """Successes (at most 1,000)."""

    items: tuple[Completion, ...]
    pools: tuple[str, ...] = ()


class Fail(Command, kw_only=True):
    """Failed attempts (at most 1,000)."""

    items: tuple[Failure, ...]
    pools: tuple[str, ...] = ()


class Release(Command, kw_only=True):
    """Executions handed back (at most 1,000)."""

    items: tuple[Handback, ...]
    pools: tuple[str, ...] = ()


JobCommand = (
    RegisterJob
    | UpdateJob
    | PauseJob
    | ResumeJob
    | BackfillJob
    | CancelJob
    | CancelExecution
    | TriggerJob
    | ReplayDeadLetter
    | DiscardDeadLetter
    | ConfigureTenant
    | ConfigurePool
)
WorkCommand = RequestWork | ExtendLease | Complete | Fail | Release
