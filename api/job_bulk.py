"""Owns `POST /v1/jobs/bulk`: one action for every job that a filter finds, each decided on its own."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import Response

from api import bodies, positions
from api.answers import CountAnswer
from api.auth import Caller
from api.changes import checked, decide_all, encoded, envelope
from api.idempotency import key_of
from api.jobs import Owner
from api.models import BulkBody
from api.openapi import described
from api.problems import outcome_unknown, wrong
from api.services import Services, services
from projections.queries import JobFilter, list_jobs
from projections.views import PageRequest
from schemas.commands import CancelJob, PauseJob, ResumeJob
from schemas.entities import JobStatus

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

JOBS_MAX = 10_000
PER_ROUND = 500
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
    job_ids = await _found(request, served, caller, body)
    if body.dry_run:
        return encoded(CountAnswer(count=len(job_ids)))
    count, places = 0, []
    for first in range(0, len(job_ids), PER_ROUND):
        commands = []
        for job_id in job_ids[first : first + PER_ROUND]:
            command = _COMMANDS[body.action](**envelope(served, caller, reason=body.reason), job_id=job_id)
            checked(command)
            commands.append((served.client.partition_of(caller.tenant, job_id), command))
        outcomes = await decide_all(served, caller, commands)
        done = [outcome for outcome in outcomes if outcome is not None]
        if len(done) < len(outcomes):
            raise outcome_unknown(key.value)
        count += sum(not outcome.code for outcome in done)
        places += [(outcome.partition, outcome.offset) for outcome in done]
    return encoded(CountAnswer(count=count), headers=positions.header(places))


async def _found(request: Request, served: Services, caller: Caller, body: BulkBody) -> list[str]:
    filters = JobFilter(
        statuses=_TOUCHED[body.action],
        pool=body.filter.pool,
        name=body.filter.name,
        labels=body.filter.labels,
    )
    job_ids: list[str] = []
    token = ""
    while True:
        page = PageRequest(size=1_000, token=token)
        ask = partial(list_jobs, tenant=caller.tenant, filters=filters, page=page)
        found = await served.reads.ask(request, caller.tenant, ask)
        job_ids += [view.job.job_id for view in found.items]
        if len(job_ids) > JOBS_MAX:
            raise wrong("filter", f"finds more than {JOBS_MAX} jobs; narrow it")
        token = found.next_token
        if not token:
            return job_ids
