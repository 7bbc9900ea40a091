"""The load by HTTP: an answer that came too late is asked for again, and a refusal is the end."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from bench.wire import Answer, Refused
from bench.worker import TRIES, registered

LATE = {"status": 503, "problem": {"code": "outcome_unknown"}}


class Answers:
    """A connection that gives these results, one list a request."""

    def __init__(self, *results: list[dict[str, Any]]) -> None:
        self._results = list(results)
        self.headers: list[str] = []

    async def post(self, path: str, body: bytes, headers: str = "", *, method: str = "POST") -> Answer:
        self.headers.append(headers)
        return Answer(200, "", msgspec.json.encode({"results": self._results.pop(0)}))


def _made(name: str) -> dict[str, Any]:
    return {"status": 201, "job": {"jobId": name}}


def test_a_batch_that_was_answered_late_is_asked_for_again_under_its_key() -> None:
    connection = Answers([_made("a"), LATE], [_made("a"), _made("b")])
    assert asyncio.run(registered(connection, b"{}", "herd-0")) == ["a", "b"]
    assert connection.headers == ["Idempotency-Key: herd-0\r\n"] * 2


def test_a_batch_that_came_before_its_limits_were_lifted_is_asked_for_again() -> None:
    early = {"status": 429, "problem": {"code": "rate_limited", "retryAfterSec": 0}}
    connection = Answers([_made("a"), early], [_made("a"), _made("b")])
    assert asyncio.run(registered(connection, b"{}", "herd-0")) == ["a", "b"]


@pytest.mark.parametrize("status", [400, 429])
def test_what_is_refused_ends_the_run(status: int) -> None:
    answers = Answers(*[[_made("a"), {"status": status}]] * TRIES)
    with pytest.raises(Refused, match="1 of a batch"):
        asyncio.run(registered(answers, b"{}", "herd-0"))
