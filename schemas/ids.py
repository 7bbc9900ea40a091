"""Ids and entity keys: how they are made and read, in one place (a wrong key overwrites another entity).

Every id in a key is preceded by its tenant. Execution ids begin with their job id, so tenant and execution id
give the partition: `<jobId>.<incarnation>.<scheduled time>.<kind>`, numbers in base 36; the kind of a manual
one goes on with a hash of the request's key, under which a repeated trigger finds it.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

from schemas.entities import (
    Alert,
    Breaker,
    Cursor,
    Entity,
    Execution,
    Job,
    KeptContent,
    Lease,
    PartitionMeta,
    Tenant,
)

TENANT = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
JOB_ID = re.compile(r"[A-Za-z0-9._~-]{1,64}")
NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
"""Of a pool without `shared/`, or of an exclusion group."""
POOL = re.compile(r"(shared/)?" + NAME.pattern)
SHARED = "shared"
"""Owner of the pools that serve all tenants; no tenant has this name."""
_SHARED_POOLS = f"{SHARED}/"
_BEHIND_JOB_ID = re.compile(r"(\.[a-z0-9-]{1,32}){3}")
"""The end of an execution id."""
EXECUTION_ID_CHARS_MAX = 64 + 3 * (1 + 32)
"""A job id and that end."""
DERIVED_PREFIX = "job_"
SCHEDULED_KIND = "s"
MANUAL_KIND = "m"
BACKFILL_KIND = "b"

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_PAIRS = [first + second for first in _DIGITS for second in _DIGITS]


@lru_cache(maxsize=4_096)  # instants above all, and a herd shares its own
def base36(number: int) -> str:
    """Shortest form; negative numbers (instants before 1970) keep their sign."""
    sign, rest = ("-", -number) if number < 0 else ("", number)
    out = ""
    while rest:
        rest, pair = divmod(rest, 36 * 36)
        out = _PAIRS[pair] + out
    return sign + (out.lstrip("0") or "0")


def _short_hash(*parts: str) -> str:
    digest = hashlib.sha256("\x00".join(parts).encode()).digest()
    return base36(int.from_bytes(digest[:13], "big"))


@lru_cache(maxsize=1_024)  # made, and then checked
def derived_job_id(tenant: str, request_key: str) -> str:
    """The id of a job that was registered without one."""
    return DERIVED_PREFIX + _short_hash(tenant, request_key)


@lru_cache(maxsize=65_536)  # asked several times in the life of an execution
def scheduled_execution_id(job_id: str, incarnation: int, scheduled_ms: int) -> str:
    """The id of a scheduled occurrence."""
    return f"{job_id}.{base36(incarnation)}.{base36(scheduled_ms)}.{SCHEDULED_KIND}"


def of_incarnation(job_id: str, incarnation: int) -> str:
    """What the ids of all executions of this incarnation begin with."""
    return f"{job_id}.{base36(incarnation)}."


def scheduled_instant(rest: str) -> int | None:
    """The instant of a scheduled occurrence, from what follows that prefix; None: the id is another one's."""
    digits, _, kind = rest.partition(".")
    return int(digits, 36) if kind == SCHEDULED_KIND else None


def manual_kind(job_id: str, request_key: str) -> str:
    """The last part of the id of the execution that a request triggers."""
    return MANUAL_KIND + _short_hash(job_id, request_key)


def manual_execution_id(job_id: str, incarnation: int, fired_ms: int, request_key: str) -> str:
    """The id of a triggered execution. Its time keeps it from being used again after it was forgotten."""
    return f"{job_id}.{base36(incarnation)}.{base36(fired_ms)}.{manual_kind(job_id, request_key)}"


def backfill_execution_id(job_id: str, incarnation: int, scheduled_ms: int, backfill_id: str) -> str:
    """The id of a backfilled occurrence: its own, since the occurrence may have run and been forgotten."""
    return f"{job_id}.{base36(incarnation)}.{base36(scheduled_ms)}.{BACKFILL_KIND}{_short_hash(backfill_id)}"


