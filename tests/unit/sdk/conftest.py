"""Fixtures for tests of the client library: a clock moved by hand, and a fake server on it."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from horarium import AsyncClient

from tests.unit.sdk.bench import Bench
from tests.unit.sdk.fake_server import FakeServer, running
from tests.unit.sdk.manual_clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def server(clock: ManualClock) -> Iterator[FakeServer]:
    with running(clock) as server:
        clock.listeners.append(server.nudge)
        yield server


@pytest.fixture
async def bench(server: FakeServer, clock: ManualClock) -> AsyncIterator[Bench]:
    async with AsyncClient(server.url, "key") as client:
        bench = Bench(server, clock, client)
        yield bench
        if bench.ended is not None and not bench.ended.done():
            bench.ended.cancel()
            await asyncio.gather(bench.ended, return_exceptions=True)
