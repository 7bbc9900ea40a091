"""Lateness in bounded memory."""

import pytest

from projections.checker.report import SHOWN_MAX, Kind, Lateness, Report


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([], 50, 0), ([7], 99, 7), ([3, 1, 2], 50, 2), (range(1, 101), 99, 99), ([5, 61_234], 99, 61_200)],
)
def test_percentiles(values: list[int], percent: int, expected: int) -> None:
    lateness = Lateness()
    for value in values:
        lateness.add(value)
    assert lateness.percentile(percent) == expected
    assert lateness.count == len(values)
    assert lateness.most_ms == max(values, default=0)


def test_memory_is_bounded() -> None:
    lateness = Lateness()
    for value in range(0, 3_000_000, 7):
        lateness.add(value)
    assert len(lateness._counts) < 5_000
    report = Report()
    for _ in range(SHOWN_MAX + 5):
        report.add(Kind.EARLY, "t/e", "so")
    assert (report.found[Kind.EARLY], len(report.violations)) == (SHOWN_MAX + 5, SHOWN_MAX)
