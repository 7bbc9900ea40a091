"""Owns cron expressions: `parse_cron` makes a `Cron`, which matches naive local time.

5 fields, or 6 with the seconds first, or a macro. A `Cron` is found, counted and stepped through on
the wall clock alone (whole seconds, counted as if it were UTC); `schedule.py` maps that to instants.
Times of a day are ranked, days are bits of a month's mask (`cron_days.py`): nothing here walks
second by second, whatever the expression.

croniter is not imported at run time. Its parser takes what must be refused here (`FRI-MON` and
other wrapped ranges, `*/90`, `R`), its `H H` reaches 240 of the 1,440 minutes, and it can neither
count a range nor step back without iterating. For the plain subset it is right, and the tests hold
this module to it as an independent oracle.
"""

import re
from bisect import bisect_left
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

from streams.core.cron_days import can_match, day_table, kind_of, month_length
from streams.core.cron_fields import (
    DAY,
    HOUR,
    MINUTE,
    MONTH,
    SECOND,
    WEEKDAY,
    CronError,
    Field,
    FieldParser,
    Refused,
)
from streams.core.instants import DAY_S, EPOCH_ORDINAL

__all__ = ["Cron", "CronError", "parse_cron", "uses_hash"]

MAX_CHARS = 1000  # every value of every field written out takes some 550
MAX_PART_CHARS = 40  # so much of a bad part is repeated in a message
CACHED = 65_536  # expressions with `H` are one a job; a parsed one takes about 1 KiB
FIRST_MONTH, LAST_MONTH = 12, 9999 * 12 + 11  # months counted from year 0: the years 1 to 9999

MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_KINDS = (SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY)
_HASH_RE = re.compile(r"(?:^|[\s,])[Hh](?:$|[\s,(/])")
_SECOND_ZERO = Field("0", 1, False, False)


@dataclass(frozen=True, slots=True, eq=False)
class Cron:
    """A parsed expression. Compared by identity; equal expressions are one object (see `_intern`)."""

    text: str  # as given
    expanded: str  # with the values of `H` and macros, for people: `H/6` in the hour field is elapsed time
    follows_elapsed: bool  # the hour field starts with `*` or `H/n`
    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    month_mask: int
    day_table: tuple[int, ...]

    @property
    def times_per_day(self) -> int:
        return len(self.hours) * len(self.minutes) * len(self.seconds)

    def next_at(self, local_s: int) -> int | None:
        """The first match at or after; None behind the year 9999."""
        day, second = divmod(local_s, DAY_S)
        rank = self._rank(second)
        if rank == self.times_per_day:
            day, rank = day + 1, 0
        found = self._next_day(day)
        if found is None:
            return None
        return found * DAY_S + self._time(rank if found == day else 0)

    def nth_back(self, local_s: int, n: int) -> int | None:
        """The n-th match counted back from `local_s` (1: the last one at or before it)."""
        day, second = divmod(local_s, DAY_S)
        if self._matches_day(day):
            upto = self._rank(second + 1)
            if n <= upto:
                return day * DAY_S + self._time(upto - n)
            n -= upto
        whole_days, left = divmod(n - 1, self.times_per_day)
        found = self._previous_day(day, whole_days)
        if found is None:
            return None
        return found * DAY_S + self._time(self.times_per_day - 1 - left)

    def count_between(self, first_s: int, last_s: int) -> int:
        """How many matches lie in [first, last]; by whole months, days and ranks."""
        if first_s > last_s:
            return 0
        first_day, first_second = divmod(first_s, DAY_S)
        last_day, last_second = divmod(last_s, DAY_S)
        count = self._count_days(first_day, last_day) * self.times_per_day
        if self._matches_day(first_day):
            count -= self._rank(first_second)
        if self._matches_day(last_day):
            count -= self.times_per_day - self._rank(last_second + 1)
        return count

    def _rank(self, second: int) -> int:
        """How many times of a day are before this second of it."""
        hour, rest = divmod(second, 3600)
        minute, second = divmod(rest, 60)
        hours, minutes, seconds = self.hours, self.minutes, self.seconds
        at = bisect_left(hours, hour)
        rank = at * len(minutes)
        if at < len(hours) and hours[at] == hour:
            at = bisect_left(minutes, minute)
            rank += at
            if at < len(minutes) and minutes[at] == minute:
                return rank * len(seconds) + bisect_left(seconds, second)
        return rank * len(seconds)

    def _time(self, rank: int) -> int:
        """The second of a day with this rank."""
        rank, second = divmod(rank, len(self.seconds))
        hour, minute = divmod(rank, len(self.minutes))
        return self.hours[hour] * 3600 + self.minutes[minute] * 60 + self.seconds[second]

    def _month(self, index: int) -> tuple[int, int]:
        """Number of the day before the month's first one, and the mask of its matching days."""
        year, month = divmod(index, 12)
        before = date(year, month + 1, 1).toordinal() - 1 - EPOCH_ORDINAL
        first_weekday = (before + 5) % 7  # day 0, 1970-01-01, was a Thursday
        return before, self.day_table[kind_of(month_length(year, month + 1), first_weekday)]

    def _allows(self, index: int) -> bool:
        return bool(self.month_mask >> (index % 12 + 1) & 1)

    def _matches_day(self, day: int) -> bool:
        index, number = _month_and_day(day)
        return self._allows(index) and bool(self._month(index)[1] >> number & 1)

    def _next_day(self, day: int) -> int | None:
        if day > LAST_DAY:
            return None
        index, number = _month_and_day(day)
        while index <= LAST_MONTH:
            if self._allows(index):
                before, mask = self._month(index)
                mask = mask >> number << number
                if mask:
                    return before + (mask & -mask).bit_length() - 1
            index, number = index + 1, 0
        return None

    def _previous_day(self, day: int, skip: int) -> int | None:
        """The matching day before `day` that has `skip` others between."""
        index, number = _month_and_day(day)
        below = (1 << number) - 1
        while index >= FIRST_MONTH:
            if self._allows(index):
                before, mask = self._month(index)
                mask &= below
                count = mask.bit_count()
                if skip < count:
                    for _ in range(skip):
                        mask ^= 1 << (mask.bit_length() - 1)
                    return before + mask.bit_length() - 1
                skip -= count
            index, below = index - 1, -1
        return None

    def _count_days(self, first_day: int, last_day: int) -> int:
        first_index, first_number = _month_and_day(first_day)
        last_index, last_number = _month_and_day(last_day)
        count = 0
        for index in range(first_index, last_index + 1):
            if self._allows(index):
                mask = self._month(index)[1]
                if index == last_index:
                    mask &= (2 << last_number) - 1
                if index == first_index:
                    mask = mask >> first_number << first_number
                count += mask.bit_count()
        return count


