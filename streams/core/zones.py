"""Owns time zones: which names exist, and the exact relation of UTC and wall clock in each.

All data come from the pinned `tzdata` package, read here from its TZif files: neither the files of
the host nor `zoneinfo`'s search path (it takes the host's copy first, and loads `localtime`,
`posixrules` and `right/…` without complaint) can make two nodes disagree. Only offsets are used,
never the DST flag, whose sign is no help (Dublin's winter is negative DST).

A zone is a list of *segments* of constant offset. Behind the last explicit transition they follow
the yearly rule of the file's footer, tabulated for one Gregorian cycle of 400 years and periodic
after that, so any year up to 9999 costs one bisection. What a gap or a fold means to a schedule is
decided in `schedule.py`; it reads the segments.
"""

import re
import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from datetime import date
from functools import cache, lru_cache
from importlib import import_module, resources

from streams.core.instants import DAY_S, EPOCH_ORDINAL, TimeInputError, format_local, format_offset

CYCLE_YEARS = 400  # the Gregorian calendar repeats, weekdays included
CYCLE_S = 146_097 * DAY_S
NEVER_S = -(1 << 60)  # before every instant: the start of the first segment
MAX_NAME_CHARS = 64  # twice the longest listed name; only so much of a bad one is repeated

TZ_VERSION = str(import_module("tzdata").IANA_VERSION)

_FOOTER_RE = re.compile(
    r"(?P<std>[A-Za-z]+|<[^>]+>)(?P<std_offset>[-+]?[0-9:]+)"
    r"(?:(?P<dst>[A-Za-z]+|<[^>]+>)(?P<dst_offset>[-+]?[0-9:]+)?,(?P<start>[^,]+),(?P<end>[^,]+))?"
)
_RULE_RE = re.compile(r"M([0-9]+)\.([0-9])\.([0-9])(?:/(-?[0-9:]+))?")


class ZoneError(TimeInputError):
    """No zone of the pinned tzdata package has this name."""


class Zone:
    """One zone's segments. Compared by identity: `get_zone` returns the same object for a name."""

    __slots__ = ("_offsets_s", "_peaks_s", "_period", "_starts_s", "name")

    def __init__(self, name: str, tzif: bytes) -> None:
        self.name = name
        starts_s, offsets_s, last_s, footer = _read_tzif(tzif)
        self._period = _extend_by_footer(starts_s, offsets_s, last_s, footer)
        self._starts_s = array("q", starts_s)
        self._offsets_s = array("i", offsets_s)
        # Highest wall clock reached before each segment. Running, so that it only grows even if a
        # fold brought the clock below an earlier segment's end: bisection stays exact.
        peaks_s = [NEVER_S]
        for index in range(1, len(starts_s)):
            peaks_s.append(max(peaks_s[-1], starts_s[index] + offsets_s[index - 1]))
        self._peaks_s = array("q", peaks_s)

    def __repr__(self) -> str:
        return f"Zone({self.name!r})"

    def segment_at(self, utc_s: int) -> int:
        """Index of the segment that holds the instant."""
        last = self._starts_s[-1]
        if utc_s < last or not self._period:
            return bisect_right(self._starts_s, utc_s) - 1
        cycles = (utc_s - last) // CYCLE_S + 1
        return bisect_right(self._starts_s, utc_s - cycles * CYCLE_S) - 1 + cycles * self._period

    def segment(self, index: int) -> tuple[int, int, int] | None:
        """(start in UTC, offset, highest wall clock reached before it); None behind the last one."""
        size = len(self._starts_s)
        if index < size:
            return self._starts_s[index], self._offsets_s[index], self._peaks_s[index]
        if not self._period:
            return None
        cycles = (index - size) // self._period + 1
        index -= cycles * self._period
        shift = cycles * CYCLE_S
        return self._starts_s[index] + shift, self._offsets_s[index], self._peaks_s[index] + shift

    def offset_at(self, utc_s: int) -> int:
        """Seconds east of UTC at the instant."""
        index, size = self.segment_at(utc_s), len(self._offsets_s)
        if index >= size:
            index -= ((index - size) // self._period + 1) * self._period
        return self._offsets_s[index]

    def to_utc(self, local_s: int) -> int:
        """First instant at which the wall clock reaches `local_s`.

        That is the first pass of a repeated time, and the first valid instant after a gap.
        """
        shift = 0
        if self._period and local_s >= self._peaks_s[-1]:
            shift = ((local_s - self._peaks_s[-1]) // CYCLE_S + 1) * CYCLE_S
        index = bisect_right(self._peaks_s, local_s - shift) - 1
        return max(local_s - self._offsets_s[index], self._starts_s[index] + shift)


def zone_names() -> frozenset[str]:
    """The accepted names, exactly as tzdata lists them, without the placeholder `Factory`."""
    return _zone_names()


def get_zone(name: object, field: str = "schedule.timeZone") -> Zone:
    """The zone of that name; anything not listed letter by letter is a `ZoneError`."""
    # The lookup comes before any path is built: directories, `..`, NUL and data files never reach one.
    if not isinstance(name, str) or name not in _zone_names():
        shown = repr(name[:MAX_NAME_CHARS]) if isinstance(name, str) else "this"
        raise ZoneError(field, f"{shown} is no IANA time zone of tzdata {TZ_VERSION}, such as Europe/London")
    return _load(name)


def resolve_local(zone: Zone, local_ms: int) -> int:
    """The instant of a wall clock from `parse_local`; a skipped one moves to the end of its gap."""
    local_s, millis = divmod(local_ms, 1000)
    utc_s = zone.to_utc(local_s)
    in_gap = zone.offset_at(utc_s) + utc_s != local_s
    return utc_s * 1000 + (0 if in_gap else millis)


def format_zoned(zone: Zone, utc_ms: int) -> str:
    """RFC 3339 with the zone's offset; milliseconds only when there are any."""
    utc_s, millis = divmod(utc_ms, 1000)
    offset_s = zone.offset_at(utc_s)
    fraction = f".{millis:03d}" if millis else ""
    return f"{format_local(utc_s + offset_s)}{fraction}{format_offset(offset_s)}"


@lru_cache(maxsize=1)
def _zone_names() -> frozenset[str]:
    listed = resources.files("tzdata").joinpath("zones").read_text("ascii")
    return frozenset(listed.split()) - {"Factory"}


@cache  # bounded by the listed names, about 16 KiB each
def _load(name: str) -> Zone:
    path = resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))
    return Zone(name, path.read_bytes())


