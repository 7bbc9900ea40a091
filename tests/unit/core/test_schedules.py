"""From schedule to execution: firing, overlap, misfires, completion, forgetting (semantics §2, §4, §5)."""

from __future__ import annotations

import pytest

from schemas.entities import ExecutionStatus as E
from schemas.entities import JobStatus as J
from schemas.entities import Skip, SkipReason, WaitingFor
from streams.core.instants import format_instant, parse_instant
from tests.unit.core.world import World

DAY = 86_400


def scheduled(world: World) -> list[str]:
    return [
        format_instant(e.scheduled_ms)[11:19]
        for e in sorted(world.executions(), key=lambda e: e.scheduled_ms)
    ]


def skips(world: World) -> dict[SkipReason, int]:
    """Counts by reason over the whole log."""
    from schemas import codec
    from schemas.events import CursorEvent

    total: dict[SkipReason, int] = {}
    for _, value in world.log:
        event = codec.decode(value) if value is not None else None
        if isinstance(event, CursorEvent):
            for skip in event.cursor.skips:
                total[skip.reason] = total.get(skip.reason, 0) + skip.count
    return total


def work_off(world: World, limit: int = 5_000) -> list[int]:
    """Claims and completes one after the other; the scheduled times in that order."""
    done: list[int] = []
    while len(done) < limit and (grants := world.claim("W")):
        done.append(grants[0].execution.scheduled_ms)
        world.complete(grants[0])
    return done


def test_a_one_off_runs_once_when_due_and_its_job_completes() -> None:
    world = World()
    answer = world.register(delay_sec=5)
    assert (answer.status, world.sec(answer.cursor.next_ms)) == (201, 5)  # type: ignore[union-attr]
    world.at(4.999)
    assert world.executions() == []
    world.at(5)
    (execution,) = world.executions()
    assert (execution.status, world.sec(execution.due_ms), world.sec(execution.fired_ms)) == (E.PENDING, 5, 5)
    assert work_off(world) == [execution.scheduled_ms]
    assert world.cursor().status is J.COMPLETED
    world.at(1000)
    assert world.types.count("ExecutionFired") == 1


def test_a_one_off_in_the_past_runs_at_once_and_counts_from_its_registration() -> None:
    world = World()
    world.register(run_at="2026-04-30T23:00:00Z")
    (execution,) = world.executions()
    assert (world.sec(execution.scheduled_ms), world.sec(execution.due_ms)) == (-3600, 0)


@pytest.mark.parametrize(
    ("run_at", "allow", "ok"),
    [
        ("2026-04-30T00:00:00Z", False, True),
        ("2026-04-29T23:59:59Z", False, False),
        ("2020-01-01T00:00:00Z", True, True),
        ("1969-12-31T00:00:00Z", True, False),
        ("2126-04-01T00:00:00Z", False, True),
        ("2127-05-01T00:00:00Z", False, False),
    ],
)
def test_how_far_a_one_off_may_be_away(run_at: str, allow: bool, ok: bool) -> None:
    answer = World().register(run_at=run_at, allow_past=allow)
    assert answer.status == (201 if ok else 400)
    if not ok:
        assert [problem.field for problem in answer.errors] == ["schedule.runAt"]


def test_api_011_the_offset_counts_and_no_host_zone_does() -> None:
    world = World("2016-04-28T13:29:42Z")
    answer = world.register(run_at="2016-04-28T08:29:42-05:00")
    assert format_instant(answer.cursor.next_ms) == "2016-04-28T13:29:42Z"  # type: ignore[union-attr]


def test_local_time_with_a_zone() -> None:
    world = World()
    answer = world.register(run_at="2026-07-01T09:00:00", time_zone="Europe/London")
    assert format_instant(answer.cursor.next_ms) == "2026-07-01T08:00:00Z"  # type: ignore[union-attr]


def test_an_interval_is_anchored_at_the_registration_and_never_drifts() -> None:
    world = World("2026-05-01T00:00:00.250Z")
    world.register(every_sec=7)
    for n in range(1, 6):
        world.at(7 * n + 3)
        work_off(world)
    assert [world.sec(e.scheduled_ms) for e in world.executions()] == [7, 14, 21, 28, 35]


