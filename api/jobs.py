"""Owns the endpoints of definitions: register, put, patch (decided), get, list, events (read)."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from api import bodies, params, rendering, unsupported, versions
from api.answers import EventList, JobAnswer, JobList
from api.auth import Caller, Role, read_tenant, requires
from api.changes import answer, decide, encoded, envelope
from api.idempotency import key_of
from api.models import JobBody, JobPatch
from api.openapi import described
from api.params import Params
from api.patching import patched
from api.problems import of_job_id, refused
from api.registration import to_command, to_update
from api.services import Services, services
from projections.history import job_events
from projections.queries import JobFilter, get_definition, get_job, list_jobs
from schemas.commands import RegisterJob, RegisterMode, UpdateJob
from schemas.entities import Job, JobStatus
from schemas.ids import derived_job_id
from schemas.replies import CommandDone
from streams.core.refusals import VERSION_DIFFERS

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

Owner = Annotated[Caller, Depends(requires(Role.TENANT))]
Viewer = Annotated[Caller, Depends(requires(Role.TENANT, Role.AUDITOR))]

_FILTERS = (
    params.Param("status", doc="ACTIVE, PAUSED, CANCELLED, COMPLETED", several=True),
    params.Param("pool"),
    params.Param("name"),
    params.Param("exclusionGroup"),
    params.LABELS,
    params.Param("nextRunBefore", doc="Only active jobs whose next run is earlier (RFC 3339)"),
)


@router.post(
    "",
    **described(
        gives={201: JobAnswer},
        takes=JobBody,
        problems=(409, 413, 422, 429),
        keyed=True,
        changes=True,
        versioned=True,
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
    return await _made(served, outcome)


@router.put(
    "/{job_id}",
    **described(
        gives={201: JobAnswer, 200: JobAnswer},
        takes=JobBody,
        problems=(404, 409, 412, 413, 422, 429),
        keyed=True,
        changes=True,
        versioned=True,
        matched=False,
    ),
)
async def put(request: Request, caller: Owner, job_id: str) -> Response:
    """Makes a job under an id of the caller's choice, or updates it; with the same definition it changes
    nothing. With `If-Match` it only updates, and only that version."""
    served = services(request)
    key = key_of(request)
    version = versions.matched(request)
    job = await bodies.decoded(request, JobBody, unsupported.check_job)
    # A key of our own would make each repeat another request; the id says what is meant anyway.
    sent = envelope(served, caller, "" if key.made else key.value, job.reason)
    command: RegisterJob | UpdateJob
    if version is None:
        command = to_command(sent, job, job_id, RegisterMode.PUT)
    else:
        command = to_update(sent, job, job_id, version)
    outcome = await decide(served, caller, job_id, command)
    assert outcome.job is not None
    first = outcome.replayed and not key.made and outcome.job.request_key == key.value
    return await _made(served, outcome) if outcome.status == 201 or first else changed(outcome)


async def _made(served: Services, outcome: CommandDone) -> Response:
    job = await first_version(served, outcome)
    headers = {"Location": f"/v1/jobs/{job.job_id}"} | versions.etag(job.version)
    return answer(outcome, rendering.job_at_beginning(job), headers)


async def first_version(served: Services, outcome: CommandDone) -> Job:
    """The job as it was registered: a repeated registration is answered alike after updates, too."""
    job = outcome.job
    assert job is not None
    if job.version == job.first_version:
        return job
    seen = partial(get_definition, tenant=job.tenant, job_id=job.job_id, version=job.first_version)
    return await served.reads.awaited(seen) or job


@router.get("", **described(gives={200: JobList}, query=(*_FILTERS, *params.PAGE, params.TENANT), reads=True))
async def list_(request: Request, caller: Viewer) -> Response:
    """Jobs, newest first."""
    query = Params(request, *_FILTERS, *params.PAGE, *tenant_param(caller))
    filters = JobFilter(
        statuses=query.several("status", JobStatus),
        pool=query.text("pool"),
        name=query.text("name"),
        labels=query.labels(),
        exclusion_group=query.text("exclusionGroup"),
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
    **described(gives={200: JobAnswer}, problems=(404,), query=(params.TENANT,), reads=True, versioned=True),
)
async def get(request: Request, caller: Viewer, job_id: str) -> Response:
    """One job with its payload, its last execution and how many executions are in which status."""
    Params(request, *tenant_param(caller))
    of_job_id(job_id)
    tenant = read_tenant(request, caller)
    detail = await services(request).reads.one(
        request, tenant, "job", partial(get_job, tenant=tenant, job_id=job_id), job_id
    )
    return encoded(rendering.job_detail(detail), headers=versions.etag(detail.view.job.version))


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


@router.patch(
    "/{job_id}",
    **described(
        gives={200: JobAnswer},
        takes=JobPatch,
        problems=(404, 409, 412, 413, 422, 428),
        keyed=True,
        changes=True,
        versioned=True,
        matched=True,
        media_type="application/merge-patch+json",
    ),
)
async def patch(request: Request, caller: Owner, job_id: str) -> Response:
    """Changes members of a job, as JSON merge patch (RFC 7396). It counts from the next occurrence on."""
    served = services(request)
    of_job_id(job_id)
    version = versions.needed(request)
    key = key_of(request)
    change = await bodies.merge_patch(request, unsupported.check_job)
    seen = partial(get_definition, tenant=caller.tenant, job_id=job_id, version=version)
    await served.reads.one(
        request, caller.tenant, "job", partial(get_job, tenant=caller.tenant, job_id=job_id)
    )
    definition = await served.reads.awaited(seen)
    if definition is None:
        raise refused(VERSION_DIFFERS)
    body = patched(definition, change)
    command = to_update(envelope(served, caller, key.value, body.reason), body, job_id, version)
    outcome = await decide(served, caller, job_id, command, key)
    return changed(outcome)


def changed(outcome: CommandDone) -> Response:
    """The answer to a change of a job: the job as it is now."""
    assert outcome.job is not None
    return answer(outcome, rendering.job(outcome.job, outcome.cursor), versions.etag(outcome.job.version))


def tenant_param(caller: Caller) -> tuple[params.Param, ...]:
    """`tenant` is known to auditors only: for others it would be a question that is not answered."""
    return (params.TENANT,) if caller.role is Role.AUDITOR else ()
