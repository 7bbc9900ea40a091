"""Commands: registration, idempotency, cancel, trigger, dead letters, work requests (semantics §4, §7)."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from schemas.commands import (
    Beat,
    CancelJob,
    Complete,
    Completion,
    ConfigureTenant,
    ExtendLease,
    Fail,
    Failure,
    Handback,
    LeaseRef,
    RegisterMode,
    Release,
    RequestWork,
    Slot,
)
from schemas.entities import Execution, ExecutionKind, RetryPolicy, Tenant, WaitingFor
from schemas.entities import ExecutionStatus as E
from schemas.entities import JobStatus as J
from schemas.ids import derived_job_id
from schemas.replies import CommandDone
from schemas.topics import REPLY_PARTITIONS
from streams.core.engine import Engine
from streams.core.validation import check
from tests.unit.core.world import TENANT, World, granted, hints, rebuild, seen

PUT = RegisterMode.PUT


def dead(world: World, job_id: str = "job-1", **kw: Any) -> Execution:
    world.register(job_id, delay_sec=0, retry=RetryPolicy(max_attempts=1), **kw)
    world.run()
    (grant,) = world.claim("A")
    world.fail(grant, "broken")
    return world.execution(grant.execution.execution_id)


def test_the_same_request_gets_the_first_answer_again() -> None:
    world = World()
    job_id = derived_job_id(TENANT, "k")
    first = world.register(job_id, key="k", delay_sec=960)
    world.at(180)
    again = world.register(job_id, key="k", delay_sec=960)
    assert (again.status, again.replayed, again.cursor) == (201, True, first.cursor)
    world.at(2000)
    (grant,) = world.claim("A")
    world.complete(grant)
    late = world.register(job_id, key="k", delay_sec=960)
    assert (late.status, late.replayed, late.cursor) == (201, True, first.cursor)
    assert world.types.count("JobRegistered") == 1


def test_api_001_the_same_key_with_another_body_is_refused() -> None:
    world = World()
    job_id = derived_job_id(TENANT, "k")
    world.register(job_id, key="k", cron="0 9 * * *", payload=b'{"x":1}')
    refused = world.register(job_id, key="k", cron="0 9 * * *", payload=b'{"x":2}')
    assert (refused.status, refused.code) == (422, "idempotency_key_reused")


def test_api_005_payloads_are_compared_by_value() -> None:
    world = World()
    job_id = derived_job_id(TENANT, "k")
    world.register(job_id, key="k", cron="0 9 * * *", payload=b'{"a":1,"b":9007199254740993}')
    same = world.register(job_id, key="k", cron="0 9 * * *", payload=b'{ "b": 9007199254740993, "a":1 }')
    assert same.replayed
    other = world.register(job_id, key="k", cron="0 9 * * *", payload=b'{"a":1,"b":9007199254740992}')
    assert other.status == 422


@pytest.mark.parametrize(
    ("sent", "again", "same"),
    [
        (b"1", b"1.0", True),
        (b"1e2", b"100", True),
        (b"[0]", b"[-0.0]", True),
        (b"1.5", b"15e-1", True),
        (b"1", b"1.5", False),
        (b"9007199254740993", b"9007199254740993.0", False),
        (b"1", b'"1"', False),
    ],
)
def test_numbers_are_compared_by_value(sent: bytes, again: bytes, same: bool) -> None:
    world = World()
    job_id = derived_job_id(TENANT, "k")
    world.register(job_id, key="k", cron="0 9 * * *", payload=sent)
    answer = world.register(job_id, key="k", cron="0 9 * * *", payload=again)
    assert (answer.replayed, answer.status) == ((True, 201) if same else (False, 422))


def test_put_makes_updates_and_makes_anew() -> None:
    world = World()
    assert world.register(mode=PUT, delay_sec=10).status == 201
    assert world.register(mode=PUT, delay_sec=10).status == 200
    updated = world.register(mode=PUT, delay_sec=20)
    assert updated.job is not None
    assert (updated.status, updated.job.version) == (200, 2)
    assert world.register(mode=PUT, delay_sec=20).replayed
    world.cancel_job()
    anew = world.register(mode=PUT, delay_sec=11)
    assert anew.status == 201
    assert world.cursor().status is J.ACTIVE
    world.at(11)
    assert len(world.claim("A")) == 1
    assert world.rebuilt().digest() == world.engine.digest()


def test_a_new_incarnation_never_reuses_an_execution_id() -> None:
    world = World()
    ids = set()
    for _ in range(5):
        assert world.register(mode=PUT, run_at="2026-05-01T00:00:00Z").status == 201
        (grant,) = world.claim("A")
        ids.add(grant.execution.execution_id)
        world.complete(grant)
    assert len(ids) == 5


def test_a_taken_id_is_not_overwritten_by_create() -> None:
    world = World()
    world.register(delay_sec=10)
    assert world.register(delay_sec=11).code == "job_exists"


@pytest.mark.parametrize(
    ("kw", "field"),
    [
        ({"cron": "61 * * * *"}, "schedule.cron"),
        ({"cron": "0 0 30 2 *"}, "schedule.cron"),
        ({"cron": "0 9 * * *", "time_zone": "Mars/Phobos"}, "schedule.timeZone"),
        ({"cron": "0 9 * * *", "delay_sec": 5}, "schedule"),
        ({}, "schedule"),
        ({"delay_sec": -1}, "schedule.delaySec"),
        ({"every_sec": 0}, "schedule.everySec"),
        ({"run_at": "2026-09-02"}, "schedule.runAt"),
        ({"delay_sec": 1, "pool": "a/b"}, "target.pool"),
        ({"delay_sec": 1, "pool": ""}, "target.pool"),
        ({"delay_sec": 1, "pool": "x" * 101}, "target.pool"),
        ({"delay_sec": 1, "lease_sec": 0}, "leaseSec"),
        ({"delay_sec": 1, "timeout_sec": 604_801}, "timeoutSec"),
        ({"delay_sec": 1, "retry": RetryPolicy(max_attempts=0)}, "retryPolicy.maxAttempts"),
        ({"delay_sec": 1, "retry": RetryPolicy(backoff_base_sec=0)}, "retryPolicy.backoffBaseSec"),
        ({"delay_sec": 1, "retry": RetryPolicy(backoff_max_sec=5)}, "retryPolicy.backoffMaxSec"),
        ({"delay_sec": 1, "retry": RetryPolicy(backoff_factor=float("nan"))}, "retryPolicy.backoffFactor"),
        ({"job_id": "job_mine", "delay_sec": 1}, "jobId"),
        ({"job_id": "a/b", "delay_sec": 1}, "jobId"),
    ],
)
def test_bad_registrations_name_the_field_and_write_nothing(kw: dict[str, object], field: str) -> None:
    world = World()
    answer = world.register(**kw)  # type: ignore[arg-type]
    assert answer.status == 400
    assert field in [problem.field for problem in answer.errors]
    assert world.log == []


@pytest.mark.parametrize("field", ["exclusion_group", "idempotency_key_template"])
def test_checks_keep_no_long_text(field: str) -> None:
    """What is refused may be as long as a request, and whoever sends one may send a thousand."""
    world, long = World(), 1_000_000
    tracemalloc.start()
    try:
        for n in range(10):
            policies: dict[str, Any] = {field: f"{n}" + "a" * long}
            assert world.register("job-1", delay_sec=0, **policies).status == 400
            world.replies.clear()
        assert tracemalloc.get_traced_memory()[0] < 5 * long
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("command", "item", "more"),
    [
        (ExtendLease, Beat, {}),
        (Complete, Completion, {}),
        (Fail, Failure, {"error": "boom"}),
        (Release, Handback, {}),
    ],
)
def test_no_long_id_is_known_to_be_nobody_s(
    command: type[ExtendLease | Complete | Fail | Release], item: type[LeaseRef], more: dict[str, Any]
) -> None:
    world, long = World(), 1_000_000
    tracemalloc.start()
    try:
        for n in range(10):
            reported = item(execution_id=f"{n}" + "a" * long, worker_id="A", lease_epoch=1, **more)
            assert world.report(command, reported).status == 400
            world.work.clear()
        assert tracemalloc.get_traced_memory()[0] < 5 * long
    finally:
        tracemalloc.stop()


def test_an_oversized_payload_is_413() -> None:
    world = World()
    assert world.register("a", delay_sec=1, payload=b"x" * 262_144).status == 201
    assert world.register("b", delay_sec=1, payload=b"x" * 262_145).status == 413


def test_cancel_ends_pending_and_asks_running() -> None:
    world = World()
    world.register(cron="0 * * * * *")
    world.at(60)
    (grant,) = world.claim("A", lease_sec=3600)
    world.at(120)
    assert world.cancel_job().status == 200
    assert world.cancel_job().status == 200
    statuses = [e.status for e in world.executions()]
    assert sorted(statuses) == sorted([E.RUNNING, E.CANCELLED])
    world.at(600)
    assert world.types.count("ExecutionFired") == 2
    assert world.beat(grant).code == "cancelled"
    assert world.cursor().status is J.CANCELLED


def test_a_cancel_of_more_than_a_thousand_goes_on_in_passes_and_none_is_granted() -> None:
    world = World()
    world.register(cron="0 0 * * *")
    for n in range(1_500):
        dead_id = world.trigger(key=f"k{n}").execution
        assert dead_id is not None
        if dead_id.waiting_for is WaitingFor.WORKER:
            (grant,) = world.claim("A")
            world.fail(grant, retryable=False)
    for execution in [e for e in world.executions() if e.status is E.FAILED]:
        world.replay(execution.execution_id)
    world.now_ms += 1
    world.cancel_job()
    world.at(1)
    assert all(e.status is E.CANCELLED for e in world.executions())
    assert world.claim("A", 1000) == []


def test_the_next_occurrence_can_be_cancelled_before_it_is_due() -> None:
    world = World()
    world.register(cron="0 * * * * *")
    from schemas.ids import scheduled_execution_id

    job = world.engine.state.job(TENANT, "job-1")
    assert job is not None
    next_id = scheduled_execution_id("job-1", job.incarnation, job.first_next_ms)
    answer = world.cancel(next_id)
    assert answer.status == 202
    assert world.cancel(next_id).status == 202
    world.at(120)
    assert [world.sec(g.execution.scheduled_ms) for g in world.claim("A")] == [120]


def test_a_scheduled_one_off_can_be_cancelled_and_its_job_completes() -> None:
    world = World()
    answer = world.register(delay_sec=60)
    from schemas.ids import scheduled_execution_id

    assert answer.job is not None
    execution_id = scheduled_execution_id("job-1", answer.job.incarnation, answer.job.first_next_ms)
    assert world.cancel(execution_id).status == 202
    world.at(120)
    assert world.execution(execution_id).status is E.CANCELLED
    assert world.cursor().status is J.COMPLETED


def test_a_trigger_is_manual_keeps_the_cursor_and_may_bring_its_payload() -> None:
    world = World("2026-05-01T10:00:00Z")
    world.register(cron="0 9 * * *")
    before = world.cursor()
    answer = world.trigger(key="t1", payload=b'{"own":true}')
    assert answer.execution is not None
    assert (answer.status, answer.execution.kind) == (202, ExecutionKind.MANUAL)
    assert world.trigger(key="t1", payload=b'{"own":true}').replayed
    assert world.cursor() == before
    (grant,) = world.claim("A")
    assert grant.content.payload == b'{"own":true}'
    second = world.trigger(key="t2")
    third = world.trigger(key="t3")
    assert second.execution is not None
    assert third.execution is not None
    assert second.execution.waiting_for is WaitingFor.OVERLAP
    assert (third.execution.status, third.execution.reason) == (E.SKIPPED, "overlap")


def test_a_dead_letter_comes_back_with_its_payload_key_and_epoch() -> None:
    world = World()
    execution = dead(world)
    assert (execution.status, execution.reason) == (E.FAILED, "attempts")
    replayed = world.replay(execution.execution_id, key="r")
    assert replayed.execution is not None
    assert (replayed.status, replayed.execution.attempt, replayed.execution.status) == (202, 1, E.PENDING)
    assert world.replay(execution.execution_id, key="r").replayed
    (grant,) = world.claim("B")
    assert grant.execution.lease_epoch == 2
    assert grant.execution.idempotency_key == ""
    assert world.replay(execution.execution_id, key="other").code == "not_dead_lettered"
    world.fail(grant)
    world.replay(execution.execution_id, key="r2", payload=b'"fixed"')
    (third,) = world.claim("B")
    assert third.content.payload == b'"fixed"'
    assert third.execution.idempotency_key == f"{execution.execution_id}:r2"


def test_a_dead_letter_outlives_its_job() -> None:
    world = World()
    execution = dead(world)
    world.at(3 * 86_400)
    assert not world.knows_job()
    assert world.replay(execution.execution_id).status == 202
    (grant,) = world.claim("B")
    assert grant.content.payload == b'{"x":1}'
    world.complete(grant)
    world.at(5 * 86_400)
    assert world.executions() == []


@pytest.mark.parametrize("what", ["cancel_job", "cancel", "trigger", "replay"])
def test_unknown_things_are_not_found(what: str) -> None:
    world = World()
    name = "nothing" if what in ("cancel_job", "trigger") else "nothing.1.1.s"
    answer: CommandDone = getattr(world, what)(name)
    assert (answer.status, answer.code) == (404, "not_found")


def test_a_command_that_raises_is_quarantined_and_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from streams.core import engine

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    world = World()
    monkeypatch.setattr(engine, "trigger_job", broken)
    world.register(delay_sec=1)
    log = list(world.log)
    answer = world.trigger()
    assert (answer.status, answer.code) == (500, "internal_error")
    assert len(world.quarantined) == 1
    assert world.log[:-1] == log
    assert world.types[-1] == "AlertRaised"
    world.at(1)
    assert len(world.executions()) == 1


def test_a_time_driven_bug_pauses_its_job_which_can_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    from streams.core.handlers import scheduling, timing

    real = scheduling.settle

    def broken(tx: object, job: object) -> object:
        if job.job_id == "bad":  # type: ignore[attr-defined]
            raise ZeroDivisionError("a bug")
        return real(tx, job)  # type: ignore[arg-type]

    world = World()
    world.register("bad", cron="* * * * * *")
    world.register("good", cron="* * * * * *")
    monkeypatch.setattr(timing, "settle", broken)
    world.at(1)
    assert world.cursor("bad").status is J.PAUSED
    assert world.cursor("bad").paused_reason == "internal_error"
    assert [e.job_id for e in world.executions()] == ["good"]
    assert "internal_error" in [alert.kind for alert in world.alerts]
    assert world.cancel_job("bad").status == 200


def test_a_misrouted_command_is_refused() -> None:
    class Elsewhere:
        def partition_of(self, tenant: str, job_id: str) -> int:
            return 3

        def partitions_of(self, tenant: str) -> list[int]:
            return [3]

        def settings_of(self, tenant: str) -> Tenant:
            return Tenant(tenant=tenant)

    world = World()
    world.engine._router = Elsewhere()
    assert world.register(delay_sec=1).code == "misrouted"


def test_credit_is_absolute_and_grants_in_flight_count() -> None:
    world = World()
    for n in range(6):
        world.register(f"j{n}", delay_sec=0)
    world.run()
    assert len(granted(world.request(Slot(worker_id="A", credit=2), grants_seen=0))) == 2
    # The asker wrote this before it saw both grants, which answer the worker's claim: nothing more may come.
    assert granted(world.request(Slot(worker_id="A", credit=9), grants_seen=0)) == []
    assert granted(world.request(Slot(worker_id="A", credit=9), grants_seen=1)) == []
    assert len(granted(world.request(Slot(worker_id="B", credit=1), grants_seen=1))) == 1
    assert len(granted(world.request(Slot(worker_id="A", credit=2), grants_seen=2))) == 2
    assert granted(world.request(Slot(worker_id="A", credit=2), grants_seen=5, seq=1)) == []


def test_a_repeated_claim_is_answered_with_what_it_still_holds() -> None:
    world = World()
    for n in range(3):
        world.register(f"j{n}", delay_sec=0)
    world.run()
    first = world.claim("A", 2, claim_id="c1", park_sec=5, ack=True)
    assert len(first) == 2
    world.complete(first[0])
    answer = seen(world.request(Slot(worker_id="A", credit=2, claim_id="c1"), ack=True))
    assert [g.execution.execution_id for g in answer.held] == [first[1].execution.execution_id]


def test_interest_without_credit_is_hinted_once() -> None:
    world = World()
    world.request()
    world.register(delay_sec=0)
    assert [hint.backlog for hint in hints(world.replies)] == [1]
    world.register("other", delay_sec=0)
    assert len(hints(world.replies)) == 1
    world.request()
    assert len(hints(world.replies)) == 2


def test_priorities_share_by_weight_and_low_never_starves() -> None:
    from schemas.entities import Priority

    world = World()
    for n in range(42):
        for priority in Priority:
            world.register(f"{priority.value}-{n}", delay_sec=0, priority=priority)
    world.run()
    first = [g.execution.priority for _ in range(21) for g in world.claim("A")]
    assert [first.count(p) for p in (Priority.HIGH, Priority.NORMAL, Priority.LOW)] == [16, 4, 1]


def test_large_payloads_are_cut_into_replies_that_the_broker_takes() -> None:
    from schemas.codec import encode
    from schemas.replies import Granted

    world = World()
    for n in range(8):
        world.register(f"j{n}", delay_sec=0, payload=b"x" * 262_144)
    world.run()
    replies = world.request(Slot(worker_id="A", credit=8))
    parcels = [r for r in replies if isinstance(r, Granted)]
    assert sum(len(p.grants) for p in parcels) == 8
    assert all(len(encode(p)) < 1_000_000 for p in parcels)
    assert [p.number for p in parcels] == sorted({p.number for p in parcels})
    assert parcels[-1].number == 8


def test_an_aborted_transaction_leaves_no_trace() -> None:
    world = World()
    world.register("a", delay_sec=0)
    world.register("b", delay_sec=1)
    digest = world.engine.digest()
    world.request(Slot(worker_id="Z", credit=0))
    world.now_ms += 1_000
    engine: Engine = world.engine
    engine.begin(world.now_ms, world.chance.random)
    engine.fire(world.now_ms, 100)
    engine.grant()
    assert engine.decided().events
    engine.abort()
    assert engine.digest() == digest
    world.run()
    assert len(world.claim("A", 5)) == 2
    assert rebuild(world.log).digest() == engine.digest()


def test_what_one_pass_may_not_grant_is_granted_by_the_next() -> None:
    world = World()
    world.configure(max_running=10_000, registrations_per_sec=10_000)
    for n in range(2_500):
        world.register(f"j{n}", delay_sec=0)
    world.run()
    workers = [Slot(worker_id=f"w{n}", credit=500) for n in range(6)]
    assert len(granted(world.request(*workers))) == 2_500


def test_a_request_outlives_an_aborted_transaction() -> None:
    from schemas.commands import RequestWork
    from streams.core.transaction import Source

    world = World()
    world.register(delay_sec=0)
    world.run()
    slot = Slot(worker_id="A", credit=1)
    request = RequestWork(
        **world._envelope(), pool="default", seq=1, grants_seen=0, park_sec=20, slots=(slot,)
    )
    engine = world.engine
    for _ in range(2):  # the command is read again after the abort
        engine.begin(world.now_ms, world.chance.random)
        engine.decide(request, Source("work", 1, world.now_ms))
        engine.grant()
        assert len(engine.decided().events) == 1
        engine.abort()
    assert len(granted(world.run())) == 1


def test_a_key_that_is_used_again_after_a_day_makes_another_execution() -> None:
    """A pair of execution id and epoch is granted once for ever."""
    world = World()
    world.register(cron="0 0 1 1 *")
    pairs = set()
    for day in range(3):
        world.at(day * 90_000)
        first = world.trigger(key="same")
        assert world.trigger(key="same").replayed
        assert first.execution is not None
        (grant,) = world.claim("A")
        pairs.add((grant.execution.execution_id, grant.execution.lease_epoch))
        world.complete(grant)
    assert len(pairs) == 3


@pytest.mark.parametrize("reply_partition", [-2, REPLY_PARTITIONS, 2**31 - 1])
def test_a_reply_partition_that_is_not_there_is_refused_and_not_written_to(reply_partition: int) -> None:
    """Of every kind of command: a writer that fails would end everybody's transaction."""
    world = World()
    (grant,) = dead_and_claimed(world)
    common: dict[str, Any] = {
        "command_id": "c",
        "tenant": TENANT,
        "actor": "a",
        "session": "s",
        "reply_partition": reply_partition,
    }
    events = len(world.log)
    for command in (
        CancelJob(**common, job_id="job-1"),
        ConfigureTenant(**common, weight=2),
        Complete(**common, items=(Completion(execution_id=grant, worker_id="A", lease_epoch=1),)),
        RequestWork(**common, pool="default", seq=1, grants_seen=0, park_sec=20, slots=()),
    ):
        assert check(command)[0].field == "replyPartition"
        assert world.run(command) == []
    assert len(world.log) == events


def dead_and_claimed(world: World) -> list[str]:
    world.register("job-1", delay_sec=0)
    world.run()
    return [grant.execution.execution_id for grant in world.claim("A")]
