"""Tenants, pools, alerts, figures, and dead letters by filter: each request of the API as a pure function.

What is None is left as it is; `NONE` sets the default.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from horarium.exchange import Call
from horarium.forms import given, one, paged, params_of, path_of, window_of
from horarium.models import Execution, Page
from horarium.schedules import payload_json
from horarium.tenant_models import Alert, OwnTenant, Pool, Stats, TenantSettings

NONE: Final[Any] = object()
"""Sets the default: no bound of a pool, no alert target, what a number is if nobody sets it."""


def _settings(**members: Any) -> dict[str, Any]:
    return {name: None if value is NONE else value for name, value in given(**members).items()}


def own_tenant() -> Call[OwnTenant]:
    """Limits, usage, share, circuit breakers and pools of the key's tenant."""
    return Call(method="GET", path=path_of("tenant"), parse=one(OwnTenant), reads=True)


def update_own_tenant(
    *,
    alert_target: str | None = None,
    lateness_alert_sec: int | None = None,
    default_jitter_sec: int | None = None,
    reason: str | None = None,
) -> Call[OwnTenant]:
    """Changes what a tenant sets itself."""
    body = _settings(
        alertTarget=alert_target,
        latenessAlertSec=lateness_alert_sec,
        defaultJitterSec=default_jitter_sec,
        reason=reason,
    )
    return Call(method="PATCH", path=path_of("tenant"), body=body, parse=one(OwnTenant), makes=True)


def list_tenants(
    *, page_size: int | None = None, page_token: str | None = None
) -> Call[Page[TenantSettings]]:
    """Tenants that were configured or have jobs, by name (operators)."""
    return Call(
        method="GET",
        path=path_of("tenants"),
        params=params_of(pageSize=page_size, pageToken=page_token),
        parse=paged(TenantSettings, "tenants"),
        reads=True,
    )


def get_tenant(tenant: str) -> Call[TenantSettings]:
    """Settings of one tenant (operators)."""
    return Call(method="GET", path=path_of("tenants", tenant), parse=one(TenantSettings))


def configure_tenant(
    tenant: str,
    *,
    weight: int | None = None,
    shards: int | None = None,
    max_running: int | None = None,
    max_jobs: int | None = None,
    registrations_per_sec: int | None = None,
    default_jitter_sec: int | None = None,
    lateness_alert_sec: int | None = None,
    reason: str | None = None,
) -> Call[TenantSettings]:
    """Sets what is given, at once (operators). `shards` cannot change while the tenant has jobs, and more
    than one only while `max_jobs` is 0, which closes registration."""
    body = _settings(
        weight=weight,
        shards=shards,
        maxRunning=max_running,
        maxJobs=max_jobs,
        registrationsPerSec=registrations_per_sec,
        defaultJitterSec=default_jitter_sec,
        latenessAlertSec=lateness_alert_sec,
        reason=reason,
    )
    return Call(
        method="PUT", path=path_of("tenants", tenant), body=body, parse=one(TenantSettings), makes=True
    )


def pause_tenant(tenant: str, *, reason: str | None = None) -> Call[TenantSettings]:
    """Nothing of the tenant is handed to workers until it is resumed (operators)."""
    path = path_of("tenants", tenant, "pause")
    return Call(method="POST", path=path, body=given(reason=reason), parse=one(TenantSettings), makes=True)


def resume_tenant(tenant: str, *, reason: str | None = None) -> Call[TenantSettings]:
    """What waits is handed out again (operators)."""
    path = path_of("tenants", tenant, "resume")
    return Call(method="POST", path=path, body=given(reason=reason), parse=one(TenantSettings), makes=True)


def list_pools(*, page_size: int | None = None, page_token: str | None = None) -> Call[Page[Pool]]:
    """Pools by name: those of the tenant; for operators the shared ones."""
    return Call(
        method="GET",
        path=path_of("pools"),
        params=params_of(pageSize=page_size, pageToken=page_token),
        parse=paged(Pool, "pools"),
        reads=True,
    )


def get_pool(pool: str) -> Call[Pool]:
    """What a pool has to do, and who works there."""
    return Call(method="GET", path=path_of("pools", pool), parse=one(Pool), reads=True)


def configure_pool(
    pool: str,
    *,
    max_running: int | None = None,
    tenant_max_running: int | None = None,
    reason: str | None = None,
) -> Call[Pool]:
    """Bounds what runs in a pool, at once; `tenant_max_running` is of one tenant in a shared pool."""
    body = _settings(maxRunning=max_running, tenantMaxRunning=tenant_max_running, reason=reason)
    return Call(method="PUT", path=path_of("pools", pool), body=body, parse=one(Pool), makes=True)


def pause_pool(pool: str, *, reason: str | None = None) -> Call[Pool]:
    """Nothing of the pool is handed to workers until it is resumed."""
    path = path_of("pools", pool, "pause")
    return Call(method="POST", path=path, body=given(reason=reason), parse=one(Pool), makes=True)


def resume_pool(pool: str, *, reason: str | None = None) -> Call[Pool]:
    """What waits is handed out again."""
    path = path_of("pools", pool, "resume")
    return Call(method="POST", path=path, body=given(reason=reason), parse=one(Pool), makes=True)


def list_alerts(
    *,
    kind: str | None = None,
    job_id: str | None = None,
    since: datetime | str | None = None,
    page_size: int | None = None,
    page_token: str | None = None,
) -> Call[Page[Alert]]:
    """Alerts, newest first; operators get those of the installation."""
    return Call(
        method="GET",
        path=path_of("alerts"),
        params=params_of(kind=kind, jobId=job_id, since=since, pageSize=page_size, pageToken=page_token),
        parse=paged(Alert, "alerts"),
        reads=True,
    )


def stats(*, job_id: str | None = None, window_sec: int | None = None) -> Call[Stats]:
    """Counts, lateness and backlog of the tenant or of one job, over a day or `window_sec`."""
    params = params_of(jobId=job_id, window=window_sec)
    return Call(method="GET", path=path_of("stats"), params=params, parse=one(Stats), reads=True)


def replay_dead_letters(
    *,
    job_id: str | None = None,
    pool: str | None = None,
    task: str | None = None,
    failed_because: str | None = None,
    since: datetime | str | None = None,
    until: datetime | str | None = None,
    payload: Any = None,
    content_type: str | None = None,
    dry_run: bool = True,
    reason: str | None = None,
    idempotency_key: str | None = None,
) -> Call[int]:
    """Runs every dead letter that the filter finds again, with a corrected payload if given; how many. A dry
    run unless told otherwise. `failed_because` is the letters' reason, `reason` is for the history."""
    found = given(jobId=job_id, pool=pool, task=task, reason=failed_because) | window_of(since, until)
    body = {"filter": found, "dryRun": dry_run} | payload_json(payload, content_type) | given(reason=reason)
    return Call(
        method="POST",
        path=path_of("dead-letters", "replay"),
        body=body,
        parse=lambda answer: int(answer.json()["count"]),
        makes=True,
        key=idempotency_key,
    )


def discard_dead_letter(execution_id: str, *, reason: str | None = None) -> Call[Execution]:
    """A dead letter is dealt with otherwise: it is forgotten without another run."""
    return Call(
        method="DELETE",
        path=path_of("dead-letters", execution_id),
        body=given(reason=reason),
        parse=one(Execution),
    )
