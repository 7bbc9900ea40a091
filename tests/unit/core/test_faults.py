"""Faults that a hostile reader of the core found, each held by a test."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from schemas import ids
from schemas.codec import encode
from schemas.commands import (
    CancelJob,
    Completion,
    RegisterJob,
    RegisterMode,
    RequestWork,
    ScheduleSpec,
    Slot,
    TriggerJob,
)
from schemas.entities import CatchUp, Content, Policies, RetryPolicy, WaitingFor
from schemas.entities import ExecutionStatus as E
from schemas.entities import JobStatus as J
from schemas.events import CursorMoved
from schemas.replies import Granted, WorkSeen
from streams.core import limits, state, timebuckets
from streams.core.engine import Engine
from streams.core.handlers import cancelling, timing, triggering
from streams.core.transaction import Source, Transaction
from streams.core.validation import check, check_item
from streams.store.memory import MemoryStore
from streams.store.overlay import Overlay
from tests.unit.core.world import TENANT, World, hints, rebuild, seen

DAY = 86_400
NO_RETRY = RetryPolicy(max_attempts=1)


def dead_letters(world: World, count: int, job_id: str = "job-1") -> list[str]:
    """So many given-up executions of one job."""
    made = []
    for n in range(count):
        world.trigger(job_id, key=f"{job_id}-{n}")
        (grant,) = world.claim("A")
        world.fail(grant, retryable=False)
        made.append(grant.execution.execution_id)
    return made


def registration(world: World, delay_sec: int, mode: RegisterMode = RegisterMode.CREATE) -> RegisterJob:
    return RegisterJob(
        **world._envelope(),
        job_id="job-1",
        mode=mode,
        schedule=ScheduleSpec(delay_sec=delay_sec),
        pool="default",
        content=Content(name="n", task="t", payload=b'"new"'),
        policies=Policies(),
    )


# -- an occurrence twice or never


def test_a_one_off_does_not_run_again_when_its_execution_is_forgotten_before_a_trigger_ends() -> None:
    world = World()
    world.register(delay_sec=5, misfire_window_sec=2_592_000)
    world.at(5)
    (scheduled,) = world.claim("A")
    world.trigger(key="t")
    world.complete(scheduled)
    (manual,) = world.claim("A")
    world.release(manual, delay_sec=7 * DAY)
    world.at(3 * DAY)
    assert [e.execution_id for e in world.executions()] == [manual.execution.execution_id]
    assert world.cursor().next_ms == 0
    world.trigger(key="t2")
    world.at(8 * DAY)
    while grants := world.claim("A"):
        world.complete(grants[0])
    assert world.cursor().status is J.COMPLETED
    fired = [key for (key, _), kind in zip(world.log, world.types, strict=True) if kind == "ExecutionFired"]
    assert len([key for key in fired if key.endswith(".s")]) == 1
    assert rebuild(world.log).digest() == world.engine.digest()


def test_a_cursor_that_its_schedule_does_not_know_any_more_is_not_stuck() -> None:
    """New zone data may move what the cursor holds; the job must go on, and the occurrence is not lost."""
    world = World()
    world.register(cron="0 12 * * *")
    cursor = replace(world.cursor(), next_ms=world.cursor().next_ms - 3_600_000)
    event = CursorMoved(at_ms=world.now_ms, actor="", cause="", cursor=cursor)
    world.engine.apply(ids.key_of(cursor), encode(event))
    world.store.write(world.engine.commit())
    world.engine.written()
    world.jump("2026-05-01T11:30:00Z")
    assert world.cursor().next_ms > world.now_ms
    assert [e.scheduled_ms for e in world.executions()] == [cursor.next_ms]


def test_a_kept_misfire_that_was_executed_before_new_zone_data_is_left_out() -> None:
    world = World()
    world.register(cron="* * * * *")
    world.at(60)
    (grant,) = world.claim("A")
    world.complete(grant)
    first = grant.execution.scheduled_ms
    again = CatchUp(after_ms=first - 1, after_local="", from_ms=first, to_ms=first + 60_000, count=2)
    cursor = replace(world.cursor(), catch_up=(again,), next_ms=first + 120_000)
    world.engine.apply(
        ids.key_of(cursor), encode(CursorMoved(at_ms=world.now_ms, actor="", cause="", cursor=cursor))
    )
    world.store.write(world.engine.commit())
    world.engine.written()
    world.trigger()
    (manual,) = world.claim("A")
    world.complete(manual)
    (second,) = world.claim("A")
    assert (second.execution.scheduled_ms, world.cursor().catch_up) == (first + 60_000, ())


# -- waiting for ever


def test_a_replay_that_waits_for_another_goes_on_although_their_job_is_forgotten() -> None:
    world = World()
    world.register(every_sec=31_536_000, retry=NO_RETRY)
    first, second = dead_letters(world, 2)
    world.cancel_job()
    world.at(3 * DAY)
    assert not world.knows_job()
    world.replay(first)
    world.replay(second)
    assert world.execution(second).waiting_for is WaitingFor.OVERLAP
    (grant,) = world.claim("A")
    world.complete(grant)
    assert [g.execution.execution_id for g in world.claim("A")] == [second]


def test_one_at_a_time_holds_beyond_a_thousand_that_wait() -> None:
    world = World()
    world.register(every_sec=31_536_000, retry=NO_RETRY)
    letters = sorted(dead_letters(world, 1_003))
    world.replay(letters[-1])
    (grant,) = world.claim("A")
    for execution_id in letters[:-1]:
        world.replay(execution_id)
    world.trigger(key="last")
    assert world.claim("B", 10) == []
    world.cancel(letters[0])
    assert world.claim("B", 10) == []
    world.complete(grant)
    assert len(world.claim("B", 10)) == 1


def test_replays_wait_outside_the_queue_limit() -> None:
    world = World()
    world.register(cron="0 * * * * *", retry=NO_RETRY)
    world.at(60)
    (grant,) = world.claim("A", lease_sec=3600)
    letter = grant.execution.execution_id
    world.fail(grant)
    world.at(120)
    (running,) = world.claim("A", lease_sec=3600)
    world.replay(letter)
    world.at(180)
    waiting = sorted(world.sec(e.scheduled_ms) for e in world.executions() if e.status is E.PENDING)
    assert waiting == [60, 180]
    world.at(240)
    assert len([e for e in world.executions() if e.status is E.PENDING]) == 2
    world.complete(running)
    assert [g.execution.execution_id for g in world.claim("A")] == [letter]


def test_a_replay_of_a_cancelled_job_is_not_cancelled_when_the_job_is_looked_at() -> None:
    world = World()
    world.register(every_sec=31_536_000, retry=NO_RETRY)
    (letter,) = dead_letters(world, 1)
    world.cancel_job()
    world.at(DAY - 10)
    world.replay(letter)
    (grant,) = world.claim("A")
    world.at(DAY + 10)
    assert world.execution(letter).cancel_requested_ms == 0
    assert world.complete(grant).status == 200


def replayed_crowd(count: int) -> World:
    """A job with so many replays in line, all of them waiting."""
    world = World()
    world.register(every_sec=31_536_000, retry=NO_RETRY)
    for letter in dead_letters(world, count):
        world.replay(letter)
    return world


def test_nothing_of_a_job_is_granted_while_its_cancel_goes_on() -> None:
    world = replayed_crowd(1_100)
    world.now_ms += 1_000
    slot = Slot(worker_id="B", credit=1_000)
    envelope = world._envelope()
    request = RequestWork(
        **envelope, pool="default", seq=10_000, grants_seen=1_100, park_sec=60, slots=(slot,)
    )
    before = world.types.count("ExecutionClaimed")
    world.run(CancelJob(**world._envelope(), job_id="job-1"), request)
    world.at(5)
    assert world.types.count("ExecutionClaimed") == before
    assert not world.engine.state.has_open(TENANT, "job-1")


def test_a_replay_right_after_the_cancel_is_wanted() -> None:
    world = World()
    world.register(every_sec=31_536_000, retry=NO_RETRY)
    (letter,) = dead_letters(world, 1)
    world.cancel_job()
    world.replay(letter)
    world.at(1)
    assert [g.execution.execution_id for g in world.claim("A")] == [letter]


def test_a_cancel_goes_on_after_a_rebuild_from_the_log() -> None:
    world = replayed_crowd(1_100)
    world.now_ms += 1_000
    mark = len(world.log)
    engine = world.engine
    world.cancel_job()
    # The log up to the end of the transaction of the cancel itself.
    first = max(n for n, (key, _) in enumerate(world.log) if key.startswith("cursor:") and n >= mark)
    log = world.log[: first + 1_001]
    store = MemoryStore()
    again = World()
    again.store = store
    again.engine = Engine(0, store, engine.state._codec, engine._router)
    for key, value in log:
        again.engine.apply(key, value)
    store.write(again.engine.commit())
    again.engine.written()
    assert again.engine.state.has_open(TENANT, "job-1")
    again.start_ms = again.now_ms = world.now_ms
    again.at(10)
    assert not again.engine.state.has_open(TENANT, "job-1")


def test_a_job_and_its_execution_whose_timer_raised_come_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    real = timing._visit_lease

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    world = World()
    world.register(cron="0 * * * * *")
    world.at(60)
    (grant,) = world.claim("A", lease_sec=10)
    monkeypatch.setattr(timing, "_visit_lease", broken)
    world.at(75)
    assert world.cursor().status is J.PAUSED
    assert world.execution(grant.execution.execution_id).status is E.RUNNING
    monkeypatch.setattr(timing, "_visit_lease", real)
    world.cancel_job()
    world.at(400)
    assert world.execution(grant.execution.execution_id).status is E.CANCELLED


def test_a_retry_due_exactly_at_the_old_leases_end_does_not_wait_for_the_lease_clock() -> None:
    world = World()
    world.register(delay_sec=0)
    (grant,) = world.claim("A", lease_sec=60)
    world.at(50)
    world.fail(grant, retry_after_sec=10)
    world.now_ms += 10_000
    world.run(settled=False)
    assert world.execution(grant.execution.execution_id).status is E.PENDING


# -- leases and outcomes


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
        raise ZeroDivisionError("a bug")

    world = World()
    world.register(every_sec=10)
    (digest, log) = world.engine.digest(), list(world.log)
    monkeypatch.setattr("streams.core.engine.trigger_job", broken)
    engine = world.engine
    engine.begin(world.now_ms, world.chance.random)
    command = TriggerJob(**world._envelope(), job_id="job-1", payload=b"own")
    engine.decide(command, Source("commands", 1, 0))
    assert engine.state.timers.savepoint() == engine.state.leases.savepoint() == 0
    assert engine.decided().events == []
    assert not engine.state.has_open(TENANT, "job-1")
    world.store.write(engine.commit())
    engine.written()
    assert (engine.digest(), world.log) == (digest, log)
    monkeypatch.undo()
    assert world.run(command)[0].status == 202  # type: ignore[union-attr]
    assert len(world.claim("A")) == 1


# -- parking


def test_a_hint_of_an_aborted_transaction_is_given_again() -> None:
    world = World()
    world.request()
    engine = world.engine
    job = registration(world, 0)
    engine.begin(world.now_ms, world.chance.random)
    engine.decide(job, Source("commands", 1, 0))
    engine.grant()
    engine.abort()
    assert len(hints(world.run(job))) == 1


def test_workers_of_a_session_take_turns_over_renewed_requests() -> None:
    world = World()
    got: list[str] = []
    for n in range(6):
        slots = (Slot(worker_id="big", credit=50), Slot(worker_id="small", credit=1))
        world.request(*slots)
        world.register(f"j{n}", delay_sec=0)
        got += [e.worker_id for e in world.executions() if e.job_id == f"j{n}"]
    assert set(got) == {"big", "small"}


def test_grants_with_long_errors_fit_replies() -> None:
    world = World()
    for n in range(200):
        world.register(f"j{n}", delay_sec=0)
    for grant in world.claim("A", 200):
        world.fail(grant, "\u20ac" * 8_000, retry_after_sec=1)
    world.at(1)
    replies = world.request(Slot(worker_id="A", credit=200))
    parcels = [r for r in replies if isinstance(r, Granted)]
    assert sum(len(p.grants) for p in parcels) == 200
    assert all(len(encode(p)) < 1_000_000 for p in parcels)


def test_what_a_claim_still_holds_fits_replies() -> None:
    world = World()
    for n in range(8):
        world.register(f"j{n}", delay_sec=0, payload=b"x" * 262_144)
    world.claim("A", 8, claim_id="c")
    replies = world.request(Slot(worker_id="A", credit=8, claim_id="c"), ack=True)
    parcels = [r for r in replies if isinstance(r, Granted | WorkSeen)]
    held = [g for p in parcels for g in (p.grants if isinstance(p, Granted) else p.held)]
    assert len({g.execution.execution_id for g in held}) == 8
    assert all(len(encode(p)) < 1_000_000 for p in parcels)


def test_abort_without_a_transaction_changes_nothing() -> None:
    """The runtime aborts all partitions of a transaction in doubt, also those with positions alone."""
    world = World()
    world.register(delay_sec=1)
    world.engine.abort()
    world.at(1)
    assert len(world.executions()) == 1


# -- bounds


def test_the_wheel_is_bounded_also_for_what_is_filed_while_it_turns() -> None:
    store = MemoryStore()
    kv = Overlay(store)
    buckets = timebuckets.TimeBuckets(kv, b"g")
    buckets.load_ahead(0)
    filed = [(n * 7_919) % 50_000 + 1 for n in range(20_000)]
    for at, due in enumerate(filed):
        buckets.add(due, TENANT, f"k{at}")
        if at % 100 == 0:
            store.write(kv.take())
            buckets.written()
            assert sum(len(b.heap) for b in buckets._buckets.values()) <= 2 * limits.WHEEL_TENANT_MAX + 100
    store.write(kv.take())
    buckets.written()
    popped: list[str] = []
    for now in range(0, 61_000, 500):
        while got := buckets.pop(now, 1_000):
            assert all(filed[int(key[1:])] <= now for key in got)
            popped += got
    assert sorted(popped) == sorted(f"k{at}" for at in range(20_000))


def test_a_full_cache_stays_cheap_and_keeps_no_large_values() -> None:
    world = World()
    remembered = world.engine.state._remember
    for n in range(state.CACHED_MAX + 10):
        remembered(f"k{n}", None, 0)
    assert len(world.engine.state._cache) <= state.CACHED_MAX
    # Room is made for many at once: a dict whose first key is removed again and again searches for it.
    assert len(world.engine.state._cache) <= state.CACHED_MAX // 2 + 20
    assert world.engine.state._cache.get(f"k{state.CACHED_MAX + 9}", 1) is None
    world.register(delay_sec=0, payload=b"x" * 200_000)
    job_key = ids.job_key(TENANT, "job-1")
    assert job_key not in world.engine.state._cache
    assert world.knows_job()
    (grant,) = world.claim("A")
    assert len(grant.content.payload) == 200_000


class Timers:
    """Time buckets on a store of their own."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.reopen()

    def reopen(self) -> None:
        self.kv = Overlay(self.store)
        self.buckets = timebuckets.TimeBuckets(self.kv, b"g")

    def add(self, due_ms: int, tenant: str, key: str) -> None:
        self.buckets.add(due_ms, tenant, key)

    def write(self) -> None:
        self.store.write(self.kv.take())
        self.buckets.written()

    def pop(self, now_ms: int, limit: int) -> list[str]:
        taken = self.buckets.pop(now_ms, limit)
        self.write()
        return taken

    def in_memory(self) -> int:
        return sum(len(bucket.heap) for bucket in self.buckets._buckets.values())


