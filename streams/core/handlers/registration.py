"""RegisterJob and UpdateJob: a new job, a new version of one, the stored answer to a repeat, or a refusal."""

from __future__ import annotations

import hashlib
import json

import msgspec
from msgspec.structs import replace

from schemas import ids
from schemas.commands import RegisterJob, RegisterMode, UpdateJob
from schemas.entities import Answered, Content, Cursor, Job, KeptContent, Schedule, ScheduleKind
from schemas.events import ContentKept, CursorMoved, JobRegistered, JobUpdated
from schemas.replies import FieldProblem
from streams.core.caps import share
from streams.core.handlers.answering import answers_of, remember, repeated, with_answer
from streams.core.handlers.following import follow_up, make_all_kept
from streams.core.handlers.outcome import Done
from streams.core.handlers.pausing import skip_missed
from streams.core.handlers.scheduling import point, settle
from streams.core.lifecycle import JOB_FINAL
from streams.core.planning import first_occurrence, jittered_ms, resolve, seed_of
from streams.core.refusals import (
    JOB_EXISTS,
    JOB_FINISHED,
    KEY_REUSED,
    SETTINGS_CHANGED,
    VERSION_DIFFERS,
    Refusal,
    invalid,
    not_found,
    rate_limited,
    too_many_jobs,
)
from streams.core.schedule import Occurrence
from streams.core.state import beginning
from streams.core.transaction import Transaction
from streams.core.zones import TZ_VERSION

_JSON = ("", "application/json")
_SPACE = " \t\n\r"
_EXACT = 2.0**53
_GROUP_OF_SHARDS = FieldProblem(
    field="exclusionGroup", detail="is not possible for a tenant with more than one shard"
)


def register_job(tx: Transaction, command: RegisterJob) -> Done | Refusal:
    """Semantics §7: the job keeps key, hash and first answer as long as it exists."""
    body_hash = fingerprint(command)
    existing = tx.state.job(command.tenant, command.job_id)
    if existing is not None:
        cursor = settle(tx, existing)
        answer = _is_repeat(tx, command, existing, cursor, body_hash)
        if answer is not None:
            return answer
    return _make(tx, command, existing, body_hash)


def _is_repeat(
    tx: Transaction, command: RegisterJob, existing: Job, cursor: Cursor, body_hash: str
) -> Done | Refusal | None:
    """The answer to a request for an id that is taken; None: a finished job is made anew by PUT."""
    same_key = bool(command.request_key) and existing.request_key == command.request_key
    if same_key and existing.body_hash != body_hash:
        return KEY_REUSED
    if command.mode is RegisterMode.CREATE:
        return _first_answer(existing, 201) if existing.body_hash == body_hash else JOB_EXISTS
    if same_key:
        return _first_answer(existing, 200)
    answer = repeated(existing, cursor, command, body_hash)
    if answer is not None or cursor.status in JOB_FINAL:
        return answer
    if existing.definition_hash == body_hash:
        return Done(200, existing, remember(tx, existing, cursor, command, body_hash), replayed=True)
    return _update(tx, existing, cursor, command, body_hash)


def _first_answer(job: Job, status: int) -> Done:
    return Done(status, job, beginning(job), replayed=True)


def update_job(tx: Transaction, command: UpdateJob) -> Done | Refusal:
    """A new version of a living job; what was due before is settled under the old one."""
    job = tx.state.job(command.tenant, command.job_id)
    if job is None:
        return not_found("job")
    cursor = settle(tx, job)
    body_hash = fingerprint(command)
    answer = repeated(job, cursor, command, body_hash)
    if answer is not None:
        return answer
    if cursor.status in JOB_FINAL:
        return JOB_FINISHED
    if job.version != command.version:
        return VERSION_DIFFERS
    return _update(tx, job, cursor, command, body_hash)


