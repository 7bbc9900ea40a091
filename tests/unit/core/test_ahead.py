"""Occurrences that were cancelled before their time, and that an update of the schedule comes to again: late
as well, they are neither made, nor counted as skipped, nor a run a second time (semantics §5).
"""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest.mock import patch

import pytest

from projections.checker.skips import KEPT_MAX
from schemas.commands import MissedInPause
from schemas.entities import ExecutionStatus as E
from schemas.entities import JobStatus as J
from schemas.entities import MisfirePolicy, OverlapPolicy, SkipReason
from schemas.events import CursorEvent
from schemas.ids import scheduled_execution_id
from tests.unit.checker.tale import judged, log_of
from tests.unit.core.world import World

ONE_AT_A_TIME: dict[str, Any] = {"overlap": OverlapPolicy.SKIP}


def cancel_next(world: World) -> None:
    job = world.engine.state.job("acme", "job-1")
    assert job is not None
    ahead = scheduled_execution_id("job-1", job.incarnation, world.cursor().next_ms)
    assert world.cancel(ahead).status == 202


def minute_cancelled(count: int = 1, now: str = "2026-05-01T00:00:00Z", **kw: Any) -> World:
    """At second 30; every five seconds from now on, with the next `count` full minutes cancelled."""
    world = World(now)
    world.register(every_sec=60)
    for _ in range(count):
        cancel_next(world)
    world.at(30)
    assert world.update(1, **{"cron": "*/5 * * * * *", **ONE_AT_A_TIME, **kw}).status == 200
    return world


def back_at(world: World, sec: int) -> None:
    """The partition was down until then."""
    world.now_ms = world.start_ms + sec * 1000
    world.run()


def work_off(world: World) -> list[float]:
    """The scheduled seconds, in the order in which they ran."""
    done = []
    while grants := world.claim("W"):
        done.append(world.sec(grants[0].execution.scheduled_ms))
        world.complete(grants[0])
    return done


def skips(world: World) -> Counter[SkipReason]:
    total: Counter[SkipReason] = Counter()
    for _, event in log_of(world):
        if isinstance(event, CursorEvent):
            assert len({skip.reason for skip in event.cursor.skips}) == len(event.cursor.skips)
            for skip in event.cursor.skips:
                total[skip.reason] += skip.count
    return total


def judge(world: World, kept_max: int = KEPT_MAX) -> None:
    """The checker agrees, its account is even, and replay gives the same."""
    report = judged(log_of(world), world.now_ms, kept_max=kept_max)
    assert report.good, report.violations
    assert report.due == report.fired + sum(report.skipped.values()) + report.kept + report.undecided
    assert world.rebuilt().digest() == world.engine.digest()


@pytest.mark.parametrize(
    ("policy", "ran", "skipped"),
    [
        (MisfirePolicy.FIRE_ALL, [65, 35, 40, 45, 50, 55], {}),
        (MisfirePolicy.FIRE_ONCE, [65, 55], {SkipReason.MISFIRE_POLICY: 4}),  # not the one that is cancelled
        (MisfirePolicy.SKIP, [65], {SkipReason.MISFIRE_POLICY: 5}),
    ],
)
def test_of_what_was_missed_the_cancelled_one_is_no_part(
    policy: MisfirePolicy, ran: list[float], skipped: dict[SkipReason, int]
) -> None:
    world = minute_cancelled(misfire=policy)
    back_at(world, 71)
    judge(world)
    assert work_off(world) == ran
    assert skips(world) == Counter({**skipped, SkipReason.OVERLAP: 1})  # 70, behind 65
    judge(world)


def test_a_cancelled_one_between_others_counts_neither_as_missed_nor_as_a_run() -> None:
    world = minute_cancelled(max_runs=7)
    back_at(world, 76)
    judge(world)
    assert [(world.sec(one.from_ms), world.sec(one.to_ms), one.count) for one in world.cursor().catch_up] == [
        (40, 55, 4),
        (65, 65, 1),
    ]
    assert work_off(world) == [35, 40, 45, 50, 55, 65]  # and the one that was cancelled is a run
    assert world.cursor().status is J.COMPLETED
    judge(world)


