"""RegisterJob: a new job, the stored answer to a repeated request, or a refusal."""

from __future__ import annotations

import hashlib
import json

import msgspec

from schemas import ids
from schemas.commands import RegisterJob, RegisterMode
from schemas.entities import Content, Cursor, Job, Schedule
from schemas.events import JobRegistered
from schemas.replies import FieldProblem
from streams.core.handlers.outcome import Done
from streams.core.handlers.scheduling import settle
from streams.core.lifecycle import JOB_FINAL
from streams.core.planning import first_occurrence, resolve
from streams.core.refusals import JOB_EXISTS, KEY_REUSED, UPDATE_NOT_SUPPORTED, Refusal, invalid
from streams.core.state import beginning
from streams.core.transaction import Transaction
from streams.core.zones import TZ_VERSION

_JSON = ("", "application/json")


def register_job(tx: Transaction, command: RegisterJob) -> Done | Refusal:
    """Semantics §7: the job keeps key, hash and first answer as long as it exists."""
    body_hash = fingerprint(command)
    existing = tx.state.job(command.tenant, command.job_id)
    incarnation = tx.now_ms
    if existing is not None:
        cursor = settle(tx, existing)
        repeated = _is_repeat(command, existing, cursor, body_hash)
        if repeated is not None:
            return repeated
        incarnation = max(incarnation, existing.incarnation + 1)
    schedule = resolve(command.schedule, f"{command.tenant}/{command.job_id}", tx.now_ms)
    if isinstance(schedule, FieldProblem):
        return invalid(schedule)
    return _make(tx, command, schedule, incarnation, body_hash)


def _is_repeat(command: RegisterJob, existing: Job, cursor: Cursor, body_hash: str) -> Done | Refusal | None:
    """The answer to a request for an id that is taken; None: a finished job is made anew by PUT."""
    same_body = existing.body_hash == body_hash
    same_key = bool(command.request_key) and existing.request_key == command.request_key
    if same_key and not same_body:
        return KEY_REUSED
    if command.mode is RegisterMode.CREATE:
        return _first_answer(existing, 201) if same_body else JOB_EXISTS
    if same_key:
        return _first_answer(existing, 200)
    if cursor.status in JOB_FINAL:
        return None
    return Done(200, existing, cursor, replayed=True) if same_body else UPDATE_NOT_SUPPORTED


def _first_answer(job: Job, status: int) -> Done:
    return Done(status, job, beginning(job), replayed=True)


def _make(
    tx: Transaction, command: RegisterJob, schedule: Schedule, incarnation: int, body_hash: str
) -> Done | Refusal:
    first = first_occurrence(schedule, command.tenant, command.job_id, tx.now_ms)
    if first is None:
        return invalid(FieldProblem(field="schedule", detail="has no occurrence in the future"))
    job = Job(
        tenant=command.tenant,
        job_id=command.job_id,
        incarnation=incarnation,
        version=1,
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
        tz_version=TZ_VERSION,
    )
    tx.forget(ids.cursor_key(job.tenant, job.job_id))
    tx.emit(JobRegistered, job=job)
    settle(tx, job)
    return Done(201, job, beginning(job))


def fingerprint(command: RegisterJob) -> str:
    """Hash of what a registration means: its JSON payload is compared by value, so that a retry that was
    serialised anew is the same request."""
    content = command.content
    meaning = msgspec.structs.replace(content, payload=canonical(content))
    parts = (command.schedule, command.pool, meaning, command.policies)
    return hashlib.sha256(msgspec.msgpack.encode(parts, order="deterministic")).hexdigest()[:32]


def canonical(content: Content) -> bytes:
    """The payload as it is compared."""
    if content.content_type not in _JSON or not content.payload:
        return content.payload
    try:
        value = json.loads(content.payload)
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    except (ValueError, RecursionError):
        return content.payload  # not JSON after all, or too deep to compare by value: compared by its bytes
