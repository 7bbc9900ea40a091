"""Plots: whatever was saved becomes a well-formed file; the newest results of one machine are what counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.compare import newest
from bench.plots import CHARTS, draw, page
from bench.svg import Axis, Chart

LATE = {"min": 0, "p50": 9, "p90": 14, "p99": 30, "p999": 60, "max": 70}
CPU = {"p0": 200.0, "broker": 50.0, "fire": 60.0, "idleTurn": 14.0}
SAMPLES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "peers-steady": ({"system": "river"}, {"receivedLateMs": LATE}),
    "peers-herd": ({"system": "river"}, {"executionsPerSec": 15_000}),
    "killed": ({}, {"lateMsBySec": {"killed": {"-1": 10, "7": 6_900}, "others": {"-1": 0, "7": 30}}}),
    "duescan": ({"registered": 10_000}, {"cpuUs": CPU}),
    "growth": ({"processors": 1, "partitions": 8}, {"cpuUsPerExecution": CPU}),
    "registered": ({"n": 1_000_000}, {"memoryMib": {"steady": 400.0}}),
}


def _saved(scenario: str, date: str, cpu: str = "x") -> dict[str, Any]:
    settings, figures = SAMPLES[scenario]
    machine = {"cpu": cpu, "cores": 2}
    return {
        "scenario": scenario,
        "settings": settings,
        "figures": figures,
        "machine": machine,
        "date": date,
    }


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_is_a_well_formed_file_with_something_in_it(name: str) -> None:
    scenario, make = CHARTS[name]
    chart = make([_saved(scenario, "2026-01-01")])
    assert chart is not None
    tree = ElementTree.fromstring(chart.svg())
    assert tree.findall(".//{*}circle") or len(tree.findall(".//{*}rect")) > 1
    assert make([]) is None


def test_results_of_another_machine_are_left_out(tmp_path: Path) -> None:
    lines = [_saved("duescan", "2026-01-02"), _saved("duescan", "2026-01-03", cpu="other")]
    (tmp_path / "duescan.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert [each["date"] for each in newest(tmp_path)["duescan"]] == ["2026-01-03"]
    assert newest(tmp_path / "nothing") == {}


def test_of_one_size_measured_with_other_settings_the_newest_counts() -> None:
    """Two points at one place would draw a saw."""
    older, newer = _saved("growth", "2026-01-02"), _saved("growth", "2026-01-03")
    chart = CHARTS["partitions"][1]([older, newer])
    assert chart is not None
    assert chart.lines == {"processor": [(8, 200)], "broker": [(8, 50)]}


def test_a_plot_that_this_machine_has_no_result_for_goes(tmp_path: Path) -> None:
    draw({"duescan": [_saved("duescan", "2026-01-02") | {"commit": "abc"}]}, tmp_path)
    assert (tmp_path / "registered.svg").exists()
    draw({"registered": [_saved("registered", "2026-01-03", "y") | {"commit": "def"}]}, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "memory.svg"]
    assert "Measured on y, 2 cores." in (tmp_path / "README.md").read_text()


@pytest.mark.parametrize("log", [False, True])
def test_all_points_lie_inside_the_frame(log: bool) -> None:
    chart = Chart("t", Axis("x", log=log), Axis("y", log=log), {"a <b>": [(1, 0.5), (64, 12_000)]})
    for circle in ElementTree.fromstring(chart.svg()).findall(".//{*}circle"):
        assert 76 <= float(circle.attrib["cx"]) <= 616
        assert 44 <= float(circle.attrib["cy"]) <= 284


def test_the_page_shows_what_was_drawn_and_from_what() -> None:
    saved = _saved("duescan", "2026-01-03") | {"commit": "abc", "loadAverageBefore": 0.3}
    chart = CHARTS["registered"][1]([saved])
    assert chart is not None
    text = page({"registered": chart}, {"duescan": [saved]})
    assert "(registered.svg)" in text
    assert "`duescan`, commit abc, 2026-01-03, load average before: up to 0.3" in text
