"""Owns the endpoints that steer a job without changing its definition: cancel, pause, resume, trigger."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from api import bodies
from api.answers import ExecutionRef, JobAnswer
from api.changes import answer, decide, envelope
from api.idempotency import key_of
from api.jobs import Owner, changed
from api.models import ReasonBody, ResumeBody, TriggerBody
from api.openapi import described
from api.problems import of_job_id
from api.registration import overlap_of, payload_of
from api.services import services
from schemas.commands import CancelJob, MissedInPause, PauseJob, ResumeJob, TriggerJob

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@router.delete(
    "/{job_id}",
    **described(
        gives={200: JobAnswer},
        takes=ReasonBody,
        body_needed=False,
        problems=(404, 409),
        changes=True,
        versioned=True,
    ),
)
async def cancel(request: Request, caller: Owner, job_id: str) -> Response:
    """Cancels a job: no further occurrences, pending executions end, running ones are asked to."""
    served = services(request)
    of_job_id(job_id)
    body = await bodies.decoded(request, ReasonBody)
    command = CancelJob(**envelope(served, caller, reason=body.reason), job_id=job_id)
    return changed(await decide(served, caller, job_id, command))


@router.post(
    "/{job_id}/pause",
    **described(
        gives={200: JobAnswer},
        takes=ReasonBody,
        body_needed=False,
        problems=(404, 409, 422),
        keyed=True,
        changes=True,
        versioned=True,
    ),
)
async def pause(request: Request, caller: Owner, job_id: str) -> Response:
    """Pauses a job: nothing fires until it is resumed; unfinished executions go on."""
    served = services(request)
    of_job_id(job_id)
    key = key_of(request)
    body = await bodies.decoded(request, ReasonBody)
    command = PauseJob(**envelope(served, caller, key.value, body.reason), job_id=job_id)
    return changed(await decide(served, caller, job_id, command, key))


@router.post(
    "/{job_id}/resume",
    **described(
        gives={200: JobAnswer},
        takes=ResumeBody,
        body_needed=False,
        problems=(404, 409, 422),
        keyed=True,
        changes=True,
        versioned=True,
    ),
)
async def resume(request: Request, caller: Owner, job_id: str) -> Response:
    """Lets a paused job fire again; what fell into the pause is skipped unless `missed` says otherwise."""
    served = services(request)
    of_job_id(job_id)
    key = key_of(request)
    body = await bodies.decoded(request, ResumeBody)
    command = ResumeJob(
        **envelope(served, caller, key.value, body.reason),
        job_id=job_id,
        missed=MissedInPause((body.missed or "skip").upper()),
    )
    return changed(await decide(served, caller, job_id, command, key))


@router.post(
    "/{job_id}/trigger",
    **described(
        gives={202: ExecutionRef},
        takes=TriggerBody,
        body_needed=False,
        problems=(404, 409, 413, 422),
        keyed=True,
        changes=True,
    ),
)
async def trigger(request: Request, caller: Owner, job_id: str) -> Response:
    """Runs a job now, by hand, paused or not; its schedule stays as it is."""
    served = services(request)
    of_job_id(job_id)
    key = key_of(request)
    body = await bodies.decoded(request, TriggerBody)
    payload, content_type = payload_of(body)
    command = TriggerJob(
        **envelope(served, caller, key.value, body.reason),
        job_id=job_id,
        payload=payload,
        content_type=content_type,
        overlap=overlap_of(body.overlap_policy),
    )
    outcome = await decide(served, caller, job_id, command, key)
    assert outcome.execution is not None
    execution = outcome.execution
    return answer(
        outcome,
        ExecutionRef(execution_id=execution.execution_id, status=execution.status),
        {"Location": f"/v1/executions/{execution.execution_id}"},
    )
