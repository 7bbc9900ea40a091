"""Owns the preview: what a schedule would do, computed by the code that does it, without registering it."""

from __future__ import annotations

import asyncio
import re

from fastapi import APIRouter, Request
from starlette.responses import Response

from api import params, rendering
from api.answers import PreviewAnswer
from api.auth import read_tenant
from api.changes import encoded
from api.jobs import Viewer, tenant_param
from api.openapi import described
from api.params import Params
from api.problems import invalid, wrong
from api.services import services
from schemas.commands import ScheduleSpec
from schemas.ids import JOB_ID
from schemas.replies import FieldProblem
from streams.ambient import wall_ms
from streams.core.cron import uses_hash
from streams.core.planning import resolve
from streams.core.preview import COUNT_MAX, preview
from streams.core.validation import check_schedule

router = APIRouter(prefix="/v1/schedules", tags=["schedules"])

DEFAULT_COUNT = 10
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_SCHEDULE = (
    params.Param("cron", doc="5 fields, or 6 with seconds first"),
    params.Param("timeZone", doc="IANA zone; UTC if left out"),
    params.Param("runAt", doc="RFC 3339 with offset, or a local time with `timeZone`"),
    params.Param("delaySec", "integer"),
    params.Param("everySec", "integer"),
    params.Param("startAt", doc="No occurrence before this instant"),
    params.Param("endAt", doc="No occurrence after this instant"),
    params.Param("maxRuns", "integer"),
    params.Param("jitterSec", "integer"),
    params.Param("allowPast", "boolean"),
)
_ASKED = (
    *_SCHEDULE,
    params.Param("jobId", doc="The job's id: `H` and jitter are drawn from it"),
    params.Param("after", doc="Occurrences after this instant, as if registered then; now if left out"),
    params.Param("count", "integer", f"1 to {COUNT_MAX}; {DEFAULT_COUNT} if left out"),
)


@router.get("/preview", **described(gives={200: PreviewAnswer}, query=(*_ASKED, params.TENANT)))
async def show(request: Request, caller: Viewer) -> Response:
    """The next occurrences of a schedule, in UTC and in its zone, with a note at each local time that the
    zone skips or repeats. Members of `schedule`, flat; what is wrong is named as in a job's body."""
    query = Params(request, *_ASKED, *tenant_param(caller))
    tenant = read_tenant(request, caller)
    after_ms = query.instant("after")
    after_ms = wall_ms() if after_ms is None else after_ms
    count = query.integer("count", (1, COUNT_MAX), DEFAULT_COUNT)
    job_id = query.text("jobId")
    if query.has("jobId") and not JOB_ID.fullmatch(job_id):
        raise wrong("jobId", "is [A-Za-z0-9._~-]{1,64}")
    spec, seed = _spec(query), f"{tenant}/{job_id}"
    problems = list(check_schedule(spec, seed))
    if problems:
        raise invalid(*problems)
    if spec.cron is not None and uses_hash(spec.cron) and not job_id:
        raise wrong("jobId", "is needed: H is drawn from it")
    jitter_sec = services(request).followed.settings_of(tenant).default_jitter_sec
    schedule = resolve(spec, seed, after_ms, jitter_sec)
    if isinstance(schedule, FieldProblem):
        raise invalid(schedule)
    # A thousand occurrences take some milliseconds: not on the loop.
    found = await asyncio.to_thread(preview, schedule, seed, after_ms, count)
    return encoded(
        PreviewAnswer(
            schedule=rendering.schedule(schedule),
            occurrences=[rendering.previewed(one, bool(job_id)) for one in found],
        )
    )


def _spec(query: Params) -> ScheduleSpec:
    return ScheduleSpec(
        cron=_text(query, "cron"),
        time_zone=_text(query, "timeZone"),
        run_at=_text(query, "runAt"),
        delay_sec=_number(query, "delaySec"),
        every_sec=_number(query, "everySec"),
        start_at=_text(query, "startAt"),
        end_at=_text(query, "endAt"),
        max_runs=_number(query, "maxRuns"),
        jitter_sec=_number(query, "jitterSec"),
        allow_past=_flag(query, "allowPast"),
    )


def _text(query: Params, name: str) -> str | None:
    return query.text(name) if query.has(name) else None


def _number(query: Params, name: str) -> int | None:
    if not query.has(name):
        return None
    if not _NUMBER.fullmatch(query.text(name)):
        raise wrong(f"schedule.{name}", "is a whole number")
    return int(query.text(name))


def _flag(query: Params, name: str) -> bool:
    if query.text(name) not in ("", "true", "false"):
        raise wrong(f"schedule.{name}", "is true or false")
    return query.text(name) == "true"
