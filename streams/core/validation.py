"""Form of commands: the same check in the API, before anything is written, and in the core, for other doors.

Pure and stateless; what depends on the clock or on state is refused by the handlers. Fields are named as
the HTTP API spells them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise
from typing import TypeVar

from schemas.commands import (
    BackfillJob,
    Beat,
    CancelExecution,
    CancelJob,
    Complete,
    Completion,
    ConfigurePool,
    ConfigureTenant,
    DiscardDeadLetter,
    ExtendLease,
    Fail,
    Failure,
    Handback,
    JobCommand,
    LeaseRef,
    PauseJob,
    RegisterJob,
    Release,
    ReplayDeadLetter,
    RequestWork,
    ResumeJob,
    ScheduleSpec,
    TriggerJob,
    UpdateJob,
    WorkCommand,
)
from schemas.entities import Content, Policies
from schemas.ids import (
    DERIVED_PREFIX,
    JOB_ID,
    NAME,
    POOL,
    SHARED,
    TENANT,
    derived_job_id,
    is_shared,
    job_id_of,
)
from schemas.replies import FieldProblem
from schemas.topics import REPLY_PARTITIONS
from streams.core import key_templates, limits
from streams.core.cron import parse_cron
from streams.core.instants import TimeInputError, parse_instant, parse_local
from streams.core.outside import is_inside
from streams.core.refusals import Refusal, invalid, too_large
from streams.core.zones import get_zone

Number = TypeVar("Number", int, float)
Problems = Iterable[FieldProblem]
"""Checks of one value are plain functions: nearly always there is nothing wrong, and `()` costs least."""
NOBODY = -1
"""The reply partition of a command whose outcome nobody waits for."""

# C0, DEL, C1 and lone surrogates: unprintable or not encodable, in nothing that people or logs will read.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_HTTPS_URL = re.compile(
    r"https://([A-Za-z0-9][A-Za-z0-9.-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?"
    r"(?:[/?][\x21\x22\x24-\x7e]*)?"
)
_VISIBLE_ASCII = re.compile(r"[\x21-\x7e]*")


def refuse(command: JobCommand | WorkCommand) -> Refusal | None:
    """The refusal that the command's form earns (413 before 400), or None."""
    payload = _payload_of(command)
    if payload is not None and len(payload) > limits.PAYLOAD_BYTES_MAX:
        return too_large("payload", limits.PAYLOAD_BYTES_MAX)
    problems = check(command)
    return invalid(*problems) if problems else None


def check(command: JobCommand | WorkCommand) -> list[FieldProblem]:
    """Everything wrong with the form of a command; empty if nothing is."""
    return [*_envelope(command), *_body(command)]


def check_item(item: LeaseRef, *, known: bool) -> list[FieldProblem]:
    """Everything wrong with one item of a work command. `known`: an execution has its id."""
    problems = [
        *_range("leaseEpoch", item.lease_epoch, limits.EPOCH),
        *_text("workerId", item.worker_id, limits.WORKER_ID_CHARS_MAX),
        *(() if known else _execution_id(item.execution_id)),
    ]
    match item:
        case Beat() if item.progress is not None:
            problems += _size("progress", item.progress, limits.PROGRESS_BYTES_MAX)
        case Completion():
            problems += _size("result", item.result, limits.RESULT_BYTES_MAX)
        case Failure() if item.retry_after_sec != -1:
            problems += _range("retryAfterSec", item.retry_after_sec, limits.RELEASE_DELAY_SEC)
        case Handback():
            problems += _range("delaySec", item.delay_sec, limits.RELEASE_DELAY_SEC)
    return problems


def _payload_of(command: JobCommand | WorkCommand) -> bytes | None:
    match command:
        case RegisterJob() | UpdateJob():
            return command.content.payload
        case TriggerJob() | ReplayDeadLetter():
            return command.payload
        case _:
            return None


