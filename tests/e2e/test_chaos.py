"""The chaos in its short form, and the classic scenarios: three real brokers, real processes, real faults."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dev.chaos import faults, scenarios
from dev.chaos.run import play

SEED = 20260501


def test_a_short_chaos_keeps_every_promise(tmp_path: Path, tell: Callable[[str], None]) -> None:
    result = play(tmp_path, seed=SEED, faults=faults.SHORT, seconds=0, say=print)
    assert result.good, json.dumps(result.summary()) + "\n".join(map(str, result.report.violations[:20]))
    assert set(result.faults) == {fault.__name__ for fault in faults.SHORT}
    assert result.report.completed > 100
    late, effects = result.report.lateness, result.effects
    tell(
        f"chaos of {sum(result.faults.values())} faults: {result.report.due} occurrences, none unexplained,"
        f" late p50 {late.percentile(50)} ms, most {late.most_ms} ms; of {effects['effects']} effects"
        f" {effects['duplicatesFenced']} were doubled where the token is honoured,"
        f" {effects['duplicatesPlain']} where it is not"
    )


@pytest.mark.parametrize("name", scenarios.SCENARIOS)
def test_a_classic_scenario(name: str, tmp_path: Path, tell: Callable[[str], None]) -> None:
    outcome = scenarios.play(name, tmp_path)
    assert outcome.wrong == [], outcome.figures
    tell(f"{outcome.name}: {json.dumps(outcome.figures)}")
