"""Owns what callers get about tenants, pools, breakers, alerts and figures, as types."""

from __future__ import annotations

import msgspec

from api.answers import Answer, Time


class AlertAnswer(Answer, kw_only=True):
    """Something a person should see. `count`: how many this one stands for."""

    alert_id: str
    kind: str
    at: Time
    detail: str
    job_id: str | None
    execution_id: str | None
    target: str | None
    count: int


class AlertList(Answer, kw_only=True):
    """One page of alerts, newest first."""

    alerts: list[AlertAnswer]
    next_page_token: str


class LatenessAnswer(Answer, kw_only=True):
    """First start minus due."""

    count: int
    mean_ms: float
    p50_ms: float
    p99_ms: float
    max_ms: int


class StatsAnswer(Answer, kw_only=True):
    """What happened in every hour that the window touches, and what waits and runs right now by pool.
    `skipped`: executions with an id that were not run; `missed`: occurrences that never got one."""

    from_: Time = msgspec.field(name="from")
    to: Time
    fired: int
    completed: int
    failed: int
    cancelled: int
    skipped: int
    failed_attempts: int
    expired: int
    missed: int
    replayed: int
    failure_rate: float
    lateness: LatenessAnswer
    backlog: dict[str, int]
    running: dict[str, int]
    dead_letters: int


class PendingAnswer(Answer, kw_only=True):
    """Pending executions by priority."""

    high: int
    normal: int
    low: int


class PoolSettingsAnswer(Answer, kw_only=True):
    """Settings of a pool. null: no bound of its own; `tenantMaxRunning` is of one tenant in a shared pool."""

    pool: str
    paused: bool
    max_running: int | None
    tenant_max_running: int | None


class PoolAnswer(PoolSettingsAnswer, kw_only=True):
    """A pool: its settings, what it has to do, and how many workers hold something. Of a shared pool a tenant
    sees what is its own, operators everything."""

    pending_by_priority: PendingAnswer
    oldest_pending_sec: int | None
    running: int
    workers: int


class PoolList(Answer, kw_only=True):
    """One page of pools, by name."""

    pools: list[PoolAnswer]
    next_page_token: str


class TenantAnswer(Answer, kw_only=True):
    """Settings of a tenant; the defaults where nobody set any. `version` 0: nobody ever did."""

    tenant: str
    version: int
    paused: bool
    weight: int
    shards: int
    max_running: int
    max_jobs: int
    registrations_per_sec: int
    default_jitter_sec: int
    lateness_alert_sec: int


class TenantList(Answer, kw_only=True):
    """One page of tenants, by name: those that were configured, or have jobs."""

    tenants: list[TenantAnswer]
    next_page_token: str


class LimitsAnswer(Answer, kw_only=True):
    """What the operators allow. `shards`: over how many partitions jobs and caps are split."""

    weight: int
    shards: int
    max_running: int
    max_jobs: int
    registrations_per_sec: int


class UsageAnswer(Answer, kw_only=True):
    """What there is: jobs that are ACTIVE or PAUSED, and executions."""

    jobs: int
    pending: int
    running: int


class ShareAnswer(Answer, kw_only=True):
    """The tenant's part in a shared pool. `runningOfAll`: of all tenants."""

    pool: str
    running: int
    running_of_all: int
    max_running: int | None
    tenant_max_running: int | None


class BreakerAnswer(Answer, kw_only=True):
    """A circuit breaker. `until`: end of the pause while OPEN; `openings`: in a row; `outcomes`, `failures`:
    those of the window that opened it; `probes`: executions that are tried while PROBING."""

    target: str
    partition: int
    status: str
    changed_at: Time
    until: Time | None
    openings: int
    outcomes: int
    failures: int
    probes: list[str]


class PoolUsageAnswer(Answer, kw_only=True):
    """A pool in short; all about it is under /v1/pools."""

    pool: str
    paused: bool
    max_running: int | None
    pending: int
    running: int


class OwnSettingsAnswer(Answer, kw_only=True):
    """What a tenant sets itself."""

    tenant: str
    version: int
    alert_target: str | None
    lateness_alert_sec: int
    default_jitter_sec: int


class OwnTenantAnswer(OwnSettingsAnswer, kw_only=True):
    """A tenant as it sees itself."""

    paused: bool
    limits: LimitsAnswer
    usage: UsageAnswer
    share: list[ShareAnswer]
    breakers: list[BreakerAnswer]
    pools: list[PoolUsageAnswer]
