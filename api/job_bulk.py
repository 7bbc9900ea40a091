"""Owns `POST /v1/jobs/bulk`: one action for every job that a filter finds, each decided on its own."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import Response

from api import bodies
from api.answers import CountAnswer
from api.bulk import counted, decide_in_rounds, everything
from api.changes import envelope
from api.idempotency import key_of
from api.jobs import Owner
from api.models import BulkBody
from api.openapi import described
from api.services import services
from projections.queries import JobFilter, list_jobs
from schemas.commands import CancelJob, JobCommand, PauseJob, ResumeJob
from schemas.entities import JobStatus

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

_COMMANDS = {"pause": PauseJob, "resume": ResumeJob, "cancel": CancelJob}
_TOUCHED = {
    "pause": (JobStatus.ACTIVE,),
    "resume": (JobStatus.PAUSED,),
    "cancel": (JobStatus.ACTIVE, JobStatus.PAUSED),
}


@router.post("/bulk", **described(gives={200: CountAnswer}, takes=BulkBody, keyed=True, changes=True))
async def bulk(request: Request, caller: Owner) -> Response:
    """Pauses, resumes or cancels every job that the filter finds, at most 10,000; not atomic. Jobs that are
    so already do not count."""
    served = services(request)
    key = key_of(request)
    body = await bodies.decoded(request, BulkBody)
    filters = JobFilter(
        statuses=_TOUCHED[body.action],
        pool=body.filter.pool,
        name=body.filter.name,
        labels=body.filter.labels,
    )
    listed = partial(list_jobs, tenant=caller.tenant, filters=filters)
    jobs = await everything(request, caller, "jobs", listed)
    job_ids = [view.job.job_id for view in jobs]
    if body.dry_run:
        return counted(len(job_ids), ())

    def command(job_id: str) -> tuple[int, JobCommand]:
        change = _COMMANDS[body.action](**envelope(served, caller, reason=body.reason), job_id=job_id)
        return served.client.partition_of(caller.tenant, job_id), change

    outcomes = await decide_in_rounds(request, caller, key, map(command, job_ids))
    return counted(sum(not outcome.code for outcome in outcomes), outcomes)
