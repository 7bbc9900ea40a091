"""Owns `/v1/tenant`: what a tenant sees of itself, and the few settings that are its own."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from api import bodies, params, rendering
from api.auth import read_tenant
from api.changes import encoded, envelope
from api.configuring import configure, setting
from api.followed import Followed
from api.jobs import Owner, Viewer, tenant_param
from api.models import OwnTenantPatch
from api.openapi import described
from api.params import Params
from api.services import services
from api.tenant_answers import (
    BreakerAnswer,
    LimitsAnswer,
    OwnSettingsAnswer,
    OwnTenantAnswer,
    PoolUsageAnswer,
    ShareAnswer,
    UsageAnswer,
)
from projections.breakers import list_breakers
from projections.pools import Usage, usage
from schemas.commands import ConfigureTenant
from schemas.entities import Breaker, Tenant
from streams.core.caps import tenant_max_of
from streams.core.instants import format_instant

router = APIRouter(prefix="/v1/tenant", tags=["tenants"])

_Seen = tuple[Usage, list[tuple[int, Breaker]]]


@router.get("", **described(gives={200: OwnTenantAnswer}, query=(params.TENANT,), reads=True))
async def get(request: Request, caller: Viewer) -> Response:
    """Limits, usage, the share in shared pools, circuit breakers and pools of the tenant."""
    Params(request, *tenant_param(caller))
    served = services(request)
    tenant = read_tenant(request, caller)
    seen, breakers = await served.reads.ask(request, tenant, partial(_seen, tenant=tenant))
    settings = served.followed.settings_of(tenant)
    return encoded(
        OwnTenantAnswer(
            **_own(settings),
            paused=settings.paused,
            limits=LimitsAnswer(
                weight=settings.weight,
                shards=settings.shards,
                max_running=settings.max_running,
                max_jobs=settings.max_jobs,
                registrations_per_sec=settings.registrations_per_sec,
            ),
            usage=UsageAnswer(
                jobs=seen.jobs,
                pending=sum(seen.pending.values()),
                running=sum(seen.running.mine.values()),
            ),
            share=[_share(served.followed, tenant, seen, pool) for pool in seen.running.shared],
            breakers=[_breaker(partition, breaker) for partition, breaker in breakers],
            pools=[_pool(served.followed, tenant, seen, pool) for pool in _pools(settings, seen)],
        )
    )


@router.patch(
    "",
    **described(
        gives={200: OwnSettingsAnswer},
        takes=OwnTenantPatch,
        problems=(422,),
        keyed=True,
        changes=True,
        media_type="application/merge-patch+json",
    ),
)
async def patch(request: Request, caller: Owner) -> Response:
    """Changes `alertTarget`, `latenessAlertSec`, `defaultJitterSec`; null is the default. No `If-Match` is
    needed. Alerts are kept and listed; they are sent to `alertTarget` once HTTP targets are built."""
    served = services(request)
    body = await bodies.decoded(request, OwnTenantPatch)
    command = ConfigureTenant(
        **envelope(served, caller, reason=body.reason),
        alert_target=setting(body.alert_target, ""),
        lateness_alert_sec=setting(body.lateness_alert_sec, _DEFAULTS.lateness_alert_sec),
        default_jitter_sec=setting(body.default_jitter_sec, _DEFAULTS.default_jitter_sec),
    )
    return await configure(request, served, caller, command, lambda now: OwnSettingsAnswer(**_own(now)))


_DEFAULTS = Tenant(tenant="")


def _seen(connection: Any, tenant: str) -> _Seen:
    return usage(connection, tenant), list_breakers(connection, tenant)


def _own(settings: Tenant) -> dict[str, Any]:
    return {
        "tenant": settings.tenant,
        "version": settings.version,
        "alert_target": settings.alert_target or None,
        "lateness_alert_sec": settings.lateness_alert_sec,
        "default_jitter_sec": settings.default_jitter_sec,
    }


def _pools(settings: Tenant, seen: Usage) -> list[str]:
    """Those with settings of their own or something to do."""
    return sorted({*(pool.name for pool in settings.pools), *seen.pending, *seen.running.mine})


def _pool(followed: Followed, tenant: str, seen: Usage, name: str) -> PoolUsageAnswer:
    pool = followed.pool_of(tenant, name)
    return PoolUsageAnswer(
        pool=name,
        paused=pool.paused,
        max_running=pool.max_running or None,
        pending=seen.pending.get(name, 0),
        running=seen.running.mine.get(name, 0),
    )


def _share(followed: Followed, tenant: str, seen: Usage, name: str) -> ShareAnswer:
    pool = followed.pool_of(tenant, name)
    return ShareAnswer(
        pool=name,
        running=seen.running.mine.get(name, 0),
        running_of_all=sum(seen.running.shared[name].values()),
        max_running=pool.max_running or None,
        tenant_max_running=tenant_max_of(pool) or None,
    )


def _breaker(partition: int, breaker: Breaker) -> BreakerAnswer:
    return BreakerAnswer(
        target=breaker.target,
        partition=partition,
        status=breaker.status,
        changed_at=format_instant(breaker.changed_ms),
        until=rendering.instant(breaker.until_ms),
        openings=breaker.openings,
        outcomes=breaker.outcomes,
        failures=breaker.failures,
        probes=list(breaker.probes),
    )
