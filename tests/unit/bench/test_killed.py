"""The curve around a kill: the worst of each second, and how long the lost partitions were behind."""

from __future__ import annotations

from bench.killed import back_under_ms, curve
from bench.service import Came

KILLED_MS = 100_000


def _came(received_ms: int, late_ms: int) -> Came:
    return Came(partition=1, due_ms=received_ms - late_ms, started_ms=received_ms, received_ms=received_ms)


def test_the_worst_of_each_second_by_when_it_came() -> None:
    came = [_came(98_500, 5), _came(98_900, 9), _came(106_999, 6_900), _came(107_000, 40), _came(90_000, 1)]
    assert curve(came, KILLED_MS) == {"-2": 9, "6": 6_900, "7": 40}


def test_behind_until_the_last_one_that_was_more_than_a_second_late() -> None:
    assert (
        back_under_ms([_came(106_500, 6_400), _came(107_200, 1_001), _came(109_000, 1_000)], KILLED_MS)
        == 7_200
    )
    assert back_under_ms([_came(99_000, 10)], KILLED_MS) == 0
