"""Growth: what is compared with what."""

from __future__ import annotations

from typing import Any

from bench.growth import ratios


def _run(per_sec: int, cost: float) -> dict[str, Any]:
    return {"executionsPerSec": per_sec, "cpuUsPerExecution": {"server": cost, "load": 9.0}}


def test_partitions_are_compared_in_one_process_and_processes_with_as_many_partitions() -> None:
    found = {(1, 1): _run(100, 20), (8, 1): _run(90, 22), (64, 1): _run(80, 30), (8, 2): _run(162, 24.2)}
    assert ratios(found) == {
        "costByPartitions": {"1": 1.0, "8": 1.1, "64": 1.5},
        "costByProcessors": {"1": 1.0, "2": 1.1},
        "speedByProcessors": {"1": 1.0, "2": 1.8},
    }
