"""stub with the final signatures: being written"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from streams.core.cron import Cron
from streams.core.zones import Zone


class Note(StrEnum):
    NORMAL = "normal"
    SKIPPED = "skipped"  # local is the skipped wall time; utc the first instant after the gap
    REPEATED_FIRST = "repeated_first"
    REPEATED_SECOND = "repeated_second"


@dataclass(frozen=True, slots=True)
class Occurrence:
    utc_ms: int
    local: str  # nominal wall clock YYYY-MM-DDTHH:MM:SS (UTC for Once and Every)
    note: Note = Note.NORMAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    run_at_ms: int
    start_at_ms: int | None = None
    end_at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CronSchedule:
    cron: Cron
    zone: Zone
    start_at_ms: int | None = None  # inclusive
    end_at_ms: int | None = None  # inclusive


@dataclass(frozen=True, slots=True, kw_only=True)
class Every:
    every_ms: int
    anchor_ms: int  # anchor + k * every for every integer k; start_at_ms bounds it below
    start_at_ms: int | None = None
    end_at_ms: int | None = None


Schedule = Once | CronSchedule | Every


class MisfirePolicy(StrEnum):
    FIRE_ALL = "fire_all"
    FIRE_ONCE = "fire_once"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Skipped:
    """Occurrences that never become executions: first and last of them, exact count."""

    from_ms: int
    to_ms: int
    count: int
    reason: str  # misfire_policy | misfire_window | misfire_limit | whatever count_skipped was given


@dataclass(frozen=True, slots=True)
class Kept:
    first: Occurrence
    last: Occurrence
    count: int


@dataclass(frozen=True, slots=True)
class MissedPlan:
    last: Occurrence | None  # newest occurrence of the range, kept or not: where the cursor goes
    kept: Kept | None
    skipped: tuple[Skipped, ...]  # oldest first, at most one a reason


def next_occurrence(
    schedule: Schedule, after_utc_ms: int, after_local: str | None = None
) -> Occurrence | None:
    raise NotImplementedError


def previous_occurrence(schedule: Schedule, upto_ms: int) -> Occurrence | None:
    """Newest occurrence at or before upto_ms."""
    raise NotImplementedError


def occurrences(
    schedule: Schedule, after_utc_ms: int, after_local: str | None = None
) -> Iterator[Occurrence]:
    raise NotImplementedError


def count_occurrences(
    schedule: Schedule, after_utc_ms: int, upto_ms: int, after_local: str | None = None
) -> int:
    """How many lie in (after, upto]."""
    raise NotImplementedError


def nth_newest(
    schedule: Schedule, after_utc_ms: int, upto_ms: int, n: int, after_local: str | None = None
) -> Occurrence | None:
    """n = 1 is the newest in (after, upto]; None if there are fewer."""
    raise NotImplementedError


def missed(
    schedule: Schedule,
    after_utc_ms: int,
    after_local: str | None,
    upto_ms: int,
    *,
    now_ms: int,
    policy: MisfirePolicy,
    window_ms: int,
    limit: int,
) -> MissedPlan:
    """Everything in (after, upto] was missed (upto = now - threshold - 1); older than now - window is skipped."""
    raise NotImplementedError


def skip_range(
    schedule: Schedule, after_utc_ms: int, after_local: str | None, upto_ms: int, reason: str
) -> Skipped | None:
    """All of (after, upto] as one record, e.g. reason 'paused'."""
    raise NotImplementedError


def jitter_ms(seed: str, jitter_sec: int, occurrence_ms: int, next_ms: int | None) -> int:
    raise NotImplementedError
