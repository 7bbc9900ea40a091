"""Sizing: arithmetic that can be checked by hand, and bytes that are really counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.sizing import Costs, Octets, Wanted, cores, count_octets, find_costs, page

WANTED = Wanted(jobs=64_000_000, average=10_000, peak=100_000, partitions=64, busy=0.5, replication=3)
COSTS = Costs(
    machine="x, 2 cores",
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


def _saved(scenario: str, cpu: str, date: str, n: int, figures: dict[str, Any]) -> dict[str, Any]:
    settings = {"n": n, "rate": 0}
    machine = {"cpu": cpu, "cores": 2}
    return {"scenario": scenario, "settings": settings, "figures": figures, "machine": machine, "date": date}


def test_costs_are_of_one_machine(tmp_path: Path) -> None:
    """Of the one measured last; what was measured elsewhere only is asked for, not mixed in."""
    by_scenario: dict[str, dict[str, Any]] = {
        "processor": {"cpuUsPerExecution": {"p0": 100, "p1": 20, "broker": 9}},
        "herd": {"cpuUsPerExecution": {"broker": 30, "api": 40, "projections": 50}},
        "registered": {"memoryMib": {"steady": 300}, "diskMib": {"store": 1}},
        "rebuild": {"cpuUsPerEvent": 20},
    }
    for scenario, figures in by_scenario.items():
        lines = [
            _saved(scenario, "old", "2026-01-01", 9_000, {}),
            _saved(scenario, "new", "2026-01-02", 1_024, figures),
            _saved(scenario, "new", "2026-01-03", 10, {}),
        ]
        (tmp_path / f"{scenario}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    costs = find_costs(tmp_path)
    assert (costs.machine, costs.processor_us, costs.memory_jobs) == ("new, 2 cores", 120, 1_024)
    assert costs.store_bytes_per_job == 1_024
    only_old = json.dumps(_saved("rebuild", "old", "2026-01-01", 9_000, {"cpuUsPerEvent": 20}))
    (tmp_path / "rebuild.jsonl").write_text(only_old)
    with pytest.raises(SystemExit, match=r"bench\.rebuild"):
        find_costs(tmp_path)


def test_bytes_are_counted_on_the_engine() -> None:
    found = count_octets()
    assert found.registered > 200 < found.command, "a payload of 200 bytes is in both"
    assert found.events_count >= 3, "fired, claimed, completed"
    assert 0 < found.outcome < found.grant
