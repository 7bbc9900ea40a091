"""Owns the endpoints of single jobs: register, put, cancel, trigger (decided), get, list, events (read)."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from api import bodies, params, rendering, unsupported
from api.answers import EventList, ExecutionRef, JobAnswer, JobList
from api.auth import Caller, Role, read_tenant, requires
from api.changes import answer, decide, encoded, envelope
from api.idempotency import key_of
from api.models import JobBody, ReasonBody, TriggerBody
from api.openapi import described
from api.params import Params
from api.problems import of_job_id
from api.registration import payload_of, to_command
from api.services import services
from projections.history import job_events
from projections.queries import JobFilter, get_job, list_jobs
from schemas.commands import CancelJob, RegisterMode, TriggerJob
from schemas.entities import JobStatus
from schemas.ids import derived_job_id

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

Owner = Annotated[Caller, Depends(requires(Role.TENANT))]
Viewer = Annotated[Caller, Depends(requires(Role.TENANT, Role.AUDITOR))]

_FILTERS = (
    params.Param("status", doc="ACTIVE, PAUSED, CANCELLED, COMPLETED", several=True),
    params.Param("pool"),
    params.Param("name"),
    params.LABELS,
    params.Param("nextRunBefore", doc="Only active jobs whose next run is earlier (RFC 3339)"),
)


@router.post(
    "",
    **described(
        gives={201: JobAnswer}, takes=JobBody, problems=(409, 413, 422, 429), keyed=True, changes=True
    ),
)
async def register(request: Request, caller: Owner) -> Response:
    """Registers a job; its id derives from the Idempotency-Key."""
    served = services(request)
    key = key_of(request)
    job = await bodies.decoded(request, JobBody, unsupported.check_job)
    job_id = derived_job_id(caller.tenant, key.value)
    command = to_command(envelope(served, caller, key.value, job.reason), job, job_id, RegisterMode.CREATE)
    outcome = await decide(served, caller, job_id, command, key)
    assert outcome.job is not None
    return answer(
        outcome, rendering.job_at_beginning(outcome.job), {"Location": f"/v1/jobs/{outcome.job.job_id}"}
    )


@router.put(
    "/{job_id}",
    **described(
        gives={201: JobAnswer, 200: JobAnswer},
        takes=JobBody,
        problems=(409, 413, 422, 429),
        keyed=True,
        changes=True,
    ),
)
async def put(request: Request, caller: Owner, job_id: str) -> Response:
    """Makes a job under an id of the caller's choice; repeated with the same definition it changes
    nothing."""
    served = services(request)
    key = key_of(request)
    job = await bodies.decoded(request, JobBody, unsupported.check_job)
    # A key of our own would make each repeat another request; the id says what is meant anyway.
    command = to_command(
        envelope(served, caller, "" if key.made else key.value, job.reason), job, job_id, RegisterMode.PUT
    )
    outcome = await decide(served, caller, job_id, command)
    assert outcome.job is not None
    made = outcome.status == 201
    rendered = rendering.job_at_beginning(outcome.job) if made else rendering.job(outcome.job, outcome.cursor)
    return answer(outcome, rendered, {"Location": f"/v1/jobs/{job_id}"} if made else None)


@router.get("", **described(gives={200: JobList}, query=(*_FILTERS, *params.PAGE, params.TENANT), reads=True))
async def list_(request: Request, caller: Viewer) -> Response:
    """Jobs, newest first."""
    query = Params(request, *_FILTERS, *params.PAGE, *tenant_param(caller), later=("exclusionGroup",))
    filters = JobFilter(
        statuses=query.several("status", JobStatus),
        pool=query.text("pool"),
        name=query.text("name"),
        labels=query.labels(),
        next_run_before_ms=query.instant("nextRunBefore"),
    )
    tenant = read_tenant(request, caller)
    page = await services(request).reads.ask(
        request, tenant, partial(list_jobs, tenant=tenant, filters=filters, page=query.page())
    )
    return encoded(
        JobList(jobs=[rendering.job_view(view) for view in page.items], next_page_token=page.next_token)
    )


@router.get(
    "/{job_id}",
    **described(gives={200: JobAnswer}, problems=(404,), query=(params.TENANT,), reads=True),
)
async def get(request: Request, caller: Viewer, job_id: str) -> Response:
    """One job with its payload, its last execution and how many executions are in which status."""
    Params(request, *tenant_param(caller))
    of_job_id(job_id)
    tenant = read_tenant(request, caller)
    detail = await services(request).reads.one(
        request, tenant, "job", partial(get_job, tenant=tenant, job_id=job_id)
    )
    return encoded(rendering.job_detail(detail))


@router.get(
    "/{job_id}/events",
    **described(gives={200: EventList}, problems=(404,), query=(*params.PAGE, params.TENANT), reads=True),
)
async def events(request: Request, caller: Viewer, job_id: str) -> Response:
    """What happened to a job, newest first."""
    query = Params(request, *params.PAGE, *tenant_param(caller))
    of_job_id(job_id)
    tenant = read_tenant(request, caller)
    reads = services(request).reads
    await reads.one(request, tenant, "job", partial(get_job, tenant=tenant, job_id=job_id))
    page = await reads.ask(
        request, tenant, partial(job_events, tenant=tenant, job_id=job_id, page=query.page())
    )
    return encoded(
        EventList(events=[rendering.event(view) for view in page.items], next_page_token=page.next_token)
    )


@router.delete(
    "/{job_id}",
    **described(
        gives={200: JobAnswer},
        takes=ReasonBody,
        body_needed=False,
        problems=(404, 409),
        changes=True,
    ),
)
async def cancel(request: Request, caller: Owner, job_id: str) -> Response:
    """Cancels a job: no further occurrences, pending executions end, running ones are asked to."""
    served = services(request)
    of_job_id(job_id)
    body = await bodies.decoded(request, ReasonBody)
    command = CancelJob(**envelope(served, caller, reason=body.reason), job_id=job_id)
    outcome = await decide(served, caller, job_id, command)
    assert outcome.job is not None
    return answer(outcome, rendering.job(outcome.job, outcome.cursor))


@router.post(
    "/{job_id}/trigger",
    **described(
        gives={202: ExecutionRef},
        takes=TriggerBody,
        body_needed=False,
        problems=(404, 409, 413, 429),
        keyed=True,
        changes=True,
    ),
)
async def trigger(request: Request, caller: Owner, job_id: str) -> Response:
    """Runs a job now, by hand; its schedule stays as it is."""
    served = services(request)
    of_job_id(job_id)
    key = key_of(request)
    body = await bodies.decoded(request, TriggerBody, unsupported.check_members)
    payload, content_type = payload_of(body)
    command = TriggerJob(
        **envelope(served, caller, key.value, body.reason),
        job_id=job_id,
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


def tenant_param(caller: Caller) -> tuple[params.Param, ...]:
    """`tenant` is known to auditors only: for others it would be a question that is not answered."""
    return (params.TENANT,) if caller.role is Role.AUDITOR else ()
