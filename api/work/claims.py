"""Owns `POST /v1/pools/{pool}/claim`: the long poll by which a worker gets executions.

A connection that is seen gone ends the wait; what it was given, or would be, goes back at once.
"""

from __future__ import annotations

import asyncio
import re
import time
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from api import bodies, rendering
from api.answers import ClaimAnswer
from api.auth import Caller, Role, requires
from api.changes import encoded
from api.models import ClaimBody
from api.openapi import described
from api.problems import Problem, invalid, wrong
from api.services import services
from api.work.asker import IMPATIENT_SEC
from api.work.desk import Desk
from api.work.waiting import Claim
from schemas.ids import POOL, SHARED, is_shared
from schemas.replies import FieldProblem, Grant
from streams.core.limits import KEY_CHARS_MAX, LEASE_SEC, WORKER_ID_CHARS_MAX

router = APIRouter(tags=["workers"])

Worker = Annotated[Caller, Depends(requires(Role.TENANT, Role.WORKER))]

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


# A path parameter that takes slashes: `shared%2Fx` is one pool.
@router.post(
    "/v1/pools/{pool:path}/claim",
    **described(gives={200: ClaimAnswer}, takes=ClaimBody, problems=(503,)),
)
async def claim(request: Request, caller: Worker, pool: str) -> Response:
    """Executions for a worker, at once or as soon as there are some; an empty list after `waitSec`."""
    served = services(request)
    _check_pool(caller, pool)
    body = await bodies.decoded(request, ClaimBody)
    _check_body(body)
    desk = served.desks.desk(SHARED if is_shared(pool) else caller.tenant, pool)
    patient = body.wait_sec >= IMPATIENT_SEC
    wanted = Claim(
        token=served.desks.new_token(),
        worker_id=body.worker_id,
        max=body.max,
        until=time.monotonic() + max(body.wait_sec, IMPATIENT_SEC),
        claim_id=body.claim_id or "",
        lease_sec=body.lease_sec or 0,
        patient=patient,
    )
    with served.metrics.claims_waiting.track_inprogress():
        grants = await _granted(request, desk, wanted)
    return encoded(ClaimAnswer(executions=[rendering.grant(grant) for grant in grants]))


async def _granted(request: Request, desk: Desk, wanted: Claim) -> list[Grant]:
    future = desk.claim(wanted)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        both: set[asyncio.Future[Any]] = {future, gone}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if future.done() and not gone.done():
            return future.result()
    except asyncio.CancelledError:
        _let_go(desk, wanted, future)
        raise
    finally:
        gone.cancel()
    _let_go(desk, wanted, future)
    return []


def _let_go(desk: Desk, wanted: Claim, future: asyncio.Future[list[Grant]]) -> None:
    if future.done():
        desk.give_back(future.result())
    else:
        future.cancel()
        desk.abandon(wanted.token)


async def _disconnected(request: Request) -> None:
    """Returns when the client is gone; its body was read, so nothing else can come."""
    while (await request.receive())["type"] != "http.disconnect":
        continue


def _check_pool(caller: Caller, pool: str) -> None:
    if not POOL.fullmatch(pool):
        raise wrong("pool", "is [A-Za-z0-9._-]{1,100} or shared/<such a name>")
    if not caller.may_work_on(pool):
        raise Problem(403, "forbidden", "this key is for other pools")


def _check_body(body: ClaimBody) -> None:
    problems = [
        FieldProblem(field=field, detail=f"is 1 to {longest} printable characters")
        for field, text, longest in (
            ("workerId", body.worker_id, WORKER_ID_CHARS_MAX),
            ("claimId", body.claim_id, KEY_CHARS_MAX),
        )
        if text is not None and (not 0 < len(text) <= longest or _UNPRINTABLE.search(text))
    ]
    if body.lease_sec is not None and not LEASE_SEC[0] <= body.lease_sec <= LEASE_SEC[1]:
        problems.append(FieldProblem(field="leaseSec", detail=f"is {LEASE_SEC[0]} to {LEASE_SEC[1]}"))
    if problems:
        raise invalid(*problems)
