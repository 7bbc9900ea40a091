"""Refusals: a command that is not done is answered with one of these values, never with an exception.

Each has the HTTP status that the API gives. A refusal changes no entity.
"""

from __future__ import annotations

from dataclasses import dataclass

from schemas.replies import FieldProblem


@dataclass(frozen=True, slots=True)
class Refusal:
    """`code` is stable and machine-readable; `detail` is for people and says what would be accepted. `limit`
    and `retry_after_ms` are those of a rate or number that was reached."""

    status: int
    code: str
    detail: str
    errors: tuple[FieldProblem, ...] = ()
    limit: int = 0
    retry_after_ms: int = 0


def invalid(*errors: FieldProblem) -> Refusal:
    """Names every wrong field."""
    return Refusal(400, "invalid", "; ".join(f"{e.field}: {e.detail}" for e in errors[:5]), errors)


def too_large(field: str, limit: int) -> Refusal:
    detail = f"may be at most {limit} bytes"
    return Refusal(413, "too_large", f"{field} {detail}", (FieldProblem(field=field, detail=detail),))


def not_found(what: str) -> Refusal:
    return Refusal(404, "not_found", f"no such {what}")


def too_many_jobs(limit: int) -> Refusal:
    detail = f"the tenant may have {limit} living jobs" + ("" if limit else ": registration is closed")
    return Refusal(429, "too_many_jobs", detail, limit=limit)


def rate_limited(limit: int, retry_after_ms: int) -> Refusal:
    detail = f"the tenant may register {limit} jobs a second"
    return Refusal(429, "rate_limited", detail, limit=limit, retry_after_ms=retry_after_ms)


KEY_REUSED = Refusal(422, "idempotency_key_reused", "this Idempotency-Key was used with another request")
VERSION_DIFFERS = Refusal(412, "version_differs", "the job has another version than If-Match names")
NOT_PAUSED = Refusal(409, "not_paused", "the job is not paused")
JOB_EXISTS = Refusal(409, "job_exists", "a job with this id exists already")
JOB_FINISHED = Refusal(409, "job_finished", "the job is cancelled or completed")
ALREADY_FINISHED = Refusal(409, "already_finished", "the execution has already finished")
LEASE_LOST = Refusal(409, "lease_lost", "the lease is held by another worker or epoch, or has ended")
OTHER_POOL = Refusal(403, "forbidden", "this key is for other pools")
CANCELLED = Refusal(409, "cancelled", "the execution was cancelled")
TIMED_OUT = Refusal(409, "timeout", "the attempt ran longer than timeoutSec")
NOT_DEAD_LETTERED = Refusal(409, "not_dead_lettered", "the execution is not in the dead letters")
SHARDS_FIXED = Refusal(
    409,
    "shards_fixed",
    "shards are fixed while a job or an execution of the tenant is known in any partition",
)
REGISTRATION_OPEN = Refusal(
    409, "registration_open", "shards of a tenant with several change only while its maxJobs is 0"
)
SETTINGS_CHANGED = Refusal(
    503, "settings_changed", "the tenant's settings have just changed and not every part knows yet; ask again"
)
TOO_MANY_POOLS = Refusal(409, "too_many_pools", "too many pools have settings of their own")
MISROUTED = Refusal(
    409, "misrouted", "the command was sent to a partition that does not hold its tenant and job"
)
INTERNAL_ERROR = Refusal(
    500, "internal_error", "the command could not be decided and was put into quarantine"
)
