"""A slow second opinion on schedules: looks at every minute of UTC, with `zoneinfo` as the clock.

It shares nothing with the code under test: own field reader (plain forms only), own calendar (datetime),
offsets from `zoneinfo` fed with the same package's file (`projections.checker.walls`). Only whole-minute
offsets and expressions without seconds are in its reach.
"""

from calendar import monthrange
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)


def _values(text: str, low: int, high: int) -> frozenset[int]:
    found: set[int] = set()
    for item in text.split(","):
        span, _, step = item.partition("/")
        first, _, last = span.partition("-")
        if span == "*":
            first, last = str(low), str(high)
        found.update(range(int(first), int(last or first) + 1, int(step or 1)))
    return frozenset(found)


@dataclass(frozen=True)
class Expression:
    """Five plain fields, `L` and `d#n` alone in theirs."""

    text: str

    def matches_day(self, day: date) -> bool:
        days, months, weekdays = self.text.split()[2:]
        if day.month not in _values(months, 1, 12):
            return False
        by_day = self._by_day(days, day)
        by_weekday = self._by_weekday(weekdays, day)
        if days.startswith("*") or weekdays.startswith("*"):
            return by_day and by_weekday
        return by_day or by_weekday

    @staticmethod
    def _by_day(days: str, day: date) -> bool:
        if days == "L":
            return day.day == monthrange(day.year, day.month)[1]
        return day.day in _values(days, 1, 31)

    @staticmethod
    def _by_weekday(weekdays: str, day: date) -> bool:
        if "#" in weekdays:
            weekday, nth = map(int, weekdays.split("#"))
            return day.isoweekday() % 7 == weekday and (day.day - 1) // 7 + 1 == nth
        return bool(_values(weekdays, 0, 6) & {day.isoweekday(), day.isoweekday() % 7})

    @property
    def elapsed(self) -> bool:
        return self.text.split()[1].startswith("*")


class Window:
    """Every minute of [start, end) in UTC with its wall clock, read once for many expressions."""

    def __init__(self, zone: ZoneInfo, start: datetime, end: datetime) -> None:
        self.walls: list[tuple[datetime, datetime]] = []  # (wall, UTC), the wall naive
        self.first: dict[datetime, datetime] = {}  # wall -> UTC of its first pass, or of the end of its gap
        at, before = start, None
        while at < end:
            wall = at.astimezone(zone).replace(tzinfo=None)
            self.walls.append((wall, at))
            skipped = before + MINUTE if before is not None else wall
            while skipped < wall:
                self.first.setdefault(skipped, at)
                skipped += MINUTE
            self.first.setdefault(wall, at)
            at, before = at + MINUTE, wall
        self.dates = {wall.date() for wall in self.first}

    def occurrences(self, expression: Expression) -> list[datetime]:
        """Instants of the window at which the expression occurs."""
        days = {day for day in self.dates if expression.matches_day(day)}
        minutes = _values(expression.text.split()[0], 0, 59)
        hours = _values(expression.text.split()[1], 0, 23)
        pairs = self.walls if expression.elapsed else list(self.first.items())
        return sorted(
            {
                at
                for wall, at in pairs
                if wall.minute in minutes and wall.hour in hours and wall.date() in days
            }
        )
