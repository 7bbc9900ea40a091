"""Alerts of what starts late, or still waits: one a subject and minute, with a count (semantics §6)."""

from __future__ import annotations

import pytest

from schemas.entities import Alert, Pool, Priority, WaitingFor
from streams.core.late import Late, Subject
from tests.unit.core.world import TENANT, World


def late(world: World) -> list[Alert]:
    return [alert for alert in world.alerts if alert.kind == "lateness"]


def told(world: World) -> list[tuple[float, str, int]]:
    """When, of which job, and of how many."""
    return [(world.sec(alert.at_ms), alert.job_id, alert.count) for alert in late(world)]


def test_what_waits_for_a_worker_is_told_of_once_a_minute() -> None:
    world = World()
    for n in range(5):
        world.register(f"job-{n}", delay_sec=0)
    world.at(60)
    assert late(world) == []
    world.at(75)
    (alert,) = late(world)
    assert (alert.tenant, alert.target, alert.count) == (TENANT, "pool:default", 5)
    assert 60 < world.sec(alert.at_ms) <= 71
    world.at(240)
    assert [count for _, _, count in told(world)] == [5, 5, 5]


def test_what_starts_late_is_counted_and_told_of_a_minute_later() -> None:
    world = World()
    for n in range(5):
        world.register(f"job-{n}", delay_sec=0)
    world.now_ms += 61_000  # nobody looked at the pool meanwhile
    grants = world.claim("W", 5)
    assert len(grants) == 5
    for grant in grants:
        world.complete(grant)
    assert [(at, count) for at, _, count in told(world)] == [(61, 5)]  # as they waited
    world.at(150)
    assert [count for _, _, count in told(world)] == [5, 5]  # as they started
    assert 121 <= told(world)[1][0] <= 132


@pytest.mark.parametrize(("late_ms", "count"), [(60_000, 0), (60_001, 1)])
def test_above_the_threshold_not_at_it(late_ms: int, count: int) -> None:
    world = World()
    world.register(delay_sec=0)
    world.now_ms += late_ms
    world.claim("W")
    assert len(late(world)) == count


def test_the_tenant_sets_the_threshold() -> None:
    world = World()
    world.configure(lateness_alert_sec=5)
    world.register(delay_sec=0)
    world.at(16)
    assert len(late(world)) == 1


def test_a_job_with_its_own_threshold_is_told_of_at_once_whatever_it_waits_for() -> None:
    world = World()
    world.register("holder", delay_sec=0, exclusion_group="g", lease_sec=600)
    world.claim("W")
    world.register("mine", delay_sec=0, exclusion_group="g", lateness_alert_sec=7)
    assert world.execution_of("mine").waiting_for is WaitingFor.EXCLUSION
    world.at(7)
    assert late(world) == []
    world.at(8)
    assert told(world) == [(7.001, "mine", 1)]


def test_a_patient_job_is_left_out_of_its_pool() -> None:
    world = World()
    world.register("patient", delay_sec=0, lateness_alert_sec=3_600)
    world.register("other", delay_sec=1, priority=Priority.NORMAL)
    world.at(80)
    assert [count for _, _, count in told(world)] == [1]
    world.at(3_700)
    assert ("patient", 1) in [(job_id, count) for _, job_id, count in told(world)]


def test_a_redelivery_and_a_backfill_of_the_past_are_not_late() -> None:
    world = World("2026-05-01T12:00:00Z")
    world.register("old", cron="0 * * * *")
    world.backfill("2026-05-01T10:00:00Z", job_id="old")
    (grant,) = world.claim("W", lease_sec=600)
    world.at(300)
    world.release(grant)
    world.register("again", delay_sec=0)
    grants = world.claim("W", 2, lease_sec=100)
    assert len(grants) == 2
    world.at(401)
    assert len(world.claim("W", 2)) == 2
    assert late(world) == []


def test_what_is_paused_is_late_on_purpose() -> None:
    world = World()
    world.configure(pools=(Pool(name="default", paused=True),))
    world.register(delay_sec=0)
    world.at(200)
    assert late(world) == []
    world.configure(pools=())
    world.at(215)
    assert len(late(world)) == 1


def test_many_queues_are_swept_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.core.handlers.alarming.LINES_PER_PASS", 2)
    world = World()
    for n in range(7):
        world.register(f"job-{n}", delay_sec=0, pool=f"pool-{n}")
    world.at(75)
    assert sorted(alert.target for alert in late(world)) == [f"pool:pool-{n}" for n in range(7)]


def test_an_idle_partition_is_not_woken_for_it() -> None:
    world = World()
    world.register(delay_sec=86_400)
    world.run()
    assert world.engine.next_wakeup_ms(world.now_ms) - world.now_ms == 30_000


def test_an_abort_tells_nobody() -> None:
    counts, subject = Late(), Subject("a", "", "pool:x")
    assert counts.add(subject, 0, 2) == 2
    counts.undo()
    assert counts.add(subject, 0) == 1
    counts.settled()
    assert counts.add(subject, 59_999) == 0
    assert counts.waits
    assert counts.overdue(59_999) == []
    assert counts.overdue(60_000) == [(subject, 1)]
    counts.settled()
    counts.drop_stale(120_000)
    assert counts._told == {}


def test_very_many_subjects_are_told_of_in_parts_and_cost_other_transactions_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tenant may give each of 100,000 jobs its own threshold: no transaction may look at all of them."""
    monkeypatch.setattr("streams.core.late.OVERDUE_MAX", 10)
    counts, subjects = Late(), [Subject("a", f"job-{n:02}", "pool:x") for n in range(25)]
    for subject in subjects:
        assert (counts.add(subject, 0), counts.add(subject, 1)) == (1, 0)
    counts.settled()
    told = []
    while counts.waits:
        part = counts.overdue(60_000)
        counts.undo()
        assert counts.overdue(60_000) == part
        counts.settled()
        assert 0 < len(part) <= 10
        told += part
    assert sorted(told) == [(subject, 1) for subject in subjects]
    counts.drop_stale(119_999)
    assert len(counts._told) == 25
    counts.drop_stale(120_000)  # looked at a moment ago
    assert len(counts._told) == 25
    counts.drop_stale(120_999)
    assert counts._told == {}
