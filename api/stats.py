"""Owns `GET /v1/stats`: counts, lateness and backlog of a tenant or of one job."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import Response

from api import params
from api.auth import read_tenant
from api.changes import encoded
from api.jobs import Viewer, tenant_param
from api.openapi import described
from api.params import Params
from api.problems import of_job_id
from api.services import services
from api.tenant_answers import LatenessAnswer, StatsAnswer
from projections.queries import tenant_stats
from projections.views import Stats
from streams.ambient import wall_ms
from streams.core.instants import format_instant

router = APIRouter(prefix="/v1/stats", tags=["operations"])

WINDOW_SEC = (1, 366 * 86_400)
DEFAULT_WINDOW_SEC = 86_400

_QUERY = (
    params.Param("jobId", doc="Of one job; of the whole tenant if left out"),
    params.Param("window", "integer", "Seconds up to now; a day if left out. Counters are kept by the hour"),
)


@router.get("", **described(gives={200: StatsAnswer}, query=(*_QUERY, params.TENANT), reads=True))
async def get(request: Request, caller: Viewer) -> Response:
    """What happened within the window, and what waits now."""
    query = Params(request, *_QUERY, *tenant_param(caller))
    if query.has("jobId"):
        of_job_id(query.text("jobId"))
    window_ms = query.integer("window", WINDOW_SEC, DEFAULT_WINDOW_SEC) * 1000
    tenant, now_ms = read_tenant(request, caller), wall_ms()
    seen = partial(
        tenant_stats, tenant=tenant, from_ms=now_ms - window_ms, to_ms=now_ms, job_id=query.text("jobId")
    )
    return encoded(_answer(await services(request).reads.ask(request, tenant, seen)))


def _answer(stats: Stats) -> StatsAnswer:
    late = stats.lateness
    return StatsAnswer(
        from_=format_instant(stats.from_ms),
        to=format_instant(stats.to_ms),
        fired=stats.fired,
        completed=stats.completed,
        failed=stats.failed,
        cancelled=stats.cancelled,
        skipped=stats.skipped,
        failed_attempts=stats.failed_attempts,
        expired=stats.expired,
        missed=stats.missed,
        replayed=stats.replayed,
        failure_rate=stats.failure_rate,
        lateness=LatenessAnswer(
            count=late.count,
            mean_ms=late.sum_ms / late.count if late.count else 0.0,
            p50_ms=late.p50_ms,
            p99_ms=late.p99_ms,
            max_ms=late.max_ms,
        ),
        backlog=dict(stats.backlog),
        running=dict(stats.running),
        dead_letters=stats.dead_letters,
    )
