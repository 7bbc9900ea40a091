"""Fixtures for tests of the client library: a clock moved by hand, and a fake server on it."""

from collections.abc import Iterator

import pytest

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
