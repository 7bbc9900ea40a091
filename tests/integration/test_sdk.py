"""The client library against a real server on a real broker: clients, workers, and how workers end."""

import asyncio
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from horarium import (
    App,
    AsyncClient,
    BadRequest,
    Client,
    Context,
    Delay,
    Every,
    Execution,
    IdempotencyKeyReused,
    JobSpec,
    NonRetryable,
    NotFound,
    RetryPolicy,
    Snooze,
)

from dev.server import ROOT, Server
from streams.ambient import wall_ms
from tests.waiting import wait_until

FINAL = {"COMPLETED", "FAILED", "CANCELLED", "SKIPPED"}
SOON = RetryPolicy(backoff_base_sec=1, backoff_factor=1, backoff_max_sec=1, jitter="none")


@pytest.fixture
def pool() -> str:
    """A pool of one test."""
    return f"pool-{secrets.token_hex(4)}"


@pytest.fixture
def app(server: Server, pool: str) -> App:
    """Handlers may be added until `working`."""
    return App(server.url, server.key, pool=pool, slots=4, wait_sec=5)


class working:
    """A worker of the app runs meanwhile, and drains at the end."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __aenter__(self) -> None:
        self._client = AsyncClient(self._app.url, self._app.key)
        self._worker = self._app.worker(self._client)
        self._task = asyncio.create_task(self._worker.run())

    async def __aexit__(self, *_: object) -> None:
        self._worker.drain()
        await self._task
        await self._client.close()


def executions(client: Client, job_id: str) -> list[Execution]:
    return list(client.job_executions(job_id).items)


async def ended(client: Client, job_id: str, timeout_sec: float = 20) -> Execution:
    """The only execution of a job, when it is final."""

    def final() -> bool:
        found = executions(client, job_id)
        return bool(found) and found[0].status in FINAL

    await asyncio.to_thread(wait_until, final, timeout_sec)
    (execution,) = executions(client, job_id)
    return await asyncio.to_thread(client.get_execution, execution.execution_id)


def job(pool: str, task: str = "work", **more: Any) -> JobSpec:
    return JobSpec(**{"schedule": Delay(1), "pool": pool, "task": task, "retry_policy": SOON, **more})


async def test_a_job_from_registration_to_result(client: Client, app: App, pool: str) -> None:
    @app.handler("work")
    async def work(ctx: Context[Any]) -> Any:
        return {"got": ctx.payload, "labels": dict(ctx.labels), "key": ctx.idempotency_key}

    payload = {"n": 9007199254740993, "é": [1.5, None]}
    made = client.create_job(job(pool, payload=payload, labels={"team": "x"}, name="one"))
    assert made.status == "ACTIVE"
    # Own writes are seen at once.
    assert client.get_job(made.job_id).content == payload
    assert [found.job_id for found in client.iter_jobs(pool=pool)] == [made.job_id]
    async with working(app):
        execution = await ended(client, made.job_id)
    assert execution.status == "COMPLETED"
    assert execution.result == {"got": payload, "labels": {"team": "x"}, "key": execution.execution_id}
    assert [attempt.ended_by for attempt in execution.attempts] == ["completed"]
    assert execution.started_at is not None
    assert execution.scheduled_time is not None
    assert execution.started_at >= execution.scheduled_time
    types = [event.type for event in client.execution_events(execution.execution_id).items]
    assert "ExecutionCompleted" in types
    assert client.get_job(made.job_id).status == "COMPLETED"


async def test_bytes_arrive_as_they_were_sent(client: Client, app: App, pool: str) -> None:
    @app.handler("work")
    def work(ctx: Context[Any]) -> str:
        assert isinstance(ctx.payload, bytes)
        return ctx.payload.hex()

    made = client.create_job(job(pool, payload=b"\x00\xff\xfe"))
    async with working(app):
        assert (await ended(client, made.job_id)).result == "00fffe"


async def test_retries_carry_progress_and_dead_letters_can_be_replayed(
    client: Client, app: App, pool: str
) -> None:
    seen: list[tuple[int, Any]] = []

    @app.handler("retried")
    def retried(ctx: Context[Any]) -> Any:
        seen.append((ctx.attempt, ctx.progress))
        if ctx.attempt == 1:
            ctx.heartbeat({"row": 5})
            raise ValueError("the first attempt fails")
        return ctx.progress

    @app.handler("hopeless")
    def hopeless(ctx: Context[Any]) -> Any:
        if ctx.payload != "corrected":
            raise NonRetryable("no use")
        return "fine"

    first = client.create_job(job(pool, "retried"))
    second = client.create_job(job(pool, "hopeless", payload="wrong"))
    async with working(app):
        assert (await ended(client, first.job_id)).result == {"row": 5}
        assert seen == [(1, None), (2, {"row": 5})]
        failed = await ended(client, second.job_id)
        assert (failed.status, failed.attempt) == ("FAILED", 1)
        letter = client.get_dead_letter(failed.execution_id)
        assert letter.content == "wrong"
        assert "no use" in (letter.error or "")
        assert [each.execution_id for each in client.iter_dead_letters(pool=pool)] == [failed.execution_id]
        assert client.replay_dead_letter(failed.execution_id, payload="corrected") == failed.execution_id
        await asyncio.to_thread(
            wait_until, lambda: client.get_execution(failed.execution_id).status == "COMPLETED"
        )


async def test_snooze_spends_no_attempt(client: Client, app: App, pool: str) -> None:
    seen: list[tuple[int, int]] = []

    @app.handler("work")
    async def work(ctx: Context[Any]) -> Any:
        seen.append((ctx.attempt, ctx.lease_epoch))
        return Snooze(1) if len(seen) == 1 else "later"

    made = client.create_job(job(pool))
    async with working(app):
        assert (await ended(client, made.job_id)).result == "later"
    assert seen == [(1, 1), (1, 2)]


async def test_a_cancelled_execution_stops_its_handler(client: Client, app: App, pool: str) -> None:
    reasons: list[str] = []

    @app.handler("work")
    async def work(ctx: Context[Any]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(ctx.cancel_reason)

    made = client.create_job(job(pool, lease_sec=2))
    async with working(app):
        await asyncio.to_thread(
            wait_until, lambda: [each.status for each in executions(client, made.job_id)] == ["RUNNING"]
        )
        client.cancel_execution(executions(client, made.job_id)[0].execution_id)
        execution = await ended(client, made.job_id)
    assert execution.status == "CANCELLED"
    assert reasons == ["cancelled"]


async def test_a_lease_is_kept_for_longer_than_it_lasts(client: Client, app: App, pool: str) -> None:
    @app.handler("work")
    def work(ctx: Context[Any]) -> int:
        # Much longer than the lease, in a thread.
        assert not ctx.cancelled.wait(5)
        return ctx.delivery_count

    made = client.create_job(job(pool, lease_sec=2))
    async with working(app):
        assert (await ended(client, made.job_id)).result == 1


def test_keys_make_a_registration_repeatable(client: Client, pool: str) -> None:
    spec = JobSpec(schedule=Delay(3600), pool=pool)
    key = secrets.token_hex(8)
    first = client.create_job(spec, idempotency_key=key)
    assert client.create_job(spec, idempotency_key=key).job_id == first.job_id
    with pytest.raises(IdempotencyKeyReused):
        client.create_job(JobSpec(schedule=Delay(3601), pool=pool), idempotency_key=key)
    assert client.cancel_job(first.job_id).status == "CANCELLED"


def test_errors_are_told_apart(client: Client, pool: str) -> None:
    with pytest.raises(BadRequest) as raised:
        client.create_job(JobSpec(schedule={"cron": "61 * * * *"}, pool=pool))
    assert [error.field for error in raised.value.errors] == ["schedule.cron"]
    with pytest.raises(NotFound):
        client.get_job("nobody-made-this")
    good, bad = client.create_jobs([JobSpec(schedule=Delay(3600)), JobSpec(schedule=Every(0))])
    assert good.job is not None
    assert isinstance(bad.error, BadRequest)


def test_operators_see_partitions(server: Server) -> None:
    with Client(server.url, server.operator_key or "") as client:
        partitions = client.partitions()
    assert [partition.partition for partition in partitions] == [0, 1, 2, 3]
    assert {partition.state for partition in partitions} == {"RUNNING"}


PROGRAM = """
import logging, sys, threading
from horarium import App

