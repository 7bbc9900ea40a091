"""Peers: what a driver printed is judged as Horarium's own runs are, and compared the right way round."""

from __future__ import annotations

import argparse
import json
from typing import Any

import pytest

from bench import herd, processor, steady
from bench.peers.__main__ import HTTP, KAFKA, measure, processors_of, ratios
from bench.peers.driver import Peer, Seen, figures

CPU = {"database": 3.0, "driver": 1.0}


def _seen(late_ms: list[int | None], runs: int) -> Seen:
    return Seen(register_sec=0.5, due_ms=1_000, last_ms=3_000, runs=runs, late_ms=late_ms)


def test_a_run_in_which_each_job_ran_once_is_valid() -> None:
    found = figures(_seen([10, 30, 20, 0], runs=4), CPU)
    assert found["valid"] is True
    assert found["registeredPerSec"] == 8
    assert found["executionsPerSec"] == 2
    assert found["receivedLateMs"]["max"] == 30
    assert found["cpuUsPerJob"] == {"database": 750_000.0, "driver": 250_000.0}


@pytest.mark.parametrize(
    ("late_ms", "runs", "name"),
    [([10, None], 1, "lost"), ([10, 20], 3, "acceptedTwice"), ([10, -1], 2, "early")],
    ids=["lost", "twice", "early"],
)
def test_what_was_lost_early_or_ran_twice_is_not_valid(
    late_ms: list[int | None], runs: int, name: str
) -> None:
    found = figures(_seen(late_ms, runs), CPU)
    assert found["valid"] is False
    assert found[name] == 1


@pytest.mark.parametrize(("cores", "by_kafka", "by_http"), [(1, 1, 1), (2, 2, 1), (8, 8, 4)])
def test_processors_fill_the_machine_beside_what_else_runs(cores: int, by_kafka: int, by_http: int) -> None:
    assert processors_of(KAFKA, cores) == by_kafka
    assert processors_of(HTTP, cores) == by_http


def _ours(per_sec: int, late_ms: float) -> dict[str, Any]:
    cpu = {"server": 40.0, "load": 10.0}
    return {
        "executionsPerSec": per_sec,
        "receivedLateMs": {"p50": late_ms, "p99": late_ms},
        "cpuUsPerRegistration": cpu,
        "cpuUsPerExecution": cpu,
    }


def test_above_one_is_better_for_horarium() -> None:
    peer = {
        "executionsPerSec": 100,
        "receivedLateMs": {"p50": 30, "p99": 60},
        "cpuUsPerJob": {"database": 150.0, "driver": 50.0},
    }
    found = {
        ("herd", KAFKA): _ours(200, 0),
        ("herd", HTTP): _ours(50, 0),
        ("herd", "river"): peer,
        ("steady", KAFKA): _ours(0, 10),
        ("steady", HTTP): _ours(0, 120),
        ("steady", "river"): peer,
    }
    by_kafka = {"executionsPerSec": 2.0, "cpuPerJob": 2.0, "lateP50": 3.0, "lateP99": 6.0}
    by_http = {"executionsPerSec": 0.5, "cpuPerJob": 2.0, "lateP50": 0.25, "lateP99": 0.5}
    assert ratios(found) == {f"{KAFKA} to river": by_kafka, f"{HTTP} to river": by_http}


def test_only_what_has_processors_says_whether_they_were_compiled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in (herd, processor, steady):
        monkeypatch.setattr(module, "measure", lambda _: {"valid": True})
    monkeypatch.setattr(Peer, "measure", lambda *_: {"valid": True})
    given = {"n": 10, "rate": 5, "seconds": 2, "shards": 8, "processors": 2, "repeat": 1, "save": False}
    peer = Peer("river", lambda: [], lambda _: "")
    measure(argparse.Namespace(only_peers=False, **given), [peer])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["settings"]["system"] for line in lines] == [KAFKA, HTTP, "river"] * 2
    assert ["compiled" in line for line in lines] == [True, True, False] * 2