def test_several_outages_keep_the_newest_and_count_the_rest() -> None:
    """Found by the property test: one that had been cancelled was kept, and then dropped as too old."""
    with patch("streams.core.handlers.scheduling.MISFIRE_KEPT_MAX", 8):
        world = minute_cancelled(3)  # 60, 120 and 180
        for sec in (75, 105, 200):
            back_at(world, sec)
            judge(world, kept_max=8)
        assert skips(world) == {SkipReason.MISFIRE_LIMIT: 14, SkipReason.OVERLAP: 8}
        assert work_off(world) == [65, 145, 150, 155, 160, 165, 170, 175, 185]
        judge(world, kept_max=8)


@pytest.mark.parametrize(
    ("missed", "ran", "skipped"),
    [
        (MissedInPause.SKIP, [], {SkipReason.PAUSED: 7}),
        (MissedInPause.FIRE_ONCE, [70], {SkipReason.MISFIRE_POLICY: 6}),
        (MissedInPause.FIRE_ALL, [35, 40, 45, 50, 55, 65, 70], {}),
    ],
)
def test_in_a_pause_the_cancelled_one_is_no_part_of_what_was_missed(
    missed: MissedInPause, ran: list[float], skipped: dict[SkipReason, int]
) -> None:
    world = minute_cancelled()
    world.pause()
    world.at(60)
    world.trigger(overlap=OverlapPolicy.ALLOW)  # an execution of that instant, and not of the schedule
    (triggered,) = world.claim("W")
    world.complete(triggered)
    world.at(71)
    world.resume(missed=missed)
    judge(world)
    assert work_off(world) == ran
    assert skips(world) == skipped


@pytest.mark.parametrize("missed", MissedInPause)
def test_a_pause_over_nothing_but_what_was_cancelled_skips_nothing(missed: MissedInPause) -> None:
    world = minute_cancelled()
    world.at(57)
    assert work_off(world) == [35]
    world.pause()
    world.at(61)
    world.resume(missed=missed)
    assert skips(world) == {SkipReason.OVERLAP: 4}
    assert world.sec(world.cursor().next_ms) == 65
    judge(world)


@pytest.mark.parametrize("change", ["update", "cancel"])
def test_what_ends_a_pause_counts_the_cancelled_one_no_more(change: str) -> None:
    world = minute_cancelled()
    world.pause()
    world.at(71)
    assert (world.cancel_job() if change == "cancel" else world.update(2, every_sec=7)).status == 200
    assert skips(world) == {SkipReason.PAUSED: 7}
    judge(world)


@pytest.mark.parametrize("missed", MissedInPause)
def test_a_one_off_put_back_to_the_instant_at_which_it_was_cancelled_is_done_with(
    missed: MissedInPause,
) -> None:
    world = World()
    world.register(cron="0 * * * * *")
    cancel_next(world)
    world.update(1, every_sec=300)
    world.update(2, run_at="2026-05-01T00:01:00Z")
    world.pause()
    world.at(90)
    world.resume(missed=missed)
    world.at(91)
    assert skips(world) == {}
    assert [e.status for e in world.executions()] == [E.CANCELLED]
    assert world.cursor().status is J.COMPLETED
    judge(world)


def test_kept_ones_of_a_cancelled_job_are_one_record() -> None:
    world = minute_cancelled()
    back_at(world, 91)
    assert len(world.cursor().catch_up) == 2
    world.cancel_job()
    assert skips(world) == {SkipReason.OVERLAP: 1, SkipReason.CANCELLED: 9}
    judge(world)


def test_instants_of_more_digits_are_found_as_well() -> None:
    """From 36^8 ms on, in 2059, an id has one more."""
    world = minute_cancelled(2, "2059-05-25T17:37:00Z")
    back_at(world, 131)
    assert not {60, 120}.intersection(work_off(world))
    judge(world)
