"""Settings of tenants and pools take effect in a running process, and in one that takes over."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.commands import ConfigurePool, ConfigureTenant
from schemas.topics import tenant_partitions
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


def test_who_takes_over_knows_the_settings_that_its_predecessor_decided_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Installation(partitions=2)
    world.shards = {"acme": 2}
    process = world.live()
    taker = world.start("b")
    monkeypatch.setattr(taker.processor, "_follow_tenants", lambda: None)
    home = tenant_partitions("acme", 2, 2)[0]
    world.command(ConfigureTenant(**world._who(), max_jobs=0), home)
    world.until(lambda: process.processor._tenants.settings_of("acme").max_jobs == 0, process)
    process.crash()
    process.evict()
    elsewhere = next(name for name in ("a", "b", "c", "d") if world.where(name) != home)
    asked = world.register(elsewhere)
    world.until(lambda: world.answer(asked) is not None, taker)
    answer = world.answer(asked)
    assert answer is not None
    assert answer.code == "too_many_jobs"
