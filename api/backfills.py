"""Owns backfills: which occurrences of the past a window holds, and the commands that make them.

The schedule's own code says what lies in the window, the read model what ran already. Commands carry up to a
thousand occurrences each, under ids that derive from the request's key and what it asks for: a repeat makes
nothing twice, and the job knows a key that came with another window.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import Response

from api import bodies, positions
from api.answers import BackfillAnswer, OccurrenceAnswer
from api.auth import Caller
from api.changes import checked, decide_all, encoded, envelope, problem_of
from api.idempotency import key_of
from api.jobs import Owner
from api.models import BackfillBody
from api.openapi import described
from api.problems import of_job_id, outcome_unknown, refused, wrong
from api.reads import Connection
from api.registration import overlap_of
from api.services import Services, services
from projections.occurrences import times_that_ran
from projections.queries import get_job
from projections.views import JobView
from schemas.commands import BackfillJob
from schemas.entities import Job, Priority
from schemas.ids import backfill_execution_id, derived_backfill_id
from schemas.replies import CommandDone
from streams.ambient import wall_ms
from streams.core.instants import TimeInputError, format_instant, parse_instant
from streams.core.lifecycle import JOB_FINAL
from streams.core.limits import ENTITIES_PER_COMMAND_MAX
from streams.core.planning import plan, seed_of
from streams.core.refusals import JOB_FINISHED
from streams.core.schedule import count_occurrences, occurrences

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

OCCURRENCES_MAX = 10_000
SHOWN_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Window:
    """[from, to), cut at the present: what is to come needs no backfill."""

    from_ms: int
    to_ms: int


@router.post(
    "/{job_id}/backfill",
    **described(
        gives={202: BackfillAnswer, 200: BackfillAnswer},
        takes=BackfillBody,
        problems=(404, 409, 422),
        keyed=True,
        changes=True,
    ),
)
async def backfill(request: Request, caller: Owner, job_id: str) -> Response:
    """Executes what the schedule yields in [from, to), also before the registration; what ran is left out
    unless `rerun`. A dry run (200) only says what would be made."""
    served = services(request)
    of_job_id(job_id)
    key = key_of(request)
    body = await bodies.decoded(request, BackfillBody)
    window = _window(body)
    request_id = derived_backfill_id(job_id, key.value)
    backfill_id = derived_backfill_id(request_id, _meaning(body))
    view, ran = await served.reads.one(
        request,
        caller.tenant,
        "job",
        partial(_seen, tenant=caller.tenant, job_id=job_id, window=window, backfill_id=backfill_id),
    )
    if view.status in JOB_FINAL:
        raise refused(JOB_FINISHED)
    times = await asyncio.to_thread(_times, view.job, window)
    if not body.rerun:
        times = [at_ms for at_ms in times if at_ms not in ran and not _will_run(view, at_ms)]
    if body.dry_run:
        return encoded(_answer(view.job, backfill_id, len(times), times, made=False))
    outcomes = await _make(served, caller, body, view.job, request_id, backfill_id, times)
    for outcome in outcomes:
        if outcome is None:
            raise outcome_unknown(key.value)
        problem = problem_of(outcome)
        if problem is not None:
            raise problem
    done = [outcome for outcome in outcomes if outcome is not None]
    sent = positions.header((outcome.partition, outcome.offset) for outcome in done)
    count = sum(outcome.count for outcome in done)
    return encoded(_answer(view.job, backfill_id, count, times, made=True), 202, sent)


def _window(body: BackfillBody) -> Window:
    try:
        from_ms, to_ms = parse_instant(body.from_, "from"), parse_instant(body.to, "to")
    except TimeInputError as error:
        raise wrong(error.field, error.detail) from None
    if from_ms <= 0:
        raise wrong("from", "is before 1970")
    if to_ms <= from_ms:
        raise wrong("to", "is not after from")
    return Window(from_ms, min(to_ms, wall_ms() + 1))


def _meaning(body: BackfillBody) -> str:
    """What a repeat with the same key has to say again; where the present cuts a window is no part of it."""
    return repr((body.from_, body.to, body.overlap_policy, body.rerun, body.priority))


def _seen(
    connection: Connection, tenant: str, job_id: str, window: Window, backfill_id: str
) -> tuple[JobView, frozenset[int]] | None:
    detail = get_job(connection, tenant, job_id)
    if detail is None:
        return None
    job = detail.view.job
    return detail.view, times_that_ran(connection, job, window.from_ms, window.to_ms, backfill_id)


def _times(job: Job, window: Window) -> list[int]:
    past = plan(job.schedule, seed_of(job), past=True)
    count = count_occurrences(past, window.from_ms - 1, window.to_ms - 1)
    if count > OCCURRENCES_MAX:
        raise wrong("to", f"makes {count} occurrences; a backfill has at most {OCCURRENCES_MAX}")
    found = occurrences(past, window.from_ms - 1)
    return [one.utc_ms for one, _ in zip(found, range(count), strict=False)]


def _will_run(view: JobView, at_ms: int) -> bool:
    """Kept misfires are made by the job itself."""
    kept = view.cursor.catch_up if view.cursor is not None else ()
    return any(one.from_ms <= at_ms <= one.to_ms for one in kept)


async def _make(
    served: Services,
    caller: Caller,
    body: BackfillBody,
    job: Job,
    request_id: str,
    backfill_id: str,
    times: Sequence[int],
) -> list[CommandDone | None]:
    commands = []
    partition = served.client.partition_of(caller.tenant, job.job_id)
    # Also without a time: the partition knows whether the key was used otherwise.
    for first in range(0, max(1, len(times)), ENTITIES_PER_COMMAND_MAX):
        command = BackfillJob(
            **envelope(served, caller, request_id, body.reason),
            job_id=job.job_id,
            backfill_id=backfill_id,
            scheduled_ms=tuple(times[first : first + ENTITIES_PER_COMMAND_MAX]),
            overlap=overlap_of(body.overlap_policy),
            rerun=body.rerun,
            priority=Priority(body.priority.upper()),
        )
        checked(command)
        commands.append((partition, command))
    return await decide_all(served, caller, commands)


def _answer(job: Job, backfill_id: str, count: int, times: Sequence[int], *, made: bool) -> BackfillAnswer:
    def id_of(at_ms: int) -> str | None:
        return backfill_execution_id(job.job_id, job.incarnation, at_ms, backfill_id) if made else None

    shown = [
        OccurrenceAnswer(scheduled_time=format_instant(at_ms), execution_id=id_of(at_ms))
        for at_ms in times[:SHOWN_MAX]
    ]
    return BackfillAnswer(backfill_id=backfill_id, count=count, occurrences=shown)