def _envelope(command: JobCommand | WorkCommand) -> Problems:
    if not TENANT.fullmatch(command.tenant):
        yield _problem("tenant", "is [a-z0-9][a-z0-9-]*, at most 40 characters")
    elif command.tenant == SHARED and not isinstance(command, RequestWork | ConfigurePool):
        yield _problem("tenant", f"{SHARED!r} is kept for pools that serve all tenants")
    yield from _text("commandId", command.command_id, limits.KEY_CHARS_MAX)
    yield from _text("actor", command.actor, limits.KEY_CHARS_MAX, needed=False)
    yield from _text("session", command.session, limits.KEY_CHARS_MAX, needed=False)
    if not NOBODY <= command.reply_partition < REPLY_PARTITIONS:
        yield _problem("replyPartition", f"is {NOBODY} to {REPLY_PARTITIONS - 1}")
    key = command.request_key
    if len(key) > limits.KEY_CHARS_MAX or not _VISIBLE_ASCII.fullmatch(key):
        yield _problem("Idempotency-Key", "is 1 to 255 visible ASCII characters")
    if command.reason:
        yield from _text("reason", command.reason, limits.REASON_CHARS_MAX)


def _body(command: JobCommand | WorkCommand) -> Problems:
    match command:
        case RegisterJob():
            yield from _job_id(command.job_id)
            yield from _derived(command)
            yield from _definition(command)
        case UpdateJob():
            yield from _job_id(command.job_id)
            yield from _definition(command)
        case BackfillJob():
            yield from _job_id(command.job_id)
            yield from _backfill(command)
        case CancelJob() | PauseJob() | ResumeJob():
            yield from _job_id(command.job_id)
        case TriggerJob():
            yield from _job_id(command.job_id)
            yield from _content_type(command.content_type)
        case CancelExecution() | DiscardDeadLetter():
            yield from _execution_id(command.execution_id)
        case ReplayDeadLetter():
            yield from _execution_id(command.execution_id)
            yield from _content_type(command.content_type)
        case ConfigureTenant():
            yield from _tenant_settings(command)
        case ConfigurePool():
            yield from _pool_settings(command)
        case RequestWork():
            yield from _request(command)
        case ExtendLease() | Complete() | Fail() | Release():
            if not 0 < len(command.items) <= limits.ENTITIES_PER_COMMAND_MAX:
                yield _problem("items", f"are 1 to {limits.ENTITIES_PER_COMMAND_MAX}")


def _derived(command: RegisterJob) -> Problems:
    derived = command.job_id.startswith(DERIVED_PREFIX)
    if derived and command.job_id != derived_job_id(command.tenant, command.request_key):
        yield _problem("jobId", f"may not start with {DERIVED_PREFIX!r}, which is kept for derived ids")


def _definition(command: RegisterJob | UpdateJob) -> Problems:
    if not POOL.fullmatch(command.pool):
        yield _problem("target.pool", "is [A-Za-z0-9._-]{1,100} or shared/<such a name>")
    yield from check_schedule(command.schedule, f"{command.tenant}/{command.job_id}")
    yield from _content(command.content)
    yield from _policies(command.policies)


def _backfill(command: BackfillJob) -> Problems:
    yield from _text("backfillId", command.backfill_id, limits.KEY_CHARS_MAX)
    times = command.scheduled_ms
    if len(times) > limits.ENTITIES_PER_COMMAND_MAX:
        yield _problem("scheduledMs", f"are at most {limits.ENTITIES_PER_COMMAND_MAX}")
    elif any(later <= earlier for earlier, later in pairwise((0, *times))):
        yield _problem("scheduledMs", "rise, and are after 1970")


def check_schedule(spec: ScheduleSpec, seed: str) -> Problems:
    """Everything wrong with the form of a schedule. `seed`: `<tenant>/<jobId>`."""
    given = [
        name
        for name, value in (
            ("runAt", spec.run_at),
            ("delaySec", spec.delay_sec),
            ("cron", spec.cron),
            ("everySec", spec.every_sec),
        )
        if value is not None
    ]
    if len(given) != 1:
        yield _problem("schedule", "needs exactly one of runAt, delaySec, cron, everySec")
        return
    try:
        if spec.time_zone is not None:
            get_zone(spec.time_zone)
        if spec.run_at is not None:
            parse = parse_instant if spec.time_zone is None else parse_local
            parse(spec.run_at, "schedule.runAt")
        if spec.cron is not None:
            if len(spec.cron) > limits.CRON_CHARS_MAX:
                yield _problem("schedule.cron", f"is at most {limits.CRON_CHARS_MAX} characters")
                return
            parse_cron(spec.cron, seed)
        for name, bound in (("startAt", spec.start_at), ("endAt", spec.end_at)):
            if bound is not None and parse_instant(bound, f"schedule.{name}") <= 0:
                yield _problem(f"schedule.{name}", "is before 1970")
    except TimeInputError as error:
        yield _problem(error.field, error.detail)
    if spec.time_zone is not None and given[0] in ("delaySec", "everySec"):
        yield _problem("schedule.timeZone", f"means nothing beside {given[0]}")
    if spec.allow_past and given[0] != "runAt":
        yield _problem("schedule.allowPast", "goes with runAt only")
    if spec.delay_sec is not None:
        yield from _range("schedule.delaySec", spec.delay_sec, limits.SCHEDULE_DELAY_SEC)
    if spec.every_sec is not None:
        yield from _range("schedule.everySec", spec.every_sec, limits.EVERY_SEC)
    if spec.max_runs is not None:
        yield from _range("schedule.maxRuns", spec.max_runs, limits.MAX_RUNS)
    if spec.jitter_sec is not None:
        yield from _range("schedule.jitterSec", spec.jitter_sec, limits.JITTER_SEC)


