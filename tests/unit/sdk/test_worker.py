"""The worker against a fake server, in time moved by hand: claims, leases, cancels, and its end."""

import asyncio
import os
import signal
import threading
from typing import Any

import pytest
from horarium import Context, Unauthorized

from tests.unit.sdk.bench import Bench, held_until, moving
from tests.unit.sdk.manual_clock import until


async def test_lse_019_a_draining_worker_keeps_its_lease(bench: Bench) -> None:
    finish = asyncio.Event()

    @bench.app.handler("work")
    async def work(ctx: Context[Any]) -> str:
        await finish.wait()
        return "done"

    loop = asyncio.get_running_loop()
    task = bench.server.add("e1")
    worker = bench.start()
    await until(lambda: task.status == "RUNNING")
    bench.server.add("e2", task="other").status = "HIDDEN"
    loop.add_signal_handler(signal.SIGTERM, worker.drain)
    try:
        await held_until(bench, "e1", 10)
        os.kill(os.getpid(), signal.SIGTERM)
        await until(lambda: worker.draining)
        bench.server.tasks["e2"].status = "PENDING"
        await held_until(bench, "e1", 100)
        assert worker.running == 1
        finish.set()
        await until(lambda: task.status == "COMPLETED")
        await bench.drained()
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
    assert bench.server.grants.count("e1") == 1
    assert bench.server.tasks["e2"].status in ("PENDING", "RETRY")
    assert task.outcome["result"] == "done"
    assert task.epoch == 1


@pytest.mark.parametrize("when", ["idle", "busy"])
async def test_a_drained_worker_claims_nothing_new(bench: Bench, when: str) -> None:
    finish = asyncio.Event()

    @bench.app.handler("work")
    async def work(ctx: Context[Any]) -> None:
        await finish.wait()

    if when == "busy":
        bench.server.add("e1")
    worker = bench.start(slots=1)
    await until(lambda: bool(worker.running) if when == "busy" else bool(bench.server.paths("/claim")))
    worker.drain()
    finish.set()
    await bench.drained()
    claims = len(bench.server.paths("/claim"))
    bench.server.add("late")
    await bench.clock.advance_to(500)
    assert len(bench.server.paths("/claim")) == claims


