"""Owns the way of a changed setting: decided by the tenant's home partition, told to every process.

It is answered once this process knows it too, so that a read that follows shows it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from fastapi import Request
from msgspec import UNSET, UnsetType
from msgspec.structs import replace
from starlette.responses import Response

from api.auth import Caller
from api.changes import answer, checked, decide_all, decide_at, problem_of
from api.idempotency import key_of
from api.problems import outcome_unknown
from api.services import Services
from schemas.commands import ConfigurePool, ConfigureTenant
from schemas.entities import Tenant

log = logging.getLogger(__name__)


async def configure(
    request: Request,
    served: Services,
    caller: Caller,
    command: ConfigureTenant | ConfigurePool,
    body: Callable[[Tenant], Any],
) -> Response:
    """The answer, its body made of the settings as they are now; Problem if the change was refused.

    A setting says what is to be, so a request without a key may be repeated, and a key of our own would only
    make each repeat another request.
    """
    key = key_of(request)
    command = replace(command, request_key="" if key.made else key.value)
    checked(command)
    if isinstance(command, ConfigureTenant):
        command = await _agreed(served, caller, command)
    home = served.client.partitions_of(command.tenant)[0]
    outcome = await decide_at(served, caller, home, command, None if key.made else key)
    assert outcome.configured is not None
    settings = outcome.configured
    if not await served.followed.reached(settings.tenant, settings.version):
        log.warning("settings of %s, version %d, are slow to come back", settings.tenant, settings.version)
    return answer(outcome, body(settings))


def setting(value: Any | UnsetType | None, default: Any) -> Any:
    """A member of a body as a command has it. Everywhere null is the default and what is left out stays; a
    command that has None leaves the setting as it is."""
    if value is UNSET:
        return None
    return default if value is None else value


async def _agreed(served: Services, caller: Caller, command: ConfigureTenant) -> ConfigureTenant:
    """The command as the home takes it: before a tenant of several partitions gets other shards, each of the
    others must know nothing of it (`streams.core.handlers.configuring`)."""
    known = served.followed.settings_of(command.tenant)
    is_repeat = any(answered.request_key == command.request_key for answered in known.answered)
    if command.shards in (None, known.shards) or known.shards == 1 or is_repeat:
        return command
    _, *others = served.client.partitions_of(command.tenant)
    asked = ConfigureTenant(
        command_id=command.command_id,
        tenant=command.tenant,
        actor=command.actor,
        reply_partition=command.reply_partition,
        session=command.session,
        shards=command.shards,
        version=known.version,
    )
    questions = [(number, replace(asked, command_id=f"{command.command_id}-{number}")) for number in others]
    for outcome in await decide_all(served, caller, questions):
        if outcome is None:
            raise outcome_unknown(command.request_key)
        problem = problem_of(outcome)
        if problem is not None:
            raise problem
    return replace(command, version=known.version)
