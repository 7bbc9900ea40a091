"""Owns the endpoints of pools beside `claim`: what they have to do (read), pause, resume, settings (decided).

A pool needs no making: it is where somebody sends work or asks for it. A tenant has its own; shared ones
belong to operators, and a tenant sees of them what is its own.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from msgspec import UNSET
from starlette.responses import Response

from api import bodies, params
from api.auth import Caller, Role, read_tenant, requires
from api.changes import encoded, envelope
from api.configuring import configure, setting
from api.followed import Followed
from api.jobs import tenant_param
from api.models import PoolBody, ReasonBody
from api.openapi import described
from api.params import Params
from api.problems import Problem, not_found, wrong
from api.reads import Connection
from api.services import services
from api.tenant_answers import PendingAnswer, PoolAnswer, PoolList, PoolSettingsAnswer
from projections.pools import PoolView, page_of_names, pool_names, pool_view
from projections.views import Page
from schemas.commands import ConfigurePool
from schemas.entities import Pool, Priority
from schemas.ids import POOL, SHARED, is_shared, pool_key
from streams.ambient import wall_ms
from streams.core.caps import tenant_max_of

router = APIRouter(prefix="/v1/pools", tags=["pools"])

_DEFAULTS = Pool(name="")

Viewer = Annotated[Caller, Depends(requires(Role.TENANT, Role.AUDITOR, Role.OPERATOR))]
Keeper = Annotated[Caller, Depends(requires(Role.TENANT, Role.OPERATOR))]


@router.get("", **described(gives={200: PoolList}, query=(*params.PAGE, params.TENANT), reads=True))
async def list_(request: Request, caller: Viewer) -> Response:
    """Pools with jobs, unfinished executions or settings, by name; for operators the shared ones."""
    query = Params(request, *params.PAGE, *tenant_param(caller))
    served = services(request)
    tenant = _whose(request, caller)
    configured = _configured(served.followed, tenant)
    wanted = query.page()

    def question(connection: Connection) -> Page[PoolView]:
        following = partial(pool_names, connection, tenant)
        asked = {"list": "pools", "tenant": tenant}
        page = page_of_names(connection, asked, wanted, following, configured)
        return Page(tuple(pool_view(connection, name, tenant) for name in page.items), page.next_token)

    page = await served.reads.ask(request, caller.tenant, question)
    pools = [_answer(served.followed, tenant, view) for view in page.items]
    return encoded(PoolList(pools=pools, next_page_token=page.next_token))


# A path parameter that takes slashes: `shared%2Fx` is one pool.
@router.get(
    "/{pool:path}",
    **described(gives={200: PoolAnswer}, problems=(404,), query=(params.TENANT,), reads=True),
)
async def get(request: Request, caller: Viewer, pool: str) -> Response:
    """One pool: what is pending by priority, since when, what runs, and for how many workers."""
    Params(request, *tenant_param(caller))
    served = services(request)
    tenant = _whose(request, caller)
    if not POOL.fullmatch(pool) or not (tenant or is_shared(pool)):
        raise not_found("pool")
    seen = partial(pool_view, name=pool, tenant=tenant)
    view = await served.reads.ask(request, caller.tenant, seen)
    return encoded(_answer(served.followed, tenant, view))


@router.put(
    "/{pool:path}",
    **described(
        gives={200: PoolSettingsAnswer}, takes=PoolBody, problems=(404, 409, 422), keyed=True, changes=True
    ),
)
async def put(request: Request, caller: Keeper, pool: str) -> Response:
    """Sets what the body names; it counts at once."""
    name = _owned(caller, pool)
    body = await bodies.decoded(request, PoolBody)
    if body.tenant_max_running is not UNSET and not is_shared(pool):
        raise wrong("tenantMaxRunning", "belongs to shared pools; maxRunning bounds this one")
    return await _configure(
        request,
        caller,
        pool,
        name,
        reason=body.reason,
        max_running=setting(body.max_running, _DEFAULTS.max_running),
        tenant_max_running=setting(body.tenant_max_running, _DEFAULTS.tenant_max_running),
    )


@router.post(
    "/{pool:path}/pause",
    **described(
        gives={200: PoolSettingsAnswer},
        takes=ReasonBody,
        body_needed=False,
        problems=(404, 409, 422),
        keyed=True,
        changes=True,
    ),
)
async def pause(request: Request, caller: Keeper, pool: str) -> Response:
    """Nothing of the pool is handed to workers until it is resumed; what runs goes on."""
    return await _pause(request, caller, pool, paused=True)


@router.post(
    "/{pool:path}/resume",
    **described(
        gives={200: PoolSettingsAnswer},
        takes=ReasonBody,
        body_needed=False,
        problems=(404, 409, 422),
        keyed=True,
        changes=True,
    ),
)
async def resume(request: Request, caller: Keeper, pool: str) -> Response:
    """What waits is handed out again."""
    return await _pause(request, caller, pool, paused=False)


async def _pause(request: Request, caller: Caller, pool: str, *, paused: bool) -> Response:
    name = _owned(caller, pool)
    body = await bodies.decoded(request, ReasonBody)
    return await _configure(request, caller, pool, name, reason=body.reason, paused=paused)


async def _configure(
    request: Request,
    caller: Caller,
    pool: str,
    name: str,
    *,
    reason: str,
    paused: bool | None = None,
    max_running: int | None = None,
    tenant_max_running: int | None = None,
) -> Response:
    served = services(request)
    owner = SHARED if is_shared(pool) else caller.tenant
    command = ConfigurePool(
        **envelope(served, caller, reason=reason, tenant=owner),
        pool=name,
        paused=paused,
        max_running=max_running,
        tenant_max_running=tenant_max_running,
    )
    return await configure(
        request, served, caller, command, lambda _: _settings(served.followed, owner, pool)
    )


def _owned(caller: Caller, pool: str) -> str:
    """The pool's name as its owner has it; 403 if the caller is not the owner."""
    if not POOL.fullmatch(pool):
        raise not_found("pool")
    if is_shared(pool) != (caller.role is Role.OPERATOR):
        raise Problem(403, "forbidden", "shared pools are the operators', all others their tenants'")
    return pool_key(caller.tenant, pool).partition("/")[2]