def _read_tzif(data: bytes) -> tuple[list[int], list[int], int, str]:
    """Starts and offsets of a TZif file's segments (RFC 8536), the last explicit time, the footer."""
    counts = _counts(data, 0)
    utc_count, std_count, leap_count, time_count, type_count, char_count = counts
    # The first block has 32-bit times, for old readers; the second one repeats it with 64 bits.
    at = 44 + time_count * 5 + type_count * 6 + char_count + leap_count * 8 + std_count + utc_count
    utc_count, std_count, leap_count, time_count, type_count, char_count = _counts(data, at)
    at += 44
    times = struct.unpack_from(f">{time_count}q", data, at)
    at += time_count * 8
    types = data[at : at + time_count]
    at += time_count
    type_offsets_s = [struct.unpack_from(">i", data, at + 6 * index)[0] for index in range(type_count)]
    at += type_count * 6 + char_count + leap_count * 12 + std_count + utc_count
    starts_s, offsets_s = [NEVER_S], [type_offsets_s[0]]
    for time_s, kind in zip(times, types, strict=True):
        _append(starts_s, offsets_s, time_s, type_offsets_s[kind])
    # The last time counts for the footer even where it changed the name only (Grand Turk 2015 to 2018).
    return starts_s, offsets_s, times[-1] if times else NEVER_S, data[at:].decode("ascii").strip("\n")


def _counts(data: bytes, at: int) -> tuple[int, ...]:
    if data[at : at + 4] != b"TZif" or data[at + 4 : at + 5] < b"2":
        raise ValueError("not a TZif file of version 2 or later")
    return struct.unpack_from(">6l", data, at + 20)


def _append(starts_s: list[int], offsets_s: list[int], start_s: int, offset_s: int) -> None:
    """Add a segment, unless only name or DST flag changes."""
    if offset_s != offsets_s[-1]:
        starts_s.append(start_s)
        offsets_s.append(offset_s)


def _extend_by_footer(starts_s: list[int], offsets_s: list[int], last_s: int, footer: str) -> int:
    """Add the segments of the footer's yearly rule; returns how many make a 400-year cycle, or 0."""
    match = _FOOTER_RE.fullmatch(footer)
    if match is None:
        raise ValueError(f"unknown TZif footer {footer!r}")
    std_s = -_seconds(match["std_offset"])  # POSIX counts west of Greenwich
    if match["dst"] is None:
        if offsets_s[-1] != std_s:
            raise ValueError(f"footer {footer!r} does not continue the last transition")
        return 0
    dst_s = -_seconds(match["dst_offset"]) if match["dst_offset"] else std_s + 3600
    first_year = date.fromordinal(last_s // DAY_S + EPOCH_ORDINAL).year if last_s > NEVER_S else 1970
    # A cycle and the year that repeats its first one, behind two years that may lack a change: that of
    # the last explicit one, and the next (Scoresbysund 2024: a new standard offset equal to the DST).
    for year in range(first_year, first_year + 2 + CYCLE_YEARS + 1):
        changes = [
            (_rule_s(match["start"], year) - std_s, dst_s),
            (_rule_s(match["end"], year) - dst_s, std_s),
        ]
        for start_s, offset_s in sorted(changes):
            if start_s > last_s:
                _append(starts_s, offsets_s, start_s, offset_s)
    period = 2 * CYCLE_YEARS
    if any(late - early != CYCLE_S for early, late in _cycle_pairs(starts_s, period)):
        raise ValueError(f"footer {footer!r} is not two changes a year")
    return period


def _cycle_pairs(starts_s: list[int], period: int) -> Iterator[tuple[int, int]]:
    """The starts of the table's last year, each with its counterpart a cycle before."""
    return ((starts_s[-1 - back - period], starts_s[-1 - back]) for back in range(2))


def _rule_s(rule: str, year: int) -> int:
    """Wall clock at which a rule such as M3.5.0/2 (last Sunday of March, 02:00) strikes in a year."""
    match = _RULE_RE.fullmatch(rule)
    if match is None:
        raise ValueError(f"unknown rule {rule!r} in a TZif footer")
    month, week, weekday = int(match[1]), int(match[2]), int(match[3])
    first = date(year, month, 1).toordinal()
    after_month = date(year + month // 12, month % 12 + 1, 1).toordinal()
    day = first + (weekday - first) % 7 + 7 * (week - 1)  # ordinal 7 is a Sunday
    while day >= after_month:  # week 5 is the last one
        day -= 7
    return (day - EPOCH_ORDINAL) * DAY_S + (_seconds(match[4]) if match[4] else 7200)


def _seconds(text: str) -> int:
    """[+-]h[h[h]][:mm[:ss]] as seconds."""
    sign = -1 if text.startswith("-") else 1
    parts = [int(part) for part in text.lstrip("+-").split(":")]
    return sign * sum(part * unit for part, unit in zip(parts, (3600, 60, 1), strict=False))
