"""Jobs whose cursor and owner go by different zone data, both ways: Asia/Kolkata as installed (+05:30), and
as the simulation's made-up newer data have it (+05:45).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest

from projections.checker.checker import Checker
from projections.checker.oracle import Oracle
from schemas import codec
from schemas.commands import MissedInPause
from schemas.entities import Job, JobStatus, MisfirePolicy, OverlapPolicy, SkipReason
from schemas.events import CursorEvent, JobEvent
from streams.core.engine import Engine
from streams.core.instants import format_instant, parse_instant
from streams.store.memory import MemoryStore
from tests.simulation import zone_data
from tests.simulation.zone_data import INSTALLED, NEWER
from tests.unit.checker.tale import log_of
from tests.unit.core.world import OnePartition, World

ZONE = "Asia/Kolkata"
NINE = "0 9 * * *"  # 03:30Z by the installed data, 03:15Z by the newer ones
EVEN = "*/2 * * * *"  # even minutes UTC by the installed data, odd ones by the newer


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    zone_data.use(INSTALLED)
    yield
    zone_data.use(INSTALLED)


def world_at(now: str, cron: str, version: str = INSTALLED, **kw: Any) -> World:
    zone_data.use(version)
    world = World(now)
    owned_by(world, version)
    world.register(cron=cron, time_zone=ZONE, **kw)
    return world


def owned_by(world: World, version: str, *, run: bool = False) -> None:
    """Another process takes the partition; `run`: and comes to its timers and to the pass over the jobs."""
    zone_data.use(version)
    world.engine = Engine(0, world.store, codec, OnePartition())
    world.engine.begin(world.now_ms, world.chance.random)
    world.engine.open_partition(1)
    world.log += [(event.key, event.value) for event in world.engine.decided().events]
    world.store.write(world.engine.commit())
    world.engine.written()
    if run:
        world.run()


def next_of(world: World) -> str:
    return format_instant(world.cursor().next_ms)


def made(world: World) -> list[str]:
    return sorted(format_instant(execution.scheduled_ms) for execution in world.executions())


def skipped(world: World) -> list[tuple[str, str, int]]:
    """All records of a paused occurrence, in the order of the log."""
    cursors = [event.cursor for _, event in log_of(world) if isinstance(event, CursorEvent)]
    return [
        (format_instant(skip.from_ms), format_instant(skip.to_ms), skip.count)
        for cursor in cursors
        for skip in cursor.skips
        if skip.reason is SkipReason.PAUSED
    ]


def judge(world: World) -> None:
    """The checker agrees, and every cursor's next occurrence is one by the data that the cursor names."""
    oracle = Oracle(zone_data.info)
    checker = Checker(oracle=oracle)
    jobs: dict[str, Job] = {}
    for key, event in log_of(world):
        if event is None:
            checker.forgotten(key)
            continue
        checker.take(0, event)
        if isinstance(event, JobEvent):
            jobs[event.job.job_id] = event.job
        if isinstance(event, CursorEvent) and event.cursor.next_ms:
            next_ms, version = event.cursor.next_ms, event.cursor.tz_version
            schedule = jobs[event.cursor.job_id].schedule
            assert oracle.between(schedule, next_ms - 1, next_ms, version) == [next_ms]
    assert checker.finish(world.now_ms, drained=False, grace_ms=0).violations == []
    assert world.rebuilt().digest() == world.engine.digest()


def test_an_occurrence_that_new_data_move_to_before_the_pause_is_skipped_for_the_pause() -> None:
    """It has neither run nor been skipped when the pause begins: it must not vanish."""
    world = world_at("2026-05-01T03:00:00Z", NINE)
    world.until(parse_instant("2026-05-01T03:20:00Z", "at"))
    world.pause()
    owned_by(world, NEWER, run=True)
    assert next_of(world) == "2026-05-01T03:15:00Z"
    world.until(world.now_ms + 60_000)
    world.cancel_job()
    assert skipped(world) == [("2026-05-01T03:15:00Z", "2026-05-01T03:15:00Z", 1)]
    judge(world)


