"""Owns the way of a change: the command goes to its partition, and what that decided becomes the answer.

Never from the read model. No answer in time is 503 `outcome_unknown`, with the key that repeats it safely.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, TypedDict

import msgspec
from starlette.responses import Response

from api import positions
from api.auth import Caller
from api.idempotency import REPLAYED_HEADER, RequestKey
from api.problems import Problem, outcome_unknown, refused, too_many
from api.services import Services
from schemas.commands import (
    CancelExecution,
    ConfigurePool,
    ConfigureTenant,
    DiscardDeadLetter,
    JobCommand,
    ReplayDeadLetter,
)
from schemas.ids import job_id_of
from schemas.replies import CommandDone
from streams.ambient import new_id
from streams.core.refusals import MISROUTED
from streams.core.validation import refuse


class Envelope(TypedDict):
    """What every command of a request carries."""

    command_id: str
    tenant: str
    actor: str
    reply_partition: int
    session: str
    request_key: str
    reason: str


def envelope(
    services: Services,
    caller: Caller,
    key: str = "",
    reason: str = "",
    *,
    tenant: str = "",
    command_id: str = "",
) -> Envelope:
    """Tenant and actor are the key's alone, whatever the request says; `tenant`: another one, for roles that
    may act on it; `command_id`: one of a batch's, which are made together."""
    return Envelope(
        command_id=command_id or new_id(),
        tenant=tenant or caller.tenant,
        actor=caller.actor,
        reply_partition=services.client.reply_partition,
        session=services.client.session,
        request_key=key,
        reason=reason,
    )


def checked(command: JobCommand) -> None:
    """Raises what is wrong with the command's form: no such command reaches the log."""
    refusal = refuse(command)
    if refusal is not None:
        raise refused(refusal)


async def decide(
    services: Services, caller: Caller, job_id: str, command: JobCommand, key: RequestKey | None = None
) -> CommandDone:
    """The answer of the job's partition; Problem if it refused, or did not answer."""
    checked(command)
    return await decide_at(
        services, caller, services.client.partition_of(caller.tenant, job_id), command, key
    )


async def decide_at(
    services: Services,
    caller: Caller,
    partition: int,
    command: JobCommand,
    key: RequestKey | None = None,
) -> CommandDone:
    """As `decide`, at a partition that is known."""
    [outcome] = await decide_all(services, caller, [(partition, command)])
    if outcome is None:
        raise outcome_unknown(key.value if key is not None else "")
    problem = problem_of(outcome)
    if problem is not None:
        raise problem
    return outcome


async def decide_all(
    services: Services, caller: Caller, commands: Sequence[tuple[int, JobCommand]]
) -> list[CommandDone | None]:
    """The partitions' answers, in order."""
    began = time.perf_counter()
    outcomes = await services.client.decide(commands)
    services.metrics.decision_seconds.observe(time.perf_counter() - began)
    unknown = sum(outcome is None for outcome in outcomes)
    if unknown:
        services.metrics.unknown.inc(unknown)
    for (_, command), outcome in zip(commands, outcomes, strict=True):
        if outcome is not None:
            of_job = _job_of(command)
            services.own_writes.note(caller.tenant, outcome.partition, outcome.offset, of_job)
    return outcomes


def _job_of(command: JobCommand) -> tuple[str, ...]:
    """The job that a command is about; settings are about none."""
    match command:
        case ConfigureTenant() | ConfigurePool():
            return ()
        case CancelExecution() | ReplayDeadLetter() | DiscardDeadLetter():
            return (job_id_of(command.execution_id) or "",)
    return (command.job_id,)


def problem_of(outcome: CommandDone) -> Problem | None:
    """The problem for a refusal."""
    if not outcome.code:
        return None
    if outcome.code == MISROUTED.code:
        # The tenant's shards were just set and not every part knows yet. Nothing was done.
        return Problem(503, "routing_changed", "the tenant's partitions have just changed; ask again")
    if outcome.status == HTTPStatus.TOO_MANY_REQUESTS:
        return too_many(outcome)
    return Problem(outcome.status, outcome.code, outcome.detail, outcome.errors)


def answer(outcome: CommandDone, body: Any, headers: dict[str, str] | None = None) -> Response:
    """The answer to a change."""
    sent = positions.header([(outcome.partition, outcome.offset)]) | (headers or {})
    if outcome.replayed:
        sent[REPLAYED_HEADER] = "true"
    return encoded(body, outcome.status, sent)


def encoded(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Any answer."""
    return Response(msgspec.json.encode(body), status, headers, "application/json")
