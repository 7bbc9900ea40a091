"""Owns `POST /v1/dead-letters/replay`: every dead letter that a filter finds, each decided on its own."""

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
from api.models import DeadLetterFilterBody, ReplayManyBody
from api.openapi import described
from api.problems import outcome_unknown, wrong
from api.registration import payload_of
from api.services import Services, services
from projections.queries import DeadLetterFilter, list_dead_letters
from projections.views import PageRequest
from schemas.commands import ReplayDeadLetter
from schemas.ids import job_id_of
from streams.core.instants import TimeInputError, parse_instant

router = APIRouter(prefix="/v1/dead-letters", tags=["dead letters"])

LETTERS_MAX = 10_000
PER_ROUND = 500
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
    found = await _found(request, served, caller, body.filter)
    if body.dry_run:
        return encoded(CountAnswer(count=len(found)))
    per_round = max(1, min(PER_ROUND, ROUND_BYTES // max(1, len(payload or b""))))
    count, places = 0, []
    for first in range(0, len(found), per_round):
        commands = []
        for execution_id in found[first : first + per_round]:
            command = ReplayDeadLetter(
                **envelope(served, caller, key.value, body.reason),
                execution_id=execution_id,
                payload=payload,
                content_type=content_type,
            )
            checked(command)
            partition = served.client.partition_of(caller.tenant, job_id_of(execution_id) or "")
            commands.append((partition, command))
        outcomes = await decide_all(served, caller, commands)
        done = [outcome for outcome in outcomes if outcome is not None]
        if len(done) < len(outcomes):
            raise outcome_unknown(key.value)
        # What was replayed, discarded or forgotten meanwhile is none any more.
        count += sum(not outcome.code and not outcome.replayed for outcome in done)
        places += [(outcome.partition, outcome.offset) for outcome in done]
    return encoded(CountAnswer(count=count), headers=positions.header(places))


async def _found(
    request: Request, served: Services, caller: Caller, wanted: DeadLetterFilterBody
) -> list[str]:
    filters = DeadLetterFilter(
        job_id=wanted.job_id,
        pool=wanted.pool,
        task=wanted.task,
        reason=wanted.reason,
        from_ms=_instant(wanted.from_, "filter.from"),
        to_ms=_instant(wanted.to, "filter.to"),
    )
    found: list[str] = []
    token = ""
    while True:
        page = PageRequest(size=1_000, token=token)
        ask = partial(list_dead_letters, tenant=caller.tenant, filters=filters, page=page)
        letters = await served.reads.ask(request, caller.tenant, ask)
        found += [view.execution.execution_id for view in letters.items]
        if len(found) > LETTERS_MAX:
            raise wrong("filter", f"finds more than {LETTERS_MAX} dead letters; narrow it")
        token = letters.next_token
        if not token:
            return found


def _instant(text: str | None, field: str) -> int | None:
    if text is None:
        return None
    try:
        return parse_instant(text, field)
    except TimeInputError as error:
        raise wrong(error.field, error.detail) from None
