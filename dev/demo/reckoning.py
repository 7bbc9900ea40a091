"""When the demo's jobs must occur, reckoned apart from the scheduler: nothing of `streams` is used here.

Slow and plain on purpose: a cron expression is tried on every second of the window, on the wall clock of its
zone. It knows only the forms that the demo uses.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

# Seconds, minutes, hours, days, months, weekdays (0 is Sunday).
RANGES = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 6))


@dataclass(frozen=True, slots=True)
class Once:
    """At one instant."""

    at_ms: int

    def instants(self, registered_ms: int, until_ms: int) -> Iterator[int]:
        if self.at_ms <= until_ms:
            yield self.at_ms


@dataclass(frozen=True, slots=True)
class After:
    """So long after the registration."""

    seconds: int

    def instants(self, registered_ms: int, until_ms: int) -> Iterator[int]:
        return Once(registered_ms + self.seconds * 1000).instants(registered_ms, until_ms)


@dataclass(frozen=True, slots=True)
class Each:
    """Again and again, counted from the registration."""

    seconds: int

    def instants(self, registered_ms: int, until_ms: int) -> Iterator[int]:
        step_ms = self.seconds * 1000
        return iter(range(registered_ms + step_ms, until_ms + 1, step_ms))


@dataclass(frozen=True, slots=True)
class Cron:
    """Six fields, in the local time of a zone."""

    expression: str
    zone: str

    def instants(self, registered_ms: int, until_ms: int) -> Iterator[int]:
        fields = [_values(text, *span) for text, span in zip(self.expression.split(), RANGES, strict=True)]
        zone = ZoneInfo(self.zone)
        for second in range(registered_ms // 1000 + 1, until_ms // 1000 + 1):
            local = datetime.fromtimestamp(second, UTC).astimezone(zone)
            now = (local.second, local.minute, local.hour, local.day, local.month, local.isoweekday() % 7)
            if all(part in allowed for part, allowed in zip(now, fields, strict=True)):
                yield second * 1000


Rule = Once | After | Each | Cron


def _values(text: str, lowest: int, highest: int) -> set[int]:
    """`*`, `a`, `a-b`, each with `/n`, and lists of them."""
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, dash, last = span.partition("-")
        if span == "*":
            begin, end = lowest, highest
        else:
            begin, end = int(first), int(last if dash else first)
        found.update(range(begin, end + 1, int(step or 1)))
    return found
