"""What a schedule will do, with the code that does it: next occurrences, local and UTC, and notes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from schemas.entities import Schedule, ScheduleKind
from streams.core.cron_occurrences import Note
from streams.core.instants import format_instant
from streams.core.planning import jittered_ms, plan
from streams.core.schedule import Occurrence, occurrences
from streams.core.zones import format_zoned, get_zone

COUNT_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Previewed:
    """`local` is the zone's wall clock with its offset; `due_ms` includes jitter; `note` says what a skipped
    or repeated local time does, else None."""

    utc_ms: int
    due_ms: int
    utc: str
    local: str
    note: str | None


def preview(schedule: Schedule, seed: str, after_ms: int, count: int) -> list[Previewed]:
    """The next `count` occurrences after an instant, or as many as there are. `seed`: `<tenant>/<jobId>`."""
    zone = get_zone(schedule.time_zone)
    if schedule.kind is ScheduleKind.ONCE:
        after_ms = min(after_ms, schedule.run_at_ms - 1)
    most = min(count, schedule.max_runs or count, COUNT_MAX)
    return [
        Previewed(
            utc_ms=found.utc_ms,
            due_ms=jittered_ms(schedule, seed, found),
            utc=format_instant(found.utc_ms),
            local=format_zoned(zone, found.utc_ms),
            note=_note(found),
        )
        for found in islice(occurrences(plan(schedule, seed), after_ms), most)
    ]


def _note(found: Occurrence) -> str | None:
    match found.note:
        case Note.SKIPPED:
            return f"{found.local} does not exist in this zone: it runs at the first instant after the gap"
        case Note.REPEATED_FIRST:
            return f"{found.local} occurs twice in this zone: this is its first pass"
        case Note.REPEATED_SECOND:
            return f"{found.local} occurs twice in this zone: this is its second pass"
        case _:
            return None