LAST_DAY = date.max.toordinal() - EPOCH_ORDINAL


def _month_and_day(day: int) -> tuple[int, int]:
    when = date.fromordinal(day + EPOCH_ORDINAL)
    return when.year * 12 + when.month - 1, when.day


def parse_cron(text: object, seed: str = "", field: str = "schedule.cron") -> Cron:
    """Parse an expression; `CronError` names the part and what is accepted.

    `seed` is tenant and job id. It is looked at only where `H` occurs, and `H` without it is refused.
    """
    if not isinstance(text, str):
        raise CronError(field, "", "expected one cron expression as text, such as '0 9 * * MON-FRI'")
    if len(text) > MAX_CHARS:
        raise CronError(field, text[:MAX_PART_CHARS], f"longer than {MAX_CHARS} characters")
    try:
        return _parse(text, seed if uses_hash(text) else "")
    except Refused as refused:
        raise CronError(field, refused.part[:MAX_PART_CHARS], refused.detail) from None


def uses_hash(text: str) -> bool:
    """Whether the expression depends on the job, `h` counting as `H`; without it the seed is ignored."""
    return _HASH_RE.search(text) is not None


@lru_cache(maxsize=CACHED)
def _parse(text: str, seed: str) -> Cron:
    for char in text:
        if not (" " <= char <= "~" or char == "\t"):
            raise Refused(char, f"{char!r} does not belong into a cron expression; accepted: ASCII text")
    parts = text.split()
    if len(parts) == 1 and parts[0].startswith("@"):
        parts = _macro(parts[0]).split()
    if len(parts) not in (5, 6):
        raise Refused(
            text,
            f"{len(parts)} fields; accepted: 5 (minute, hour, day of month, month, weekday), or 6 with "
            f"the second first, or one of {', '.join(MACROS)}",
        )
    kinds = _KINDS[-len(parts) :]
    fields = [FieldParser(kind, seed).parse(part) for kind, part in zip(kinds, parts, strict=True)]
    second = fields[0] if len(parts) == 6 else _SECOND_ZERO
    minute, hour, day, month, weekday = fields[-5:]
    table = day_table(day, weekday)
    if not can_match(table, month.mask):
        raise Refused(
            parts[-3],
            f"day of month {parts[-3]!r}, month {parts[-2]!r} and weekday {parts[-1]!r} never meet in any "
            "year; accepted: days that some of the months have",
        )
    expanded = " ".join(field.text for field in fields)
    return _intern(text, expanded, hour.every_step, second.mask, minute.mask, hour.mask, month.mask, table)


def _macro(part: str) -> str:
    expansion = MACROS.get(part.lower())
    if expansion is not None:
        return expansion
    reason = (
        "is not supported, a distributed scheduler has no boot" if part.lower() == "@reboot" else "is unknown"
    )
    raise Refused(part, f"macro {part[:MAX_PART_CHARS]!r} {reason}; accepted: {', '.join(MACROS)}")


@lru_cache(maxsize=CACHED)
def _intern(
    text: str,
    expanded: str,
    follows_elapsed: bool,
    second_mask: int,
    minute_mask: int,
    hour_mask: int,
    month_mask: int,
    table: tuple[int, ...],
) -> Cron:
    """One object for jobs whose `H` came out alike, so that they share cached occurrences."""
    return Cron(
        text=text,
        expanded=expanded,
        follows_elapsed=follows_elapsed,
        seconds=_members(second_mask),
        minutes=_members(minute_mask),
        hours=_members(hour_mask),
        month_mask=month_mask,
        day_table=table,
    )


def _members(mask: int) -> tuple[int, ...]:
    return tuple(value for value in range(mask.bit_length()) if mask >> value & 1)
