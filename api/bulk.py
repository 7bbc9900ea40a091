"""Owns what bulk changes share: everything that a filter finds, and the rounds in which it is decided."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import TypeVar

from fastapi import Request
from starlette.responses import Response

from api import positions
from api.answers import CountAnswer
from api.auth import Caller
from api.changes import checked, decide_all, encoded
from api.idempotency import RequestKey
from api.problems import outcome_unknown, wrong
from api.services import services
from projections.views import Page, PageRequest
from schemas.commands import JobCommand
from schemas.replies import CommandDone

FOUND_MAX = 10_000
PER_ROUND = 500
PAGE_SIZE = 1_000

Item = TypeVar("Item")


async def everything(
    request: Request, caller: Caller, what: str, listed: Callable[..., Page[Item]]
) -> list[Item]:
    """All pages of a query that takes a connection and a `page`; Problem if that is more than `FOUND_MAX` of
    `what`."""
    found: list[Item] = []
    token = ""
    while True:
        ask = partial(listed, page=PageRequest(size=PAGE_SIZE, token=token))
        page = await services(request).reads.ask(request, caller.tenant, ask)
        found += page.items
        if len(found) > FOUND_MAX:
            raise wrong("filter", f"finds more than {FOUND_MAX} {what}; narrow it")
        token = page.next_token
        if not token:
            return found


async def decide_in_rounds(
    request: Request,
    caller: Caller,
    key: RequestKey,
    commands: Iterable[tuple[int, JobCommand]],
    per_round: int = PER_ROUND,
) -> list[CommandDone]:
    """The answers of the commands' partitions, in order; so many commands at a time are made and on their way
    to the log. Problem, with the key that goes on with the rest, at the first without an answer."""
    outcomes: list[CommandDone] = []
    coming = iter(commands)
    while sent := list(islice(coming, per_round)):
        for _, command in sent:
            checked(command)
        answered = await decide_all(services(request), caller, sent)
        done = [outcome for outcome in answered if outcome is not None]
        if len(done) < len(sent):
            raise outcome_unknown(key.value)
        outcomes += done
    return outcomes


def counted(count: int, outcomes: Sequence[CommandDone]) -> Response:
    """The answer to a bulk change, with where it stands in the log."""
    places = [(outcome.partition, outcome.offset) for outcome in outcomes]
    return encoded(CountAnswer(count=count), headers=positions.header(places))
