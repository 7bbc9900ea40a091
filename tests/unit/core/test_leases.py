"""Leases, outcomes, expiry, retries: what a worker may do and what time does (semantics §4).

The cases named LSE-… come from public fault reports of other schedulers.
"""

from __future__ import annotations

from typing import Any

import pytest

from schemas.commands import Beat, Complete, Completion, ExtendLease, Fail, Failure, Slot
from schemas.entities import ExecutionStatus as E
from schemas.entities import LeaseEnd, RetryJitter, RetryPolicy, WaitingFor
from streams.core.retry import backoff_ms, redelivery_wait_ms
from tests.unit.core.world import World, granted, ref

NO_JITTER = RetryPolicy(max_attempts=3, backoff_base_sec=10, jitter=RetryJitter.NONE)


def started(**kw: Any) -> World:
    """A world in which `e1` has just become due."""
    world = World()
    world.register("e1", delay_sec=0, **kw)
    world.run()
    return world


def test_lse_001_a_frozen_worker_wakes_up_after_its_lease() -> None:
    world = started(max_deliveries=4)
    (a,) = world.claim("A")
    assert a.execution.lease_epoch == 1
    world.at(61)
    assert world.execution(a.execution.execution_id).status is E.PENDING
    world.at(62)
    (b,) = world.claim("B")
    assert (b.execution.execution_id, b.execution.lease_epoch) == (a.execution.execution_id, 2)
    world.at(70)
    assert (world.beat(a).status, world.beat(a).code) == (409, "lease_lost")
    assert world.complete(a, b'"from A"').code == "lease_lost"
    assert world.complete(b, b'"from B"').status == 200
    final = world.execution(b.execution.execution_id)
    assert (final.status, final.result, final.lease_epoch) == (E.COMPLETED, b'"from B"', 2)
    assert world.types.count("ExecutionCompleted") == 1


def test_lse_003_the_log_order_decides_between_completion_and_expiry() -> None:
    world = started()
    (grant,) = world.claim("A")
    world.at(59.999)
    assert world.complete(grant).status == 200
    world.at(61)
    assert world.execution(grant.execution.execution_id).status is E.COMPLETED
    assert "LeaseExpired" not in world.types

    swapped = started()
    (grant,) = swapped.claim("A")
    swapped.at(60.001)
    assert (swapped.complete(grant).status, swapped.complete(grant).code) == (409, "lease_lost")
    pending = swapped.execution(grant.execution.execution_id)
    assert (pending.status, pending.lease_epoch) == (E.PENDING, 1)


def test_lse_006_a_beat_after_completion_opens_nothing() -> None:
    world = started()
    (grant,) = world.claim("A")
    world.at(14.99)
    world.beat(grant)
    assert world.complete(grant).status == 200
    assert world.beat(grant).code == "already_finished"
    assert world.engine.state.lease(grant.execution) is None
    world.at(120)
    assert world.execution(grant.execution.execution_id).status is E.COMPLETED


def test_lse_008_reaping_counts_although_nobody_reports_a_failure() -> None:
    world = started(max_deliveries=3, retry=RetryPolicy(max_attempts=1))
    claims = 0
    for round_ in range(1, 12):
        claims += len(world.claim("A"))
        world.at(round_ * 61)
    (dead,) = [e for e in world.executions() if e.status is E.FAILED]
    assert claims == 3
    assert dead.reason == "reaped"
    assert [alert.kind for alert in world.alerts] == ["reaped"]
    assert world.buried[0].letter.content.payload == b'{"x":1}'
    kept = world.engine.state.kept_content(dead)
    assert kept is not None
    assert kept.content.payload == b'{"x":1}'


def test_lse_009_a_long_run_that_beats_is_never_reaped() -> None:
    world = started()
    (grant,) = world.claim("A")
    for sec in range(15, 2820, 15):
        world.at(sec)
        assert world.beat(grant).status == 200
    world.at(2820)
    assert world.complete(grant).status == 200
    assert world.types.count("ExecutionClaimed") == 1
    assert "LeaseExpired" not in world.types


def test_lse_011_backoff_is_capped_before_the_power() -> None:
    policy = RetryPolicy(backoff_base_sec=1, backoff_factor=2, backoff_max_sec=3600, jitter=RetryJitter.NONE)
    attempts = [1, 2, 12, 13, 47, 48, 1024, 1025, 1100, 5000, 1_000_000]
    expected = [1, 2, 2048, *[3600] * 8]
    assert [backoff_ms(policy, n, 0.5) for n in attempts] == [sec * 1000 for sec in expected]


@pytest.mark.parametrize("factor", [1.0, 1.0000001, 2.5, 100.0])
@pytest.mark.parametrize("attempt", [1, 305, 10_000])
def test_lse_012_backoff_stays_within_its_bounds(factor: float, attempt: int) -> None:
    policy = RetryPolicy(backoff_base_sec=7, backoff_factor=factor, backoff_max_sec=86_400)
    assert 0 <= backoff_ms(policy, attempt, 0.999999) <= 86_400_000
    assert backoff_ms(policy, attempt, 0.0) == 0


