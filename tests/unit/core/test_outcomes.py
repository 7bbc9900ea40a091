"""Leases, outcomes and payloads where several things come together (semantics §4)."""

from __future__ import annotations

import pytest

from schemas import ids
from schemas.commands import CancelJob, RegisterMode, Slot, TriggerJob
from schemas.entities import ExecutionStatus as E
from schemas.entities import JobStatus as J
from schemas.entities import RetryPolicy, SkipReason, WaitingFor
from streams.core import limits
from streams.core.handlers import cancelling, triggering
from streams.core.transaction import Source, Transaction
from tests.unit.core.world import (
    NO_RETRY,
    TENANT,
    World,
    registration,
    seen,
)


def test_an_error_reported_after_the_cancel_is_cut_like_any_other() -> None:
    world = World()
    world.register(delay_sec=0)
    (grant,) = world.claim("A")
    world.cancel(grant.execution.execution_id)
    world.fail(grant, "x" * 1_000_000)
    assert len(world.execution(grant.execution.execution_id).error) == limits.ERROR_CHARS_MAX


def test_the_key_of_a_corrected_replay_does_not_grow() -> None:
    world = World()
    world.register(delay_sec=0, retry=NO_RETRY)
    for n in range(1, 4):
        (grant,) = world.claim("A")
        world.fail(grant)
        letter = grant.execution.execution_id
        world.replay(letter, payload=b"%d" % n)
        assert world.execution(letter).idempotency_key == f"{letter}:r{n}"


def test_a_run_of_the_job_before_is_not_handed_out_with_the_new_jobs_payload() -> None:
    world = World()
    world.register(delay_sec=0, payload=b'"old"')
    world.claim("A", claim_id="c")
    world.cancel_job()
    world.register(mode=RegisterMode.PUT, delay_sec=5, payload=b'"new"')
    held = seen(world.request(Slot(worker_id="A", credit=1, claim_id="c"), ack=True)).held
    assert [grant.content.payload for grant in held] == []


def test_what_a_cancel_left_over_is_not_granted_to_the_job_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.register(cron="0 0 1 1 *", payload=b'"old"')
    for n in range(3):
        world.trigger(key=f"{n}")
    engine = world.engine
    engine.begin(world.now_ms, world.chance.random)
    with monkeypatch.context() as patched:
        patched.setattr(cancelling, "ENTITIES_PER_COMMAND_MAX", 0)
        engine.decide(CancelJob(**world._envelope(), job_id="job-1"), Source("commands", 1, 0))
    engine.decide(registration(world, 1_000, RegisterMode.PUT), Source("commands", 2, 0))
    world.store.write(engine.commit())
    engine.written()
    assert world.cursor().status is J.ACTIVE
    assert world.claim("A", 5) == []
    assert all(e.status in (E.CANCELLED, E.SKIPPED) for e in world.executions())


def test_a_key_used_with_another_payload_is_refused() -> None:
    world = World()
    world.register(every_sec=31_536_000, retry=NO_RETRY)
    world.trigger(key="k", payload=b'{"a": 1}')
    assert world.trigger(key="k", payload=b'{"a":1}').replayed
    assert world.trigger(key="k", payload=b'{"a":2}').code == "idempotency_key_reused"
    assert world.trigger(key="k").code == "idempotency_key_reused"
    (grant,) = world.claim("A")
    world.fail(grant)
    letter = grant.execution.execution_id
    assert world.trigger(key="k", payload=b'{"a":1}').replayed
    world.replay(letter, key="r", payload=b"3")
    assert world.replay(letter, key="r", payload=b"3").replayed
    assert world.replay(letter, key="r", payload=b"4").code == "idempotency_key_reused"


def test_the_end_of_an_older_lease_says_nothing_about_the_new_one() -> None:
    world = World()
    world.register(delay_sec=0)
    (first,) = world.claim("A", lease_sec=3_600)
    world.at(5)
    world.beat(first, b"1")
    world.release(first)
    (second,) = world.claim("B", lease_sec=10)
    assert second.progress == b"1"
    world.at(15)
    assert world.execution(second.execution.execution_id).status is E.PENDING


def test_a_lease_longer_than_the_timeout_ends_with_it() -> None:
    world = World()
    world.register(delay_sec=0, timeout_sec=10)
    (grant,) = world.claim("A", lease_sec=100)
    assert world.sec(grant.execution.lease_until_ms) == 10
    assert grant.execution.fencing_token >= world.now_ms * 1024
    world.at(10)
    assert world.execution(grant.execution.execution_id).error == "TIMEOUT"


def test_what_is_due_comes_before_a_trigger_at_the_same_instant() -> None:
    world = World()
    world.register(cron="0 * * * * *")
    world.now_ms += 60_000
    triggered = world.trigger().execution
    assert triggered is not None
    assert triggered.waiting_for is WaitingFor.OVERLAP
    (grant,) = world.claim("A")
    assert grant.execution.execution_id.endswith(".s")


