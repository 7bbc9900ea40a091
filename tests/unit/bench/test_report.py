"""Results: medians, distributions, and the comparison of saved ones."""

from __future__ import annotations

import argparse
import ast
import json
from pathlib import Path
from typing import Any

import pytest

from bench import compare, report
from bench.compare import load, table
from bench.report import median_of, run, spread, within_sec
from bench.usage import per_unit_us
from dev import compiled
from streams import collector


def test_medians_by_figure_and_what_must_hold_holds_in_every_run() -> None:
    runs = [
        {"a": 1, "late": {"p50": 3.0}, "valid": True},
        {"a": 9, "late": {"p50": 1.0}, "valid": False},
        {"a": 2, "late": {"p50": 2.0}, "valid": True},
    ]
    assert median_of(runs) == {"a": 2, "late": {"p50": 2.0}, "valid": False}


def test_a_herd_of_half_a_million_is_waited_for() -> None:
    slow_per_sec = 500
    assert within_sec(500_000) > 500_000 / slow_per_sec


def test_what_is_measured_has_the_collector_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    settled: list[bool] = []
    monkeypatch.setattr(collector, "settle", lambda: settled.append(True))
    found = run("some", argparse.Namespace(repeat=1, save=False), lambda: {"settled": len(settled)})
    assert found == {"settled": 1}


def test_what_one_run_never_reached_has_no_median() -> None:
    assert median_of([{"behind": 2.0}, {"behind": None}, {"behind": 4.0}]) == {"behind": None}


def test_spread() -> None:
    assert spread(range(1, 1001)) == {
        "min": 1,
        "p50": 500,
        "p90": 901,
        "p99": 991,
        "p999": 1000,
        "max": 1000,
    }
    assert set(spread([7.0]).values()) == {7.0}
    assert spread([]) == {}


def test_cpu_of_the_server_leaves_out_what_makes_the_load() -> None:
    each = per_unit_us({"p0": 2.0, "api": 1.0, "load": 5.0}, 1_000)
    assert each == {"p0": 2_000.0, "api": 1_000.0, "load": 5_000.0, "server": 3_000.0}


def _result(per_sec: float, cores: int = 2, **more: Any) -> dict[str, Any]:
    return {
        "scenario": "herd",
        "settings": {"n": 10},
        "figures": {"perSec": per_sec, "late": {"p50": 1}, "valid": True},
        "machine": {"cpu": "x", "cores": cores},
        "commit": f"c{per_sec}",
        "date": "2026-11-30T20:00:00Z",
        **more,
    }


def _saved(folder: Path, *results: dict[str, Any]) -> Path:
    (folder / "herd.jsonl").write_text("".join(f"{json.dumps(result)}\n" for result in results))
    return folder


def test_results_are_compared_within_one_scenario_setting_and_machine(tmp_path: Path) -> None:
    found = load(_saved(tmp_path, _result(100), _result(5, cores=64), _result(150)))
    assert [len(results) for results in found.values()] == [2, 1]
    before, now = next(iter(found.values()))
    shown = list(table(before, now))
    assert len(shown) == 2
    assert "+50.0%" in shown[0]
    assert next(table(None, now)).split() == ["perSec", "150.00"]


def test_compiled_processors_are_compared_with_compiled_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        _result(100),
        _result(200, compiled=True),
        _result(110, compiled=False),
        _result(300, compiled=True),
    ]
    monkeypatch.setattr("sys.argv", ["compare", "--results", str(_saved(tmp_path, *lines))])
    compare.main()
    sources, machine_code = capsys.readouterr().out.split("\n\n")[:2]
    assert "before: c100" in sources
    assert "compiled" not in sources
    assert "+10.0%" in sources
    assert "x, 2 cores, compiled\n  before: c200" in machine_code
    assert "+50.0%" in machine_code


@pytest.mark.parametrize("processors", [True, False])
@pytest.mark.parametrize("made", [True, False])
def test_a_result_says_whether_processors_that_took_part_were_compiled(
    processors: bool, made: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compiled, "environment", lambda: {"PYTHONPATH": "made"} if made else {})
    run("some", argparse.Namespace(repeat=2, save=False), lambda: {"n": 1}, processors=processors)
    for line in capsys.readouterr().out.splitlines():
        assert json.loads(line).get("compiled") == (made if processors else None)


SERVERS = {"processors", "processor", "site"}
"""What a benchmark imports that starts processors."""


@pytest.mark.parametrize(
    "path", sorted(Path(report.__file__).parent.glob("*.py")), ids=lambda path: path.stem
)
def test_a_benchmark_without_processors_says_so(path: Path) -> None:
    tree = ast.parse(path.read_text())
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "bench"
        for alias in node.names
    }
    runs = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "report.run"
    ]
    if not imported & SERVERS:
        for call in runs:
            assert "processors" in {keyword.arg for keyword in call.keywords}
