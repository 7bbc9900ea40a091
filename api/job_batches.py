"""Owns `POST /v1/jobs/batch`: up to 1,000 registrations in one call, each decided on its own.

An item that cannot be taken is a problem at its place; the others go on.
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from api import bodies, positions, rendering, unsupported
from api.answers import BatchAnswer, BatchResult
from api.auth import Caller
from api.bodies import BATCH_BYTES_MAX, Items
from api.changes import checked, decide_all, encoded, envelope, problem_of
from api.idempotency import RequestKey, item_key, key_of
from api.jobs import Owner, first_version
from api.models import BatchBody, BatchItem
from api.openapi import described
from api.problems import Problem, outcome_unknown
from api.registration import to_command
from api.services import Services, services
from schemas.commands import RegisterJob, RegisterMode
from schemas.ids import derived_job_id
from schemas.replies import CommandDone
from streams.ambient import new_id

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@router.post(
    "/batch",
    **described(gives={200: BatchAnswer}, takes=BatchBody, problems=(413,), keyed=True, changes=True),
)
async def register_batch(request: Request, caller: Owner) -> Response:
    """Registers up to 1,000 jobs, not atomically; results come in the order of the jobs."""
    served = services(request)
    key = key_of(request)
    body, document = await bodies.read(request, BATCH_BYTES_MAX)
    items = Items(body, document, "jobs")
    results: list[BatchResult | None] = [None] * len(items.trees)
    commands: list[tuple[int, RegisterJob]] = []
    places: list[int] = []
    batch_id = new_id()
    for index in range(len(items.trees)):
        try:
            command = _command(served, caller, key, items, index, f"{batch_id}#{index}")
        except Problem as problem:
            results[index] = _refused(problem)
            continue
        commands.append((served.client.partition_of(caller.tenant, command.job_id), command))
        places.append(index)
    outcomes = await decide_all(served, caller, commands) if commands else []
    for index, (_, command), outcome in zip(places, commands, outcomes, strict=True):
        results[index] = await _result(served, outcome, command.request_key)
    done = [(outcome.partition, outcome.offset) for outcome in outcomes if outcome is not None]
    return encoded(
        BatchAnswer(results=[result for result in results if result is not None]),
        headers=positions.header(done),
    )


def _command(
    served: Services, caller: Caller, key: RequestKey, items: Items, index: int, command_id: str
) -> RegisterJob:
    tree = items.trees[index]
    if isinstance(tree, dict):
        unsupported.check_job(tree)
    body = items.typed(index, BatchItem)
    request_key = item_key(key, index, body.request_key)
    job_id = derived_job_id(caller.tenant, request_key)
    sent = envelope(served, caller, request_key, body.reason, command_id=command_id)
    command = to_command(sent, body, job_id, RegisterMode.CREATE)
    checked(command)
    return command


async def _result(served: Services, outcome: CommandDone | None, request_key: str) -> BatchResult:
    if outcome is None:
        return _refused(outcome_unknown(request_key))
    problem = problem_of(outcome)
    if problem is not None:
        return _refused(problem)
    return BatchResult(
        status=outcome.status,
        job=rendering.job_at_beginning(await first_version(served, outcome)),
        replayed=outcome.replayed,
    )


def _refused(problem: Problem) -> BatchResult:
    return BatchResult(status=problem.status, problem=problem.body)
