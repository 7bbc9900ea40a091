"""Owns which days of a month a pair of day fields selects.

A month is told by its length and the weekday of its first day alone, 28 kinds in all, and all of
them occur. So the whole calendar of an expression is a table of 28 bitmasks (bit d is day d): no
form costs more than another at run time, and "can this ever match?" is a look at the table.
"""

from functools import lru_cache

from streams.core.cron_fields import Field

SHORTEST, LONGEST = 28, 31
KINDS = (LONGEST - SHORTEST + 1) * 7
SATURDAY = 6  # Sunday is 0, as in cron
_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def month_length(year: int, month: int) -> int:
    if month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0):
        return 29
    return _LENGTHS[month]


def kind_of(length: int, first_weekday: int) -> int:
    """Index into the table of `day_table`."""
    return (length - SHORTEST) * 7 + first_weekday


@lru_cache(maxsize=4096)
def day_table(days: Field, weekdays: Field) -> tuple[int, ...]:
    """Masks of the matching days for each kind of month.

    Both fields restricted means either (OR), but both (AND) where one starts with a star: Vixie's
    rule, by the first character, as every cron of that family has it.
    """
    either = not days.starts_with_star and not weekdays.starts_with_star
    table = []
    for length in range(SHORTEST, LONGEST + 1):
        for first_weekday in range(7):
            by_day = _by_day(days, length, first_weekday)
            by_weekday = _by_weekday(weekdays, length, first_weekday)
            table.append(by_day | by_weekday if either else by_day & by_weekday)
    return tuple(table)


def can_match(table: tuple[int, ...], month_mask: int) -> bool:
    """Whether any day of any year is selected."""
    for month in range(1, 13):
        if month_mask >> month & 1:
            lengths = (28, 29) if month == 2 else (_LENGTHS[month],)
            if any(table[kind_of(length, weekday)] for length in lengths for weekday in range(7)):
                return True
    return False


def _by_day(field: Field, length: int, first_weekday: int) -> int:
    mask = field.mask
    if field.last_day:
        mask |= 1 << length
    if field.last_workday:
        mask |= 1 << _nearest_workday(length, length, first_weekday)
    for day in range(1, length + 1):
        if field.near_mask >> day & 1:  # a month without the day has no nearest one either
            mask |= 1 << _nearest_workday(day, length, first_weekday)
    return mask & ((1 << length + 1) - 2)


def _nearest_workday(day: int, length: int, first_weekday: int) -> int:
    """The Monday to Friday nearest to a day without leaving the month."""
    weekday = (first_weekday + day - 1) % 7
    if weekday == SATURDAY:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day


def _by_weekday(field: Field, length: int, first_weekday: int) -> int:
    mask = 0
    for day in range(1, length + 1):
        weekday = (first_weekday + day - 1) % 7
        if (
            field.mask >> weekday & 1
            or (weekday, (day + 6) // 7) in field.nth
            or (field.last_mask >> weekday & 1 and day + 7 > length)
        ):
            mask |= 1 << day
    return mask