logging.basicConfig(level="INFO")
url, key, pool, worker_id = sys.argv[1:]
app = App(url, key, pool=pool, slots=2, worker_id=worker_id, drain_sec=30)

@app.handler("work")
def work(ctx):
    ctx.log.info("begun")
    if ctx.payload == "killed" and ctx.delivery_count > 1:
        return worker_id
    threading.Event().wait(6)
    return worker_id

app.run()
"""

Start = Callable[[str], "subprocess.Popen[bytes]"]


@pytest.fixture
def start(server: Server, pool: str, tmp_path: Path) -> Iterator[Start]:
    """Starts worker processes; what they say goes to `<worker id>.log`."""
    started: list[subprocess.Popen[bytes]] = []
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "clients" / "python")}

    def begin(worker_id: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-c", PROGRAM, server.url, server.key, pool, worker_id]
        with (tmp_path / f"{worker_id}.log").open("wb") as said:
            started.append(subprocess.Popen(command, env=environment, stderr=said))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait()


def begun(tmp_path: Path, worker_id: str) -> None:
    wait_until(lambda: "begun" in (tmp_path / f"{worker_id}.log").read_text(), 20)


async def test_lse_019_a_worker_that_is_told_to_end_finishes_first(
    client: Client, pool: str, start: Start, tmp_path: Path
) -> None:
    """The lease (2 s) is shorter than what is left to do (6 s) when SIGTERM comes."""
    process = start("a")
    made = client.create_job(job(pool, lease_sec=2))
    await asyncio.to_thread(begun, tmp_path, "a")
    process.send_signal(signal.SIGTERM)
    start("b")
    assert await asyncio.to_thread(process.wait, 20) == 0
    execution = await ended(client, made.job_id)
    assert (execution.result, execution.delivery_count, execution.lease_epoch) == ("a", 1, 1)


async def test_a_killed_workers_execution_goes_to_another(
    client: Client, pool: str, start: Start, tmp_path: Path
) -> None:
    process = start("a")
    made = client.create_job(job(pool, lease_sec=2, payload="killed"))
    await asyncio.to_thread(begun, tmp_path, "a")
    process.kill()
    start("b")
    execution = await ended(client, made.job_id)
    assert (execution.result, execution.attempt, execution.lease_epoch) == ("b", 1, 2)
    assert [attempt.ended_by for attempt in execution.attempts] == ["expired", "completed"]


async def test_the_end_of_an_idle_worker_holds_up_no_work(
    client: Client, app: App, pool: str, start: Start, tmp_path: Path
) -> None:
    """What falls due right when a parked claim is given up must not wait for a lease to end."""

    @app.handler("work")
    async def work(ctx: Context[Any]) -> str:
        return "here"

    idle = start("idle")
    await asyncio.to_thread(wait_until, lambda: "takes work" in (tmp_path / "idle.log").read_text(), 20)
    made = client.create_job(job(pool, schedule=Delay(2), lease_sec=60))
    assert made.next_run_at is not None
    due_ms = made.next_run_at.timestamp() * 1000
    await asyncio.to_thread(wait_until, lambda: wall_ms() >= due_ms - 250)
    idle.send_signal(signal.SIGTERM)
    async with working(app):
        assert (await ended(client, made.job_id)).result == "here"
    assert await asyncio.to_thread(idle.wait, 20) == 0