def _update(
    tx: Transaction, job: Job, cursor: Cursor, command: RegisterJob | UpdateJob, body_hash: str
) -> Done | Refusal:
    """Unfinished executions, and kept misfires, go on as fired; the new version counts from the next one.
    What fell into a pause waits for the resume, unless the schedule it belongs to is replaced."""
    if _is_group_of_shards(tx, command):
        return invalid(_GROUP_OF_SHARDS)
    jitter_sec = tx.router.settings_of(job.tenant).default_jitter_sec
    schedule = resolve(command.schedule, seed_of(job), tx.now_ms, jitter_sec, former=job.schedule)
    if isinstance(schedule, FieldProblem):
        return invalid(schedule)
    definition = (schedule, command.pool, command.content, command.policies)
    if definition == (job.schedule, job.pool, job.content, job.policies):
        # An UpdateJob names its version, so a repeat of it cannot be done over a newer one.
        is_put = isinstance(command, RegisterJob)
        return Done(200, job, remember(tx, job, cursor, command, body_hash) if is_put else cursor)
    updated = replace(
        job,
        version=job.version + 1,
        pool=command.pool,
        schedule=schedule,
        content=command.content,
        policies=command.policies,
        definition_hash=body_hash,
        updated_ms=tx.now_ms,
        updated_by=command.actor,
    )
    moved = _next_under(tx, updated, job, cursor)
    if not moved.next_ms:
        return invalid(FieldProblem(field="schedule", detail="has no occurrence in the future"))
    make_all_kept(tx, job, cursor)
    _keep_superseded(tx, job)
    tx.emit_job(JobUpdated, updated, job)
    moved = replace(moved, catch_up=(), priority=updated.policies.priority)
    moved = with_answer(moved, command, body_hash, 200, updated.version)
    return Done(200, updated, follow_up(tx, updated, tx.emit_cursor(CursorMoved, cursor, moved)))


def _is_group_of_shards(tx: Transaction, command: RegisterJob | UpdateJob) -> bool:
    """A group's slot is kept by one partition; the jobs of a tenant with several shards are in several."""
    return bool(command.policies.exclusion_group) and tx.router.settings_of(command.tenant).shards > 1


def _next_under(tx: Transaction, job: Job, former: Job, cursor: Cursor) -> Cursor:
    """Where the job stands under its new version."""
    if job.schedule == former.schedule:
        return replace(cursor, skips=())
    cursor = skip_missed(tx, former, cursor)
    if job.schedule.kind is not ScheduleKind.ONCE:
        # From now on, even if the cursor stands behind a next occurrence that was cancelled.
        return point(job, replace(cursor, last_ms=tx.now_ms, last_local=""), tx.now_ms, "")
    # Only behind what has passed: an execution's id is its instant, and of one long ago nobody may know.
    if job.schedule.run_at_ms <= cursor.last_ms:
        return replace(cursor, next_ms=0, next_local="", next_due_ms=0)
    moved = point(job, replace(cursor, last_local=""), job.schedule.run_at_ms - 1, "")
    return replace(moved, next_due_ms=max(moved.next_due_ms, tx.now_ms)) if moved.next_ms else moved


def _keep_superseded(tx: Transaction, job: Job) -> None:
    """Written once by the update; gone with the last unfinished execution of that version."""
    if tx.state.has_open(job.tenant, job.job_id):
        kept = KeptContent(
            tenant=job.tenant,
            execution_id=ids.version_id(job.job_id, job.version),
            content=job.content,
            policies=job.policies,
        )
        tx.emit(ContentKept, kept=kept)


