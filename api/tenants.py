"""Owns what operators see and set of tenants: list, get (from the topic of settings), put, pause, resume."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import Response

from api import bodies, params
from api.auth import Caller
from api.changes import encoded, envelope
from api.configuring import configure, setting
from api.models import ReasonBody, TenantBody
from api.openapi import described
from api.operators import Operator
from api.params import Params
from api.problems import not_found
from api.reads import Connection
from api.services import Services, services
from api.tenant_answers import TenantAnswer, TenantList
from projections.pools import page_of_names, tenant_names
from projections.views import Page
from schemas.commands import ConfigureTenant
from schemas.entities import Tenant
from schemas.ids import SHARED, TENANT

router = APIRouter(prefix="/v1/tenants", tags=["tenants"])

_DEFAULTS = Tenant(tenant="")


@router.get("", **described(gives={200: TenantList}, query=params.PAGE, reads=True))
async def list_(request: Request, caller: Operator) -> Response:
    """Tenants that were configured or have jobs, by name, with their settings."""
    query = Params(request, *params.PAGE)
    served = services(request)
    configured = [name for name in served.followed.tenants() if name != SHARED]
    wanted = query.page()

    def question(connection: Connection) -> Page[str]:
        following = partial(tenant_names, connection)
        return page_of_names(connection, {"list": "tenants"}, wanted, following, configured)

    page = await served.reads.ask(request, caller.tenant, question)
    tenants = [_answer(served.followed.settings_of(name)) for name in page.items]
    return encoded(TenantList(tenants=tenants, next_page_token=page.next_token))


@router.get("/{tenant}", **described(gives={200: TenantAnswer}, problems=(404,)))
async def get(request: Request, caller: Operator, tenant: str) -> Response:
    """Settings of one tenant; the defaults if nobody set any."""
    Params(request)
    _checked(tenant)
    return encoded(_answer(services(request).followed.settings_of(tenant)))


@router.put(
    "/{tenant}",
    **described(
        gives={200: TenantAnswer}, takes=TenantBody, problems=(404, 409, 422), keyed=True, changes=True
    ),
)
async def put(request: Request, caller: Operator, tenant: str) -> Response:
    """Sets what the body names; it counts at once, for whatever is decided from then on. `shards` cannot
    change while the tenant has jobs or executions, finished ones too until they are forgotten; more than one
    only while `maxJobs` is 0, which closes registration."""
    served = services(request)
    _checked(tenant)
    body = await bodies.decoded(request, TenantBody)
    command = ConfigureTenant(
        **envelope(served, caller, reason=body.reason, tenant=tenant),
        weight=setting(body.weight, _DEFAULTS.weight),
        shards=setting(body.shards, _DEFAULTS.shards),
        max_running=setting(body.max_running, _DEFAULTS.max_running),
        max_jobs=setting(body.max_jobs, _DEFAULTS.max_jobs),
        registrations_per_sec=setting(body.registrations_per_sec, _DEFAULTS.registrations_per_sec),
        default_jitter_sec=setting(body.default_jitter_sec, _DEFAULTS.default_jitter_sec),
        lateness_alert_sec=setting(body.lateness_alert_sec, _DEFAULTS.lateness_alert_sec),
    )
    return await configure(request, served, caller, command, _answer)


_SWITCH = described(
    gives={200: TenantAnswer},
    takes=ReasonBody,
    body_needed=False,
    problems=(404, 422),
    keyed=True,
    changes=True,
)


@router.post("/{tenant}/pause", **_SWITCH)
async def pause(request: Request, caller: Operator, tenant: str) -> Response:
    """Nothing of the tenant is handed to workers until it is resumed; jobs fire, and wait."""
    return await _pause(request, caller, tenant, paused=True)


@router.post("/{tenant}/resume", **_SWITCH)
async def resume(request: Request, caller: Operator, tenant: str) -> Response:
    """What waits is handed out again."""
    return await _pause(request, caller, tenant, paused=False)


async def _pause(request: Request, caller: Caller, tenant: str, *, paused: bool) -> Response:
    served: Services = services(request)
    _checked(tenant)
    body = await bodies.decoded(request, ReasonBody)
    sent = envelope(served, caller, reason=body.reason, tenant=tenant)
    command = ConfigureTenant(**sent, paused=paused)
    return await configure(request, served, caller, command, _answer)


def _checked(tenant: str) -> None:
    if not TENANT.fullmatch(tenant) or tenant == SHARED:
        raise not_found("tenant")


def _answer(settings: Tenant) -> TenantAnswer:
    return TenantAnswer(
        tenant=settings.tenant,
        version=settings.version,
        paused=settings.paused,
        weight=settings.weight,
        shards=settings.shards,
        max_running=settings.max_running,
        max_jobs=settings.max_jobs,
        registrations_per_sec=settings.registrations_per_sec,
        default_jitter_sec=settings.default_jitter_sec,
        lateness_alert_sec=settings.lateness_alert_sec,
    )
