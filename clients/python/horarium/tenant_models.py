"""Tenants, pools, alerts and figures as frozen dataclasses. Members unknown here are found in `raw`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


def _raw() -> Any:
    return field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantSettings:
    """Settings of a tenant, as operators see them."""

    tenant: str
    version: int = 0
    paused: bool = False
    weight: int = 1
    shards: int = 1
    max_running: int | None = None
    max_jobs: int | None = None
    registrations_per_sec: int | None = None
    default_jitter_sec: int = 0
    lateness_alert_sec: int | None = None
    raw: Mapping[str, Any] = _raw()


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """A circuit breaker. `status`: CLOSED, OPEN (until `until`) or PROBING."""

    target: str
    status: str
    partition: int = 0
    changed_at: datetime | None = None
    until: datetime | None = None
    openings: int = 0
    outcomes: int = 0
    failures: int = 0
    probes: tuple[str, ...] = ()
    raw: Mapping[str, Any] = _raw()


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTenant:
    """A tenant as it sees itself. `limits`, `usage`, `share` (in shared pools) and `pools` as the API has
    them; a change answers with its own settings alone."""

    tenant: str
    version: int = 0
    paused: bool = False
    limits: Mapping[str, int] = field(default_factory=dict)
    usage: Mapping[str, int] = field(default_factory=dict)
    share: tuple[Mapping[str, Any], ...] = ()
    breakers: tuple[Breaker, ...] = ()
    pools: tuple[Mapping[str, Any], ...] = ()
    alert_target: str | None = None
    lateness_alert_sec: int | None = None
    default_jitter_sec: int = 0
    raw: Mapping[str, Any] = _raw()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A pool: settings and, when read, what it has to do. `max_running` None: no bound of its own."""

    pool: str
    paused: bool = False
    max_running: int | None = None
    tenant_max_running: int | None = None
    pending_by_priority: Mapping[str, int] = field(default_factory=dict)
    oldest_pending_sec: int | None = None
    running: int = 0
    workers: int = 0
    raw: Mapping[str, Any] = _raw()


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Something a person should see. `count`: how many this one stands for."""

    alert_id: str
    kind: str
    at: datetime
    detail: str = ""
    job_id: str | None = None
    execution_id: str | None = None
    target: str | None = None
    count: int = 1
    raw: Mapping[str, Any] = _raw()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """First start minus due, in milliseconds."""

    count: int = 0
    mean_ms: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    max_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """What happened within a window, and what waits and runs now by pool; all counts are in `raw`."""

    fired: int = 0
    completed: int = 0
    failed: int = 0
    failure_rate: float = 0.0
    lateness: Lateness = Lateness()
    backlog: Mapping[str, int] = field(default_factory=dict)
    running: Mapping[str, int] = field(default_factory=dict)
    dead_letters: int = 0
    raw: Mapping[str, Any] = _raw()
