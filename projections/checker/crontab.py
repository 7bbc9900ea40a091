"""Owns a second reading of cron expressions, apart from `streams.core.cron`: plain sets and the calendar.

It takes an expression that was accepted, as it was sent and with its hashed fields drawn; it refuses nothing.
"""

from __future__ import annotations

from calendar import monthrange
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache

_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


@dataclass(frozen=True, slots=True)
class Crontab:
    """`times`: seconds of a matching day, ascending. `elapsed`: both passes of a repeated hour count, and
    nothing extra follows a gap."""

    times: tuple[int, ...]
    elapsed: bool
    months: frozenset[int]
    days: str
    weekdays: str
    both: bool

    def matches(self, day: date) -> bool:
        """Vixie's rule: two restricted day fields mean either, unless one starts with a star."""
        if day.month not in self.months:
            return False
        by_day = any(_is_day(item, day) for item in self.days.split(","))
        by_weekday = any(_is_weekday(item, day) for item in self.weekdays.split(","))
        return (by_day and by_weekday) if self.both else (by_day or by_weekday)


@lru_cache(maxsize=65_536)
def read(sent: str, expanded: str) -> Crontab:
    """`sent` says how the hour and day fields were meant, `expanded` has their values."""
    asked = _MACROS.get(sent.strip().lower(), sent).upper().split()
    fields = expanded.upper().split()
    second, minute, hour, day, month, weekday = fields if len(fields) == 6 else ["0", *fields]
    hour_asked, day_asked, weekday_asked = asked[-4], asked[-3], asked[-1]
    seconds, minutes, hours = (
        sorted(_numbers(text, 0, high)) for text, high in ((second, 59), (minute, 59), (hour, 23))
    )
    return Crontab(
        times=tuple(h * 3600 + m * 60 + s for h in hours for m in minutes for s in seconds),
        elapsed=hour_asked.startswith(("*", "H/")),
        months=frozenset(_numbers(month, 1, 12, _MONTHS)),
        days=day,
        weekdays=weekday,
        both=day_asked.startswith(("*", "?")) or weekday_asked.startswith(("*", "?")),
    )


def _numbers(text: str, low: int, high: int, names: list[str] | None = None) -> set[int]:
    found: set[int] = set()
    for item in text.split(","):
        span, _, step = item.partition("/")
        first, dash, last = span.partition("-")
        if span in ("*", "?"):
            begin, end = low, high
        else:
            begin = _number(first, low, names)
            end = _number(last, low, names) if dash else high if step else begin
        found.update(range(begin, end + 1, int(step or 1)))
    return found


def _number(text: str, low: int, names: list[str] | None) -> int:
    return names.index(text) + low if names and text in names else int(text)


def _is_day(item: str, day: date) -> bool:
    last = monthrange(day.year, day.month)[1]
    if item == "L":
        return day.day == last
    if item == "LW":
        return day == _workday(date(day.year, day.month, last))
    if item.endswith("W"):
        wanted = int(item[:-1])
        return wanted <= last and day == _workday(date(day.year, day.month, wanted))
    return day.day in _numbers(item, 1, 31)


def _workday(day: date) -> date:
    """The Monday to Friday nearest to a day, in its month."""
    near = [day + timedelta(days=by) for by in (0, -1, 1, -2, 2)]
    return next(one for one in near if one.month == day.month and one.isoweekday() <= 5)


def _is_weekday(item: str, day: date) -> bool:
    today = day.isoweekday() % 7
    if "#" in item:
        name, _, nth = item.partition("#")
        return today == _weekday(name) and (day.day - 1) // 7 + 1 == int(nth)
    if item.endswith("L"):
        return today == _weekday(item[:-1]) and (day + timedelta(days=7)).month != day.month
    # A range may end on SUN or 7: the day after Saturday.
    span, slash, step = item.partition("/")
    if span.endswith("-SUN"):
        item = span.removesuffix("SUN") + "7" + slash + step
    if item in ("SUN", "7"):
        return today == 0
    if item.startswith(("SUN/", "7/")):
        item = "0/" + step
    return today in {number % 7 for number in _numbers(item, 0, 6, _WEEKDAYS)}


def _weekday(text: str) -> int:
    return _number(text, 0, _WEEKDAYS) % 7
