"""Misfire and overlap policies, bounds, jitter, deadlines, pause, update, backfill (semantics §2, §4, §5).

The cases named OVL-… come from public fault reports of other schedulers.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from schemas import codec
from schemas.commands import MissedInPause, RegisterMode
from schemas.entities import (
    ExecutionKind,
    MisfirePolicy,
    OverlapPolicy,
    Priority,
    SkipReason,
    Tenant,
    WaitingFor,
)
from schemas.entities import ExecutionStatus as E
from schemas.entities import JobStatus as J
from schemas.events import CursorEvent
from schemas.ids import scheduled_execution_id
from streams.core.instants import format_instant, parse_instant
from tests.unit.core.world import World, granted

DAY = 86_400


def skips(world: World) -> Counter[SkipReason]:
    total: Counter[SkipReason] = Counter()
    for _, value in world.log:
        event = codec.decode(value) if value is not None else None
        if isinstance(event, CursorEvent):
            for skip in event.cursor.skips:
                total[skip.reason] += skip.count
    return total


def hhmm(instant_ms: int) -> str:
    return format_instant(instant_ms)[11:16]


def work_off(world: World) -> list[str]:
    done = []
    while grants := world.claim("W"):
        done.append(hhmm(grants[0].execution.scheduled_ms))
        world.complete(grants[0])
    return done


def test_ovl_001_a_week_of_missed_minutes_makes_one_run() -> None:
    world = World()
    world.register(cron="* * * * *", misfire=MisfirePolicy.FIRE_ONCE, overlap=OverlapPolicy.SKIP)
    world.jump("2026-05-08T00:00:30Z")
    (run,) = world.executions()
    assert format_instant(run.scheduled_ms) == "2026-05-08T00:00:00Z"
    assert sum(skips(world).values()) == 10_079
    assert format_instant(world.cursor().next_ms) == "2026-05-08T00:01:00Z"
    assert world.cursor().catch_up == ()


def test_ovl_003_skip_survives_a_restart_of_the_owner() -> None:
    world = World("2026-05-01T00:00:00Z")
    world.register(cron="*/5 * * * *", overlap=OverlapPolicy.SKIP)
    world.at(300)
    (r0,) = world.claim("A", lease_sec=3600)
    world.engine = world.rebuilt()
    world.store = world.engine.state.kv._base  # type: ignore[assignment]
    world.at(300 + 600)
    assert skips(world) == {SkipReason.OVERLAP: 2}
    world.at(300 + 720)
    world.complete(r0)
    world.at(300 + 900)
    assert work_off(world) == ["00:20"]


def test_ovl_005_a_backfill_may_have_its_own_policy() -> None:
    world = World("2026-05-01T11:30:00Z")
    world.register(cron="0 * * * *", overlap=OverlapPolicy.SKIP)
    world.until(parse_instant("2026-05-01T12:00:00Z", "t"))
    (running,) = world.claim("A", lease_sec=3600)
    times = [f"2026-05-01T{hour:02}:00:00Z" for hour in (9, 10, 11)]
    answer = world.backfill(*times, overlap=OverlapPolicy.ALLOW)
    assert (answer.status, answer.count) == (202, 3)
    grants = world.claim("B", 5)
    assert sorted(hhmm(g.execution.scheduled_ms) for g in grants) == ["09:00", "10:00", "11:00"]
    assert {g.execution.kind for g in grants} == {ExecutionKind.BACKFILL}
    assert {g.execution.priority for g in grants} == {Priority.LOW}
    omitted = world.backfill(*times, backfill_id="b2")
    assert omitted.count == 3
    assert [e.status for e in world.executions() if e.backfill == "b2"] == [E.SKIPPED] * 3
    world.complete(running)


def test_a_backfill_waits_in_order_and_runs_nothing_twice() -> None:
    world = World("2026-05-01T00:00:00Z")
    world.register(cron="0 * * * *")
    world.until(parse_instant("2026-05-01T03:00:00Z", "t"))
    ran = work_off(world)
    assert ran == ["01:00", "02:00"]  # a third one found the line full
    times = [f"2026-05-01T{hour:02}:00:00Z" for hour in range(4)]
    assert world.backfill(*times).count == 2
    assert world.backfill(*times).count == 2
    assert work_off(world) == ["00:00", "03:00"]
    assert world.backfill(*times, backfill_id="again", rerun=True).count == 4
    assert work_off(world) == ["00:00", "01:00", "02:00", "03:00"]


def test_a_backfill_takes_only_past_occurrences_of_the_schedule() -> None:
    world = World("2026-05-01T00:00:00Z")
    world.register(cron="0 * * * *")
    for wrong in ("2026-04-30T23:30:00Z", "2026-05-01T01:00:00Z"):
        answer = world.backfill(wrong)
        assert (answer.status, [problem.field for problem in answer.errors]) == (400, ["scheduledMs.0"])


def test_ovl_012_a_resume_on_the_tick_makes_one_run() -> None:
    world = World("2026-05-01T00:30:00Z")
    world.register(cron="0 * * * *", misfire=MisfirePolicy.FIRE_ONCE)
    world.pause()
    world.jump("2026-05-01T05:00:00Z")
    assert world.resume(missed=MissedInPause.FIRE_ONCE).status == 200
    assert work_off(world) == ["05:00"]
    assert format_instant(world.cursor().next_ms) == "2026-05-01T06:00:00Z"


def test_ovl_014_a_trigger_during_a_pause_leaves_the_cursor_alone() -> None:
    world = World("2026-04-30T12:00:00Z")
    world.register(cron="0 9 * * *")
    world.jump("2026-05-01T00:00:00Z")
    assert world.pause().status == 200
    world.jump("2026-05-01T10:00:00Z")
    manual = world.trigger().execution
    assert manual is not None
    assert (hhmm(manual.scheduled_ms), manual.kind) == ("10:00", ExecutionKind.MANUAL)
    world.jump("2026-05-01T11:00:00Z")
    assert world.resume().status == 200
    assert format_instant(world.cursor().next_ms) == "2026-05-02T09:00:00Z"
    assert skips(world) == {SkipReason.PAUSED: 1}
    assert work_off(world) == ["10:00"]


def test_resume_may_make_all_that_was_missed() -> None:
    world = World("2026-05-01T00:30:00Z")
    world.register(cron="0 * * * *")
    world.pause()
    world.jump("2026-05-01T05:30:00Z")
    world.resume(missed=MissedInPause.FIRE_ALL)
    assert work_off(world) == ["01:00", "02:00", "03:00", "04:00", "05:00"]


def test_pause_and_resume_are_answered_alike_when_repeated() -> None:
    world = World()
    world.register(cron="0 * * * *")
    assert world.pause(key="p").status == 200
    assert world.resume(key="r").status == 200
    assert world.pause(key="p").replayed
    assert world.cursor().status is J.ACTIVE
    assert world.resume().code == "not_paused"
    assert world.pause(key="r").code == "idempotency_key_reused"


def test_what_was_due_before_a_pause_fires() -> None:
    world = World()
    world.register(cron="0 * * * * *")
    world.now_ms += 60_000
    world.pause()
    assert len(world.executions()) == 1
    world.at(600)
    assert len(world.executions()) == 1


def test_misfire_skip() -> None:
    world = World()
    world.register(cron="* * * * *", misfire=MisfirePolicy.SKIP)
    world.jump("2026-05-01T01:00:30Z")
    assert skips(world) == {SkipReason.MISFIRE_POLICY: 60}
    assert world.executions() == []


def test_overlap_skip_allow_and_queue_limit() -> None:
    found = {}
    cases: dict[str, dict[str, Any]] = {
        "skip": {"overlap": OverlapPolicy.SKIP},
        "allow": {"overlap": OverlapPolicy.ALLOW},
        "allow 2": {"overlap": OverlapPolicy.ALLOW, "max_concurrent": 2},
        "queue 3": {"queue_limit": 3},
    }
    for name, kw in cases.items():
        world = World()
        world.register(cron="0 * * * * *", **kw)
        for minute in range(1, 7):
            world.at(minute * 60)
            world.claim("A", 10, lease_sec=3600)
        running = sum(e.status is E.RUNNING for e in world.executions())
        waiting = sum(e.waiting_for is WaitingFor.OVERLAP for e in world.executions())
        found[name] = (running, waiting, sum(skips(world).values()))
    assert found == {"skip": (1, 0, 5), "allow": (6, 0, 0), "allow 2": (2, 4, 0), "queue 3": (1, 3, 2)}


def test_max_concurrent_lets_the_next_one_in() -> None:
    world = World()
    world.register(cron="0 * * * * *", overlap=OverlapPolicy.ALLOW, max_concurrent=2)
    world.at(240)
    first = world.claim("A", 10, lease_sec=3600)
    assert len(first) == 2
    world.complete(first[0])
    (third,) = world.claim("A", 10)
    assert world.sec(third.execution.scheduled_ms) == 180


def test_cancel_running_stops_the_earlier_one_first() -> None:
    world = World()
    world.register(cron="0 * * * * *", overlap=OverlapPolicy.CANCEL_RUNNING)
    world.at(60)
    (first,) = world.claim("A", lease_sec=3600)
    world.at(180)
    assert world.claim("B") == []
    statuses = {world.sec(e.scheduled_ms): (e.status, e.waiting_for.value) for e in world.executions()}
    assert statuses[120] == (E.CANCELLED, "NOTHING")
    assert statuses[180] == (E.PENDING, "OVERLAP")
    assert world.beat(first).code == "cancelled"
    assert [world.sec(g.execution.scheduled_ms) for g in world.claim("B")] == [180]


def test_kept_misfires_run_one_at_a_time_under_skip_too() -> None:
    world = World()
    world.register(cron="* * * * *", overlap=OverlapPolicy.SKIP)
    world.jump("2026-05-01T00:05:30Z")
    assert len(world.executions()) == 1
    assert work_off(world) == ["00:01", "00:02", "00:03", "00:04", "00:05"]


def test_bounds_and_max_runs() -> None:
    world = World()
    world.register("a", cron="* * * * *", start_at="2026-05-01T00:10:00Z", end_at="2026-05-01T00:12:30Z")
    world.register("b", every_sec=60, start_at="2026-05-01T00:00:30Z", max_runs=3)
    world.register("c", every_sec=60, start_at="2026-04-30T00:00:30Z", end_at="2026-05-01T00:02:00Z")
    for minute in range(1, 31):
        world.at(minute * 30)
        work_off(world)
    by_job: dict[str, list[float]] = {}
    for e in world.executions():
        by_job.setdefault(e.job_id, []).append(world.sec(e.scheduled_ms))
    assert by_job == {"a": [600, 660, 720], "b": [30, 90, 150], "c": [30, 90]}
    assert {world.cursor(job).status for job in "abc"} == {J.COMPLETED}


def test_skipped_occurrences_do_not_count_as_runs() -> None:
    world = World()
    world.register(cron="0 * * * * *", overlap=OverlapPolicy.SKIP, max_runs=2)
    world.at(60)
    (first,) = world.claim("A", lease_sec=3600)
    world.at(300)
    world.complete(first)
    world.at(360)
    assert work_off(world) == ["00:06"]
    assert world.cursor().status is J.COMPLETED


def test_jitter_delays_but_the_scheduled_time_stays() -> None:
    world = World()
    dues = []
    for n in range(30):
        world.register(f"j{n}", cron="0 * * * *", jitter_sec=600)
        dues.append(world.cursor(f"j{n}").next_due_ms)
    assert len(set(dues)) > 20
    assert all(3_600_000 <= due - world.start_ms <= 4_200_000 for due in dues)
    world.at(3_600 + 300)
    assert all(e.due_ms in dues and world.sec(e.scheduled_ms) == 3_600 for e in world.executions())
    assert all(e.fired_ms >= e.due_ms for e in world.executions())
    early = len(world.executions())
    world.at(3_600 + 600)
    assert 0 < early < len(world.executions()) == 30


def test_a_start_deadline_skips_what_nobody_took() -> None:
    world = World()
    world.register(delay_sec=10, start_deadline_sec=30)
    world.at(39)
    assert world.executions()[0].status is E.PENDING
    world.at(40)
    (missed,) = world.executions()
    assert (missed.status, missed.reason) == (E.SKIPPED, "deadline")
    assert world.cursor().status is J.COMPLETED
    assert "missed_window" in [alert.kind for alert in world.alerts]


def test_a_started_execution_has_no_start_deadline() -> None:
    world = World()
    world.register(delay_sec=10, start_deadline_sec=30)
    world.at(10)
    (grant,) = world.claim("A", lease_sec=5)
    world.at(100)
    assert world.execution(grant.execution.execution_id).status is E.PENDING
    assert len(world.claim("A")) == 1


def test_the_key_template_is_in_the_jobs_zone() -> None:
    world = World("2026-05-31T22:30:00Z")
    template = "billing:{jobId}:{scheduledTime:%Y-%m}"
    world.register("b", cron="0 1 * * *", time_zone="Europe/Berlin", idempotency_key_template=template)
    world.until(world.cursor("b").next_ms)
    (grant,) = world.claim("A")
    assert grant.execution.idempotency_key == "billing:b:2026-06"


def test_an_update_counts_from_the_next_occurrence_on() -> None:
    world = World()
    world.register(cron="0 * * * * *", payload=b'"old"')
    world.at(60)
    answer = world.update(1, cron="30 * * * * *", payload=b'"new"')
    assert answer.job is not None
    assert (answer.status, answer.job.version) == (200, 2)
    assert world.update(1, cron="45 * * * * *").code == "version_differs"
    world.at(90)
    (old,) = world.claim("A")
    assert (old.content.payload, old.execution.job_version) == (b'"old"', 1)
    world.fail(old, retry_after_sec=1)
    world.at(91)
    (again,) = world.claim("A")
    assert again.content.payload == b'"old"'
    world.complete(again)
    (new,) = world.claim("A")
    assert (new.content.payload, world.sec(new.execution.scheduled_ms)) == (b'"new"', 90)
    assert not world.engine.state.knows("pay:acme/job-1@1")


@pytest.mark.parametrize("changes", [{"every_sec": 5}, {"cron": "*/5 * * * * *"}], ids=["interval", "cron"])
def test_an_update_loses_nothing_behind_a_next_occurrence_that_was_cancelled(changes: dict[str, Any]) -> None:
    world = World()
    answer = world.register(every_sec=60, overlap=OverlapPolicy.ALLOW)
    assert answer.job is not None
    ahead = scheduled_execution_id("job-1", answer.job.incarnation, answer.job.first_next_ms)
    assert world.cancel(ahead).status == 202
    world.at(30)
    world.update(1, overlap=OverlapPolicy.ALLOW, **changes)
    world.at(70)
    ran = [world.sec(grant.execution.scheduled_ms) for grant in world.claim("A", 100)]
    assert ran == [35, 40, 45, 50, 55, 65, 70]  # and not the one that was cancelled


def test_an_update_keeps_the_anchor_of_an_interval_unless_it_changes() -> None:
    world = World()
    world.register(every_sec=60)
    world.at(70)
    world.update(1, every_sec=60, payload=b"2")
    assert world.sec(world.cursor().next_ms) == 120
    world.update(2, every_sec=45)
    assert world.sec(world.cursor().next_ms) == 70 + 45


def test_an_update_settles_first_and_keeps_misfires_of_the_old_schedule() -> None:
    world = World()
    world.register(cron="* * * * *")
    world.now_ms = parse_instant("2026-05-01T00:05:30Z", "t")
    world.update(1, cron="0 12 * * *", payload=b"2")
    assert work_off(world) == ["00:01", "00:02", "00:03", "00:04", "00:05"]
    assert hhmm(world.cursor().next_ms) == "12:00"


def test_a_one_off_can_be_moved_and_run_again_at_another_instant() -> None:
    world = World()
    world.register(run_at="2026-05-01T01:00:00Z")
    world.update(1, run_at="2026-05-01T02:00:00Z")
    world.at(3_600)
    assert world.executions() == []
    world.at(7_200)
    assert work_off(world) == ["02:00"]
    assert world.cursor().status is J.COMPLETED


@pytest.mark.parametrize("twice", [False, True])
def test_an_update_is_answered_alike_when_repeated(twice: bool) -> None:
    world = World()
    world.register(cron="0 * * * *")
    first = world.update(1, key="u", cron="30 * * * *")
    assert first.status == 200
    body = {"cron": "45 * * * *"} if twice else {"cron": "30 * * * *"}
    again = world.update(1, key="u", **body)
    assert again.code == ("idempotency_key_reused" if twice else "")
    assert world.cursor().answered[-1].version == 2


def test_policies_hold_in_a_rebuilt_partition() -> None:
    world = World()
    world.register(cron="0 * * * * *", overlap=OverlapPolicy.ALLOW, max_concurrent=2)
    world.at(300)
    world.claim("A", 2, lease_sec=3600)
    rebuilt = world.rebuilt()
    assert rebuilt.state.active("acme", "job-1") == 2
    assert len(rebuilt.state.blocked("acme", "job-1", 10)) == 3


def test_a_trigger_may_name_its_policy() -> None:
    world = World()
    world.register(cron="0 0 1 1 *", overlap=OverlapPolicy.SKIP)
    world.trigger()
    second = world.trigger().execution
    third = world.trigger(overlap=OverlapPolicy.ALLOW).execution
    assert second is not None
    assert third is not None
    assert (second.status, third.waiting_for) == (E.SKIPPED, WaitingFor.WORKER)
    assert len(granted(world.replies)) == 0
    assert len(world.claim("A", 5)) == 2


def test_what_fell_into_a_pause_is_accounted_for_before_its_schedule_goes() -> None:
    for change in ("update", "put", "cancel"):
        world = World("2026-05-01T00:30:00Z")
        world.register(cron="0 * * * *", mode=RegisterMode.PUT)
        world.pause()
        world.jump("2026-05-01T05:10:00Z")
        if change == "update":
            assert world.update(1, cron="30 * * * *").status == 200
        elif change == "put":
            assert world.register(cron="30 * * * *", mode=RegisterMode.PUT).status == 200
        else:
            assert world.cancel_job().status == 200
        assert skips(world) == {SkipReason.PAUSED: 5}
        if change != "cancel":
            world.jump("2026-05-01T06:45:00Z")
            world.resume()
            assert skips(world) == {SkipReason.PAUSED: 7}
            assert hhmm(world.cursor().next_ms) == "07:30"


def test_a_job_mended_in_a_pause_makes_up_for_it_at_the_resume() -> None:
    world = World("2026-05-01T00:30:00Z")
    world.register(cron="0 * * * *")
    world.pause()
    world.jump("2026-05-01T03:10:00Z")
    assert world.update(1, cron="0 * * * *", payload=b"2").status == 200
    assert skips(world) == {}
    world.resume(missed=MissedInPause.FIRE_ALL)
    (first,) = world.claim("W")
    assert first.content.payload == b"2"
    world.complete(first)
    assert work_off(world) == ["02:00", "03:00"]


def test_an_update_to_another_zone_loses_no_occurrence() -> None:
    world = World("2026-05-01T23:30:00Z")
    world.register(cron="0 9 * * *", time_zone="Asia/Tokyo")
    world.until(parse_instant("2026-05-02T00:10:00Z", "t"))
    assert work_off(world) == ["00:00"]
    # It is 20:10 of the day before in New York, where the last local time is still to come.
    world.update(1, cron="0 22 * * *", time_zone="America/New_York")
    assert format_instant(world.cursor().next_ms) == "2026-05-02T02:00:00Z"


def kept_versions(world: World) -> list[str]:
    newest = dict(world.log)
    return [key for key, value in newest.items() if "@" in key and value is not None]


def test_the_payload_of_a_superseded_version_goes_with_its_last_execution() -> None:
    for cancelled in (True, False):
        world = World("2026-05-01T00:30:00Z")
        world.register(cron="0 * * * *", queue_limit=5)
        world.until(parse_instant("2026-05-01T02:00:00Z", "t"))
        world.update(1, cron="0 * * * *", payload=b"2")
        assert len(kept_versions(world)) == 1
        if cancelled:
            world.cancel_job()
        else:
            assert work_off(world) == ["01:00", "02:00"]
        assert kept_versions(world) == []


def test_a_trigger_repeated_after_an_update_is_the_same_one() -> None:
    world = World()
    world.register(every_sec=31_536_000, overlap=OverlapPolicy.SKIP)
    world.trigger(key="plain")
    skipped = world.trigger(key="own", payload=b"7")
    assert skipped.execution is not None
    assert skipped.execution.status is E.SKIPPED
    assert work_off(world) == ["00:00"]
    world.trigger(key="later", payload=b"8")
    assert work_off(world) == ["00:00"]
    world.update(1, every_sec=31_536_000, payload=b"9")
    for key, payload in (("plain", None), ("own", b"7"), ("later", b"8")):
        assert world.trigger(key=key, payload=payload).replayed
    assert world.trigger(key="plain", payload=b"7").code == "idempotency_key_reused"
    assert world.trigger(key="later").code == "idempotency_key_reused"


def test_a_tenants_default_jitter_is_for_minute_crons_without_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    settings = Tenant(tenant="acme", default_jitter_sec=600)
    monkeypatch.setattr(type(world.engine._router), "settings_of", lambda self, tenant: settings)
    world.register("minutes", cron="0 * * * *")
    world.register("seconds", cron="0 0 * * * *")
    world.register("own", cron="0 * * * *", jitter_sec=0)
    jitter = {}
    for name in ("minutes", "seconds", "own"):
        job = world.engine.state.job("acme", name)
        assert job is not None
        jitter[name] = job.schedule.jitter_ms
    assert jitter == {"minutes": 600_000, "seconds": 0, "own": 0}