def test_an_update_does_not_hide_that_new_data_moved_a_paused_job() -> None:
    world = world_at("2026-05-01T03:00:00Z", NINE)
    world.until(parse_instant("2026-05-01T03:20:00Z", "at"))
    world.pause()
    owned_by(world, NEWER, run=True)
    world.update(1, cron=NINE, time_zone=ZONE, payload=b"{}")
    world.resume()
    assert skipped(world) == [("2026-05-01T03:15:00Z", "2026-05-01T03:15:00Z", 1)]
    assert next_of(world) == "2026-05-02T03:15:00Z"
    judge(world)


@pytest.mark.parametrize(("old", "new"), [(INSTALLED, NEWER), (NEWER, INSTALLED)])
@pytest.mark.parametrize("missed", MissedInPause)
@pytest.mark.parametrize("cron", [NINE, EVEN])
def test_a_resume_accounts_for_the_pause_by_one_version(
    cron: str, missed: MissedInPause, old: str, new: str
) -> None:
    """What the cursor's data promised in the pause need not be an occurrence by those of the owner."""
    world = world_at("2026-05-01T03:00:00Z", cron, old)
    world.pause()
    world.until(parse_instant("2026-05-01T03:32:30Z", "at"))
    owned_by(world, new)
    world.resume(missed=missed)
    assert world.cursor().tz_version == new
    assert bool(skipped(world)) == (missed is MissedInPause.SKIP)
    assert bool(made(world)) == (missed is not MissedInPause.SKIP)
    world.until(world.now_ms + 600_000)
    judge(world)


@pytest.mark.parametrize("missed", MissedInPause)
def test_a_resume_just_after_what_was_promised_fires_nothing_that_the_owner_does_not_know(
    missed: MissedInPause,
) -> None:
    world = world_at("2026-05-01T03:01:30Z", EVEN)
    world.pause()
    world.now_ms = parse_instant("2026-05-01T03:02:20Z", "at")  # 03:02 by older data, 03:03 by newer
    owned_by(world, NEWER)
    world.resume(missed=missed)
    assert (next_of(world), world.cursor().tz_version) == ("2026-05-01T03:03:00Z", NEWER)
    world.until(world.now_ms + 60_000)
    assert made(world) == ["2026-05-01T03:03:00Z"]
    judge(world)


@pytest.mark.parametrize(
    ("began", "cron", "cancelled", "skips"),
    [
        (
            "2026-05-01T03:01:30Z",
            EVEN,
            "2026-05-01T03:09:30Z",
            ("2026-05-01T03:03:00Z", "2026-05-01T03:09:00Z", 4),
        ),
        # Both agree on what is next: local minutes 15 to 20 by the older data, 30 alone by the newer.
        (
            "2026-05-01T03:44:30Z",
            "0-20,30 * * * *",
            "2026-05-01T03:50:30Z",
            ("2026-05-01T03:45:00Z", "2026-05-01T03:45:00Z", 1),
        ),
    ],
)
def test_a_cancel_counts_by_the_data_of_its_owner_and_says_so(
    began: str, cron: str, cancelled: str, skips: tuple[str, str, int]
) -> None:
    world = world_at(began, cron)
    world.pause()
    world.now_ms = parse_instant(cancelled, "at")
    owned_by(world, NEWER)
    world.cancel_job()
    assert world.cursor().tz_version == NEWER
    assert skipped(world) == [skips]
    judge(world)


def test_an_update_of_the_schedule_counts_by_the_data_of_its_owner() -> None:
    world = world_at("2026-05-01T03:01:30Z", EVEN)
    world.pause()
    world.now_ms = parse_instant("2026-05-01T03:09:30Z", "at")
    owned_by(world, NEWER)
    world.update(1, every_sec=60)
    assert skipped(world) == [("2026-05-01T03:03:00Z", "2026-05-01T03:09:00Z", 4)]


@pytest.mark.parametrize("policy", MisfirePolicy)
def test_what_was_missed_goes_by_the_data_of_the_owner(policy: MisfirePolicy) -> None:
    """Only what is on time fires as promised: 03:30 by the older data, was 03:15 by the newer."""
    world = world_at("2026-05-01T03:00:00Z", NINE, misfire=policy)
    world.now_ms = parse_instant("2026-05-01T03:31:00Z", "at")
    owned_by(world, NEWER, run=True)
    assert made(world) == ([] if policy is MisfirePolicy.SKIP else ["2026-05-01T03:15:00Z"])
    assert next_of(world) == "2026-05-02T03:15:00Z"
    judge(world)