def test_lse_015_only_the_partitions_clock_judges_a_lease() -> None:
    world = started()
    world.claim("A")
    world.at(59)
    assert world.claim("B") == []


def test_lse_017_a_cancel_that_came_first_decides() -> None:
    world = started()
    (grant,) = world.claim("A")
    world.at(5)
    assert world.cancel(grant.execution.execution_id).status == 202
    assert world.execution(grant.execution.execution_id).status is E.RUNNING
    world.at(15)
    assert world.beat(grant).code == "cancelled"
    world.at(16)
    assert world.fail(grant).code == "cancelled"
    final = world.execution(grant.execution.execution_id)
    assert final.status is E.CANCELLED
    assert "AttemptFailed" not in world.types


def test_an_outcome_reported_after_the_cancel_is_kept_as_reported() -> None:
    world = started()
    (grant,) = world.claim("A")
    world.cancel(grant.execution.execution_id)
    assert world.complete(grant, b'"late"').code == "cancelled"
    final = world.execution(grant.execution.execution_id)
    assert (final.status, final.reported, final.result) == (E.CANCELLED, "COMPLETED", b'"late"')


def test_a_cancelled_run_ends_at_the_lease_end_if_its_worker_is_gone() -> None:
    world = started()
    (grant,) = world.claim("A")
    world.cancel(grant.execution.execution_id)
    world.at(61)
    assert world.execution(grant.execution.execution_id).status is E.CANCELLED


def test_lse_021_short_leases_end_and_are_delivered_again() -> None:
    world = World()
    for number in range(3):
        world.register(f"e{number}", delay_sec=0)
    world.run()
    assert [g.execution.lease_epoch for g in world.claim("A", 25, lease_sec=1)] == [1, 1, 1]
    world.at(10)
    assert [g.execution.lease_epoch for g in world.claim("B", 25)] == [2, 2, 2]


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"lease_epoch": 0}, 409, "lease_lost"),
        ({"lease_epoch": 2}, 409, "lease_lost"),
        ({"worker_id": "B"}, 409, "lease_lost"),
        ({"lease_epoch": -1}, 400, "invalid"),
        ({"execution_id": "no-such-thing"}, 400, "invalid"),
        ({"execution_id": "e1.1.1.s"}, 404, "not_found"),
        ({"worker_id": ""}, 400, "invalid"),
    ],
)
def test_lse_023_only_the_holder_acts(changes: dict[str, object], status: int, code: str) -> None:
    world = started()
    (grant,) = world.claim("A")
    until = world.engine.state.lease_until_ms(grant.execution)
    for result in (
        world.report(ExtendLease, Beat(**ref(grant, **changes))),
        world.report(Complete, Completion(**ref(grant, **changes))),
        world.report(Fail, Failure(**ref(grant, **changes), error="x")),
    ):
        assert (result.status, result.code) == (status, code)
    assert world.engine.state.lease_until_ms(grant.execution) == until
    assert world.execution(grant.execution.execution_id).status is E.RUNNING


def test_the_accepted_outcome_may_be_repeated() -> None:
    world = started(retry=NO_JITTER)
    (grant,) = world.claim("A")
    assert world.fail(grant).status == 200
    assert world.fail(grant).status == 200
    assert world.complete(grant).code == "already_finished"
    assert world.types.count("AttemptFailed") == 1
    world.at(10)
    (again,) = world.claim("A")
    assert world.fail(grant).code == "lease_lost"
    assert world.complete(again).status == 200
    assert world.complete(again).status == 200


def test_a_failed_attempt_comes_back_after_its_backoff() -> None:
    world = started(retry=NO_JITTER)
    (grant,) = world.claim("A")
    world.fail(grant, "first")
    waiting = world.execution(grant.execution.execution_id)
    assert (waiting.status, waiting.attempt, waiting.error) == (E.SCHEDULED, 2, "first")
    assert world.sec(waiting.due_ms) == 10
    world.at(9.999)
    assert world.claim("A") == []
    world.at(10)
    (second,) = world.claim("A")
    assert (second.execution.attempt, second.execution.delivery_count) == (2, 1)
    assert second.execution.scheduled_ms == grant.execution.scheduled_ms
    world.fail(second)
    world.at(10 + 30)
    (third,) = world.claim("A")
    world.fail(third, "last")
    dead = world.execution(grant.execution.execution_id)
    assert (dead.status, dead.reason, dead.error, dead.attempt) == (E.FAILED, "attempts", "last", 3)


def test_the_worker_may_give_up_or_choose_the_delay() -> None:
    world = started()
    (grant,) = world.claim("A")
    world.fail(grant, retry_after_sec=7)
    assert world.sec(world.execution(grant.execution.execution_id).due_ms) == 7
    world.at(7)
    (again,) = world.claim("A")
    world.fail(again, retryable=False)
    dead = world.execution(grant.execution.execution_id)
    assert (dead.status, dead.reason) == (E.FAILED, "not_retryable")


