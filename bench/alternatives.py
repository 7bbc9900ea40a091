"""What was not built, measured beside what was: `python -m bench.alternatives`.

`scan`: finding that nothing is due by reading all registered jobs, and by time buckets. `wheel`: timers of
the next minute taken from the wheel in memory; by a range scan from a kept position; and by a scan from the
beginning, where every fired entry left a tombstone. `jitter`: a herd at midnight with and without jitter; the
virtual clock moves by the CPU that the engine used, so lateness is what one core makes of it. All of it is
the engine or the store alone, on one core.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from bench import report
from bench.core import START_MS, cpu_us
from bench.partition import TENANT, Partition, registrations
from schemas import codec
from schemas.commands import RegisterJob, ScheduleSpec
from schemas.entities import Priority
from schemas.events import ExecutionFired, JobRegistered
from streams.core import keys
from streams.core.instants import parse_instant
from streams.core.timebuckets import TimeBuckets
from streams.runtime.sharing import FIRE_LIMIT
from streams.store.kv import TIME_FAMILY, Batch, KeyValue
from streams.store.memory import MemoryStore
from streams.store.overlay import Overlay
from streams.store.rocks import RocksFolder

LATER_MS = 86_400_000
PASSES = 2_000
PASS_MS = 5
TURNS = 500
MINUTE_MS = 60_000
BEFORE_MIDNIGHT_MS = parse_instant("2026-05-01T23:59:00Z", "evening")
MIDNIGHT_MS = BEFORE_MIDNIGHT_MS + MINUTE_MS


def measure_scan(make_store: Callable[[], KeyValue], registered: int) -> report.Figures:
    """CPU of one pass over so many jobs of which none is due."""
    store = make_store()
    partition = Partition(store, START_MS)
    partition.replay_jobs(0, registered, START_MS + LATER_MS, 10)
    first = keys.entity("")

    def all_jobs() -> int:
        found = [codec.decode(value) for _, value in store.scan(first, keys.after(first))]
        return sum(isinstance(each, JobRegistered) and each.job.first_next_ms <= START_MS for each in found)

    def buckets() -> None:
        for _ in range(TURNS):
            partition.now_ms += PASS_MS
            partition.turn()

    full, due = cpu_us(1, all_jobs)
    indexed, _ = cpu_us(TURNS, buckets)
    return {"cpuUsPerPass": {"allJobs": full, "timeBuckets": indexed}, report.VALID: due == 0}


def measure_wheel(make_store: Callable[[], KeyValue], pending: int) -> report.Figures:
    """CPU of taking what is due every 5 ms, of so many timers spread over a minute."""
    wheel, taken = cpu_us(PASSES, partial(_by_wheel, make_store(), pending))
    ranged, seen = cpu_us(PASSES, partial(_by_range, make_store(), pending, from_start=False))
    deleted, left = cpu_us(PASSES, partial(_by_range, make_store(), pending, from_start=True))
    return {
        "cpuUsPerPass": {"wheel": wheel, "rangeScan": ranged, "scanOverTombstones": deleted},
        "duePerPass": round(taken / PASSES, 2),
        report.VALID: taken == seen == left > 0,
    }


def _times(pending: int) -> Iterator[tuple[int, str]]:
    for number in range(pending):
        yield START_MS + number * MINUTE_MS // pending, f"job:{TENANT}/bench-{number:09d}"


def _nows() -> Iterator[int]:
    return iter(range(START_MS, START_MS + PASSES * PASS_MS, PASS_MS))


def _by_wheel(store: KeyValue, pending: int) -> int:
    overlay = Overlay(store)
    timers = TimeBuckets(overlay, b"g")
    lane = keys.lane(Priority.NORMAL, TENANT)
    for due_ms, key in _times(pending):
        timers.add(due_ms, lane, key)
    timers.write()
    store.write(overlay.take())
    timers.written()
    taken = 0
    for now_ms in _nows():
        taken += len(timers.pop(now_ms, FIRE_LIMIT))
        store.write(overlay.take())
        timers.written()
    return taken


def _by_range(store: KeyValue, pending: int, *, from_start: bool) -> int:
    """Keys begin with the due time. From the kept position, or from the start over what was deleted."""
    prefix = bytes([TIME_FAMILY])

    def key_of(due_ms: int, name: str = "") -> bytes:
        return prefix + due_ms.to_bytes(8, "big") + name.encode()

    store.write(Batch({key_of(due_ms, name): b"" for due_ms, name in _times(pending)}))
    position = prefix
    taken = 0
    for now_ms in _nows():
        due = [key for key, _ in store.scan(position, key_of(now_ms + 1))]
        taken += len(due)
        if from_start:
            store.write(Batch(dict.fromkeys(due)))
        else:
            position = key_of(now_ms + 1)
            store.write(Batch({b"m\x00position": position}))
    return taken


def measure_jitter(jobs: int, jitter_sec: int) -> report.Figures:
    """A herd of daily jobs at midnight."""
    store = MemoryStore()
    partition = Partition(store, BEFORE_MIDNIGHT_MS)
    partition.run(_daily(jobs, jitter_sec))
    engine, now_ms = partition.engine, float(BEFORE_MIDNIGHT_MS)
    late_ms: list[float] = []
    while len(late_ms) < jobs and now_ms < MIDNIGHT_MS + 10 * MINUTE_MS:
        began = time.process_time_ns()
        engine.begin(int(now_ms), _never)
        engine.fire(int(now_ms), FIRE_LIMIT)
        engine.grant()
        decided = engine.decided()
        store.write(engine.commit())
        engine.written()
        now_ms += (time.process_time_ns() - began) / 1e6
        events = [codec.decode(event.value) for event in decided.events if event.value]
        late_ms += [now_ms - each.execution.due_ms for each in events if isinstance(each, ExecutionFired)]
        now_ms = max(now_ms, engine.next_wakeup_ms(int(now_ms)))
    return {"lateMs": report.spread(late_ms), report.VALID: len(late_ms) == jobs and min(late_ms) >= 0}


def _daily(jobs: int, jitter_sec: int) -> Iterator[RegisterJob]:
    for command in registrations(0, jobs, MIDNIGHT_MS):
        yield replace(command, schedule=ScheduleSpec(cron="0 0 * * *", jitter_sec=jitter_sec))


def _never() -> float:
    return 0.0


def main() -> None:
    """The command line."""
    parser = report.arguments(__doc__ or "")
    parser.add_argument("--registered", type=int, nargs="*", default=[1_000, 10_000, 100_000], help="scan")
    parser.add_argument("--pending", type=int, nargs="*", default=[1_000, 60_000], help="wheel")
    parser.add_argument("-n", type=int, default=20_000, help="jobs of the herd")
    parser.add_argument("--jitter", type=int, nargs="*", default=[0, 5, 60], help="seconds")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="horarium-bench-") as folder:
        rocks = RocksFolder(Path(folder), "bench")
        numbers = iter(range(1_000_000))

        def store() -> KeyValue:
            return rocks.open(next(numbers))

        for registered in options.registered:
            given = report.only(options, registered=registered)
            report.run("alternatives-scan", given, partial(measure_scan, store, registered), processors=False)
        for pending in options.pending:
            given = report.only(options, pending=pending)
            report.run("alternatives-wheel", given, partial(measure_wheel, store, pending), processors=False)
        rocks.close()
    for jitter_sec in options.jitter:
        given = report.only(options, n=options.n, jitter=jitter_sec)
        report.run(
            "alternatives-jitter", given, partial(measure_jitter, options.n, jitter_sec), processors=False
        )


if __name__ == "__main__":
    main()
