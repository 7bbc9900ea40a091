"""Owns what operators ask: who runs which partition (from the topic `status`), what new zone data moved."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from api import params, rendering
from api.answers import PartitionList, TzShiftAnswer, TzShiftList
from api.auth import Caller, Role, requires
from api.changes import encoded
from api.openapi import described
from api.params import Params
from api.services import services
from projections.shifts import list_tz_shifts
from streams.core.instants import format_instant

router = APIRouter(prefix="/v1", tags=["operations"])

_VERSION = params.Param("version", doc="Of the zone data; the newest that moved anything if left out")

Operator = Annotated[Caller, Depends(requires(Role.OPERATOR))]


@router.get("/partitions", **described(gives={200: PartitionList}))
async def partitions(request: Request, caller: Operator) -> Response:
    """Who runs each partition, how far it is, and why it does not run if it does not."""
    Params(request)
    served = services(request)
    statuses = served.followed.statuses()
    numbers = range(max(served.client.partitions, max(statuses, default=-1) + 1))
    return encoded(
        PartitionList(partitions=[rendering.partition(number, statuses.get(number)) for number in numbers])
    )


@router.get("/tz-shifts", **described(gives={200: TzShiftList}, query=(_VERSION,), reads=True))
async def tz_shifts(request: Request, caller: Operator) -> Response:
    """The jobs of all tenants whose next occurrence one version of the zone data moved; the newest 1,000."""
    query = Params(request, _VERSION)
    ask = partial(list_tz_shifts, version=query.text("version"))
    found = await services(request).reads.ask(request, caller.tenant, ask)
    shifts = [
        TzShiftAnswer(
            tenant=one.tenant,
            job_id=one.job_id,
            time_zone=one.time_zone,
            at=format_instant(one.at_ms),
            next_run_before=rendering.instant(one.before_ms),
            next_run_after=rendering.instant(one.after_ms),
        )
        for one in found.shifts
    ]
    return encoded(TzShiftList(tz_version=found.version, count=found.count, shifts=shifts))