def test_ovl_018_cron_moves_from_the_scheduled_time_not_from_the_end() -> None:
    world = World()
    world.register(cron="0 1 * * *", lease_sec=3600, timeout_sec=5 * 3600)
    starts = []
    for day in range(5):
        world.at(day * DAY + 3600)
        (grant,) = world.claim("A")
        starts.append(format_instant(grant.execution.scheduled_ms))
        for beat in range(1, 5):
            world.at(day * DAY + 3600 + beat * 3500)
            world.beat(grant)
        world.at(day * DAY + 5 * 3600)
        world.complete(grant)
    assert starts == [f"2026-05-0{day}T01:00:00Z" for day in range(1, 6)]


def test_ovl_016_jobs_with_the_same_text_are_two() -> None:
    world = World("2026-05-01T12:30:00Z")
    world.register("j1", cron="0 * * * *")
    world.register("j2", cron="0 * * * *")
    world.at(1800)
    assert sorted(e.job_id for e in world.executions()) == ["j1", "j2"]


def test_queue_lets_one_wait_and_records_the_others_as_skipped() -> None:
    world = World()
    world.register(cron="0 * * * * *")
    world.at(60)
    (grant,) = world.claim("A", lease_sec=3600)
    world.at(240)
    waiting = [e for e in world.executions() if e.status is E.PENDING]
    assert [(world.sec(e.scheduled_ms), e.waiting_for) for e in waiting] == [(120, WaitingFor.OVERLAP)]
    assert skips(world) == {SkipReason.OVERLAP: 2}
    assert world.claim("B") == []
    world.complete(grant)
    (second,) = world.claim("B", lease_sec=3600)
    assert world.sec(second.execution.scheduled_ms) == 120
    world.at(300)
    world.complete(second)
    assert [world.sec(g.execution.scheduled_ms) for g in world.claim("C")] == [300]


def test_a_waiting_retry_is_not_final_and_blocks_the_next_occurrence() -> None:
    world = World()
    world.register(cron="0 * * * * *")
    world.at(60)
    (grant,) = world.claim("A")
    world.fail(grant, retry_after_sec=90)
    world.at(120)
    statuses = {world.sec(e.scheduled_ms): (e.status, e.waiting_for) for e in world.executions()}
    assert statuses == {60: (E.SCHEDULED, WaitingFor.NOTHING), 120: (E.PENDING, WaitingFor.OVERLAP)}


def test_ovl_013_after_a_pause_of_the_clock_the_newest_thousand_are_made_one_at_a_time() -> None:
    world = World()
    world.register(cron="* * * * *")
    world.jump("2026-05-02T00:00:30Z")
    # 1,440 were due; the last one is 30 s old and so missed like the others.
    assert skips(world) == {SkipReason.MISFIRE_LIMIT: 440}
    assert len(world.executions()) == 1
    made = work_off(world)
    assert len(made) == 1000
    assert made == sorted(made)
    assert format_instant(made[0]) == "2026-05-01T07:21:00Z"
    assert format_instant(made[-1]) == "2026-05-02T00:00:00Z"
    assert world.cursor().catch_up == ()
    assert format_instant(world.cursor().next_ms) == "2026-05-02T00:01:00Z"


def test_a_week_of_outage_costs_one_event_and_the_window_is_kept() -> None:
    world = World()
    world.register(cron="* * * * * *", misfire_window_sec=600)
    before = len(world.log)
    world.jump("2026-05-08T00:00:30Z")
    assert len(world.log) - before <= 12
    total = 7 * DAY + 30
    counted = skips(world)
    assert counted[SkipReason.MISFIRE_WINDOW] == total - 600 - 1
    kept = sum(kept.count for kept in world.cursor().catch_up)
    assert kept + world.types.count("ExecutionFired") + sum(counted.values()) == total


def test_two_outages_together_keep_the_newest_thousand() -> None:
    world = World()
    world.register(cron="* * * * *")
    world.jump("2026-05-01T12:00:30Z")
    made = [world.claim("W")[0]]
    world.complete(made[0])
    world.jump("2026-05-01T23:59:50Z")
    catch_up = world.cursor().catch_up
    assert sum(kept.count for kept in catch_up) <= 1000
    rest = work_off(world)
    counted = skips(world)
    assert 1 + len(rest) + sum(counted.values()) == 1439
    assert rest == sorted(set(rest))


