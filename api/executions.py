"""Owns the endpoints of executions: get, list, events (read), cancel (decided)."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import Response

from api import bodies, params, rendering
from api.answers import EventList, ExecutionAnswer, ExecutionList
from api.auth import read_tenant
from api.changes import answer, decide, encoded, envelope
from api.jobs import Owner, Viewer, tenant_param
from api.models import ReasonBody
from api.openapi import described
from api.params import Params
from api.problems import not_found, of_job_id
from api.reads import Connection
from api.services import services
from api.waiting import Gates, counted
from projections.history import execution_events
from projections.pools import Running
from projections.queries import ExecutionFilter, get_execution, get_job, list_executions
from projections.views import ExecutionDetail, ExecutionView, Page
from schemas.commands import CancelExecution
from schemas.entities import ExecutionKind, ExecutionStatus
from schemas.ids import job_id_of

router = APIRouter(tags=["executions"])

_OF_JOB = (
    params.Param("status", doc="SCHEDULED, PENDING, RUNNING, COMPLETED, …", several=True),
    params.Param("kind", doc="schedule, manual or backfill"),
    params.Param("scheduledFrom", doc="Scheduled at or after (RFC 3339)"),
    params.Param("scheduledTo", doc="Scheduled before (RFC 3339)"),
)
_FILTERS = (
    *_OF_JOB,
    params.Param("pool"),
    params.Param("task"),
    params.Param("jobId"),
    params.Param("backfillId"),
    params.LABELS,
)


def _filter(query: Params, job_id: str) -> ExecutionFilter:
    return ExecutionFilter(
        job_id=job_id,
        statuses=query.several("status", ExecutionStatus),
        pool=query.text("pool"),
        task=query.text("task"),
        kind=query.one_of("kind", ExecutionKind),
        backfill=query.text("backfillId"),
        labels=query.labels(),
        scheduled_from_ms=query.instant("scheduledFrom"),
        scheduled_to_ms=query.instant("scheduledTo"),
    )


async def _listed(request: Request, tenant: str, filters: ExecutionFilter, query: Params) -> Response:
    served = services(request)

    def question(connection: Connection) -> tuple[Page[ExecutionView], Running]:
        found = list_executions(connection, tenant, filters, wanted)
        return found, counted(connection, tenant, [view.execution for view in found.items])

    wanted = query.page()
    page, running = await served.reads.ask(request, tenant, question)
    gates = Gates(served.followed, served.client.partitions, tenant, running)
    executions = [rendering.execution_view(view, gates.of(view.execution)) for view in page.items]
    return encoded(ExecutionList(executions=executions, next_page_token=page.next_token))


@router.get(
    "/v1/executions",
    **described(gives={200: ExecutionList}, query=(*_FILTERS, *params.PAGE, params.TENANT), reads=True),
)
async def list_(request: Request, caller: Viewer) -> Response:
    """Executions, newest first by scheduled time, the next ones of active jobs among them."""
    query = Params(request, *_FILTERS, *params.PAGE, *tenant_param(caller))
    return await _listed(request, read_tenant(request, caller), _filter(query, query.text("jobId")), query)


@router.get(
    "/v1/jobs/{job_id}/executions",
    **described(
        gives={200: ExecutionList},
        problems=(404,),
        query=(*_OF_JOB, *params.PAGE, params.TENANT),
        reads=True,
    ),
)
async def list_of_job(request: Request, caller: Viewer, job_id: str) -> Response:
    """Executions of one job, newest first."""
    query = Params(request, *_OF_JOB, *params.PAGE, *tenant_param(caller))
    of_job_id(job_id)
    tenant = read_tenant(request, caller)
    await services(request).reads.one(request, tenant, "job", partial(get_job, tenant=tenant, job_id=job_id))
    return await _listed(request, tenant, _filter(query, job_id), query)


@router.get(
    "/v1/executions/{execution_id}",
    **described(gives={200: ExecutionAnswer}, problems=(404,), query=(params.TENANT,), reads=True),
)
async def get(request: Request, caller: Viewer, execution_id: str) -> Response:
    """One execution with its payload and every attempt; also the next one of a job."""
    Params(request, *tenant_param(caller))
    job_id = _checked(execution_id)
    tenant = read_tenant(request, caller)
    served = services(request)

    def question(connection: Connection) -> tuple[ExecutionDetail, Running] | None:
        found = get_execution(connection, tenant, execution_id)
        return None if found is None else (found, counted(connection, tenant, [found.view.execution]))

    detail, running = await served.reads.one(request, tenant, "execution", question, job_id)
    gates = Gates(served.followed, served.client.partitions, tenant, running)
    return encoded(rendering.execution_detail(detail, gates.of(detail.view.execution)))


@router.get(
    "/v1/executions/{execution_id}/events",
    **described(gives={200: EventList}, problems=(404,), query=(*params.PAGE, params.TENANT), reads=True),
)
async def events(request: Request, caller: Viewer, execution_id: str) -> Response:
    """What happened to an execution, newest first."""
    query = Params(request, *params.PAGE, *tenant_param(caller))
    _checked(execution_id)
    tenant = read_tenant(request, caller)
    reads = services(request).reads
    await reads.one(
        request, tenant, "execution", partial(get_execution, tenant=tenant, execution_id=execution_id)
    )
    page = await reads.ask(
        request,
        tenant,
        partial(execution_events, tenant=tenant, execution_id=execution_id, page=query.page()),
    )
    return encoded(
        EventList(events=[rendering.event(view) for view in page.items], next_page_token=page.next_token)
    )


@router.post(
    "/v1/executions/{execution_id}/cancel",
    **described(
        gives={202: ExecutionAnswer},
        takes=ReasonBody,
        body_needed=False,
        problems=(404, 409),
        changes=True,
    ),
)
async def cancel(request: Request, caller: Owner, execution_id: str) -> Response:
    """Cancels one execution: at once if it does not run, else at its worker's next call."""
    served = services(request)
    job_id = _checked(execution_id)
    body = await bodies.decoded(request, ReasonBody)
    command = CancelExecution(**envelope(served, caller, reason=body.reason), execution_id=execution_id)
    outcome = await decide(served, caller, job_id, command)
    assert outcome.execution is not None
    return answer(outcome, rendering.execution(outcome.execution))


def _checked(execution_id: str) -> str:
    """The job id in an execution id; what is none is nobody's."""
    job_id = job_id_of(execution_id)
    if job_id is None:
        raise not_found("execution")
    return job_id
