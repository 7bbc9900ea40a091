"""The checker sees who is granted out of turn: whole queues are worked on by an engine that is right, and by
ones that are wrong in one way each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from projections.checker.checker import Checker
from projections.checker.report import Kind, Report
from schemas.entities import Pool, Priority, Tenant
from schemas.events import ExecutionClaimed
from tests.simulation.mutants import of_turns
from tests.simulation.mutants.mutation import Mutation, change
from tests.unit.checker.tale import log_of
from tests.unit.core.fleet import POOL, Backlogs, Fleet
from tests.unit.core.world import World, rebuild

WEIGHTS = {"a": 1, "b": 2, "c": 5}
LONG_AGO_MS = 60_000
Configured = tuple[Tenant, ...]


def settings_of(world: World) -> Configured:
    return tuple(world.router.settings.values())


def shared_world() -> World:
    world = World()
    for tenant, weight in WEIGHTS.items():
        world.router.settings[tenant] = Tenant(tenant=tenant, weight=weight)
    return world


def judged(world: World, settings: Configured | None = None) -> Report:
    """What the checker says of the world's log; all had heard of the settings long before."""
    checker = Checker()
    for told in settings_of(world) if settings is None else settings:
        checker.configured(told, world.start_ms - LONG_AGO_MS)
    for _, event in log_of(world):
        if event is not None:
            checker.take(0, event)
    return checker.report


def by_weight(slots: int, runs_ms: dict[str, int]) -> World:
    """Endless backlogs of three tenants."""
    world = shared_world()
    backlogs = Backlogs(world, {name: (name, Priority.NORMAL) for name in WEIGHTS})
    Fleet(world, slots, lambda execution: runs_ms[execution.tenant]).run(backlogs, 300)
    return world


def by_priority(pool: str) -> World:
    """Endless backlogs of all priorities: of two tenants, or of the pool's own."""
    world = World()
    tenants = "ab" if pool == POOL else ("acme",)
    wanted = {f"{tenant}-{priority}": (tenant, priority) for tenant in tenants for priority in Priority}
    backlogs = Backlogs(world, wanted, pool)
    Fleet(world, 7, lambda _: 10, pool).run(backlogs, 300)
    return world


def by_due_time() -> World:
    """Half a minute of a job's occurrences is behind; a few at a time are granted."""
    world = World()
    for n in range(30):
        world.register(f"j{n}", delay_sec=30 - n)
    world.at(60)
    for _ in range(10):
        for grant in world.claim(count=3):
            world.complete(grant)
        world.now_ms += 10
    return world


WORLDS: dict[str, Callable[[], World]] = {
    "long runs": lambda: by_weight(16, {"a": 70, "b": 10, "c": 30}),
    "one slot": lambda: by_weight(1, {"a": 10, "b": 10, "c": 10}),
    "priorities": lambda: by_priority("default"),
    "priorities and tenants": lambda: by_priority(POOL),
    "due time": by_due_time,
}
FOUND_IN = {
    "weights ignored": "long runs",
    "due time alone": "long runs",
    "equals by name": "one slot",
    "newest first": "due time",
    "low starves": "priorities",
    "priorities alike": "priorities and tenants",
}


@pytest.mark.parametrize("name", WORLDS)
def test_who_is_granted_in_turn_is_not_complained_of(name: str) -> None:
    world = WORLDS[name]()
    assert sum(kind == ExecutionClaimed.__name__ for kind in world.types) >= 30
    assert judged(world).good


@pytest.mark.parametrize(
    "mutation", [*of_turns.OF_TURNS, of_turns.EQUALS_BY_NAME], ids=lambda mutation: mutation.name
)
def test_who_is_granted_out_of_turn_is_found(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_turns, "change", partial(change, put=monkeypatch.setattr))
    mutation.apply()
    report = judged(WORLDS[FOUND_IN[mutation.name]]())
    assert set(report.found) == {Kind.TURN}


def test_who_may_run_no_more_is_not_passed_over() -> None:
    """Caps of a tenant, of its part of the pool, and a pause; all else would be a grant out of turn."""
    for settings in (
        {"c": Tenant(tenant="c", weight=5, max_running=1)},
        {"c": Tenant(tenant="c", weight=5, paused=True)},
        {"shared": Tenant(tenant="shared", pools=(Pool(name="p", tenant_max_running=2),))},
    ):
        world = shared_world()
        world.router.settings.update(settings)
        backlogs = Backlogs(world, {name: (name, Priority.NORMAL) for name in WEIGHTS})
        Fleet(world, 6, lambda _: 10).run(backlogs, 200)
        assert judged(world).good
        unbounded = tuple(Tenant(tenant=tenant, weight=weight) for tenant, weight in WEIGHTS.items())
        assert set(judged(world, unbounded).found) == {Kind.TURN}


def test_settings_that_may_not_have_been_heard_of_are_not_held_against_anybody() -> None:
    world = by_weight(16, {"a": 70, "b": 10, "c": 30})
    turned = {
        name: Tenant(tenant=name, weight=weight, version=2)
        for name, weight in zip("abc", (5, 2, 1), strict=True)
    }
    for since_ms, good in ((world.start_ms - LONG_AGO_MS, False), (world.start_ms - 1_000, True)):
        checker = Checker()
        for told in (*settings_of(world), *turned.values()):
            checker.configured(told, since_ms if told.version else world.start_ms - LONG_AGO_MS)
        for _, event in log_of(world):
            if event is not None:
                checker.take(0, event)
        assert checker.report.good is good


def test_turns_go_on_over_owners_of_the_partition() -> None:
    """Each has time for a few grants: low waits for longer, and not for ever."""
    world = World()
    wanted = {priority.value: ("acme", priority) for priority in Priority}
    backlogs = Backlogs(world, wanted, "default")
    for _ in range(60):
        Fleet(world, 5, lambda _: 10, "default").run(backlogs, 10)
        world.engine = rebuild(world.log, world.router)
        world.store = world.engine.state.kv._base  # type: ignore[assignment]
        world.grants_seen = 0
    assert judged(world).good
