"""Owns `POST /v1/dead-letters/replay`: every dead letter that a filter finds, each decided on its own."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import Response

from api import bodies
from api.answers import CountAnswer
from api.bulk import PER_ROUND, counted, decide_in_rounds, everything
from api.changes import envelope
from api.idempotency import key_of
from api.jobs import Owner
from api.models import DeadLetterFilterBody, ReplayManyBody
from api.openapi import described
from api.problems import wrong
from api.registration import payload_of
from api.services import services
from projections.queries import DeadLetterFilter, list_dead_letters
from schemas.commands import JobCommand, ReplayDeadLetter
from schemas.ids import job_id_of
from streams.core.instants import TimeInputError, parse_instant

router = APIRouter(prefix="/v1/dead-letters", tags=["dead letters"])

ROUND_BYTES = 8 * 1024 * 1024
"""A corrected payload goes with each command: so much at a time is on its way to the log."""


@router.post(
    "/replay",
    **described(gives={200: CountAnswer}, takes=ReplayManyBody, problems=(413,), keyed=True, changes=True),
)
async def replay_many(request: Request, caller: Owner) -> Response:
    """Puts every dead letter that the filter finds back to work, at most 10,000; not atomic. A repeat with
    the same key goes on with those that are left, and runs none a second time."""
    served = services(request)
    key = key_of(request)
    body = await bodies.decoded(request, ReplayManyBody)
    payload, content_type = payload_of(body)
    listed = partial(list_dead_letters, tenant=caller.tenant, filters=_filter(body.filter))
    letters = await everything(request, caller, "dead letters", listed)
    found = [letter.execution.execution_id for letter in letters]
    if body.dry_run:
        return counted(len(found), ())

    def command(execution_id: str) -> tuple[int, JobCommand]:
        return (
            served.client.partition_of(caller.tenant, job_id_of(execution_id) or ""),
            ReplayDeadLetter(
                **envelope(served, caller, key.value, body.reason),
                execution_id=execution_id,
                payload=payload,
                content_type=content_type,
            ),
        )

    per_round = max(1, min(PER_ROUND, ROUND_BYTES // max(1, len(payload or b""))))
    outcomes = await decide_in_rounds(request, caller, key, map(command, found), per_round)
    # What was replayed, discarded or forgotten meanwhile is none any more.
    return counted(sum(not outcome.code and not outcome.replayed for outcome in outcomes), outcomes)


def _filter(wanted: DeadLetterFilterBody) -> DeadLetterFilter:
    return DeadLetterFilter(
        job_id=wanted.job_id,
        pool=wanted.pool,
        task=wanted.task,
        reason=wanted.reason,
        from_ms=_instant(wanted.from_, "filter.from"),
        to_ms=_instant(wanted.to, "filter.to"),
    )


def _instant(text: str | None, field: str) -> int | None:
    if text is None:
        return None
    try:
        return parse_instant(text, field)
    except TimeInputError as error:
        raise wrong(error.field, error.detail) from None
