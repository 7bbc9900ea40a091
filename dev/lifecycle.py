"""Draws `docs/lifecycle.md` from the transition tables of `streams.core.lifecycle`.

`python -m dev.lifecycle` writes it; a test holds it current.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from schemas.entities import BreakerStatus
from streams.core.lifecycle import BREAKER, EXECUTION, FINAL, JOB, JOB_FINAL

PAGE = Path(__file__).resolve().parent.parent / "docs" / "lifecycle.md"

S = TypeVar("S", bound=StrEnum)

_INTRO = """# Lives of jobs, executions and circuit breakers

Drawn from `streams/core/lifecycle.py` by `python -m dev.lifecycle`. A change that is not drawn here stops its
partition before it is written. What each state means: [semantics](semantics.md), section 4; of a circuit
breaker: section 6.
"""


def page() -> str:
    """The whole page."""
    jobs = _diagram(JOB, JOB_FINAL, starts=[next(iter(JOB))])
    executions = _diagram(EXECUTION, FINAL, starts=sorted(EXECUTION[None]))
    closed = [BreakerStatus.CLOSED]
    breakers = _diagram(BREAKER, closed, starts=BREAKER[BreakerStatus.CLOSED])
    parts = (("Job", jobs), ("Execution", executions), ("Circuit breaker", breakers))
    return "\n".join([_INTRO, *(f"## {name}\n{drawn}" for name, drawn in parts)])


def _diagram(
    table: Mapping[S, Iterable[S]] | Mapping[S | None, Iterable[S]], final: Iterable[S], starts: Iterable[S]
) -> str:
    lines = ["```mermaid", "stateDiagram-v2"]
    lines += [f"    [*] --> {start}" for start in starts]
    for state, following in table.items():
        if state is not None:
            lines += [f"    {state} --> {after}" for after in sorted(following)]
    lines += [f"    {end} --> [*]" for end in sorted(final)]
    return "\n".join([*lines, "```", ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
