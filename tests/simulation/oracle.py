"""When a job had to run, worked out anew: by arithmetic and a slow look at every minute of the run.

Shares nothing with the engine's planning but the schedule that the log holds.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

from schemas.entities import Schedule, ScheduleKind
from tests.unit.time.reference import Expression, Window, zone_info

BEFORE = timedelta(hours=4)
"""A gap or fold that reaches into the run begins no earlier."""


@lru_cache(maxsize=64)
def _window(zone: str, first_hour: int, last_hour: int) -> Window:
    start, end = (datetime.fromtimestamp(hour * 3600, UTC) for hour in (first_hour, last_hour))
    return Window(zone_info(zone), start - BEFORE, end)


@lru_cache(maxsize=4_096)
def _cron(cron: str, zone: str, first_hour: int, last_hour: int) -> tuple[int, ...]:
    fields = cron.split()
    seconds = [0]
    if len(fields) == 6:
        seconds = _numbers(fields.pop(0))
    minutes = _window(zone, first_hour, last_hour).occurrences(Expression(" ".join(fields)))
    return tuple(round(at.timestamp() + second) * 1000 for at in minutes for second in seconds)


def _numbers(field: str) -> list[int]:
    """`*`, `*/n`, and lists of numbers: all that the workload writes into the field of seconds."""
    if field.startswith("*"):
        return list(range(0, 60, int(field[2:] or 1)))
    return sorted(map(int, field.split(",")))


def instants(schedule: Schedule, after_ms: int, until_ms: int) -> list[int]:
    """The schedule's instants in (after, until]."""
    match schedule.kind:
        case ScheduleKind.ONCE:
            found = [schedule.run_at_ms]
        case ScheduleKind.EVERY:
            first = (after_ms - schedule.anchor_ms) // schedule.every_ms + 1
            if not schedule.start_at_ms:
                first = max(1, first)
            count = (until_ms - schedule.anchor_ms) // schedule.every_ms
            found = [schedule.anchor_ms + n * schedule.every_ms for n in range(first, count + 1)]
        case ScheduleKind.CRON:
            cron = schedule.cron_expanded if "H" in schedule.cron else schedule.cron
            found = list(_cron(cron, schedule.time_zone, after_ms // 3_600_000, until_ms // 3_600_000 + 1))
    return [at for at in found if after_ms < at <= until_ms and _in_bounds(schedule, at)]


def _in_bounds(schedule: Schedule, at_ms: int) -> bool:
    return at_ms >= schedule.start_at_ms and not (schedule.end_at_ms and at_ms > schedule.end_at_ms)
