"""Whether the engine got much slower: `python -m bench.guard`; the tests run it, too.

CPU a job of `bench.core`, by phase, divided by the CPU of a fixed loop that does what the engine does most
(small objects, dicts, bytes, sorting), measured just before and after. So the figures of different machines
compare, and a busy machine slows both. Against a stored baseline: a report, and an alarm only beyond `ALARM`
times it, for what is left of the noise must never fail a build. `--update` stores today's as the baseline.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from bench.core import measure_core

BASELINE = Path(__file__).resolve().parent / "guard.json"
ALARM = 3.0
JOBS = 2_000
RUNS = 3
"""The least of them counts: noise only adds."""
LOOPS = 2_000

Phases = dict[str, float]


class _Thing(msgspec.Struct, frozen=True):
    """Of the loop alone: an entity of the engine would make the loop slower with it."""

    tenant: str
    name: str
    version: int
    due_ms: int
    other: str = ""
    last_ms: int = 0


def loop_us() -> float:
    """CPU of one round of the fixed loop; the least of a few."""
    return min(_loop_us() for _ in range(5))


def _loop_us() -> float:
    began = time.process_time_ns()
    table: dict[bytes, _Thing] = {}
    for number in range(LOOPS):
        thing = _Thing("bench", f"bench-{number:09d}@1", 1, number)
        key = b"".join((b"t", number.to_bytes(8, "big"), thing.name.encode()))
        table[key] = msgspec.structs.replace(thing, due_ms=number + 1)
    for key in sorted(table):
        msgspec.msgpack.encode(table.pop(key))
    return (time.process_time_ns() - began) / 1000 / LOOPS


def measure(jobs: int = JOBS) -> Phases:
    """Loops a job, by phase."""
    runs = []
    for _ in range(RUNS):
        before = loop_us()
        phases: Phases = measure_core(jobs)["cpuUs"]
        unit = min(before, loop_us())
        runs.append({name: value / unit for name, value in phases.items()})
    return {name: round(min(run[name] for run in runs), 2) for name in runs[0]}


def compare(baseline: Mapping[str, float], now: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Phases and how many times their baseline they cost; a phase that is new has none."""
    for name, value in now.items():
        if name in baseline:
            yield name, value / baseline[name]


def report(baseline: Mapping[str, float], now: Mapping[str, float]) -> str:
    """One line a phase."""
    lines = ["CPU a job in loops of bench/guard.py: now, baseline, times"]
    lines += [
        f"  {name:<20} {now[name]:>8.2f} {baseline[name]:>8.2f} {times:>6.2f}"
        for name, times in compare(baseline, now)
    ]
    return "\n".join(lines)


def alarms(baseline: Mapping[str, float], now: Mapping[str, float]) -> list[str]:
    """The phases that cost more than `ALARM` times their baseline."""
    return [name for name, times in compare(baseline, now) if times > ALARM]


def load() -> Phases:
    """The stored baseline."""
    stored: Phases = json.loads(BASELINE.read_text())
    return stored


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--update", action="store_true", help="store today's figures as the baseline")
    options = parser.parse_args()
    now = measure()
    if options.update:
        BASELINE.write_text(json.dumps(now, indent=2) + "\n")
        return
    baseline = load()
    sys.stdout.write(report(baseline, now) + "\n")
    slow = alarms(baseline, now)
    if slow:
        sys.exit(f"more than {ALARM:g} times the baseline: {', '.join(slow)}")


if __name__ == "__main__":
    main()
