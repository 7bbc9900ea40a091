"""What a person should see: events, and each told once (semantics §6)."""

from __future__ import annotations

import pytest

from schemas import codec
from schemas.entities import Alert
from schemas.events import AlertRaised
from tests.unit.core.world import NO_RETRY, TENANT, World, dead_letters

DAY = 86_400


def logged(world: World) -> list[Alert]:
    """Alerts in the log, in order."""
    events = [codec.decode(value) for _, value in world.log if value is not None]
    return [event.alert for event in events if isinstance(event, AlertRaised)]


def test_every_alert_is_an_event_and_an_effect() -> None:
    world = World()
    world.register(delay_sec=0, retry=NO_RETRY)
    (grant,) = world.claim("A")
    world.fail(grant)
    (alert,) = logged(world)
    assert world.alerts == [alert]
    assert (alert.kind, alert.tenant, alert.job_id) == ("dead_letter", TENANT, "job-1")
    assert alert.execution_id == grant.execution.execution_id
    assert alert.at_ms == world.now_ms


@pytest.mark.slow
def test_a_dead_letter_warns_a_week_before_it_is_forgotten() -> None:
    world = World()
    world.register("a", every_sec=30 * DAY)
    (execution_id,) = dead_letters(world, 1, "a")
    given_up = world.sec(world.execution(execution_id).finished_ms)
    world.at(given_up + 23 * DAY - 1)
    assert len(world.alerts) == 1
    world.at(given_up + 23 * DAY)
    assert [alert.kind for alert in world.alerts] == ["dead_letter", "dead_letter"]
    assert "2026-05-31" in world.alerts[1].detail
    world.engine = world.rebuilt()  # timers that have passed come up again
    world.store = world.engine.state.kv._base  # type: ignore[assignment]
    world.run()
    assert len(world.alerts) == 2
    world.at(given_up + 30 * DAY)
    assert world.engine.state.execution(TENANT, execution_id) is None
    assert len(world.alerts) == 2


@pytest.mark.slow
def test_no_warning_for_what_was_dealt_with() -> None:
    world = World()
    world.register("a", every_sec=100 * DAY)
    replayed, discarded = dead_letters(world, 2, "a")
    world.replay(replayed)
    (again,) = world.claim("A")
    world.complete(again)
    assert world.discard(discarded).status == 200
    world.at(29 * DAY)
    assert [alert.kind for alert in world.alerts] == ["dead_letter"] * 2


def test_an_alert_is_forgotten_after_a_week() -> None:
    world = World()
    world.register("a", every_sec=100 * DAY)
    dead_letters(world, 1, "a")
    (alert,) = logged(world)
    key = f"alert:{TENANT}/{alert.alert_id}"
    world.at(7 * DAY - 1)
    assert world.engine.state.knows(key)
    world.at(7 * DAY)
    assert not world.engine.state.knows(key)
    assert (key, None) in world.log


def test_what_operators_were_told_at_once_is_recorded_alone() -> None:
    world = World()
    world.engine.begin(world.now_ms, world.chance.random)
    world.engine.alert("clock_step", "the wall clock stepped \ud800" + "x" * 5_000)
    decided = world.engine.decided()
    assert [event.type for event in decided.events] == ["AlertRaised"]
    assert decided.effects == []
    alert = codec.decode(decided.events[0].value or b"").alert  # type: ignore[attr-defined]
    assert (alert.tenant, alert.kind, len(alert.detail)) == ("", "clock_step", 1_000)
    world.store.write(world.engine.commit())
    world.engine.written()
    world.at(8 * DAY)
    assert not world.engine.state.knows(f"alert:/{alert.alert_id}")
