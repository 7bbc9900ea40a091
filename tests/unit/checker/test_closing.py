"""The checker minds how the end of an execution completes its job (decision 0020)."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from projections.checker.report import Kind
from schemas.entities import OverlapPolicy
from schemas.events import (
    CursorMoved,
    ExecutionCompleted,
    ExecutionDeadLettered,
    ExecutionEvent,
    JobRegistered,
)
from streams.core.handlers import ending
from streams.core.limits import FORGET_AFTER_MS
from streams.core.state import State, beginning
from tests.unit.checker.tale import Log, judged, log_of
from tests.unit.core.world import World

ALLOW = OverlapPolicy.ALLOW


def ran(world: World, **kw: Any) -> Log:
    world.register(**({"delay_sec": 10} | kw))
    world.at(10)
    for grant in world.claim("A", 5):
        world.complete(grant)
    return log_of(world)


def flagged(log: Log, *, closes: bool) -> Log:
    """The last end of an execution says, or does not say, that it closes its job."""
    n = max(n for n, (_, event) in enumerate(log) if isinstance(event, ExecutionCompleted))
    key, event = log[n]
    assert isinstance(event, ExecutionEvent)
    return [
        *log[:n],
        (key, replace(event, execution=replace(event.execution, closes_job=closes))),
        *log[n + 1 :],
    ]


def found(world: World, log: Log) -> dict[str, int]:
    return dict(judged(log, world.now_ms, drained=True).found)


def test_a_job_that_was_closed_is_completed() -> None:
    world = World()
    log = ran(world)
    report = judged(log, world.now_ms, world.work, drained=True)
    assert report.good, report.violations
    assert (report.due, report.fired, report.unjudged) == (1, 1, {})


def test_one_that_was_not_is_found() -> None:
    world = World()
    assert found(world, flagged(ran(world), closes=False)) == {Kind.UNFINISHED: 1}


def test_closing_a_job_that_recurs_is_found() -> None:
    world = World()
    log = ran(world, delay_sec=None, every_sec=10)
    assert found(world, flagged(log, closes=True))[Kind.LIFE] >= 1


def test_closing_by_another_execution_is_found() -> None:
    world = World()
    world.register(delay_sec=1_000)
    world.trigger()
    for grant in world.claim("A"):
        world.complete(grant)
    assert found(world, flagged(log_of(world), closes=True))[Kind.LIFE] >= 1


def test_closing_beside_an_open_one_is_found() -> None:
    world = World()
    with patch.object(State, "is_alone", lambda self, job: True):
        world.register(delay_sec=10, overlap=ALLOW)
        world.at(10)
        (grant,) = world.claim("A")
        world.trigger(overlap=ALLOW)
        world.complete(grant)
    assert judged(log_of(world), world.now_ms).found == {Kind.LIFE: 1}


def test_closing_a_job_that_has_a_cursor_is_found() -> None:
    world = World()
    log = ran(world)
    job = next(event.job for _, event in log if isinstance(event, JobRegistered))
    moved = CursorMoved(
        at_ms=world.start_ms,
        actor="a",
        cause="c",
        cursor=replace(beginning(job), next_due_ms=job.first_next_ms),
    )
    assert found(world, [log[0], ("cursor:acme/job-1", moved), *log[1:]]) == {Kind.LIFE: 1}


def test_closing_by_another_event_is_found() -> None:
    world = World()
    log = ran(world)
    key, event = log[-1]
    assert isinstance(event, ExecutionCompleted)
    told = ExecutionDeadLettered(
        at_ms=event.at_ms, actor=event.actor, cause=event.cause, execution=event.execution
    )
    assert found(world, [*log[:-1], (key, told)])[Kind.LIFE] >= 1


@pytest.mark.parametrize("first", ["job", "exec"])
def test_its_execution_is_forgotten_after_the_job(first: str) -> None:
    world = World()
    ran(world)
    world.now_ms += FORGET_AFTER_MS
    world.run()
    log = log_of(world)
    assert len(log) == 6
    if first == "exec":
        log[4:] = reversed(log[4:])
    assert found(world, log) == ({Kind.LIFE: 1} if first == "exec" else {})


def test_a_log_of_before_is_good() -> None:
    world = World()
    with patch.object(ending, "closes_job", lambda tx, job, execution: False):
        log = ran(world)
    assert found(world, log) == {}
