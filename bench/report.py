"""What a result is: scenario, settings, machine, commit, date and figures, as one JSON line.

`loadAverageBefore` tells how busy the machine was with other things: above 0.5, distrust every time.
`compiled`: whether processors ran compiled (`dev.compiled`); absent where none took part, as for a peer, or
where the benchmark runs the engine itself, from its sources.

Figures are numbers and booleans, in objects at most. With `--repeat` each run is printed and the medians are
what counts. With `--save` the last line is appended to `bench/results/<scenario>.jsonl`. A result that is not
valid (something was lost, early or twice) is printed and never saved.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dev import compiled
from streams import collector
from streams.ambient import wall_ms

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"

Figures = dict[str, Any]
VALID = "valid"
"""The figure that says whether the run did what it measures."""
GIVEN_UP_SEC, GIVEN_UP_PER_SEC = 300, 250
"""A system that takes longer than this, and as long as so many a second need, does no more of them."""


def arguments(description: str) -> argparse.ArgumentParser:
    """The options that every benchmark has."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=1, help="runs; the result is the median of each figure")
    parser.add_argument("--save", action="store_true", help="append the result to bench/results/")
    return parser


def only(options: argparse.Namespace, **settings: Any) -> argparse.Namespace:
    """How often and whether to save, with these settings instead of all others."""
    return argparse.Namespace(repeat=options.repeat, save=options.save, **settings)


def run(
    scenario: str, options: argparse.Namespace, measure: Callable[[], Figures], *, processors: bool = True
) -> Figures:
    """Measures `--repeat` times, prints, saves; ends with 1 if a run was not valid. `processors`: whether any
    take part."""
    # As every process of the server does: else the engine is measured with a collector that it never has,
    # and the load costs half as much again.
    collector.settle()
    settings = {name: value for name, value in vars(options).items() if name not in {"repeat", "save"}}
    runs = []
    load_average = round(os.getloadavg()[0], 2)
    for number in range(options.repeat):
        runs.append(measure())
        if options.repeat > 1:
            _print(_result(scenario, settings, runs[-1], processors) | {"run": number + 1})
    result = _result(scenario, settings, median_of(runs), processors)
    result |= {"runs": len(runs), "loadAverageBefore": load_average}
    _print(result)
    if not result["figures"].get(VALID, True):
        sys.exit(1)
    if options.save:
        save(result)
    figures: Figures = result["figures"]
    return figures


def within_sec(count: int) -> float:
    """How long so many jobs are waited for, to be registered or to run, until the rest counts as lost."""
    return GIVEN_UP_SEC + count / GIVEN_UP_PER_SEC


def _result(scenario: str, settings: Mapping[str, Any], figures: Figures, processors: bool) -> dict[str, Any]:
    return {
        "scenario": scenario,
        "settings": dict(settings),
        "figures": figures,
        "machine": machine(),
        **({"compiled": bool(compiled.environment())} if processors else {}),
        "commit": commit(),
        "date": datetime.fromtimestamp(wall_ms() // 1000, UTC).isoformat().replace("+00:00", "Z"),
    }


def _print(result: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()


def save(result: Mapping[str, Any]) -> None:
    """Appends a result to its scenario's file."""
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{result['scenario']}.jsonl").open("a") as file:
        file.write(json.dumps(result) + "\n")


def median_of(runs: Sequence[Figures]) -> Figures:
    """The median of each figure; what must hold must hold in every run."""
    return {name: _median([each[name] for each in runs if name in each]) for name in runs[0]}


def _median(values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, dict):
        return median_of(values)
    if isinstance(first, bool):
        return all(values)
    if any(value is None for value in values):
        return None
    return statistics.median(values)


def machine() -> dict[str, Any]:
    """What the figures depend on most."""
    return {
        "cpu": _cpu_model(),
        "cores": cores(),
        "memoryGib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
    }


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def commit() -> str:
    """The commit measured; `+` if the server's code has changes that are not committed."""
    head = _git("rev-parse", "--short", "HEAD")
    changed = _git("status", "--porcelain", "--", "schemas", "streams", "projections", "api", "dev")
    return head + "+" if changed else head


def _git(*command: str) -> str:
    done = subprocess.run(["git", *command], capture_output=True, text=True, check=False, cwd=ROOT)
    return done.stdout.strip()


def spread(values: Sequence[float]) -> dict[str, float]:
    """p50, p90, p99, p99.9, least and most."""
    if not values:
        return {}
    ordered = sorted(values)
    last = len(ordered) - 1
    return {
        "min": round(ordered[0], 2),
        "p50": round(ordered[last // 2], 2),
        "p90": round(ordered[min(last, len(ordered) * 90 // 100)], 2),
        "p99": round(ordered[min(last, len(ordered) * 99 // 100)], 2),
        "p999": round(ordered[min(last, len(ordered) * 999 // 1000)], 2),
        "max": round(ordered[-1], 2),
    }