def test_a_tenant_with_many_minutes_overdue_holds_up_nobody() -> None:
    timers = Timers()
    for minute in range(120):
        for n in range(100):
            timers.add(minute * 60_000 + n, "big", f"{minute}-{n}")
    timers.add(120 * 60_000, "small", "the-one")
    timers.write()
    assert "the-one" in timers.pop(121 * 60_000, 1_000)


def test_tenants_take_turns_over_passes() -> None:
    timers = Timers()
    for tenant in range(30):
        for n in range(400):
            timers.add(n, f"t{tenant:02}", f"{tenant}-{n}")
    timers.add(30_000, "t99", "the-one")
    timers.write()
    passes = [timers.pop(40_000, 640) for _ in range(4)]
    assert "the-one" in [key for keys in passes for key in keys]
    while got := timers.pop(40_000, 640):
        passes.append(got)
    everything = [key for keys in passes for key in keys]
    assert len(everything) == len(set(everything)) == 30 * 400 + 1


def test_what_fell_due_in_an_outage_does_not_fill_the_memory() -> None:
    timers = Timers()
    for minute in range(100):
        for n in range(300):
            timers.add(minute * 60_000 + n, TENANT, f"{minute}-{n}")
    timers.write()
    popped = timers.pop(10_000_000, 1)
    assert timers.in_memory() <= 100 * timebuckets.SHARE
    while got := timers.pop(10_000_000, 1_000):
        popped += got
        assert timers.in_memory() <= 100 * timebuckets.SHARE
    assert len(popped) == len(set(popped)) == 30_000