def test_a_missed_one_off_older_than_the_window_is_skipped_with_a_reason() -> None:
    world = World()
    world.register(delay_sec=60, misfire_window_sec=3600)
    world.jump("2026-05-01T02:00:00Z")
    assert world.executions() == []
    assert skips(world) == {SkipReason.MISFIRE_WINDOW: 1}
    assert world.cursor().status is J.COMPLETED
    assert [alert.kind for alert in world.alerts] == ["missed_window"]


def test_a_missed_one_off_within_the_window_runs() -> None:
    world = World()
    world.register(delay_sec=60)
    world.jump("2026-05-01T20:00:00Z")
    assert len(work_off(world)) == 1


def test_kept_misfires_of_a_cancelled_job_are_recorded() -> None:
    world = World()
    world.register(cron="* * * * *")
    world.jump("2026-05-01T00:10:30Z")
    world.cancel_job()
    assert skips(world) == {SkipReason.CANCELLED: 9}
    (only,) = world.executions()
    assert only.status is E.CANCELLED


@pytest.mark.parametrize("days", [24, 25, 50, 400, 365 * 30])
def test_ovl_020_far_jobs_wait_in_the_index_and_fire_when_due(days: int) -> None:
    world = World("2026-01-01T00:00:00Z")
    world.register(delay_sec=days * DAY)
    world.run()
    assert world.engine.state.timers.next_ms() is None
    world.now_ms += days * DAY * 1000 - 1
    world.run()
    assert world.executions() == []
    world.until(world.now_ms + 1)
    assert len(world.executions()) == 1


def test_29_february() -> None:
    world = World("2026-01-01T00:00:00Z")
    answer = world.register(cron="0 0 29 2 *")
    assert format_instant(answer.cursor.next_ms) == "2028-02-29T00:00:00Z"  # type: ignore[union-attr]


def test_finished_executions_and_jobs_are_forgotten_after_a_day() -> None:
    world = World()
    world.register(delay_sec=1)
    world.trigger(payload=b"own")
    world.at(2)
    work_off(world)
    world.at(DAY)
    assert world.knows_job()
    world.at(DAY + 3)
    assert not world.knows_job()
    assert world.executions() == []
    assert list(world.store.scan(b"e", b"f")) == []
    assert list(world.store.scan(b"o", b"p")) == []
    assert world.rebuilt().digest() == world.engine.digest()


def test_a_rebuilt_partition_does_not_fire_a_finished_one_off_again() -> None:
    world = World()
    world.register("one", delay_sec=1)
    world.register("two", delay_sec=1)
    world.at(2)
    (grant,) = world.claim("A")
    world.complete(grant)
    again = World()
    again.engine, again.store = world.rebuilt(), world.store
    again.now_ms = world.now_ms
    again.engine.begin(again.now_ms, lambda: 0.5)
    again.engine.fire(again.now_ms, 1000)
    assert again.engine.decided().events == []


def test_an_occurrence_is_settled_before_a_command_on_its_job() -> None:
    world = World()
    world.register(cron="0 * * * * *")
    world.now_ms = parse_instant("2026-05-01T00:01:00Z", "t")
    world.cancel_job()
    (fired,) = world.executions()
    assert fired.status is E.CANCELLED
    assert (
        world.types[-3:] == ["CursorMoved", "JobCancelled", "ExecutionCancelled"]
        or "ExecutionFired" in world.types
    )


def test_skip_records_are_exact() -> None:
    world = World()
    world.register(cron="0 * * * * *")
    world.at(60)
    world.claim("A", lease_sec=3600)
    world.at(180)
    cursor = world.cursor()
    at = parse_instant("2026-05-01T00:03:00Z", "t")
    assert cursor.skips == (Skip(from_ms=at, to_ms=at, count=1, reason=SkipReason.OVERLAP),)


@pytest.mark.parametrize("cron", ["H * * * * *", "h/7 * * * * *"])
def test_hashed_schedules_fire_again_and_again(cron: str) -> None:
    world = World()
    world.register(cron=cron)
    for _ in range(3):
        world.until(world.cursor().next_ms)
        assert len(work_off(world)) == 1
    assert world.cursor().status is J.ACTIVE