def derived_backfill_id(job_id: str, request_key: str) -> str:
    """The id of a backfill, from the key of its request: repeated, it is the same one."""
    return "bf_" + _short_hash(job_id, request_key)


def version_id(job_id: str, version: int) -> str:
    """Under this, in place of an execution id, stands what a superseded version gave its executions."""
    return f"{job_id}@{version}"


def job_part(execution_id: str) -> str:
    """What an execution id begins with."""
    return execution_id.rsplit(".", 3)[0]


def job_id_of(execution_id: str) -> str | None:
    """The job id that an execution id begins with; None if it is not one."""
    # Cut first: a job id may have dots, so one pattern for the whole is tried at every character of it (15
    # microseconds an outcome instead of 3; measured).
    job_id = job_part(execution_id)
    is_one = JOB_ID.fullmatch(job_id) and _BEHIND_JOB_ID.fullmatch(execution_id, len(job_id))
    return job_id if is_one else None


def is_of(execution_id: str, job_id: str, incarnation: int) -> bool:
    """Whether the execution belongs to this incarnation of the job."""
    return execution_id.startswith(of_incarnation(job_id, incarnation))


def job_key(tenant: str, job_id: str) -> str:
    return f"job:{tenant}/{job_id}"


def cursor_key(tenant: str, job_id: str) -> str:
    return f"cursor:{tenant}/{job_id}"


def cursor_key_of(key: str) -> str | None:
    """That of a job's cursor, by the job's own; None if the key is of something else."""
    kind, _, rest = key.partition(":")
    return f"cursor:{rest}" if kind == "job" else None


def execution_key(tenant: str, execution_id: str) -> str:
    return f"exec:{tenant}/{execution_id}"


def lease_key(tenant: str, execution_id: str) -> str:
    return f"lease:{tenant}/{execution_id}"


def content_key(tenant: str, execution_id: str) -> str:
    return f"pay:{tenant}/{execution_id}"


def is_shared(pool: str) -> bool:
    """Whether the pool serves all tenants."""
    return pool.startswith(_SHARED_POOLS)


@lru_cache(maxsize=4_096)  # asked at each step of an execution, and few pools are busy at a time
def pool_key(tenant: str, pool: str) -> str:
    """`<owner>/<name>`: a pool belongs to its tenant, `shared/<name>` to all."""
    return pool if is_shared(pool) else f"{tenant}/{pool}"


def pool_of(pool_key: str) -> str:
    """The pool's name as its askers spell it."""
    return pool_key if is_shared(pool_key) else pool_key.partition("/")[2]


def tenant_key(tenant: str) -> str:
    return f"tenant:{tenant}"


def breaker_key(tenant: str, target: str) -> str:
    return f"breaker:{tenant}:{target}"


def target_of(execution: Execution) -> str:
    """What a breaker stands for: where the execution is sent."""
    return target_pool(execution.pool)


def target_pool(pool: str) -> str:
    """The target that a pool is."""
    return f"pool:{pool}"


def alert_key(tenant: str, alert_id: str) -> str:
    return f"alert:{tenant}/{alert_id}"


def alert_id(at_ms: int, *subject: str) -> str:
    """The id of an alert: its instant, and a hash of what it says. Of one partition alone."""
    return f"{base36(at_ms)}.{_short_hash(*subject)}"


META_KEY = "meta:partition"


def key_of(entity: Entity) -> str:
    """The key under which the log and the state keep the entity."""
    match entity:
        case Execution():
            return execution_key(entity.tenant, entity.execution_id)
        case Cursor():
            return cursor_key(entity.tenant, entity.job_id)
        case Job():
            return job_key(entity.tenant, entity.job_id)
        case Lease():
            return lease_key(entity.tenant, entity.execution_id)
        case KeptContent():
            return content_key(entity.tenant, entity.execution_id)
        case PartitionMeta():
            return META_KEY
        case Breaker():
            return breaker_key(entity.tenant, entity.target)
        case Alert():
            return alert_key(entity.tenant, entity.alert_id)
        case Tenant():
            return tenant_key(entity.tenant)
