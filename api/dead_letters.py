"""Owns the endpoints of dead letters: list, get (read), replay or discard one (decided)."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import Response

from api import bodies, params, rendering
from api.answers import DeadLetterList, ExecutionAnswer, ExecutionRef
from api.auth import read_tenant
from api.changes import answer, decide, encoded, envelope
from api.idempotency import key_of
from api.jobs import Owner, Viewer, tenant_param
from api.models import ReasonBody, ReplayBody
from api.openapi import described
from api.params import Params
from api.problems import not_found
from api.registration import payload_of
from api.services import services
from projections.queries import DeadLetterFilter, get_dead_letter, list_dead_letters
from schemas.commands import DiscardDeadLetter, ReplayDeadLetter
from schemas.ids import job_id_of

router = APIRouter(prefix="/v1/dead-letters", tags=["dead letters"])

_FILTERS = (
    params.Param("jobId"),
    params.Param("pool"),
    params.Param("task"),
    params.Param("reason"),
    params.Param("from", doc="Given up at or after (RFC 3339)"),
    params.Param("to", doc="Given up before (RFC 3339)"),
)


@router.get(
    "",
    **described(gives={200: DeadLetterList}, query=(*_FILTERS, *params.PAGE, params.TENANT), reads=True),
)
async def list_(request: Request, caller: Viewer) -> Response:
    """Given-up executions that can be replayed, newest first."""
    query = Params(request, *_FILTERS, *params.PAGE, *tenant_param(caller))
    filters = DeadLetterFilter(
        job_id=query.text("jobId"),
        pool=query.text("pool"),
        task=query.text("task"),
        reason=query.text("reason"),
        from_ms=query.instant("from"),
        to_ms=query.instant("to"),
    )
    tenant = read_tenant(request, caller)
    page = await services(request).reads.ask(
        request, tenant, partial(list_dead_letters, tenant=tenant, filters=filters, page=query.page())
    )
    letters = [rendering.execution_view(view) for view in page.items]
    return encoded(DeadLetterList(dead_letters=letters, next_page_token=page.next_token))


@router.get(
    "/{execution_id}",
    **described(gives={200: ExecutionAnswer}, problems=(404,), query=(params.TENANT,), reads=True),
)
async def get(request: Request, caller: Viewer, execution_id: str) -> Response:
    """One dead letter with payload, error and every attempt."""
    Params(request, *tenant_param(caller))
    tenant = read_tenant(request, caller)
    detail = await services(request).reads.one(
        request, tenant, "dead letter", partial(get_dead_letter, tenant=tenant, execution_id=execution_id)
    )
    return encoded(rendering.execution_detail(detail))


@router.post(
    "/{execution_id}/replay",
    **described(
        gives={202: ExecutionRef},
        takes=ReplayBody,
        body_needed=False,
        problems=(404, 409, 413),
        keyed=True,
        changes=True,
    ),
)
async def replay(request: Request, caller: Owner, execution_id: str) -> Response:
    """Puts a dead letter back to work under its id; a payload corrects the one that failed."""
    served = services(request)
    job_id = job_id_of(execution_id)
    if job_id is None:
        raise not_found("dead letter")
    key = key_of(request)
    body = await bodies.decoded(request, ReplayBody)
    payload, content_type = payload_of(body)
    command = ReplayDeadLetter(
        **envelope(served, caller, key.value, body.reason),
        execution_id=execution_id,
        payload=payload,
        content_type=content_type,
    )
    outcome = await decide(served, caller, job_id, command, key)
    assert outcome.execution is not None
    execution = outcome.execution
    return answer(
        outcome,
        ExecutionRef(execution_id=execution.execution_id, status=execution.status),
        {"Location": f"/v1/executions/{execution.execution_id}"},
    )


@router.delete(
    "/{execution_id}",
    **described(
        gives={200: ExecutionAnswer},
        takes=ReasonBody,
        body_needed=False,
        problems=(404, 409),
        changes=True,
    ),
)
async def discard(request: Request, caller: Owner, execution_id: str) -> Response:
    """A dead letter is dealt with otherwise: it is forgotten without another run, its payload at once."""
    served = services(request)
    job_id = job_id_of(execution_id)
    if job_id is None:
        raise not_found("dead letter")
    body = await bodies.decoded(request, ReasonBody)
    command = DiscardDeadLetter(**envelope(served, caller, reason=body.reason), execution_id=execution_id)
    outcome = await decide(served, caller, job_id, command)
    assert outcome.execution is not None
    return answer(outcome, rendering.execution(outcome.execution))
