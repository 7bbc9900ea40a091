"""New time zone data: America/Vancouver as of tzdata 2025b (kept under tests/data/tz) and as installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas import codec
from schemas.entities import JobStatus
from schemas.events import ScheduleShifted
from streams.core import engine as engine_module
from streams.core import planning, zones
from streams.core.engine import Engine
from streams.core.handlers import pausing, registration, rezoning, scheduling
from streams.core.instants import format_instant
from tests.unit.core.world import OnePartition, World

OLD = Path(__file__).parents[2] / "data" / "tz" / "2025b" / "America-Vancouver"
ZONE = "America/Vancouver"
NINE_IN_WINTER = "0 9 15 12 *"


def with_old_data(monkeypatch: pytest.MonkeyPatch) -> None:
    old = zones.Zone(ZONE, OLD.read_bytes())
    newest = zones._load
    monkeypatch.setattr(zones, "_load", lambda name: old if name == ZONE else newest(name))
    for module in (zones, pausing, registration, scheduling, rezoning, engine_module):
        monkeypatch.setattr(module, "TZ_VERSION", "2025b")
    planning._built.cache_clear()


def with_new_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    planning._built.cache_clear()


def reopen(world: World) -> None:
    world.engine = Engine(0, world.store, codec, OnePartition())
    world.engine.begin(world.now_ms, world.chance.random)
    world.engine.open_partition(1)
    decided = world.engine.decided()
    world.log += [(event.key, event.value) for event in decided.events]
    world.store.write(world.engine.commit())
    world.engine.written()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    with_old_data(monkeypatch)
    world = World("2026-11-20T00:00:00Z")
    reopen(world)
    world.register("moved", cron=NINE_IN_WINTER, time_zone=ZONE)
    world.register("elsewhere", cron=NINE_IN_WINTER, time_zone="Europe/London")
    world.register("once", run_at="2026-12-15T09:00:00", time_zone=ZONE)
    for n in range(250):
        world.register(f"many-{n}", cron=f"{n % 60} 9 15 12 *", time_zone=ZONE)
    return world


def test_only_the_jobs_that_new_data_move_are_recomputed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = world.cursor("moved").next_ms
    assert format_instant(before) == "2026-12-15T17:00:00Z"
    with_new_data(monkeypatch)
    logged = len(world.types)
    reopen(world)
    world.run()
    shifted = [kind for kind in world.types[logged:] if kind == "ScheduleShifted"]
    assert len(shifted) == 251
    after = world.cursor("moved")
    assert format_instant(after.next_ms) == "2026-12-15T16:00:00Z"
    assert (after.tz_version, after.status) == (zones.TZ_VERSION, JobStatus.ACTIVE)
    assert world.cursor("elsewhere").tz_version == "2025b"
    alerts = [alert for alert in world.alerts if alert.kind == "tz_shift"]
    assert [(alert.tenant, alert.count) for alert in alerts] == [("acme", 251)]
    meta = world.engine.state.meta()
    assert meta is not None
    assert meta.tz_version == zones.TZ_VERSION
    assert world.rebuilt().digest() == world.engine.digest()


def test_the_pass_goes_on_after_a_restart(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with_new_data(monkeypatch)
    reopen(world)
    world.engine.begin(world.now_ms, world.chance.random)
    world.engine.fire(world.now_ms, 100)
    some = len(world.engine.decided().events)
    world.store.write(world.engine.commit())
    world.engine.written()
    assert 0 < some <= rezoning.JOBS_PER_PASS
    reopen(world)
    world.run()
    assert world.types.count("ScheduleShifted") == 251 - some
    assert [alert.count for alert in world.alerts] == [251]  # counted over the restart
    reopen(world)
    logged = len(world.types)
    world.run()
    assert len(world.types) == logged


def test_an_owner_with_older_data_keeps_what_is_stored_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World("2026-11-20T00:00:00Z")
    reopen(world)
    world.register("moved", cron=NINE_IN_WINTER, time_zone=ZONE)
    stored = world.cursor("moved")
    with_old_data(monkeypatch)
    world.engine = Engine(0, world.store, codec, OnePartition())
    world.engine.begin(world.now_ms, world.chance.random)
    world.engine.open_partition(1)
    effects = world.engine.decided().effects
    assert [getattr(effect, "kind", "") for effect in effects] == ["tz_shift"]
    world.engine.commit()
    world.run()
    assert world.cursor("moved") == stored


def test_what_an_owner_with_older_data_planned_is_recomputed_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Processes get new data one by one, and partitions go back and forth meanwhile."""
    world = World("2026-11-20T00:00:00Z")
    reopen(world)
    with_old_data(monkeypatch)
    reopen(world)
    world.register("moved", cron=NINE_IN_WINTER, time_zone=ZONE)
    assert format_instant(world.cursor("moved").next_ms) == "2026-12-15T17:00:00Z"
    assert world.rebuilt().digest() == world.engine.digest()
    with_new_data(monkeypatch)
    reopen(world)
    world.run()
    assert format_instant(world.cursor("moved").next_ms) == "2026-12-15T16:00:00Z"
    meta = world.engine.state.meta()
    assert meta is not None
    assert meta.tz_version == zones.TZ_VERSION
    logged = len(world.types)
    reopen(world)
    world.run()
    assert len(world.types) == logged


def test_the_shift_is_in_the_log(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with_new_data(monkeypatch)
    reopen(world)
    world.run()
    events = [codec.decode(value) for key, value in world.log if value is not None and key.endswith("/moved")]
    last = events[-1]
    assert isinstance(last, ScheduleShifted)
    assert format_instant(last.cursor.next_ms) == "2026-12-15T16:00:00Z"
