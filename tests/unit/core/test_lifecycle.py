"""The drawn lifecycle is the one in the code, and its ends are ends."""

from __future__ import annotations

from dev.lifecycle import PAGE, page
from streams.core.lifecycle import EXECUTION, FINAL, JOB, JOB_FINAL


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m dev.lifecycle`"


def test_final_states_have_no_way_out_but_what_becomes_of_a_dead_letter() -> None:
    left = {state: after for state, after in EXECUTION.items() if state in FINAL and after}
    assert {state: set(after) for state, after in left.items()} == {"FAILED": {"PENDING", "FAILED"}}
    assert all(not JOB[state] for state in JOB_FINAL)