def test_what_was_missed_may_be_still_to_come_by_the_data_of_the_owner() -> None:
    world = world_at("2026-05-01T03:00:00Z", NINE, NEWER)
    world.now_ms = parse_instant("2026-05-01T03:20:00Z", "at")
    owned_by(world, INSTALLED, run=True)
    assert made(world) == []
    assert next_of(world) == "2026-05-01T03:30:00Z"
    judge(world)


def test_what_is_on_time_fires_as_promised_and_the_next_is_another_event() -> None:
    """03:40:55 by the older data, at whose end the newer ones begin: one pass comes to both."""
    world = world_at("2026-05-01T03:30:00Z", "*/5 0-10,26-40 * * * *", overlap=OverlapPolicy.ALLOW)
    world.until(parse_instant("2026-05-01T03:40:54Z", "at"))
    world.now_ms = parse_instant("2026-05-01T03:41:00Z", "at")
    owned_by(world, NEWER, run=True)
    assert made(world)[-2:] == ["2026-05-01T03:40:55Z", "2026-05-01T03:41:00Z"]
    judge(world)


def test_a_paused_job_may_lose_its_last_occurrence_and_be_resumed() -> None:
    world = world_at("2026-05-01T03:00:00Z", NINE, NEWER, end_at="2026-05-01T03:20:00Z")
    world.pause()
    world.until(parse_instant("2026-05-01T03:40:00Z", "at"))
    owned_by(world, INSTALLED)
    world.resume()
    assert world.cursor().status is JobStatus.COMPLETED


def test_an_active_job_that_new_data_leave_without_occurrence_is_completed() -> None:
    world = world_at(
        "2026-05-01T02:00:00Z", "0 9 1 5 *", end_at="2026-05-01T03:30:00Z", start_at="2026-05-01T03:20:00Z"
    )
    owned_by(world, NEWER, run=True)
    assert world.cursor().status is JobStatus.COMPLETED


def test_an_interrupted_pass_starts_over_if_another_owner_was_there_meanwhile() -> None:
    """With older data it planned jobs that the pass had been at."""
    world = world_at("2026-05-01T03:00:00Z", NINE)
    for n in range(150):
        world.register(f"many-{n:03}", cron=NINE, time_zone=ZONE)
    owned_by(world, NEWER)
    world.one(world.now_ms, 100)
    interrupted, seen = world.store, len(world.log)
    assert world.types.count("ScheduleShifted") == 100

    world.store = MemoryStore()
    elsewhere = Engine(0, world.store, codec, OnePartition())
    for key, value in world.log:
        elsewhere.apply(key, value)
    world.store.write(elsewhere.commit())
    elsewhere.written()
    owned_by(world, INSTALLED)
    world.register("a-new-one", cron=NINE, time_zone=ZONE)

    world.store = interrupted
    zone_data.use(NEWER)
    world.engine = Engine(0, interrupted, codec, OnePartition())
    for key, value in world.log[seen:]:
        world.engine.apply(key, value)
    world.engine.begin(world.now_ms, world.chance.random)
    world.engine.open_partition(1)
    world.store.write(world.engine.commit())
    world.engine.written()
    world.run()
    assert format_instant(world.cursor("a-new-one").next_ms) == "2026-05-01T03:15:00Z"
    assert world.types.count("ScheduleShifted") == 152


def test_kept_misfires_that_new_data_no_longer_have_are_dropped_first() -> None:
    """02, 04, 06, 08 by the older data; 03, 05, 07 by the newer: there is no fourth to be dropped."""
    with patch("streams.core.handlers.scheduling.MISFIRE_KEPT_MAX", 4):
        world = world_at("2026-05-01T03:01:30Z", EVEN)
        world.trigger()  # nothing kept is made as long as it is there
        world.now_ms = parse_instant("2026-05-01T03:08:30Z", "at")
        world.run()
        (kept,) = world.cursor().catch_up
        assert kept.count == 4
        owned_by(world, NEWER)
        world.now_ms += 105_000  # 10 is late by the older data, and is 09 by the newer
        world.run()
    assert world.cursor().status is JobStatus.ACTIVE  # it was paused as an internal error
    assert [one.count for one in world.cursor().catch_up] == [3, 1]
