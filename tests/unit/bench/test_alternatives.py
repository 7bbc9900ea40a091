"""The alternatives do the same work as what was built, in small."""

from __future__ import annotations

from bench.alternatives import measure_jitter, measure_scan, measure_wheel
from streams.store.memory import MemoryStore


def test_a_scan_of_all_jobs_costs_more_than_time_buckets() -> None:
    found = measure_scan(MemoryStore, 2_000)
    assert found["valid"]
    assert found["cpuUsPerPass"]["allJobs"] > found["cpuUsPerPass"]["timeBuckets"]


def test_wheel_and_range_scans_take_the_same_timers() -> None:
    found = measure_wheel(MemoryStore, 600)
    assert found["valid"]
    assert found["duePerPass"] > 0


def test_a_herd_is_late_by_its_size_and_jitter_takes_that_away() -> None:
    herd, spread = measure_jitter(600, 0), measure_jitter(600, 60)
    assert herd["valid"]
    assert spread["valid"]
    assert herd["lateMs"]["p50"] > spread["lateMs"]["p50"]
