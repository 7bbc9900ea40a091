"""CPU of the engine against a stored baseline: a report in every build, and an alarm that is no lottery."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench import guard


@pytest.mark.slow
def test_the_engine_is_about_as_fast_as_it_was(tell: Callable[[str], None]) -> None:
    baseline, now = guard.load(), guard.measure()
    tell(guard.report(baseline, now))
    assert baseline.keys() == now.keys(), "python -m bench.guard --update"
    assert not guard.alarms(baseline, now)


def test_only_what_costs_several_times_as_much_alarms() -> None:
    baseline = {"fire": 4.0, "claim": 2.0}
    assert guard.alarms(baseline, {"fire": 11.9, "claim": 6.1, "new": 99.0}) == ["claim"]
    assert "fire" in guard.report(baseline, {"fire": 11.9, "claim": 6.1})
