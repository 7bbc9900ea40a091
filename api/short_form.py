"""Owns `POST /api/v1/jobs/schedule`: the short snake_case form for one-off tasks.

The same registration as `POST /v1/jobs`, in other words; problems name the members of this form.
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from api import bodies
from api.answers import ShortJobAnswer
from api.changes import answer, decide, envelope
from api.idempotency import key_of
from api.jobs import Owner
from api.models import JobBody, ScheduleBody, ShortJobBody, TargetBody
from api.openapi import described
from api.problems import Problem
from api.registration import to_command
from api.services import services
from schemas.commands import RegisterMode
from schemas.ids import derived_job_id, scheduled_execution_id
from schemas.replies import FieldProblem
from streams.core.instants import format_instant

router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"])

_NAMES = {"schedule.runAt": "execute_at", "schedule": "execute_at", "target.pool": "target_topic"}


@router.post(
    "/schedule",
    **described(
        gives={201: ShortJobAnswer},
        takes=ShortJobBody,
        problems=(409, 413, 422, 429),
        keyed=True,
        changes=True,
    ),
)
async def schedule(request: Request, caller: Owner) -> Response:
    """Registers a task to run once; `target_topic` names the worker pool."""
    served = services(request)
    key = key_of(request)
    short = await bodies.decoded(request, ShortJobBody)
    job_id = derived_job_id(caller.tenant, key.value)
    body = JobBody(
        name=short.name,
        schedule=ScheduleBody(run_at=short.execute_at),
        target=TargetBody(pool=short.target_topic, task=short.name),
        payload=short.payload,
    )
    command = to_command(envelope(served, caller, key.value), body, job_id, RegisterMode.CREATE)
    try:
        outcome = await decide(served, caller, job_id, command, key)
    except Problem as problem:
        raise _in_short_words(problem) from None
    assert outcome.job is not None
    job = outcome.job
    return answer(
        outcome,
        ShortJobAnswer(
            job_id=job.job_id,
            instance_id=scheduled_execution_id(job.job_id, job.incarnation, job.first_next_ms),
            status="SCHEDULED",
            scheduled_time=format_instant(job.first_next_ms),
        ),
        {"Location": f"/v1/jobs/{job.job_id}"},
    )


def _in_short_words(problem: Problem) -> Problem:
    if not problem.body.errors:
        return problem
    errors = [
        FieldProblem(field=_NAMES.get(error.field, error.field), detail=error.detail)
        for error in problem.body.errors
    ]
    detail = "; ".join(f"{error.field}: {error.detail}" for error in errors)
    return Problem(problem.status, problem.code, detail, errors, headers=problem.headers)
