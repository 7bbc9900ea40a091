"""Found by a hostile reading of the core: occurrences twice or never, jobs that wait for ever."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from schemas import codec, ids
from schemas.codec import encode
from schemas.commands import CancelJob
from schemas.entities import CatchUp, WaitingFor
from schemas.entities import ExecutionStatus as E
from schemas.entities import JobStatus as J
from schemas.events import CursorMoved
from streams.core import keys
from streams.core.engine import Engine
from streams.core.handlers import timing
from streams.store.kv import Batch
from streams.store.memory import MemoryStore
from tests.unit.core.world import (
    NO_RETRY,
    TENANT,
    World,
    dead_letters,
    rebuild,
    work_request,
)

DAY = 86_400


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
    cursor = replace(world.cursor(), next_ms=world.cursor().next_ms - 3_600_000, next_due_ms=0)
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


def test_a_replay_that_waits_for_another_goes_on_although_their_job_is_forgotten() -> None:
    world = World()
    world.register(every_sec=31_536_000, retry=NO_RETRY)
    first, second, third = dead_letters(world, 3)
    world.cancel_job()
    world.at(3 * DAY)
    assert not world.knows_job()
    for letter in (first, second, third):
        world.replay(letter)
    assert world.execution(second).waiting_for is WaitingFor.OVERLAP
    (grant,) = world.claim("A")
    world.cancel(third)
    assert world.claim("A") == []
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
    before = world.types.count("ExecutionClaimed")
    world.run(
        CancelJob(**world._envelope(), job_id="job-1"), work_request(world, 10_000, 1_000, grants_seen=1_100)
    )
    world.at(5)
    assert world.types.count("ExecutionClaimed") == before
    assert not world.engine.state.has_open(TENANT, "job-1")


def test_a_cancel_may_take_any_number_of_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    world = replayed_crowd(7)
    monkeypatch.setattr("streams.core.handlers.cancelling.ENTITIES_PER_COMMAND_MAX", 2)
    world.now_ms += 1_000
    world.cancel_job()
    world.at(5)
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


def test_a_large_payload_is_decided_without_being_kept() -> None:
    world = World()
    world.register(delay_sec=0, payload=b"x" * 200_000)
    job_key = ids.job_key(TENANT, "job-1")
    assert job_key not in world.engine.state._decoded._kept.newer
    assert world.knows_job()
    (grant,) = world.claim("A")
    assert len(grant.content.payload) == 200_000


@pytest.mark.parametrize("waits", ["for its lease", "to be tried again"])
def test_an_execution_that_cannot_be_read_pauses_its_job_alone(waits: str) -> None:
    world = World()
    world.register("damaged", every_sec=DAY)
    world.trigger("damaged")
    world.register("whole", delay_sec=60)
    (grant,) = world.claim("A", lease_sec=60)
    if waits == "to be tried again":
        world.release(grant, delay_sec=60)
    key = ids.key_of(grant.execution)
    world.store.write(Batch({keys.entity(key): b"no record"}))
    world.engine = Engine(0, world.store, codec, world.router)
    world.at(60)
    assert [alert.kind for alert in world.alerts] == ["internal_error"]
    assert world.cursor("damaged").status is J.PAUSED
    assert [each.execution.job_id for each in world.claim("B")] == ["whole"]
