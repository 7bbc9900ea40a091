"""The newest saved result against the one before it that is like it: `python -m bench.compare`.

Alike are results of one scenario, with the same settings, on the same machine, all with compiled processors
or all without.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bench.report import RESULTS

WIDTH = 44


class Like(NamedTuple):
    """What results have in common that are compared."""

    scenario: str
    settings: str
    machine: str
    compiled: bool


def load(folder: Path) -> dict[Like, list[dict[str, Any]]]:
    """Results that are alike, in the order in which they were saved."""
    found: dict[Like, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            result = json.loads(line)
            settings = " ".join(f"{name}={value}" for name, value in sorted(result["settings"].items()))
            # Absent: no processor took part, or it was saved before any could be compiled.
            like = Like(result["scenario"], settings, machine_of(result), result.get("compiled", False))
            found.setdefault(like, []).append(result)
    return found


def newest(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The newest of each that are alike, by scenario, oldest first, of the machine that was measured last."""
    found = sorted((results[-1] for results in load(folder).values()), key=lambda result: str(result["date"]))
    by_scenario: dict[str, list[dict[str, Any]]] = {}
    for result in found:
        if machine_of(result) == machine_of(found[-1]):
            by_scenario.setdefault(result["scenario"], []).append(result)
    return by_scenario


def machine_of(result: Mapping[str, Any]) -> str:
    """A new kernel makes no other machine."""
    return f"{result['machine']['cpu']}, {result['machine']['cores']} cores"


def flat(figures: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Every number with its dotted name."""
    for name, value in figures.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield prefix + name, float(value)


def table(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> Iterator[str]:
    """One line a figure: before, now, change."""
    earlier = dict(flat(before["figures"])) if before is not None else {}
    for name, value in flat(now["figures"]):
        was = earlier.get(name)
        if was is None:
            yield f"  {name:<{WIDTH}} {'':>12} {value:>12,.2f}"
        else:
            change = f"{(value - was) / was:+8.1%}" if was else ""
            yield f"  {name:<{WIDTH}} {was:>12,.2f} {value:>12,.2f} {change}"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", nargs="*", help="only these")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder with the saved results")
    options = parser.parse_args()
    for like, results in load(options.results).items():
        if options.scenario and like.scenario not in options.scenario:
            continue
        before, now = (results[-2] if len(results) > 1 else None), results[-1]
        sys.stdout.write(f"{like.scenario} {like.settings}\n")
        sys.stdout.write(f"  {like.machine}{', compiled' if like.compiled else ''}\n")
        if before is not None:
            sys.stdout.write(f"  before: {before['commit']} {before['date']}\n")
        sys.stdout.write(f"  now:    {now['commit']} {now['date']}\n")
        sys.stdout.writelines(f"{line}\n" for line in table(before, now))
        sys.stdout.write("\n")


if __name__ == "__main__":
    main()
