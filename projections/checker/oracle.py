"""When a job had to run: a second opinion that shares nothing with the code that fires.

Intervals and one-offs are plain arithmetic. Cron goes by local days: which days match, at which seconds, and
which instants show them on the wall clock of the zone (`crontab`, `walls`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from datetime import date
from zoneinfo import ZoneInfo

from projections.checker import crontab
from projections.checker.walls import DAY_S, Walls, installed_version, zone_info
from schemas.entities import Schedule, ScheduleKind

_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_LAST_DAY = date.max.toordinal() - _EPOCH_ORDINAL - 1
# Instants of days kept for the next question; a day of a per-second job has 86,400.
_KEPT_MAX = 1_000_000

Zones = Callable[[str, str], ZoneInfo | None]
"""The zone data of a name and a version; None if there are none of that version here."""


def installed_zones(name: str, version: str) -> ZoneInfo | None:
    """The installed package's; "" is what a schedule without a version was computed with."""
    return zone_info(name) if version in ("", installed_version()) else None


class Oracle:
    """Occurrences of schedules as the log has them. Not thread-safe."""

    def __init__(self, zones: Zones = installed_zones) -> None:
        self._zones = zones
        self._walls: dict[tuple[str, str], Walls | None] = {}
        self._days: dict[tuple[str, str, str, str, int], list[int]] = {}
        self._kept = 0

    def knows(self, schedule: Schedule, tz_version: str) -> bool:
        """Whether it can say anything of a schedule computed with these zone data."""
        return schedule.kind is not ScheduleKind.CRON or self._wall(schedule, tz_version) is not None

    def between(self, schedule: Schedule, after_ms: int, upto_ms: int, tz_version: str = "") -> list[int]:
        """All occurrences in (after, upto], ascending, within the schedule's own bounds; jitter, `max_runs`
        and what became of them are not its business. ValueError for zone data that are not known."""
        first_ms = max(after_ms + 1, schedule.start_at_ms)
        last_ms = min(upto_ms, schedule.end_at_ms) if schedule.end_at_ms else upto_ms
        match schedule.kind:
            case ScheduleKind.ONCE:
                return [schedule.run_at_ms] if first_ms <= schedule.run_at_ms <= last_ms else []
            case ScheduleKind.EVERY:
                every_ms, anchor_ms = schedule.every_ms, schedule.anchor_ms
                if not schedule.start_at_ms:
                    first_ms = max(first_ms, anchor_ms + every_ms)  # one interval after the registration
                begin = first_ms + (anchor_ms - first_ms) % every_ms
                return list(range(begin, last_ms + 1, every_ms))
            case ScheduleKind.CRON:
                return self._cron(schedule, -(-first_ms // 1000), last_ms // 1000, tz_version)

    def _cron(self, schedule: Schedule, first_s: int, last_s: int, tz_version: str) -> list[int]:
        wall = self._wall(schedule, tz_version)
        if wall is None:
            raise ValueError(f"no zone data of version {tz_version!r}")
        if first_s > last_s:
            return []
        begin = (first_s + wall.offset_s(first_s)) // DAY_S
        end = (last_s + wall.offset_s(last_s)) // DAY_S
        # Near a change an instant may belong to a local day before or after the one it is shown on.
        begin -= 2 * (wall.plain_offset_s(begin) is None)
        end += 2 * (wall.plain_offset_s(end) is None)
        found: list[int] = []
        for day in range(begin, min(end, _LAST_DAY) + 1):
            instants = self._day(schedule, wall, tz_version, day)
            found += instants[bisect_left(instants, first_s) : bisect_right(instants, last_s)]
        # Days of a gap share the instant at its end.
        return [second * 1000 for second in sorted(set(found))]

    def _day(self, schedule: Schedule, wall: Walls, tz_version: str, day: int) -> list[int]:
        """The instants that belong to a local day, in seconds."""
        key = (schedule.cron, schedule.cron_expanded, schedule.time_zone, tz_version, day)
        known = self._days.get(key)
        if known is not None:
            return known
        instants = _instants(crontab.read(schedule.cron, schedule.cron_expanded), wall, day)
        self._kept += len(instants) + 1
        if self._kept > _KEPT_MAX:
            self._days.clear()
            self._kept = len(instants) + 1
        self._days[key] = instants
        return instants

    def _wall(self, schedule: Schedule, tz_version: str) -> Walls | None:
        key = (schedule.time_zone, tz_version)
        if key not in self._walls:
            info = self._zones(*key)
            self._walls[key] = Walls(info) if info is not None else None
        return self._walls[key]


def _instants(cron: crontab.Crontab, wall: Walls, day: int) -> list[int]:
    if not cron.matches(date.fromordinal(day + _EPOCH_ORDINAL)):
        return []
    start_s = day * DAY_S
    offset_s = wall.plain_offset_s(day)
    if offset_s is not None:
        return [start_s - offset_s + second for second in cron.times]
    if cron.elapsed:
        return sorted({at for second in cron.times for at in wall.instants(start_s + second)})
    return sorted({wall.first(start_s + second) for second in cron.times})
