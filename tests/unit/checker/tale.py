"""A partition in which everything happens: the log that the checker's tests tamper with."""

from __future__ import annotations

from collections.abc import Iterable

from projections.checker.checker import Checker
from projections.checker.report import Report
from projections.checker.skips import KEPT_MAX
from schemas import codec
from schemas.commands import ConfigureTenant, MissedInPause, WorkCommand
from schemas.entities import OverlapPolicy, RetryJitter, RetryPolicy
from schemas.events import Event
from schemas.replies import Grant
from tests.unit.core.world import World

Line = tuple[str, Event | None]
Log = list[Line]

RETRY = RetryPolicy(
    max_attempts=2, backoff_base_sec=10, backoff_factor=1, backoff_max_sec=10, jitter=RetryJitter.NONE
)


def tell() -> World:
    """Schedules of every kind, retries, redeliveries, overlap, outage, pause, a group, dead letters."""
    world = World("2026-10-25T00:30:00Z")  # clocks go back in Europe at 01:00
    world.run(ConfigureTenant(**world._envelope(), max_running=5))
    world.until(world.now_ms + 60_000)
    world.register("local", cron="*/20 1 * * *", time_zone="Europe/London", overlap=OverlapPolicy.ALLOW)
    world.register("every", every_sec=60, overlap=OverlapPolicy.SKIP, jitter_sec=5)
    world.register("once", delay_sec=30, retry=RETRY, timeout_sec=20)
    world.register("lost", delay_sec=30, lease_sec=10, max_deliveries=2)
    for job_id in ("first", "second"):
        world.register(job_id, delay_sec=30, exclusion_group="g", pool="grouped")
    held: list[Grant] = []
    for _ in range(6):
        world.until(world.now_ms + 33_000)
        for grant in world.claim("A", 3):
            _treat(world, grant)
        for grant in held:
            world.complete(grant)
        held = world.claim("B", 2, pool="grouped")
        for grant in held:
            world.beat(grant)
    world.pause("every")
    world.until(world.now_ms + 180_000)
    world.resume("every", MissedInPause.FIRE_ONCE)
    world.now_ms += 600_000  # nobody decides
    world.run()
    world.trigger("local")
    for _ in range(40):
        for grant in world.claim("A", 5):
            world.complete(grant)
        world.until(world.now_ms + 1_000)
    for execution in [e for e in world.executions() if e.status == "FAILED"]:
        world.replay(execution.execution_id)
    for grant in world.claim("A", 5):
        world.complete(grant)
    world.cancel_job("local")
    world.cancel_job("every")
    for grant in world.claim("A", 5):
        world.complete(grant)
    return world


def _treat(world: World, grant: Grant) -> None:
    """One always fails, one is never heard of again, one takes longer than its lease the first time."""
    execution = grant.execution
    if execution.job_id == "once":
        world.fail(grant)
    elif execution.job_id != "lost" and (execution.job_id != "every" or execution.delivery_count > 1):
        world.complete(grant)


def log_of(world: World) -> Log:
    """Keys and events; a tombstone has none."""
    return [(key, codec.decode(value) if value is not None else None) for key, value in world.log]  # type: ignore[misc]


def judged(
    log: Iterable[Line],
    end_ms: int,
    work: Iterable[tuple[int, WorkCommand]] = (),
    *,
    drained: bool = False,
    complete_since_ms: int = 0,
    kept_max: int = KEPT_MAX,
) -> Report:
    """What the checker says of it."""
    checker = Checker(complete_since_ms=complete_since_ms, kept_max=kept_max)
    for offset, command in work:
        checker.word(0, offset, command)
    for key, event in log:
        if event is None:
            checker.forgotten(key)
        else:
            checker.take(0, event)
    return checker.finish(end_ms, drained=drained, grace_ms=0)