def test_a_long_error_is_cut_and_a_large_result_refused() -> None:
    world = started()
    (grant,) = world.claim("A")
    assert world.complete(grant, b"x" * (16 * 1024 + 1)).status == 400
    world.fail(grant, "e" * 100_000)
    assert len(world.execution(grant.execution.execution_id).error) == 8 * 1024


def test_a_release_spends_neither_attempt_nor_delivery() -> None:
    world = started()
    (grant,) = world.claim("A")
    assert world.release(grant).status == 200
    assert world.release(grant).status == 200
    (again,) = world.claim("B")
    assert (again.execution.attempt, again.execution.delivery_count, again.execution.lease_epoch) == (1, 1, 2)
    assert world.release(again, delay_sec=30).status == 200
    snoozed = world.execution(grant.execution.execution_id)
    assert (snoozed.status, world.sec(snoozed.due_ms)) == (E.SCHEDULED, 30)
    assert world.claim("B") == []
    world.at(30)
    (third,) = world.claim("B")
    assert (third.execution.attempt, third.execution.delivery_count) == (1, 1)


def test_from_the_second_redelivery_on_it_waits() -> None:
    assert [redelivery_wait_ms(n) for n in range(1, 10)] == [
        0,
        1000,
        2000,
        4000,
        8000,
        16000,
        32000,
        60000,
        60000,
    ]
    world = started(max_deliveries=5)
    world.claim("A", lease_sec=1)
    world.at(1)
    world.claim("A", lease_sec=1)
    world.at(2)
    (waiting,) = world.executions()
    assert (waiting.status, waiting.waiting_for) == (E.PENDING, WaitingFor.REDELIVERY)
    assert world.claim("A") == []
    world.at(3)
    assert len(world.claim("A")) == 1


def test_the_timeout_ends_the_attempt_although_the_worker_beats() -> None:
    world = started(timeout_sec=100, lease_sec=60, retry=NO_JITTER)
    (grant,) = world.claim("A")
    assert world.sec(grant.execution.deadline_ms) == 100
    for sec in (30, 60, 90):
        world.at(sec)
        assert world.sec(world.beat(grant).extend_until_ms) == min(100, sec + 60)
    world.at(100)
    waiting = world.execution(grant.execution.execution_id)
    assert (waiting.status, waiting.error, waiting.attempt) == (E.SCHEDULED, "TIMEOUT", 2)
    assert (waiting.lease_end, world.beat(grant).code) == (LeaseEnd.TIMEOUT, "timeout")


def test_progress_is_seen_by_the_next_attempt() -> None:
    world = started(retry=NO_JITTER)
    (grant,) = world.claim("A")
    world.beat(grant, b'{"row":7}')
    world.at(5)
    world.beat(grant)
    world.fail(grant)
    world.at(15)
    (again,) = world.claim("A")
    assert again.progress == b'{"row":7}'


def test_fencing_tokens_grow_over_all_grants_of_the_partition() -> None:
    world = World()
    for number in range(50):
        world.register(f"e{number}", delay_sec=0)
    world.run()
    tokens = [g.execution.fencing_token for g in world.claim("A", 30)]
    rebuilt = world.rebuilt()
    assert rebuilt.state.last_token() == max(tokens)
    tokens += [g.execution.fencing_token for g in world.claim("B", 30)]
    assert tokens == sorted(set(tokens))
    assert max(tokens) < 2**53


def test_leases_wait_until_the_work_before_their_end_is_decided() -> None:
    """Architecture §5.9: without the settled clock, log lag would look like death."""
    world = started()
    (grant,) = world.claim("A")
    world.now_ms += 61_000
    assert world.engine.lease_due(world.now_ms)
    world.run(settled=False)
    assert world.execution(grant.execution.execution_id).status is E.RUNNING
    assert world.beat(grant).status == 200
    world.run(settled=True)
    assert world.execution(grant.execution.execution_id).status is E.RUNNING


def test_a_parked_request_gets_what_becomes_due() -> None:
    world = World()
    world.register("e1", delay_sec=5)
    world.request(Slot(worker_id="A", credit=1), park_sec=20)
    before = len(world.replies)
    world.at(5)
    (grant,) = granted(world.replies[before:])
    assert grant.execution.started_ms == grant.execution.due_ms


def test_a_new_lease_and_a_success_leave_nothing_of_the_failed_attempt() -> None:
    world = started(retry=NO_JITTER)
    (grant,) = world.claim("A")
    world.fail(grant, "first")
    world.at(10)
    (again,) = world.claim("A")
    assert again.execution.lease_end is LeaseEnd.NONE
    world.complete(again)
    assert world.execution(grant.execution.execution_id).error == ""
