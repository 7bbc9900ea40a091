"""A command with a key is done once, also after the job has been cancelled and made anew (semantics §7)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from schemas.commands import BackfillJob, RegisterMode
from schemas.entities import JobStatus
from schemas.replies import CommandDone
from streams.core.instants import parse_instant
from tests.unit.core.world import World

PUT = RegisterMode.PUT
Ask = Callable[[World], CommandDone]


def put(world: World, key: str, every_sec: int) -> CommandDone:
    return world.register(key=key, mode=PUT, every_sec=every_sec)


def backfill(world: World, key: str) -> CommandDone:
    times = (parse_instant("2026-04-30T23:58:00Z", "t"),)
    command = BackfillJob(**world._envelope(key), job_id="job-1", backfill_id=f"b-{key}", scheduled_ms=times)
    return world._done(command)


ASKED: dict[str, Ask] = {
    "registration": lambda world: put(world, "first", 60),
    "put": lambda world: put(world, "k", 120),
    "put that changes nothing": lambda world: put(world, "k", 60),
    "patch": lambda world: world.update(1, key="k", every_sec=120),
    "pause": lambda world: world.pause(key="k"),
    "trigger": lambda world: world.trigger(key="k"),
    "backfill": lambda world: backfill(world, "k"),
}


def _state(world: World) -> tuple[object, ...]:
    job = world.engine.state.job("acme", "job-1")
    assert job is not None
    return job, world.cursor(), len(world.log)


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED.keys())
def test_a_repeat_does_nothing_to_the_job_that_was_made_anew(ask: Ask) -> None:
    world = World()
    put(world, "first", 60)
    assert ask(world).status in (200, 202)
    world.cancel_job()
    assert put(world, "anew", 3600).status == 201
    before = _state(world)
    again = ask(world)
    assert (again.status < 300, again.replayed) == (True, True), again
    assert _state(world) == before
    assert world.rebuilt().digest() == world.engine.digest()


@pytest.mark.parametrize("name", ["registration", "put", "put that changes nothing", "patch"])
def test_a_repeat_does_not_bring_a_cancelled_job_back(name: str) -> None:
    world = World()
    put(world, "first", 60)
    ASKED[name](world)
    world.cancel_job()
    assert ASKED[name](world).replayed
    assert world.cursor().status is JobStatus.CANCELLED


def test_a_put_that_changed_nothing_is_not_done_over_what_came_later() -> None:
    world = World()
    put(world, "first", 60)
    assert put(world, "k", 60).status == 200
    put(world, "last", 3600)
    before = _state(world)
    assert put(world, "k", 60).replayed
    assert _state(world) == before


def test_a_one_off_that_remembers_runs_once() -> None:
    world = World()
    world.register(key="first", mode=PUT, delay_sec=10)
    world.cancel_job()
    world.register(key="anew", mode=PUT, delay_sec=20)
    assert world.register(key="first", mode=PUT, delay_sec=10).replayed
    world.at(20)
    (grant,) = world.claim("A")
    world.complete(grant)
    assert world.cursor().status is JobStatus.COMPLETED
    world.at(200_000)
    assert not world.knows_job()
    assert world.rebuilt().digest() == world.engine.digest()


def test_the_newest_sixteen_are_remembered_over_several_makings() -> None:
    world = World()
    for number in range(20):
        put(world, f"k{number}", 60 + number)
        world.cancel_job()
    put(world, "last", 30)
    assert all(put(world, f"k{number}", 60 + number).replayed for number in range(4, 20))
    assert not put(world, "k3", 63).replayed
