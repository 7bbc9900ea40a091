"""Sizing: arithmetic that can be checked by hand, and bytes that are really counted."""

from __future__ import annotations

import pytest

from bench.sizing import Costs, Octets, Wanted, cores, count_octets, page

WANTED = Wanted(jobs=64_000_000, average=10_000, peak=100_000, partitions=64, busy=0.5, replication=3)
COSTS = Costs(
    processor_us=100,
    broker_us=50,
    api_us=60,
    read_model_us=200,
    memory_mib=400,
    memory_jobs=1_000_000,
    store_bytes_per_job=1_024,
    rebuilt_per_sec=10_000,
)
OCTETS = Octets(registered=400, command=350, events=600, events_count=4, outcome=50, grant=300)


def test_cores() -> None:
    assert cores(10_000, 100, 0.5) == pytest.approx(2.0)


def test_the_page_says_what_follows_from_the_costs() -> None:
    text = page(WANTED, COSTS, OCTETS)
    assert "| processors | 2.0 | 20.0 |" in text
    # 64 M jobs over 64 partitions; 10,000 and 100,000 due a second over them.
    assert "| 64 | 156 | 1,562 | 1,000,000 | 0.95 |" in text
    # 5 s of work at 10,000 a second, none of which lives to its first heartbeat; a minute each does.
    assert "| 5 | 50,000 | 500,000 | 0 |" in text
    assert "| 60 | 600,000 | 6,000,000 | 30,000 |" in text
    # 840 bytes an execution with records: 10,000 * 86,400 * 840 bytes a day.
    assert "| 1 | 0.7 | 2.0 |" in text


def test_bytes_are_counted_on_the_engine() -> None:
    found = count_octets()
    assert found.registered > 200 < found.command, "a payload of 200 bytes is in both"
    assert found.events_count >= 3, "fired, claimed, completed"
    assert 0 < found.outcome < found.grant
