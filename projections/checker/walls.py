"""Owns the wall clock: which instants show a local time, by `zoneinfo` and the pinned `tzdata` package.

Written apart from `streams.core.zones`, so that the one can judge the other. Times are whole seconds; a local
time is counted as if it were UTC.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from importlib import import_module, resources
from zoneinfo import ZoneInfo

DAY_S = 86_400
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HOUR_S = 3_600
# No offset change within so many hours of a day: its local times are plain arithmetic.
_MARGIN_HOURS = 36


@cache
def zone_info(name: str) -> ZoneInfo:
    """The zone as the installed package has it, never as the host does."""
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


@cache
def installed_version() -> str:
    """Of the zone data, such as `2026f`."""
    return str(import_module("tzdata").IANA_VERSION)


class Walls:
    """The wall clocks of one zone."""

    def __init__(self, info: ZoneInfo) -> None:
        self._info = info
        self.plain_offset_s = lru_cache(maxsize=4_096)(self._plain_offset_s)

    def offset_s(self, utc_s: int) -> int:
        """Seconds that the wall clock is ahead of UTC at an instant."""
        return _seconds((_EPOCH + timedelta(seconds=utc_s)).astimezone(self._info).utcoffset())

    def instants(self, local_s: int) -> list[int]:
        """Every instant at which the wall clock shows this: none in a gap, two in a fold."""
        ahead = {self._ahead_s(local_s, fold) for fold in (0, 1)}
        return sorted(local_s - one for one in ahead if self.offset_s(local_s - one) == one)

    def first(self, local_s: int) -> int:
        """The first instant that shows this, or the end of the gap that skips it."""
        found = self.instants(local_s)
        if found:
            return found[0]
        around = sorted((self._ahead_s(local_s, 0), self._ahead_s(local_s, 1)))
        before, after = local_s - around[1], local_s - around[0]
        changed = self.offset_s(after)
        while after - before > 1:
            middle = (before + after) // 2
            if self.offset_s(middle) == changed:
                after = middle
            else:
                before = middle
        return after

    def _ahead_s(self, local_s: int, fold: int) -> int:
        wall = (_EPOCH + timedelta(seconds=local_s)).replace(tzinfo=self._info, fold=fold)
        return _seconds(wall.utcoffset())

    def _plain_offset_s(self, day: int) -> int | None:
        """The offset of a local day (counted from 1970-01-01) far from any change; None near one."""
        noon_s = day * DAY_S + DAY_S // 2
        offsets = {
            self.offset_s(noon_s + hour * _HOUR_S) for hour in range(-_MARGIN_HOURS, _MARGIN_HOURS + 1)
        }
        return offsets.pop() if len(offsets) == 1 else None


def _seconds(offset: timedelta | None) -> int:
    return 0 if offset is None else offset.days * DAY_S + offset.seconds