@pytest.mark.parametrize(("late_ms", "missed"), [(10_000, False), (10_001, True)])
def test_missed_is_what_is_later_than_the_threshold(late_ms: int, missed: bool) -> None:
    world = World()
    world.register(every_sec=5)
    world.now_ms += 5_000 + late_ms
    world.run()
    # On time the first one runs, the second waits, the third is too many; a missed one is made later.
    too_many = [] if missed else [SkipReason.OVERLAP]
    assert [skip.reason for skip in world.cursor().skips] == too_many
    assert bool(world.cursor().catch_up) == missed


def test_what_waits_goes_before_younger_misfires() -> None:
    world = World()
    world.register(cron="0 * * * * *")
    world.at(60)
    (grant,) = world.claim("A", lease_sec=3_600)
    world.at(120)
    world.now_ms += 200_000
    world.run()
    assert world.cursor().catch_up
    world.complete(grant)
    order = []
    while grants := world.claim("A"):
        order.append(world.sec(grants[0].execution.scheduled_ms))
        world.complete(grants[0])
    assert order == [120, 180, 240, 300]


def test_a_replay_begins_with_fresh_attempts_and_deliveries() -> None:
    world = World()
    world.register(delay_sec=0, max_deliveries=2, retry=RetryPolicy(max_attempts=2))
    (first,) = world.claim("A")
    world.fail(first, retry_after_sec=0)
    world.at(1)
    for _ in range(2):
        world.claim("A", lease_sec=1)
        world.at(world.sec(world.now_ms) + 2)
    (dead,) = world.executions()
    assert (dead.status, dead.attempt, dead.delivery_count) == (E.FAILED, 2, 2)
    world.replay(dead.execution_id)
    (again,) = world.claim("A")
    assert (again.execution.attempt, again.execution.delivery_count) == (1, 1)


def test_a_job_made_anew_has_nothing_of_the_cursor_before() -> None:
    world = World()
    world.register(delay_sec=5)
    world.cancel_job()
    world.register(mode=RegisterMode.PUT, delay_sec=5)
    assert world.store.get(b"e" + ids.cursor_key(TENANT, "job-1").encode()) is None


def test_a_job_is_not_completed_while_its_last_execution_runs() -> None:
    world = World()
    world.register(delay_sec=0)
    (grant,) = world.claim("A")
    waiting = world.trigger().execution
    assert waiting is not None
    world.cancel(waiting.execution_id)
    assert world.cursor().status is J.ACTIVE
    world.complete(grant)
    assert world.cursor().status is J.COMPLETED


def test_a_cancel_comes_before_a_timeout_at_the_same_instant() -> None:
    world = World()
    world.register(delay_sec=0, timeout_sec=10, lease_sec=10)
    (grant,) = world.claim("A")
    world.cancel(grant.execution.execution_id)
    world.at(10)
    ended = world.execution(grant.execution.execution_id)
    assert (ended.status, world.beat(grant).code) == (E.CANCELLED, "cancelled")


def test_a_handler_that_raises_halfway_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(tx: Transaction, command: TriggerJob) -> None:
        triggering.trigger_job(tx, command)
        cancelling.cancel_job(tx, CancelJob(**world._envelope(), job_id=command.job_id))
        raise ZeroDivisionError("a bug")

    world = World()
    world.register(every_sec=10)
    (digest, log) = world.engine.digest(), list(world.log)
    monkeypatch.setattr("streams.core.engine.trigger_job", broken)
    engine = world.engine
    engine.begin(world.now_ms, world.chance.random)
    command = TriggerJob(**world._envelope(), job_id="job-1", payload=b"own")
    engine.decide(command, Source("commands", 1, 0))
    # Nothing but the alert's own timer is left.
    assert (engine.state.timers.savepoint(), engine.state.leases.savepoint()) == (1, 0)
    (alert,) = engine.decided().events
    assert alert.type == "AlertRaised"
    assert not engine.state.has_open(TENANT, "job-1")
    engine.state.forget(alert.key)
    world.store.write(engine.commit())
    engine.written()
    assert (engine.digest(), world.log) == (digest, log)
    monkeypatch.undo()
    assert world.run(command)[0].status == 202  # type: ignore[union-attr]
    assert len(world.claim("A")) == 1


def test_a_beat_between_the_settled_clock_and_now_counts() -> None:
    """The lease ends behind what is settled: the beat that would extend it again may be on its way."""
    world = World()
    world.register(delay_sec=0)
    (grant,) = world.claim("A", lease_sec=10)
    world.at(5)
    world.beat(grant)
    world.now_ms += 15_000
    world.one(world.now_ms - 8_000, 1_000)
    assert world.execution(grant.execution.execution_id).status is E.RUNNING
