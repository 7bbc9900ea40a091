"""A one-off's execution completes its job by its own end: four events a job (decision 0020)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import pytest

from schemas.commands import RegisterMode
from schemas.entities import Cursor, Execution, JobStatus, OverlapPolicy, Tenant
from schemas.replies import Grant
from streams.core.engine import Engine
from streams.core.handlers import ending
from streams.core.limits import FORGET_AFTER_MS
from tests.unit.core.world import NO_RETRY, TENANT, World, compacted, rebuild

PUT = RegisterMode.PUT
ALLOW = OverlapPolicy.ALLOW
DAY_SEC = FORGET_AFTER_MS // 1_000
NEVER = patch.object(ending, "closes_job", lambda tx, job, execution: False)


def ran(world: World, **kw: Any) -> Execution:
    """A one-off that ran."""
    world.register(delay_sec=10, **kw)
    world.at(10)
    (grant,) = world.claim("A")
    world.complete(grant, b'"done"')
    return world.execution(grant.execution.execution_id)


def after(world: World, sec: int) -> None:
    """So long after the start, in one leap."""
    world.now_ms = world.start_ms + sec * 1_000
    world.run()


def living(engine: Engine) -> tuple[int, int]:
    indexes = engine.state.indexes
    return indexes.jobs_of(TENANT), indexes.jobs_in(TENANT, "default")


def check_replays(world: World) -> None:
    """From every point of the log, whole and compacted: the same entities, the same living jobs."""
    for cut in range(len(world.log) + 1):
        engine = rebuild(compacted(world.log, cut))
        assert engine.digest() == world.engine.digest(), cut
        assert living(engine) == living(world.engine), cut


def test_four_events_a_job() -> None:
    world = World()
    assert ran(world).closes_job
    assert world.types == ["JobRegistered", "ExecutionFired", "ExecutionClaimed", "ExecutionCompleted"]
    assert living(world.engine) == (0, 0)
    check_replays(world)


ONE_OFFS: dict[str, dict[str, Any]] = {
    "delay": {"delay_sec": 10},
    "one run, jitter": {"delay_sec": 10, "max_runs": 1, "jitter_sec": 3},
    "instant": {"run_at": "2026-05-01T00:00:10Z", "key": "k"},
    "local": {"run_at": "2026-05-01T02:00:10", "time_zone": "Europe/Paris"},
    "past": {"run_at": "2026-04-30T00:00:00Z", "allow_past": True, "misfire_window_sec": 2_592_000},
}


@pytest.mark.parametrize("one_off", ONE_OFFS.values(), ids=ONE_OFFS.keys())
def test_the_job_stands_where_an_event_of_its_own_would_have_left_it(one_off: dict[str, Any]) -> None:
    def completed() -> Cursor:
        world = World()
        world.register(**one_off)
        world.at(15)
        (grant,) = world.claim("A")
        world.at(20)
        world.complete(grant)
        return world.cursor()

    derived = completed()
    with NEVER:
        stored = completed()
    assert derived == stored
    assert (derived.status, derived.runs, derived.next_ms) == (JobStatus.COMPLETED, 1, 0)


def with_another_open(world: World) -> Grant:
    world.register(delay_sec=10, overlap=ALLOW)
    world.trigger(overlap=ALLOW)
    world.at(10)
    (_, grant) = world.claim("A", 2)
    return grant


def with_another_in_line(world: World) -> Grant:
    world.register(delay_sec=10)
    world.at(10)
    (grant,) = world.claim("A")
    world.trigger()
    return grant


def triggered_last(world: World) -> Grant:
    grant = with_another_in_line(world)
    world.complete(grant)
    (grant,) = world.claim("A")
    return grant


def paused(world: World) -> Grant:
    world.register(delay_sec=10)
    world.at(10)
    (grant,) = world.claim("A")
    world.pause()
    return grant


def cancelled(world: World) -> Grant:
    world.register(delay_sec=10)
    world.at(10)
    (grant,) = world.claim("A")
    world.cancel_job()
    return grant


def updated(world: World) -> Grant:
    world.register(delay_sec=10)
    world.at(10)
    (grant,) = world.claim("A")
    assert world.update(1, delay_sec=60).status == 200
    return grant


def made_anew_with_answers(world: World) -> Grant:
    world.register(delay_sec=10, key="first", mode=PUT)
    world.cancel_job()
    world.register(delay_sec=10, key="second", mode=PUT)
    world.at(10)
    (grant,) = world.claim("A")
    return grant


def bounded(world: World) -> Grant:
    world.register(every_sec=10, max_runs=1)
    world.at(10)
    (grant,) = world.claim("A")
    return grant


@pytest.mark.parametrize(
    "story",
    [
        with_another_open,
        with_another_in_line,
        triggered_last,
        paused,
        cancelled,
        updated,
        made_anew_with_answers,
        bounded,
    ],
)
def test_it_closes_its_job_only_if_nothing_else_is_said_of_it(story: Callable[[World], Grant]) -> None:
    world = World()
    world.complete(story(world))
    assert not any(execution.closes_job for execution in world.executions())
    check_replays(world)


def test_one_that_is_given_up_does_not_close_its_job() -> None:
    """It is known for thirty days, its job for one."""
    world = World()
    world.register(delay_sec=10, retry=NO_RETRY)
    world.at(10)
    (grant,) = world.claim("A")
    world.fail(grant)
    assert "JobCompleted" in world.types
    assert not world.execution(grant.execution.execution_id).closes_job


def test_what_is_asked_of_a_completed_job() -> None:
    world = World()
    ran(world)
    assert world.pause().status == world.cancel_job().status == 409
    assert world.update(1, delay_sec=5).status == 409
    assert world.trigger().status == 409
    assert world.backfill("2026-05-01T00:00:10Z").status == 409
    assert world.register(delay_sec=10).replayed
    assert world.register(delay_sec=11).status == 409
    assert world.cursor().status is JobStatus.COMPLETED


def test_job_and_execution_are_forgotten_together_after_a_day_and_nothing_fires_again() -> None:
    world = World()
    execution = ran(world)
    last = len(world.log)
    after(world, 10 + DAY_SEC - 1)
    assert world.knows_job()
    assert len(world.log) == last
    after(world, 10 + DAY_SEC)
    assert [key for key, value in world.log[last:] if value is None] == [
        "job:acme/job-1",
        f"exec:acme/{execution.execution_id}",
    ]
    after(world, 10 + 3 * DAY_SEC)
    assert world.types.count("ExecutionFired") == 1
    assert living(world.engine) == (0, 0)
    check_replays(world)


def taken_over(log: Sequence[tuple[str, bytes | None]], now_ms: int) -> World:
    """A process that has the log alone."""
    heir = World()
    heir.now_ms = now_ms
    heir.log = list(log)
    heir.engine = rebuild(log, heir.router)
    heir.store = heir.engine.state.kv._base  # type: ignore[assignment]
    return heir


@pytest.mark.parametrize("records", range(4, 7))
@pytest.mark.parametrize("shrunk", [0, 3, 99])
def test_whoever_takes_it_over_does_not_fire_it_again(records: int, shrunk: int) -> None:
    """At any point behind its end, from the whole log or a compacted one."""
    world = World()
    ran(world)
    after(world, 10 + DAY_SEC)
    heir = taken_over(compacted(world.log[:records], min(records, shrunk)), world.now_ms)
    for days in (1, 2, 40):
        after(heir, 10 + days * DAY_SEC)
    assert "ExecutionFired" not in heir.types
    assert not heir.knows_job()
    assert heir.executions() == []
    assert living(heir.engine) == (0, 0)


def buried_and_completed(world: World) -> tuple[str, Execution]:
    """A triggered execution that was given up, then the one-off itself."""
    world.register(delay_sec=10, retry=NO_RETRY)
    world.trigger()
    (grant,) = world.claim("A")
    world.fail(grant)
    world.at(10)
    (first,) = world.claim("A")
    world.complete(first)
    execution = world.execution(first.execution.execution_id)
    assert execution.closes_job
    return grant.execution.execution_id, execution


def test_a_dead_letter_that_was_replayed_keeps_both_until_it_ended() -> None:
    world = World()
    letter, first = buried_and_completed(world)
    after(world, DAY_SEC)
    world.replay(letter)
    after(world, 2 * DAY_SEC)
    assert world.knows_job()
    assert world.engine.state.execution(TENANT, first.execution_id) == first
    check_replays(world)
    (grant,) = world.claim("A")
    world.complete(grant)
    assert world.cursor().status is JobStatus.COMPLETED
    after(world, 4 * DAY_SEC)
    assert not world.knows_job()
    assert world.executions() == []
    assert world.types.count("ExecutionFired") == 2
    check_replays(world)


def test_a_dead_letter_outlives_job_and_closing_execution() -> None:
    world = World()
    letter, _ = buried_and_completed(world)
    after(world, 3 * DAY_SEC)
    assert not world.knows_job()
    assert [execution.execution_id for execution in world.executions()] == [letter]
    world.replay(letter)
    (grant,) = world.claim("A")
    world.complete(grant)
    assert not world.execution(letter).closes_job
    check_replays(world)


@pytest.mark.parametrize("hours", [1, 30])
def test_a_job_that_is_made_anew_lives_and_runs(hours: int) -> None:
    world = World()
    first = ran(world)
    after(world, hours * 3_600)
    assert world.register(delay_sec=3_600, mode=PUT).status == 201
    assert living(world.engine) == (1, 1)
    check_replays(world)
    after(world, (hours + 1) * 3_600 - 1)
    assert world.claim("A") == []
    after(world, (hours + 1) * 3_600)
    (grant,) = world.claim("A")
    assert grant.execution.execution_id != first.execution_id
    world.complete(grant)
    check_replays(world)
    after(world, hours * 3_600 + 3 * DAY_SEC)
    assert (world.executions(), world.knows_job(), living(world.engine)) == ([], False, (0, 0))
    assert world.types.count("ExecutionFired") == 2
    check_replays(world)


def test_made_anew_while_a_replayed_dead_letter_kept_the_old_execution() -> None:
    world = World()
    letter, first = buried_and_completed(world)
    after(world, DAY_SEC)
    world.replay(letter)
    after(world, 10 + DAY_SEC)
    assert world.register(delay_sec=9 * DAY_SEC, mode=PUT).status == 201
    assert world.engine.state.execution(TENANT, first.execution_id) is not None
    (grant,) = world.claim("A")
    world.complete(grant)
    after(world, 3 * DAY_SEC)
    assert world.engine.state.execution(TENANT, first.execution_id) is None
    assert living(world.engine) == (1, 1)
    check_replays(world)


def test_the_place_of_a_closed_job_is_free_again() -> None:
    world = World()
    world.router.settings[TENANT] = Tenant(tenant=TENANT, max_jobs=1)
    ran(world)
    assert world.register("another", delay_sec=10).status == 201
    assert world.register("third", delay_sec=10).status == 429


def test_an_error_while_it_is_forgotten_takes_nothing_away() -> None:
    """The timer of a closed job comes up again, and the job is as it was."""
    world = World()
    ran(world)
    with patch("streams.core.handlers.timing._drop", side_effect=RuntimeError("broken")):
        after(world, 10 + DAY_SEC)
    assert world.cursor().status is JobStatus.COMPLETED
    assert len(world.executions()) == 1
    after(world, 10 + 2 * DAY_SEC)
    assert not world.knows_job()
    assert world.executions() == []
    check_replays(world)