def test_a_restart_begins_behind_what_was_handled_and_files_nothing_there() -> None:
    timers = Timers()
    for n in range(100):
        timers.add(1_000 + n, TENANT, f"k{n}")
    timers.write()
    timers.buckets.advance_floor(1_049)
    first = timers.pop(1_049, 1_000)
    timers.reopen()
    timers.add(1_010, TENANT, "late")  # as a replay would
    timers.write()
    assert first == [f"k{n}" for n in range(50)]
    assert sorted(timers.pop(2_000, 1_000)) == sorted(["late", *[f"k{n}" for n in range(50, 100)]])


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


# -- bad input


ENVELOPE: dict[str, Any] = {
    "command_id": "c",
    "tenant": TENANT,
    "actor": "a",
    "reply_partition": 0,
    "session": "s",
}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"grants_seen": 2**63 - 1}, "grantsSeen"),
        ({"grants_seen": -1}, "grantsSeen"),
        ({"seq": -1}, "seq"),
        ({"session": "s" * 300}, "session"),
        ({"session": "a\x00b"}, "session"),
        ({"actor": "a" * 300}, "actor"),
        ({"command_id": "c\ud800"}, "commandId"),
        ({"command_id": "c\x00"}, "commandId"),
        ({"reply_partition": -1}, "session"),
    ],
)
def test_bad_requests_name_the_field(changes: dict[str, Any], field: str) -> None:
    request: dict[str, Any] = {"pool": "p", "seq": 1, "grants_seen": 0, "park_sec": 1, **ENVELOPE, **changes}
    assert field in [problem.field for problem in check(RequestWork(**request))]


@pytest.mark.parametrize(
    "execution_id", ["j.1.1." + "s" * 1_000, "j.1.\x00.s", "j.1.1.\ud800", "j. .1.s", "j.1.1.s\n"]
)
def test_no_execution_has_such_an_id(execution_id: str) -> None:
    assert ids.job_id_of(execution_id) is None
    item = Completion(execution_id=execution_id, worker_id="A", lease_epoch=1)
    assert [problem.field for problem in check_item(item)] == ["executionId"]


def test_ranges_are_told_in_plain_numbers() -> None:
    answer = World().register(delay_sec=1, timeout_sec=9_999_999_999)
    assert answer.detail == "timeoutSec: is 1 to 604800"
    answer = World().register(every_sec=2**40)
    assert answer.detail == "schedule.everySec: is 1 to 31536000"
