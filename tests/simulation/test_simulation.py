"""The whole cluster under faults, a few seeds of it: nothing that was promised is broken, and what is to go
wrong does go wrong. `make sim SEEDS=1000` runs more."""

from __future__ import annotations

import pytest

from tests.simulation.hazards import Counts
from tests.simulation.runs import Result, run_seeds

pytestmark = pytest.mark.timeout(600)  # a loaded machine
SEEDS = range(3, 15)
SOMETIMES = (
    "API node crashed",
    "answer lost",
    "begins with a snapshot",
    "bucket damaged",
    "bucket failed",
    "call lost",
    "claim repeated",
    "clock stepped",
    "commit aborted",
    "commit unknown, aborted",
    "commit unknown, committed",
    "commit unknown, still open",
    "compaction",
    "crash between steps",
    "deployed",
    "disk lost",
    "fetch late",
    "frozen",
    "frozen in a step",
    "herd",
    "markers late",
    "member is evicted alive",
    "member is silent for too long",
    "member is taken for dead",
    "message late",
    "message lost",
    "message overtaken",
    "message twice",
    "newer zone data",
    "outage",
    "rebalance",
    "reported after its lease",
    "request repeated for nothing",
    "run slow",
    "run stuck",
    "rush",
    "settings changed",
    "snapshot refused",
    "snapshot taken",
    "started with a wrong clock",
    "worker died",
)


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return list(run_seeds(SEEDS))


def test_nothing_promised_is_broken(results: list[Result]) -> None:
    wrong = {result.seed: result.violations for result in results if result.violations}
    assert not wrong


def test_every_fault_really_happens(results: list[Result]) -> None:
    total = Counts()
    for result in results:
        total.update(result.counts)
    assert not [kind for kind in SOMETIMES if not total[kind]]


def test_live_states_were_compared(results: list[Result]) -> None:
    assert all(result.compared for result in results)


def test_a_seed_is_a_whole_run(results: list[Result]) -> None:
    (again,) = run_seeds([results[0].seed])
    assert again.print == results[0].print
    assert again.counts == results[0].counts