async def test_lse_017_a_cancelled_execution_stops_and_is_not_overwritten(bench: Bench) -> None:
    told: list[str] = []

    @bench.app.handler("work")
    async def work(ctx: Context[Any]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            told.append(ctx.cancel_reason)

    task = bench.server.add("e1")
    worker = bench.start()
    await until(lambda: worker.running == 1)
    await bench.clock.advance_to(5)
    bench.server.cancel("e1")
    await bench.clock.advance_to(20)
    await until(lambda: bool(told))
    assert told == ["cancelled"]
    await bench.drained()
    assert task.status == "CANCELLED"
    assert not bench.server.paths("/outcomes")


async def test_a_sync_handler_sees_the_cancel_and_its_outcome_is_dropped(bench: Bench) -> None:
    threads: list[str] = []

    @bench.app.handler("work")
    def work(ctx: Context[Any]) -> str:
        threads.append(threading.current_thread().name)
        assert ctx.cancelled.wait(10)
        return "must not be reported"

    bench.server.add("e1")
    worker = bench.start()
    await until(lambda: worker.running == 1)
    bench.server.cancel("e1")
    await bench.clock.advance_to(20)
    await until(lambda: worker.running == 0)
    await bench.drained()
    assert threads == ["horarium-e1"]
    assert not bench.server.paths("/outcomes")


async def test_lse_015_leases_are_counted_by_the_servers_clock_alone(bench: Bench) -> None:
    """The fake server lives in 2001: a beat at a third of 60 s shows that no local time was used."""

    @bench.app.handler("work")
    async def work(ctx: Context[Any]) -> None:
        await asyncio.Event().wait()

    task = bench.server.add("e1")
    worker = bench.start()
    await until(lambda: worker.running == 1)
    await bench.clock.advance_to(19)
    assert not bench.server.paths("/heartbeats")
    await bench.clock.advance_to(20)
    await until(lambda: task.until >= 79.75)


async def test_a_lease_that_cannot_be_extended_is_given_up_at_its_end(bench: Bench) -> None:
    reasons: list[str] = []

    @bench.app.handler("work")
    async def work(ctx: Context[Any]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(ctx.cancel_reason)

    bench.server.add("e1")
    worker = bench.start()
    await until(lambda: worker.running == 1)
    for _ in range(200):
        bench.server.plan("/heartbeats", 503, {"code": "outcome_unknown"})
    moment = 0.0
    while not reasons:
        assert moment < 62
        moment += 0.5
        await bench.clock.advance_to(moment)
        await asyncio.sleep(0.002)
    assert 59 < moment <= 61
    assert reasons == ["lease_lost"]
    assert len(bench.server.paths("/heartbeats")) > 3


async def test_beats_of_many_executions_share_a_request(bench: Bench) -> None:
    @bench.app.handler("work")
    async def work(ctx: Context[Any]) -> None:
        await asyncio.Event().wait()

    worker = bench.start()
    for number in range(5):
        await bench.clock.advance_to(number)
        bench.server.add(f"e{number}")
        await until(lambda number=number: worker.running == number + 1)  # type: ignore[misc]
    await bench.clock.advance_to(20)
    await until(lambda: all(task.until >= 79 for task in bench.server.tasks.values()))
    assert len(bench.server.paths("/heartbeats")) == 1


async def test_never_more_than_its_slots_at_once(bench: Bench) -> None:
    now = most = 0

    @bench.app.handler("work")
    def work(ctx: Context[Any]) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        together.wait(0.05)
        with lock:
            now -= 1

    lock, together = threading.Lock(), threading.Event()
    for number in range(25):
        bench.server.add(f"e{number}")
    bench.start(slots=3)
    await until(lambda: all(task.status == "COMPLETED" for task in bench.server.tasks.values()))
    await bench.drained()
    assert most == 3
    assert len(bench.server.grants) == 25
    assert max(seen.body["max"] for seen in bench.server.paths("/claim")) == 3


async def test_a_claim_whose_answer_was_lost_is_repeated_under_its_id(bench: Bench) -> None:
    runs: list[int] = []

    @bench.app.handler("work")
    async def work(ctx: Context[Any]) -> None:
        runs.append(ctx.lease_epoch)

    task = bench.server.add("e1")
    bench.server.plan("/claim", do_it_first=True)
    bench.start()
    await until(lambda: len(bench.server.paths("/claim")) == 1)
    await moving(bench, lambda: task.status == "COMPLETED")
    first, second = bench.server.paths("/claim")[:2]
    assert first.body["claimId"] == second.body["claimId"]
    assert runs == [1]
    assert bench.server.grants == ["e1"]


async def test_what_does_not_end_in_time_is_cancelled_and_released(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    cancelled: list[tuple[str, float]] = []
    never = threading.Event()

    @bench.app.handler("async")
    async def waits(ctx: Context[Any]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append((ctx.cancel_reason, bench.clock.monotonic()))

    @bench.app.handler("sync")
    def stubborn(ctx: Context[Any]) -> None:
        never.wait(20)

    bench.server.add("e1", task="async")
    bench.server.add("e2", task="sync")
    worker = bench.start(drain_sec=30, cancel_grace_sec=5)
    await until(lambda: worker.running == 2)
    caplog.set_level("INFO")
    worker.drain()
    await bench.clock.advance_to(0.5)
    await until(lambda: "drains 2 executions" in caplog.text)
    await held_until(bench, "e1", 29)
    assert worker.running == 2
    await bench.drained()
    never.set()
    ((reason, moment),) = cancelled
    assert reason == "shutdown"
    assert 30 <= moment <= 31
    assert [bench.server.tasks[name].released for name in ("e1", "e2")] == [1, 1]
    assert not bench.server.paths("/outcomes")


async def test_grants_that_come_with_the_end_are_handed_back(bench: Bench) -> None:
    @bench.app.handler("work")
    async def work(ctx: Context[Any]) -> None:
        pytest.fail("it must not run")

    worker = bench.start()
    await until(lambda: bool(bench.server.paths("/claim")))
    worker.drain()
    await bench.clock.advance_to(0.25)
    task = bench.server.add("e1")
    await until(lambda: task.released == 1)
    await bench.drained()


async def test_a_timeout_is_called_one(bench: Bench) -> None:
    ended: list[tuple[str, float]] = []

    @bench.app.handler("work")
    async def work(ctx: Context[Any]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append((ctx.cancel_reason, bench.clock.monotonic()))

    task = bench.server.add("e1", deadline=10.0)
    worker = bench.start()
    await until(lambda: worker.running == 1)
    await moving(bench, lambda: bool(ended))
    [(reason, at)] = ended
    assert reason == "timeout"
    # The clock goes on while a beat is on its way; a whole lease would end much later.
    assert 10 <= at < task.lease_sec
    await bench.drained()
    assert not bench.server.paths("/outcomes")


async def test_a_wrong_key_ends_the_worker(bench: Bench) -> None:
    bench.server.plan("/claim", 401, {"code": "unauthorized"})
    bench.start()
    assert bench.ended is not None
    with pytest.raises(Unauthorized):
        await bench.ended


async def test_a_key_that_fails_later_does_not(bench: Bench) -> None:
    @bench.app.handler("work")
    async def work(ctx: Context[Any]) -> None:
        pass

    task = bench.server.add("e1")
    bench.start()
    await until(lambda: task.status == "COMPLETED")
    bench.server.plan("/claim", 401, {"code": "unauthorized"})
    second = bench.server.add("e2")
    await moving(bench, lambda: second.status == "COMPLETED")