def _make(tx: Transaction, command: RegisterJob, existing: Job | None, body_hash: str) -> Done | Refusal:
    settings = tx.settings_of(command.tenant)
    if settings.shards != tx.router.settings_of(command.tenant).shards:
        return SETTINGS_CHANGED  # this process has not heard yet where the job belongs now
    if _is_group_of_shards(tx, command):
        return invalid(_GROUP_OF_SHARDS)
    seed = f"{command.tenant}/{command.job_id}"
    partitions = tx.router.partitions_of(command.tenant)
    if tx.state.indexes.jobs_of(command.tenant) >= share(settings.max_jobs, partitions, tx.partition):
        return too_many_jobs(settings.max_jobs)
    jitter_sec = settings.default_jitter_sec
    schedule = resolve(command.schedule, seed, tx.now_ms, jitter_sec)
    if isinstance(schedule, FieldProblem):
        return invalid(schedule)
    first = first_occurrence(schedule, seed, tx.now_ms)
    if first is None:
        return invalid(FieldProblem(field="schedule", detail="has no occurrence in the future"))
    per_sec = share(settings.registrations_per_sec, partitions, tx.partition)
    wait_ms = tx.guards.rates.take(command.tenant, per_sec, tx.now_ms)
    if wait_ms:
        return rate_limited(settings.registrations_per_sec, wait_ms)
    job = _job(tx, command, existing, schedule, first, body_hash)
    answered: tuple[Answered, ...] = ()
    if existing is not None:
        answered = answers_of(existing, tx.state.cursor(existing))
        _keep_superseded(tx, existing)
        tx.forget(ids.cursor_key(job.tenant, job.job_id))
    else:
        tx.state.expect_new(job)
    tx.emit_job(JobRegistered, job, existing)
    cursor = beginning(job)
    if answered:
        tx.emit_cursor(CursorMoved, cursor, replace(cursor, answered=answered))
    if cursor.next_due_ms <= tx.now_ms:
        settle(tx, job)
    return Done(201, job, cursor)


def _job(
    tx: Transaction,
    command: RegisterJob,
    existing: Job | None,
    schedule: Schedule,
    first: Occurrence,
    body_hash: str,
) -> Job:
    """Incarnation and version go on where the finished job of the same id left them."""
    version = existing.version + 1 if existing is not None else 1
    return Job(
        tenant=command.tenant,
        job_id=command.job_id,
        incarnation=max(tx.now_ms, existing.incarnation + 1 if existing is not None else 0),
        version=version,
        pool=command.pool,
        schedule=schedule,
        content=command.content,
        policies=command.policies,
        created_ms=tx.now_ms,
        created_by=command.actor,
        request_key=command.request_key,
        body_hash=body_hash,
        first_next_ms=first.utc_ms,
        first_next_local=first.local,
        first_due_ms=jittered_ms(schedule, f"{command.tenant}/{command.job_id}", first),
        tz_version=TZ_VERSION,
        first_version=version,
        definition_hash=body_hash,
    )


def fingerprint(command: RegisterJob | UpdateJob) -> str:
    """Hash of what a registration means: its JSON payload is compared by value, so that a retry that was
    serialised anew is the same request."""
    content = command.content
    meaning = replace(content, payload=canonical(content))
    parts = (command.schedule, command.pool, meaning, command.policies)
    return hashlib.sha256(_PARTS.encode(parts)).hexdigest()[:32]


def canonical(content: Content) -> bytes:
    """The payload as it is compared."""
    if content.content_type not in _JSON or not content.payload:
        return content.payload
    try:
        encoding = json.detect_encoding(content.payload)
        text = content.payload.decode(encoding, "surrogatepass").strip(_SPACE)
        value, end = _READER.raw_decode(text)
        # Else it is not JSON after all, or too deep to compare by value: it is compared by its bytes.
        return _WRITER.encode(value).encode() if end == len(text) else content.payload
    except (ValueError, RecursionError):
        return content.payload


def _number(digits: str) -> int | float:
    """`1.0` and `1e0` are the number 1. From 2^53 on a double does not say which integer was meant."""
    number = float(digits)
    return int(number) if abs(number) < _EXACT and number.is_integer() else number


_PARTS = msgspec.msgpack.Encoder(order="deterministic")
# As `json.loads` and `json.dumps` make them anew at every call: twice the time (measured).
_READER = json.JSONDecoder(parse_float=_number)
_WRITER = json.JSONEncoder(check_circular=False, sort_keys=True, separators=(",", ":"))
