"""Owns the text of instants: strict RFC 3339 in, canonical UTC out, and local wall-clock text.

Everything inside the engine is an integer of milliseconds since 1970 (`_ms`), or of whole
seconds (`_s`) where only seconds can occur. It knows no zone rules (`zones.py`) and no clock.
Input errors of all time modules are `TimeInputError`s: they name the field and the accepted form,
so the edge turns any of them into one 400.
"""

import re
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

DAY_S = 86_400
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)  # wall clocks know no zone
EPOCH_ORDINAL = _EPOCH.toordinal()
MIN_INSTANT_MS = (1 - EPOCH_ORDINAL) * DAY_S * 1000  # 0001-01-01T00:00:00Z: earlier has no RFC 3339 text
MAX_INSTANT_MS = (date.max.toordinal() + 1 - EPOCH_ORDINAL) * DAY_S * 1000 - 1  # end of year 9999
MAX_TEXT_CHARS = 64  # 20 digits of a second's fraction and an offset fit thrice

_LOCAL = r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?"
_INSTANT_RE = re.compile(_LOCAL + r"(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))")
_LOCAL_RE = re.compile(_LOCAL)
_INSTANT_FORM = (
    "an RFC 3339 instant with offset, such as 2026-09-02T22:30:00Z or 2026-09-02T22:30:00.250+02:00"
)
_LOCAL_FORM = "a local time without offset, such as 2026-09-02T22:30:00"


class TimeInputError(ValueError):
    """Some text about time cannot be accepted: `field` is where it came from, `detail` says why."""

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(f"{field}: {detail}")
        self.field = field
        self.detail = detail


class InstantError(TimeInputError):
    """The text is no instant, or no local time, in the one accepted form."""


def parse_instant(text: object, field: str) -> int:
    """Milliseconds since 1970; a fraction finer than a millisecond rounds up, so nothing runs early."""
    return _instant_ms(_text(text, field, _INSTANT_FORM), field)


@lru_cache(maxsize=1_024)  # read once to check it and once to use it, and a herd shares its own
def _instant_ms(text: str, field: str) -> int:
    match = _match(_INSTANT_RE, text, field, _INSTANT_FORM)
    local_ms = _local_ms(match, field)
    offset_s = 0
    if match[8] is not None:
        hours, minutes = int(match[9]), int(match[10])
        if hours > 23 or minutes > 59:
            raise InstantError(field, f"offset {match[8]}{match[9]}:{match[10]} is not within ±23:59")
        offset_s = (hours * 60 + minutes) * (-60 if match[8] == "-" else 60)
    return _checked(local_ms - offset_s * 1000, field)


def parse_local(text: object, field: str) -> int:
    """Milliseconds of a wall clock, counted as if it were UTC; `Zone.to_utc` makes an instant of it."""
    match = _match(_LOCAL_RE, _text(text, field, _LOCAL_FORM), field, _LOCAL_FORM)
    return _checked(_local_ms(match, field), field)


def format_instant(instant_ms: int) -> str:
    """Canonical text: UTC as `Z`, milliseconds only when there are any."""
    seconds, millis = divmod(instant_ms, 1000)
    return f"{format_local(seconds)}.{millis:03d}Z" if millis else f"{format_local(seconds)}Z"


@lru_cache(maxsize=1_024)  # a herd shares its own
def format_local(local_s: int) -> str:
    """A wall clock as YYYY-MM-DDTHH:MM:SS."""
    return (_EPOCH + timedelta(seconds=local_s)).isoformat()


def format_offset(offset_s: int) -> str:
    """An offset as RFC 3339 writes it; the odd seconds of times before 1972 are added as ISO 8601 does."""
    minutes, seconds = divmod(abs(offset_s), 60)
    text = f"{'-' if offset_s < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"
    return f"{text}:{seconds:02d}" if seconds else text


def _text(given: object, field: str, form: str) -> str:
    if not isinstance(given, str):
        raise InstantError(field, f"expected {form}")
    return given


def _match(pattern: re.Pattern[str], text: str, field: str, form: str) -> re.Match[str]:
    match = pattern.fullmatch(text) if len(text) <= MAX_TEXT_CHARS else None
    if match is None:
        raise InstantError(field, f"{text[:MAX_TEXT_CHARS]!r} is not {form}")
    return match


def _local_ms(match: re.Match[str], field: str) -> int:
    year, month, day, hour, minute, second = map(int, match.group(1, 2, 3, 4, 5, 6))
    if hour > 23 or minute > 59 or second > 59:
        hint = "a leap second or 24:00 is not accepted, " if second == 60 or hour == 24 else ""
        raise InstantError(field, f"{match[0]!r} has no valid time of day; {hint}00:00:00 to 23:59:59 is")
    try:
        day_number = date(year, month, day).toordinal() - EPOCH_ORDINAL
    except ValueError:
        raise InstantError(field, f"{match[0]!r} names a date that does not exist") from None
    local_ms = (day_number * DAY_S + hour * 3600 + minute * 60 + second) * 1000
    fraction = match[7]
    if not fraction:
        return local_ms
    return local_ms + int(fraction[:3].ljust(3, "0")) + (1 if fraction[3:].strip("0") else 0)


def _checked(instant_ms: int, field: str) -> int:
    if not MIN_INSTANT_MS <= instant_ms <= MAX_INSTANT_MS:
        raise InstantError(field, "outside the years 0001 to 9999 in UTC")
    return instant_ms