def _content(content: Content) -> Problems:
    yield from _text("name", content.name, limits.NAME_CHARS_MAX, needed=False)
    yield from _text("target.task", content.task, limits.TASK_CHARS_MAX)
    yield from _content_type(content.content_type)
    if len(content.labels) > limits.LABELS_MAX:
        yield _problem("labels", f"are at most {limits.LABELS_MAX}")
    for name, value in content.labels.items():
        field = f"labels.{name[: limits.LABEL_NAME_CHARS_MAX]}"
        yield from _text(field, name, limits.LABEL_NAME_CHARS_MAX)
        yield from _text(field, value, limits.LABEL_VALUE_CHARS_MAX, needed=False)


def _policies(policies: Policies) -> Problems:
    longest = max(len(policies.exclusion_group), len(policies.idempotency_key_template))
    # A refused text may be as long as a request: a thousand remembered ones would fill the memory.
    return _known_problems(policies) if longest <= limits.KEY_CHARS_MAX else _policy_problems(policies)


@lru_cache(maxsize=1_024)  # most jobs of a tenant have the same
def _known_problems(policies: Policies) -> Problems:
    return tuple(_policy_problems(policies))


def _policy_problems(policies: Policies) -> Problems:
    retry = policies.retry
    yield from _range("retryPolicy.maxAttempts", retry.max_attempts, limits.MAX_ATTEMPTS)
    yield from _range("retryPolicy.backoffBaseSec", retry.backoff_base_sec, limits.BACKOFF_BASE_SEC)
    yield from _range("retryPolicy.backoffFactor", retry.backoff_factor, limits.BACKOFF_FACTOR)
    longest = (max(1, retry.backoff_base_sec), limits.BACKOFF_MAX_SEC[1])
    yield from _range("retryPolicy.backoffMaxSec", retry.backoff_max_sec, longest)
    yield from _range("timeoutSec", policies.timeout_sec, limits.TIMEOUT_SEC)
    yield from _range("leaseSec", policies.lease_sec, limits.LEASE_SEC)
    yield from _range("maxDeliveries", policies.max_deliveries, limits.MAX_DELIVERIES)
    yield from _range("misfireWindowSec", policies.misfire_window_sec, limits.MISFIRE_WINDOW_SEC)
    yield from _range("queueLimit", policies.queue_limit, limits.QUEUE_LIMIT)
    yield from _range("maxConcurrent", policies.max_concurrent, limits.MAX_CONCURRENT)
    yield from _range("startDeadlineSec", policies.start_deadline_sec, limits.START_DEADLINE_SEC)
    yield from _range("latenessAlertSec", policies.lateness_alert_sec, (0, limits.LATENESS_ALERT_SEC[1]))
    if policies.exclusion_group and not NAME.fullmatch(policies.exclusion_group):
        yield _problem("exclusionGroup", "is [A-Za-z0-9._-]{1,100}")
    try:
        key_templates.parse(policies.idempotency_key_template)
    except TimeInputError as error:
        yield _problem(error.field, error.detail)


