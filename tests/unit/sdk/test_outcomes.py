"""What handlers return and raise, and how it gets to the server: the worker in time moved by hand."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from horarium import Context, Fail, NonRetryable, Snooze

from tests.unit.sdk.bench import Bench, moving
from tests.unit.sdk.manual_clock import until


async def test_an_outcome_whose_answer_was_lost_is_repeated(bench: Bench) -> None:
    @bench.app.handler("work")
    async def work(ctx: Context[Any]) -> dict[str, int]:
        return {"rows": 3}

    task = bench.server.add("e1")
    bench.server.plan("/outcomes", do_it_first=True)
    bench.server.plan("/outcomes", 503, {"code": "outcome_unknown"})
    worker = bench.start()
    await until(lambda: task.status == "COMPLETED")
    assert worker.running == 1
    await moving(bench, lambda: worker.running == 0)
    assert [seen.body["outcomes"] for seen in bench.server.paths("/outcomes")] == [[task.outcome]] * 3
    assert not bench.server.refused


async def test_one_unacceptable_outcome_does_not_hold_up_the_others(bench: Bench) -> None:
    gate = asyncio.Event()

    @bench.app.handler("work")
    async def work(ctx: Context[Any]) -> None:
        await gate.wait()

    for number in range(3):
        bench.server.add(f"e{number}")
    worker = bench.start(linger_sec=0.1)
    await until(lambda: worker.running == 3)
    bench.server.plan("/outcomes", 400, {"code": "invalid", "errors": []})
    gate.set()
    await moving(bench, lambda: worker.running == 0)
    assert all(task.status == "COMPLETED" for task in bench.server.tasks.values())
    assert [len(seen.body["outcomes"]) for seen in bench.server.paths("/outcomes")] == [3, 1, 1, 1]


async def test_a_result_that_the_server_refuses_becomes_a_failure(bench: Bench) -> None:
    @bench.app.handler("work")
    async def work(ctx: Context[Any]) -> str:
        return "odd"

    task = bench.server.add("e1")
    bench.server.plan("/outcomes", 413, {"code": "too_large", "detail": "result"})
    bench.start()
    await until(lambda: task.status == "FAILED")
    assert task.outcome["retryable"] is False
    assert "the server refused the result: too_large" in task.outcome["error"]


class Broken(Exception):
    """What a handler raises in these tests."""


async def ended_by(bench: Bench, handler: Callable[[Context[Any]], Any], **task: Any) -> Any:
    bench.app.handler("work")(handler)
    added = bench.server.add("e1", **task)
    worker = bench.start()
    await until(lambda: added.outcome is not None or added.released > 0)
    await until(lambda: worker.running == 0)
    return added


async def test_exceptions_retry_by_policy(bench: Bench) -> None:
    def work(ctx: Context[Any]) -> None:
        raise Broken("no \x00 luck \ud800")

    task = await ended_by(bench, work)
    assert task.outcome["retryable"] is True
    assert "retryAfterSec" not in task.outcome
    assert task.outcome["error"].startswith("tests.unit.sdk.test_outcomes.Broken: no ? luck ?")
    assert "in work" in task.outcome["error"]


async def test_non_retryable_gives_up(bench: Bench) -> None:
    async def work(ctx: Context[Any]) -> None:
        raise NonRetryable("never")

    assert (await ended_by(bench, work)).outcome["retryable"] is False


@pytest.mark.parametrize("leave", [lambda ctx: Fail("later", after=2.5), None], ids=["later", "now"])
async def test_fail_says_whether_and_when(bench: Bench, leave: Callable[[Any], Any] | None) -> None:
    task = await ended_by(bench, leave or (lambda ctx: Fail(retry=False)))
    assert task.outcome["retryable"] is (leave is not None)
    assert task.outcome.get("retryAfterSec") == (3 if leave else None)


async def test_snooze_releases_with_a_delay(bench: Bench) -> None:
    task = await ended_by(bench, lambda ctx: Snooze(7.5))
    (seen,) = bench.server.paths("/release")
    assert seen.body["delaySec"] == 8
    assert task.retry_at == 8
    assert not bench.server.paths("/outcomes")


async def test_a_task_without_handler_fails_and_says_so(bench: Bench) -> None:
    task = await ended_by(bench, lambda ctx: None, task="unknown")
    assert "no handler for task 'unknown'" in task.outcome["error"]
    assert task.outcome["retryable"] is True


async def test_progress_reaches_the_next_attempt(bench: Bench) -> None:
    found: list[Any] = []

    @bench.app.handler("work")
    def work(ctx: Context[Any]) -> None:
        found.append(ctx.progress)
        if ctx.attempt == 1:
            for row in range(100):
                ctx.heartbeat({"row": row})
            raise Broken

    task = bench.server.add("e1")
    bench.start()
    # No time passes before the failure is reported: the progress must not wait for its second.
    await until(lambda: task.attempt == 2)
    await moving(bench, lambda: task.status == "COMPLETED")
    assert found == [None, {"row": 99}]
    assert len(bench.server.paths("/heartbeats")) <= 2


async def test_progress_is_sent_about_once_a_second(bench: Bench) -> None:
    release = asyncio.Event()
    contexts: list[Context[Any]] = []

    @bench.app.handler("work")
    async def work(ctx: Context[Any]) -> None:
        contexts.append(ctx)
        await release.wait()

    task = bench.server.add("e1")
    bench.start()
    await until(lambda: bool(contexts))
    contexts[0].heartbeat(1)
    contexts[0].heartbeat(2)
    await asyncio.sleep(0.01)
    assert not bench.server.paths("/heartbeats")
    await bench.clock.advance_to(1)
    await until(lambda: task.progress == 2)
    with pytest.raises(ValueError, match="4096 are allowed"):
        contexts[0].heartbeat("x" * 5000)
    release.set()
