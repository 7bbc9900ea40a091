"""A worker on the bench: an app, the fake server and a clock moved by hand, and how they move together."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from horarium import App, AsyncClient, RetryRules, Worker

from tests.unit.sdk.fake_server import FakeServer
from tests.unit.sdk.manual_clock import ManualClock, until

QUICK = RetryRules(first_sec=0.5, longest_sec=0.5)


class Bench:
    """An app, the worker made of it, and how to begin and end it."""

    def __init__(self, server: FakeServer, clock: ManualClock, client: AsyncClient) -> None:
        self.server = server
        self.clock = clock
        self.client = client
        self.app = App(server.url, "key", pool="reports", slots=10)
        self.options: dict[str, Any] = {"linger_sec": 0, "drain_sec": 120, "retry": QUICK}
        self.worker: Worker | None = None
        self.ended: asyncio.Task[None] | None = None

    def start(self, **options: Any) -> Worker:
        self.worker = self.app.worker(self.client, clock=self.clock, **{**self.options, **options})
        self.ended = asyncio.create_task(self.worker.run())
        return self.worker

    async def drained(self) -> None:
        """Moves the clock over the last claim's grace."""
        assert self.worker is not None
        assert self.ended is not None
        self.worker.drain()
        moment = self.clock.monotonic()
        while not self.ended.done():
            moment += 0.25
            await self.clock.advance_to(moment)
            await asyncio.sleep(0.001)
        await self.ended


async def held_until(bench: Bench, execution_id: str, moment: float) -> None:
    """Moves the clock on in steps, giving the worker the (real) time to extend the lease in each."""
    task = bench.server.tasks[execution_id]
    while bench.clock.monotonic() < moment:
        await bench.clock.advance_to(min(moment, bench.clock.monotonic() + 5))
        now = bench.clock.monotonic()
        # A third of 60 s has passed, and the step, before it must be extended.
        await until(lambda now=now: task.until - now >= 35)  # type: ignore[misc]


async def moving(bench: Bench, condition: Callable[[], bool]) -> None:
    """Lets half a second after the other pass until the condition holds."""
    for _ in range(500):
        if condition():
            return
        await bench.clock.advance_to(bench.clock.monotonic() + 0.5)
        await asyncio.sleep(0.005)
    pytest.fail("it did not come true")
