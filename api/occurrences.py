"""Owns `GET /v1/jobs/{jobId}/occurrences`: what became of each occurrence of a job, and what will.

Three sources, one order: executions, ranges that were skipped or kept, and what the schedule yields from the
cursor on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import NamedTuple

from fastapi import APIRouter, Request
from starlette.responses import Response

from api import params
from api.answers import OccurrenceAnswer, OccurrencesAnswer
from api.auth import read_tenant
from api.changes import encoded
from api.jobs import Viewer, tenant_param
from api.openapi import described
from api.params import Params
from api.problems import of_job_id, wrong
from api.reads import Connection
from api.services import services
from projections.occurrences import job_occurrences, job_skips
from projections.queries import get_job
from projections.views import JobView, Occurred, SkipView
from schemas.entities import ExecutionKind, ExecutionStatus, JobStatus
from schemas.ids import scheduled_execution_id
from schemas.topics import DAY_MS
from streams.ambient import wall_ms
from streams.core.instants import format_instant
from streams.core.planning import plan_of
from streams.core.schedule import count_occurrences, occurrences

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

SHOWN_MAX = 1_000
_ASKED = (
    params.Param("from", doc="Scheduled at or after (RFC 3339); a day ago if left out"),
    params.Param("to", doc="Scheduled before (RFC 3339); a day from then or from now on, if left out"),
)


class Seen(NamedTuple):
    """What the read model knows of a window."""

    view: JobView
    occurred: tuple[Occurred, ...]
    skipped: tuple[SkipView, ...]


Item = tuple[int, OccurrenceAnswer]
"""The first scheduled time, and how it is shown."""


@router.get(
    "/{job_id}/occurrences",
    **described(gives={200: OccurrencesAnswer}, problems=(404,), query=(*_ASKED, params.TENANT), reads=True),
)
async def show(request: Request, caller: Viewer, job_id: str) -> Response:
    """What became of a job's occurrences, and what will: oldest first, at most 1,000, then `nextFrom`."""
    query = Params(request, *_ASKED, *tenant_param(caller))
    of_job_id(job_id)
    tenant = read_tenant(request, caller)
    from_ms, to_ms = query.instant("from"), query.instant("to")
    from_ms = wall_ms() - DAY_MS if from_ms is None else from_ms
    to_ms = max(from_ms, wall_ms()) + DAY_MS if to_ms is None else to_ms
    if to_ms <= from_ms:
        raise wrong("to", "is not after from")
    ask = partial(_seen, tenant=tenant, job_id=job_id, from_ms=from_ms, to_ms=to_ms)
    seen = await services(request).reads.one(request, tenant, "job", ask)
    future = await asyncio.to_thread(_future, seen, from_ms, to_ms)
    items = [*_past(seen, from_ms, to_ms), *future]
    items.sort(key=lambda item: (item[0], item[1].execution_id or ""))
    shown, next_ms = _page(items)
    return encoded(
        OccurrencesAnswer(
            occurrences=[answer for _, answer in shown],
            next_from=format_instant(next_ms) if next_ms is not None else None,
        )
    )


def _page(items: list[Item]) -> tuple[list[Item], int | None]:
    """What is shown, and where the rest begins: executions of one instant stay together."""
    if len(items) <= SHOWN_MAX:
        return items, None
    next_ms = items[SHOWN_MAX][0]
    shown = [item for item in items[:SHOWN_MAX] if item[0] < next_ms]
    return (shown, next_ms) if shown else (items[:SHOWN_MAX], next_ms + 1)


def _seen(connection: Connection, tenant: str, job_id: str, from_ms: int, to_ms: int) -> Seen | None:
    detail = get_job(connection, tenant, job_id)
    if detail is None:
        return None
    return Seen(
        view=detail.view,
        occurred=job_occurrences(connection, detail.view.job, from_ms, to_ms, SHOWN_MAX + 1),
        skipped=job_skips(connection, tenant, job_id, from_ms, to_ms, SHOWN_MAX + 1),
    )


def _past(seen: Seen, from_ms: int, to_ms: int) -> Iterator[Item]:
    for one in seen.occurred:
        yield one.scheduled_ms, _of_execution(one)
    for skip in seen.skipped:
        reason = skip.reason.lower()
        yield skip.from_ms, _range(skip.from_ms, skip.to_ms, skip.count, ExecutionStatus.SKIPPED, reason)
    cursor = seen.view.cursor
    for kept in cursor.catch_up if cursor is not None else ():
        if kept.from_ms < to_ms and kept.to_ms >= from_ms:
            yield kept.from_ms, _range(kept.from_ms, kept.to_ms, kept.count, ExecutionStatus.PENDING, None)


def _of_execution(one: Occurred) -> OccurrenceAnswer:
    return OccurrenceAnswer(
        scheduled_time=format_instant(one.scheduled_ms),
        status=one.status,
        reason=one.reason or None,
        execution_id=one.execution_id,
        kind=one.kind.lower() if one.kind is not ExecutionKind.SCHEDULE else None,
    )


def _range(from_ms: int, to_ms: int, count: int, status: str, reason: str | None) -> OccurrenceAnswer:
    several = count > 1
    return OccurrenceAnswer(
        scheduled_time=format_instant(from_ms),
        to=format_instant(to_ms) if several else None,
        count=count if several else None,
        status=status,
        reason=reason,
    )


def _future(seen: Seen, from_ms: int, to_ms: int) -> list[Item]:
    """From the cursor on, by the engine's own code. What falls into a pause says so."""
    view, job = seen.view, seen.view.job
    paused = view.status is JobStatus.PAUSED
    next_ms = view.next_run_ms
    if paused and view.cursor is not None:
        next_ms = view.cursor.next_ms
    if not next_ms:
        return []
    schedule = plan_of(job)
    after_ms, after_local = next_ms - 1, (view.cursor.last_local if view.cursor is not None else "") or None
    left = SHOWN_MAX + 1
    if job.schedule.max_runs:
        left = job.schedule.max_runs - (view.cursor.runs if view.cursor is not None else 0)
    if from_ms > next_ms:
        left -= (
            count_occurrences(schedule, after_ms, from_ms - 1, after_local) if job.schedule.max_runs else 0
        )
        after_ms, after_local = from_ms - 1, None
    known = {one.execution_id for one in seen.occurred}
    items: list[Item] = []
    for found in islice(occurrences(schedule, after_ms, after_local), max(0, min(left, SHOWN_MAX + 1))):
        if found.utc_ms >= to_ms:
            break
        execution_id = scheduled_execution_id(job.job_id, job.incarnation, found.utc_ms)
        if execution_id not in known:
            answer = OccurrenceAnswer(
                scheduled_time=format_instant(found.utc_ms),
                status=ExecutionStatus.SCHEDULED,
                reason="paused" if paused else None,
                execution_id=execution_id,
            )
            items.append((found.utc_ms, answer))
    return items
