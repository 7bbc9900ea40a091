"""Settings of tenants and pools take effect in a running process, and in one that takes over."""

from __future__ import annotations

from typing import Any

from schemas.commands import ConfigurePool, ConfigureTenant
from tests.unit.runtime.installation import Installation


def configure(world: Installation, **settings: Any) -> None:
    world.command(ConfigureTenant(**world._who(), **settings), 0)


def test_what_other_settings_let_run_is_granted_without_any_other_event() -> None:
    world = Installation()
    process = world.live()
    configure(world, paused=True)
    world.until(lambda: process.processor._tenants.settings_of("acme").paused, process)
    world.register(delay_sec=0)
    world.request()
    world.until(lambda: "ExecutionFired" in world.types(), process)
    world.run(process, steps=50)
    assert world.grants() == []
    configure(world, paused=False)
    world.until(lambda: bool(world.grants()), process)
    assert world.types()[-1] == "ExecutionClaimed"
    assert process.digest(0) == world.replayed_digest()


def test_caps_that_were_set_hold_in_the_process_that_takes_over() -> None:
    world = Installation()
    process = world.live()
    world.command(ConfigurePool(**world._who(), pool="default", max_running=2), 0)
    world.until(lambda: bool(process.processor._tenants.settings_of("acme").pools), process)
    for number in range(4):
        world.register(f"job-{number}", delay_sec=0)
    world.request(credit=1)
    world.until(lambda: len(world.grants()) == 1, process)
    process.crash()
    process.evict()
    taker = world.live("b")
    world.request(credit=9)
    world.run(taker, steps=50)
    assert [name for name, _ in world.executions()].count("ExecutionClaimed") == 2
