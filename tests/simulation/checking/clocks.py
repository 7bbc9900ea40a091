"""Never early by the brokers' clock either: nothing is decided ahead of true time by more than clocks may be
apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.simulation.history import Happened


def check_clocks(part: Sequence[Happened], slack_ms: int) -> Iterator[str]:
    """One partition. What is written later than it was decided is no fault: a process may freeze."""
    for happened in part:
        if happened.event is not None and happened.event.at_ms - happened.stamped_ms > slack_ms:
            ahead_ms = happened.event.at_ms - happened.stamped_ms
            yield f"{happened.key}: decided {ahead_ms} ms ahead of the brokers' time"
