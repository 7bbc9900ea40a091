"""Plots of the saved results: `python -m bench.plots` writes docs/plots/*.svg, and the page that shows them.

The newest result of each scenario and setting on the machine that was measured last. A plot for which nothing
was saved is not written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.compare import machine_of, newest
from bench.report import RESULTS, ROOT
from bench.svg import Axis, Chart

PLOTS = ROOT / "docs" / "plots"
QUANTILES = ("p50", "p90", "p99", "p999", "max")

Result = Mapping[str, Any]


def by_setting(results: Sequence[Result], name: str) -> list[tuple[float, Mapping[str, Any]]]:
    """Figures by one setting, in its order. Other settings may differ: the newest result counts."""
    found = {float(each["settings"][name]): each["figures"] for each in results}
    return sorted(found.items(), key=lambda item: item[0])


def lateness(results: Sequence[Result]) -> Chart | None:
    """The steady rate, by system: the share of executions that came within so many milliseconds."""
    lines = {}
    for result in results:
        late = result["figures"]["receivedLateMs"]
        points = [(float(at), late[name]) for at, name in enumerate(QUANTILES) if name in late]
        lines[str(result["settings"]["system"])] = points
    if not lines:
        return None
    labels = ("50 %", "90 %", "99 %", "99.9 %", "all")
    return Chart(
        "Lateness at a steady rate",
        Axis("of the executions", labels=labels),
        Axis("at most so late, ms", log=True),
        lines,
    )


def herd(results: Sequence[Result]) -> Chart | None:
    """Executions a second, by system."""
    found = {str(each["settings"]["system"]): each["figures"]["executionsPerSec"] for each in results}
    if not found:
        return None
    bars = [(float(at), float(value)) for at, value in enumerate(found.values())]
    axis = Axis("", labels=tuple(found))
    return Chart("A herd due at one instant", axis, Axis("executions a second"), bars=bars)


def kill(results: Sequence[Result]) -> Chart | None:
    """Lateness in the seconds around a kill -9."""
    if not results:
        return None
    curves = results[-1]["figures"]["lateMsBySec"]
    names = {"killed": "partitions of the killed one", "others": "others"}
    lines = {names[name]: _points(curves[name]) for name in ("killed", "others")}
    return Chart(
        "kill -9 of one of two processors",
        Axis("seconds after the kill"),
        Axis("latest execution that came, ms late", log=True),
        lines,
    )


def _points(curve: Mapping[str, float]) -> list[tuple[float, float]]:
    return [(float(at), max(1.0, value)) for at, value in curve.items()]


SCANNED = {
    "fire, claim and complete": "execution",
    "fire alone": "fire",
    "turn with nothing due": "idleTurn",
}


def registered(results: Sequence[Result]) -> Chart | None:
    """CPU of a due job beside so many that are not due. Older results know of its firing alone."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for count, figures in by_setting(results, "registered"):
        for name, key in SCANNED.items():
            if key in figures["cpuUs"]:
                lines.setdefault(name, []).append((count, figures["cpuUs"][key]))
    if not lines:
        return None
    return Chart("Cost against registered jobs", Axis("registered jobs", log=True), Axis("CPU µs"), lines)


def partitions(results: Sequence[Result]) -> Chart | None:
    """CPU an execution by the number of partitions, one process."""
    one = [each for each in results if each["settings"]["processors"] == 1]
    lines: dict[str, list[tuple[float, float]]] = {}
    for count, figures in by_setting(one, "partitions"):
        for name, key in (("processor", "p0"), ("broker", "broker")):
            if key in figures["cpuUsPerExecution"]:
                lines.setdefault(name, []).append((count, figures["cpuUsPerExecution"][key]))
    if not lines:
        return None
    return Chart("Cost against partitions", Axis("partitions", log=True), Axis("CPU µs an execution"), lines)


def memory(results: Sequence[Result]) -> Chart | None:
    """Resident memory of one processor by registered jobs."""
    points = [(count, figures["memoryMib"]["steady"]) for count, figures in by_setting(results, "n")]
    if not points:
        return None
    return Chart(
        "Memory of one processor", Axis("registered jobs", log=True), Axis("MiB"), {"resident": points}
    )


CHARTS: Mapping[str, tuple[str, Callable[[Sequence[Result]], Chart | None]]] = {
    "lateness": ("peers-steady", lateness),
    "herd": ("peers-herd", herd),
    "kill": ("killed", kill),
    "registered": ("duescan", registered),
    "partitions": ("growth", partitions),
    "memory": ("registered", memory),
}


def page(made: Mapping[str, Chart], results: Mapping[str, Sequence[Result]]) -> str:
    """docs/plots/README.md: each plot, and what it was drawn from."""
    origin = "Made by `python -m bench.plots` from `bench/results`; `../benchmarks.md` says what is measured."
    machines = {machine_of(each) for name in made for each in results[CHARTS[name][0]]}
    origin += "".join(f" Measured on {machine}." for machine in machines)
    parts = ["# Plots", origin]
    for name, chart in made.items():
        scenario, _ = CHARTS[name]
        newest_of_it = results[scenario][-1]
        loads = [each["loadAverageBefore"] for each in results[scenario] if "loadAverageBefore" in each]
        busy = f", load average before: up to {max(loads):g}" if loads else ""
        parts.append(f"![{chart.title}]({name}.svg)")
        parts.append(f"`{scenario}`, commit {newest_of_it['commit']}, {newest_of_it['date']}{busy}")
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder with the saved results")
    parser.add_argument("--to", type=Path, default=PLOTS, help="folder for the plots")
    options = parser.parse_args()
    results = newest(options.results)
    draw(results, options.to)


def draw(results: Mapping[str, Sequence[Result]], folder: Path) -> None:
    """Writes plots and page. A plot of another machine goes: the page says where all of it was measured."""
    made: dict[str, Chart] = {}
    folder.mkdir(parents=True, exist_ok=True)
    for name, (scenario, make) in CHARTS.items():
        chart, path = make(results.get(scenario, [])), folder / f"{name}.svg"
        if chart is None:
            sys.stderr.write(f"{name}: no saved result of {scenario}\n")
            path.unlink(missing_ok=True)
        else:
            made[name] = chart
            path.write_text(chart.svg())
    (folder / "README.md").write_text(page(made, results))


if __name__ == "__main__":
    main()