def _tenant_settings(command: ConfigureTenant) -> Problems:
    for field, value, bounds in (
        ("shards", command.shards, limits.SHARDS),
        ("weight", command.weight, limits.WEIGHT),
        ("maxRunning", command.max_running, limits.RUNNING),
        ("maxJobs", command.max_jobs, limits.JOBS),
        ("registrationsPerSec", command.registrations_per_sec, limits.REGISTRATIONS_PER_SEC),
        ("defaultJitterSec", command.default_jitter_sec, limits.JITTER_SEC),
        ("latenessAlertSec", command.lateness_alert_sec, limits.LATENESS_ALERT_SEC),
    ):
        if value is not None:
            yield from _range(field, value, bounds)
    if command.alert_target:
        yield from _outer_url("alertTarget", command.alert_target, limits.ALERT_TARGET_CHARS_MAX)


def _outer_url(field: str, url: str, longest: int) -> Problems:
    found = _HTTPS_URL.fullmatch(url)
    if len(url) > longest:
        yield _problem(field, f"is at most {longest} characters")
    elif found is None:
        yield _problem(field, "is an https URL with a host, without user and fragment")
    elif is_inside(found[1]):
        yield _problem(field, "has a host that is not public")


def _pool_settings(command: ConfigurePool) -> Problems:
    if not NAME.fullmatch(command.pool):
        yield _problem("pool", "is [A-Za-z0-9._-]{1,100}")
    for field, value in (
        ("maxRunning", command.max_running),
        ("tenantMaxRunning", command.tenant_max_running),
    ):
        if value is not None:
            yield from _range(field, value, (0, limits.RUNNING[1]))


def _request(command: RequestWork) -> Problems:
    if not POOL.fullmatch(command.pool):
        yield _problem("pool", "is [A-Za-z0-9._-]{1,100}")
    elif (command.tenant == SHARED) != is_shared(command.pool):
        yield _problem("pool", f"of tenant {SHARED!r} is {SHARED}/<name>, and of no other tenant")
    if command.reply_partition < 0 or not command.session:
        yield _problem("session", "and replyPartition are needed: a grant must reach its asker")
    yield from _range("seq", command.seq, limits.COUNTER)
    yield from _range("grantsSeen", command.grants_seen, limits.COUNTER)
    yield from _range("parkSec", command.park_sec, limits.PARK_SEC)
    yield from _range("runningMax", command.running_max, limits.COUNTER)
    if len(command.slots) > limits.SLOTS_PER_REQUEST_MAX:
        yield _problem("slots", f"are at most {limits.SLOTS_PER_REQUEST_MAX}")
    for slot in command.slots:
        yield from _text("workerId", slot.worker_id, limits.WORKER_ID_CHARS_MAX)
        yield from _text("claimId", slot.claim_id, limits.KEY_CHARS_MAX, needed=False)
        yield from _range("max", slot.credit, limits.CREDIT)
        if slot.lease_sec:
            yield from _range("leaseSec", slot.lease_sec, limits.LEASE_SEC)


def _job_id(job_id: str) -> Problems:
    return () if JOB_ID.fullmatch(job_id) else _problems("jobId", "is [A-Za-z0-9._~-]{1,64}")


def _execution_id(execution_id: str) -> Problems:
    return () if job_id_of(execution_id) is not None else _problems("executionId", "is no execution id")


def _content_type(content_type: str) -> Problems:
    return _text("contentType", content_type, limits.CONTENT_TYPE_CHARS_MAX, needed=False)


def _text(field: str, text: str, longest: int, *, needed: bool = True) -> Problems:
    if needed and not text:
        return _problems(field, "is needed")
    if len(text) > longest:
        return _problems(field, f"is at most {longest} characters")
    # Python's word for it is stricter, and said at once.
    if not text.isprintable() and _UNPRINTABLE.search(text):
        return _problems(field, "has control characters or lone surrogates")
    return ()


def _size(field: str, data: bytes, longest: int) -> Problems:
    return () if len(data) <= longest else _problems(field, f"is at most {longest} bytes")


def _range(field: str, value: Number, bounds: tuple[Number, Number]) -> Problems:
    if bounds[0] <= value <= bounds[1]:
        return ()
    return _problems(field, "is 0 to 2^63-1" if bounds == limits.EPOCH else f"is {bounds[0]} to {bounds[1]}")


def _problems(field: str, detail: str) -> Problems:
    return (_problem(field, detail),)


def _problem(field: str, detail: str) -> FieldProblem:
    return FieldProblem(field=field, detail=detail)
