"""What operators see: metrics from what was committed, and one JSON object a log line."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from schemas.entities import RetryPolicy
from streams.runtime.telemetry import Telemetry, log_as_json
from tests.unit.runtime.installation import Installation


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    log_as_json("p7", "INFO", stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_line_says_where(lines: io.StringIO) -> None:
    telemetry = Telemetry()
    telemetry.alert("partition_stopped", "it stands still", partition=3, offset=17)
    line = json.loads(lines.getvalue())
    assert (line["level"], line["instance"], line["message"]) == ("error", "p7", "it stands still")
    assert (line["alert"], line["partition"], line["offset"]) == ("partition_stopped", 3, 17)


def test_payloads_are_never_logged(lines: io.StringIO) -> None:
    world = Installation()
    process = world.live()
    world.send(world.topics.commands, 0, b"\x00hunter2")
    world.register("job-1", delay_sec=0)
    world.run(process)
    assert "command set aside" in lines.getvalue()
    assert "hunter2" not in lines.getvalue()


def test_events_outcomes_and_lateness_are_counted() -> None:
    world = Installation()
    process = world.live()
    world.register("job-1", delay_sec=1, retry=RetryPolicy(max_attempts=1))
    world.run(process)
    world.time.pass_ms(1_004)
    world.request()
    world.until(lambda: len(world.grants()) == 1, process)
    world.complete(world.grants()[0].execution)
    world.cancel("no-such-job")
    world.run(process)
    assert process.metric("events_total", type="ExecutionFired") == 1
    assert process.metric("executions_total", outcome="completed") == 1
    assert process.metric("commands_total", type="RegisterJob", outcome="accepted") == 1
    assert process.metric("commands_total", type="CancelJob", outcome="not_found") == 1
    assert process.metric("firing_lateness_seconds_count") == 1
    assert 0 < process.metric("firing_lateness_seconds_sum") < 0.1
    assert process.metric("partition_owner", partition="0") == 1
    assert process.metric("transactions_total", outcome="committed") >= 3


def test_ended_leases_are_counted() -> None:
    world = Installation()
    process = world.live()
    world.register("job-1", delay_sec=0, lease_sec=1)
    world.request()
    world.until(lambda: len(world.grants()) == 1, process)
    world.time.pass_ms(1_100)
    world.until(lambda: "LeaseExpired" in world.types(), process)
    assert process.metric("lease_expirations_total") == 1


def test_lag_is_what_waits_to_be_decided() -> None:
    world = Installation()
    process = world.live()
    for _ in range(700):
        world.request(credit=0)
    world.time.pass_ms(5_001)
    process.step()
    assert process.metric("lag", topic=world.topics.work, partition="0") == 200
