"""What a refused registration says: when to come back, and by which rate."""

from __future__ import annotations

from typing import Any

import pytest

from api.changes import problem_of
from schemas.replies import CommandDone


def refused(**more: Any) -> CommandDone:
    return CommandDone(session="s", command_id="c", status=429, partition=0, detail="too many", **more)


@pytest.mark.parametrize(
    ("retry_after_ms", "seconds"), [(1, 1), (999, 1), (1_000, 1), (1_001, 2), (60_000, 60)]
)
def test_a_rate_says_whole_seconds_never_too_few(retry_after_ms: int, seconds: int) -> None:
    problem = problem_of(refused(code="rate_limited", retry_after_ms=retry_after_ms, limit=500))
    assert problem is not None
    answer = problem.response()
    assert answer.status_code == 429
    assert answer.headers["Retry-After"] == str(seconds)
    assert answer.headers["RateLimit-Policy"] == '"registrations";q=500;w=1'
    assert answer.headers["RateLimit"] == f'"registrations";r=0;t={seconds}'
    assert (problem.body.code, problem.body.retry_after_sec) == ("rate_limited", seconds)


def test_a_number_has_room_when_jobs_end() -> None:
    problem = problem_of(refused(code="too_many_jobs", limit=100_000))
    assert problem is not None
    assert problem.response().headers["Retry-After"] == "60"
    assert "RateLimit" not in problem.response().headers
