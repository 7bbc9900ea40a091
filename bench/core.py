"""CPU of the engine alone: `python -m bench.core`.

`core`: µs of CPU an execution on the in-memory store, by what happens to it: registered, fired, claimed,
completed; event encoding included, Kafka not. `duescan`: the same on RocksDB, with few and with many jobs
registered that are not due (brought in as a replay of the log does, which is measured too), and what a turn
costs in which nothing is due.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import TypeVar

from bench import report
from bench.partition import Partition, completions, registrations
from schemas import codec
from streams.core.instants import parse_instant
from streams.store.memory import MemoryStore
from streams.store.rocks import RocksFolder

START_MS = parse_instant("2026-05-01T00:00:00Z", "start")
LEAD_MS = 600_000
FAR_MS = 30 * 86_400_000
"""Jobs that are only registered become due within this, after the others."""
CREDIT = 1_000
DUE = 10_000
IDLE_TURNS = 2_000

T = TypeVar("T")


def cpu_us(each_of: int, work: Callable[[], T]) -> tuple[float, T]:
    """CPU µs per one of `each_of`, and what the work returned. Starts without old garbage."""
    gc.collect()
    before = time.process_time_ns()
    result = work()
    return round((time.process_time_ns() - before) / 1000 / each_of, 2), result


def measure_life(partition: Partition, count: int) -> tuple[dict[str, float], bool]:
    """CPU µs of each phase of `count` jobs that are due now, and whether each ran to its end."""
    fire, _ = cpu_us(count, partition.fire)
    claim, grants = cpu_us(
        count, lambda: [grant for _ in range(-(-count // CREDIT)) for grant in partition.claim(CREDIT)]
    )
    outcomes = list(completions(grants))
    complete, results = cpu_us(
        count, lambda: [effect for each in outcomes for effect in partition.turn([each])[0]]
    )
    accepted = sum(result.status == 200 for reply in results for result in getattr(reply, "results", ()))
    phases = {"fire": fire, "claim": claim, "complete": complete}
    return phases | {"execution": round(sum(phases.values()), 2)}, len(grants) == count == accepted


def measure_core(count: int) -> report.Figures:
    """One herd through the engine, phase by phase."""
    partition = Partition(MemoryStore(), START_MS)
    jobs = list(registrations(0, count, START_MS + LEAD_MS))
    encoded = [codec.encode(job) for job in jobs]
    decode, _ = cpu_us(count, lambda: [codec.decode(each) for each in encoded])
    register, _ = cpu_us(count, lambda: partition.run(jobs))
    partition.now_ms += LEAD_MS
    life, all_ran = measure_life(partition, count)
    return {
        "cpuUs": {"decodeRegistration": decode, "register": register, **life},
        "eventsPerJob": round(partition.events / count, 2),
        "eventBytesPerJob": round(partition.event_bytes / count),
        report.VALID: all_ran,
    }


def measure_due_scan(registered: int, due: int, folder: Path) -> report.Figures:
    """The life of `due` jobs while `registered` others are not due, on RocksDB. What was decoded is forgotten
    before: few jobs would all still be in memory, of many none."""
    rocks = RocksFolder(Path(mkdtemp(dir=folder)), "bench")
    try:
        partition = Partition(rocks.open(0), START_MS)
        register, _ = cpu_us(due, lambda: partition.run(registrations(0, due, START_MS + LEAD_MS)))
        replay, _ = cpu_us(
            registered,
            lambda: partition.replay_jobs(due, registered, START_MS + 2 * LEAD_MS, FAR_MS / registered),
        )
        idle, _ = cpu_us(IDLE_TURNS, partial(_idle, partition))
        partition.engine.state.forget_decoded()
        partition.now_ms = START_MS + LEAD_MS
        began = time.perf_counter()
        life, all_ran = measure_life(partition, due)
        took = time.perf_counter() - began
        return {
            "cpuUs": {"register": register, "replay": replay, "idleTurn": idle, **life},
            "executionsPerSec": round(due / took),
            report.VALID: all_ran,
        }
    finally:
        rocks.close()


def _idle(partition: Partition) -> None:
    """Time moves and nothing is due."""
    for _ in range(IDLE_TURNS):
        partition.now_ms += 5
        partition.turn()


def main() -> None:
    """The command line."""
    parser = report.arguments(__doc__ or "")
    parser.add_argument("-n", type=int, default=20_000, help="jobs through the engine")
    parser.add_argument("--due", type=int, default=DUE, help="jobs fired in each due scan")
    parser.add_argument(
        "--registered", type=int, nargs="*", default=[10_000, 1_000_000], help="further jobs, one scan each"
    )
    options = parser.parse_args()
    report.run("core", report.only(options, n=options.n), lambda: measure_core(options.n), processors=False)
    for registered in options.registered:
        with TemporaryDirectory(prefix="horarium-bench-") as folder:
            given = report.only(options, registered=registered, due=options.due)
            scan = partial(measure_due_scan, registered, options.due, Path(folder))
            report.run("duescan", given, scan, processors=False)


if __name__ == "__main__":
    main()
