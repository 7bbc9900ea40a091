"""`make sim SEEDS=1000` runs seeds and sums up; `make sim SEED=7` runs one and prints its ledger."""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.simulation.hazards import Counts
from tests.simulation.runs import HASH_SEED, RERUN, Result, run_seed, run_seeds

SHOWN_MAX = 20


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _ledger(at_ms: int, who: str, what: str) -> None:
    _say(f"{at_ms / 1000:9.3f}  {who:<16} {what}")


def _show(result: Result) -> None:
    for violation in result.violations[:SHOWN_MAX]:
        _say(f"  {violation}")
    if len(result.violations) > SHOWN_MAX:
        _say(f"  … and {len(result.violations) - SHOWN_MAX} more")


def _one(seed: int) -> int:
    result = run_seed(seed, _ledger)
    _say(f"\nseed {seed}: {_figures([result])}")
    _count(result.counts)
    _say("VIOLATIONS" if result.violations else "no violations")
    _show(result)
    return int(bool(result.violations))


def _many(first: int, count: int) -> int:
    began, results, bad = time.monotonic(), [], 0
    for result in run_seeds(range(first, first + count)):
        results.append(result)
        if result.violations:
            bad += 1
            again = RERUN.format(result.seed)
            _say(f"seed {result.seed}: {len(result.violations)} violations; again by: {again}")
            _show(result)
        if len(results) % 50 == 0:
            _say(f"{len(results)} seeds, {bad} with violations, {time.monotonic() - began:.0f} s")
    total = Counts()
    for result in results:
        total.update(result.counts)
    _count(total)
    real_sec = time.monotonic() - began
    _say(f"\n{len(results)} seeds in {real_sec:.0f} s: {_figures(results)}")
    virtual_sec = sum(result.virtual_sec for result in results)
    _say(f"{virtual_sec / real_sec:.0f} times faster than real time; {bad} seeds with violations")
    return int(bool(bad))


def _figures(results: list[Result]) -> str:
    virtual_sec = sum(result.virtual_sec for result in results)
    cpu_sec = sum(result.cpu_sec for result in results)
    events = sum(result.events for result in results)
    happenings = sum(result.happenings for result in results)
    compared = sum(result.compared for result in results)
    return (
        f"{virtual_sec:.0f} s of virtual time in {cpu_sec:.1f} s of processor time "
        f"({virtual_sec / cpu_sec:.0f} to 1), {events} events, {happenings} happenings, "
        f"{compared} comparisons of live state with its replay"
    )


def _count(counts: Counts) -> None:
    for name, count in sorted(counts.items()):
        _say(f"  {count:>9}  {name}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="one seed, with its ledger")
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    asked = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        os.environ["PYTHONHASHSEED"] = HASH_SEED
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    if asked.seed is not None:
        return _one(asked.seed)
    return _many(asked.first, asked.seeds)


if __name__ == "__main__":
    sys.exit(main())