def _whose(request: Request, caller: Caller) -> str:
    """The tenant whose pools are looked at; "": shared ones as a whole."""
    return "" if caller.role is Role.OPERATOR else read_tenant(request, caller)


def _configured(followed: Followed, tenant: str) -> list[str]:
    if tenant:
        return [pool.name for pool in followed.settings_of(tenant).pools]
    return [f"{SHARED}/{pool.name}" for pool in followed.settings_of(SHARED).pools]


def _settings(followed: Followed, tenant: str, name: str) -> PoolSettingsAnswer:
    pool = followed.pool_of(tenant, name)
    return PoolSettingsAnswer(
        pool=name,
        paused=pool.paused,
        max_running=pool.max_running or None,
        tenant_max_running=(tenant_max_of(pool) or None) if is_shared(name) else None,
    )


def _answer(followed: Followed, tenant: str, view: PoolView) -> PoolAnswer:
    settings = _settings(followed, tenant, view.name)
    pending = {str(priority).lower(): view.pending.get(priority, 0) for priority in Priority}
    oldest = (wall_ms() - view.oldest_due_ms) // 1000 if view.oldest_due_ms else None
    return PoolAnswer(
        pool=settings.pool,
        paused=settings.paused,
        max_running=settings.max_running,
        tenant_max_running=settings.tenant_max_running,
        pending_by_priority=PendingAnswer(**pending),
        oldest_pending_sec=oldest if oldest is None else max(0, oldest),
        running=view.running,
        workers=view.workers,
    )
