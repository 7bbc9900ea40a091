"""Owns schedules: when a job occurs, and what becomes of the occurrences nobody could decide in time.

Three kinds: `Once`, `CronSchedule` and `Every`. Each answers for a range of instants; this module
turns the engine's questions (next after a cursor, how many, the newest n) into such ranges, with
`start_at_ms` and `end_at_ms` as inclusive bounds. `max_runs` and the clock are the engine's.

All answers are pure functions of schedule and cursor, the engine and the preview use the same ones,
and none steps through occurrences one by one: a week of outage of a per-second job costs no more
than a minute of it. How cron and zones meet is `cron_occurrences.py`.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from streams.core.cron import Cron
from streams.core.cron_occurrences import (
    Note,
    Occurrence,
    count_in_zone,
    next_in_zone,
    nth_newest_in_zone,
)
from streams.core.instants import MAX_INSTANT_MS, MIN_INSTANT_MS, format_local
from streams.core.zones import Zone

__all__ = [
    "CronSchedule",
    "Every",
    "Kept",
    "MisfirePolicy",
    "MissedPlan",
    "Note",
    "Occurrence",
    "Once",
    "Schedule",
    "Skipped",
    "count_occurrences",
    "jitter_ms",
    "missed",
    "next_occurrence",
    "nth_newest",
    "occurrences",
    "previous_occurrence",
    "skip_range",
]


class Once(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """At one instant."""

    run_at_ms: int
    start_at_ms: int | None = None
    end_at_ms: int | None = None

    def next_from(self, first_ms: int, after_local: str | None) -> Occurrence | None:
        return _plain(self.run_at_ms) if self.run_at_ms >= first_ms else None

    def count(self, first_ms: int, last_ms: int, after_local: str | None) -> int:
        return 1 if first_ms <= self.run_at_ms <= last_ms else 0

    def nth_newest(self, first_ms: int, last_ms: int, n: int, after_local: str | None) -> Occurrence | None:
        return _plain(self.run_at_ms) if n == self.count(first_ms, last_ms, after_local) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CronSchedule:
    """When the wall clock of the zone matches the expression."""

    cron: Cron
    zone: Zone
    start_at_ms: int | None = None
    end_at_ms: int | None = None

    def next_from(self, first_ms: int, after_local: str | None) -> Occurrence | None:
        return next_in_zone(self.cron, self.zone, -(-first_ms // 1000), after_local)

    def count(self, first_ms: int, last_ms: int, after_local: str | None) -> int:
        return count_in_zone(self.cron, self.zone, -(-first_ms // 1000), last_ms // 1000, after_local)

    def nth_newest(self, first_ms: int, last_ms: int, n: int, after_local: str | None) -> Occurrence | None:
        first_s = -(-first_ms // 1000)
        return nth_newest_in_zone(self.cron, self.zone, first_s, last_ms // 1000, n, after_local)


@dataclass(frozen=True, slots=True, kw_only=True)
class Every:
    """At `anchor_ms` + k · `every_ms` for every integer k; `start_at_ms` bounds it below."""

    every_ms: int
    anchor_ms: int
    start_at_ms: int | None = None
    end_at_ms: int | None = None

    def next_from(self, first_ms: int, after_local: str | None) -> Occurrence | None:
        found_ms = first_ms + (self.anchor_ms - first_ms) % self.every_ms
        return _plain(found_ms) if found_ms <= MAX_INSTANT_MS else None

    def count(self, first_ms: int, last_ms: int, after_local: str | None) -> int:
        if first_ms > last_ms:
            return 0
        upto, before = last_ms - self.anchor_ms, first_ms - 1 - self.anchor_ms
        return upto // self.every_ms - before // self.every_ms

    def nth_newest(self, first_ms: int, last_ms: int, n: int, after_local: str | None) -> Occurrence | None:
        found_ms = last_ms - (last_ms - self.anchor_ms) % self.every_ms - (n - 1) * self.every_ms
        return _plain(found_ms) if found_ms >= first_ms else None


Schedule = Once | CronSchedule | Every


class MisfirePolicy(StrEnum):
    """Which of the missed occurrences are still executed."""

    FIRE_ALL = "fire_all"
    FIRE_ONCE = "fire_once"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Skipped:
    """Occurrences that never become executions: the first and the last of them, and how many."""

    from_ms: int
    to_ms: int
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class Kept:
    """Missed occurrences still to be executed: all of the schedule from the first to the last."""

    first: Occurrence
    last: Occurrence
    count: int


@dataclass(frozen=True, slots=True)
class MissedPlan:
    """What becomes of a missed range. `last` is its newest occurrence, kept or not: the new cursor."""

    last: Occurrence | None
    kept: Kept | None
    skipped: tuple[Skipped, ...]  # oldest first, one a reason


def next_occurrence(
    schedule: Schedule, after_utc_ms: int, after_local: str | None = None
) -> Occurrence | None:
    """The first occurrence strictly after the cursor.

    With a fixed hour field it is also strictly after the cursor's nominal local time, so that new
    zone data cannot repeat a local time; other schedules ignore `after_local`.
    """
    found = schedule.next_from(_first_ms(schedule, after_utc_ms), after_local)
    if found is None or (schedule.end_at_ms is not None and found.utc_ms > schedule.end_at_ms):
        return None
    return found


def occurrences(
    schedule: Schedule, after_utc_ms: int, after_local: str | None = None
) -> Iterator[Occurrence]:
    """All occurrences strictly after the cursor, in order; endless if the schedule is."""
    found = next_occurrence(schedule, after_utc_ms, after_local)
    while found is not None:
        yield found
        found = next_occurrence(schedule, found.utc_ms, found.local)


def previous_occurrence(schedule: Schedule, upto_ms: int) -> Occurrence | None:
    """The newest occurrence at or before the instant."""
    return nth_newest(schedule, MIN_INSTANT_MS - 1, upto_ms, 1)


def count_occurrences(
    schedule: Schedule, after_utc_ms: int, upto_ms: int, after_local: str | None = None
) -> int:
    """How many occurrences lie in (after, upto]."""
    return schedule.count(_first_ms(schedule, after_utc_ms), _last_ms(schedule, upto_ms), after_local)


def nth_newest(
    schedule: Schedule, after_utc_ms: int, upto_ms: int, n: int, after_local: str | None = None
) -> Occurrence | None:
    """The n-th newest occurrence of (after, upto], 1 being the newest; None if there are fewer."""
    first_ms, last_ms = _first_ms(schedule, after_utc_ms), _last_ms(schedule, upto_ms)
    return schedule.nth_newest(first_ms, last_ms, n, after_local)


def skip_range(
    schedule: Schedule, after_utc_ms: int, after_local: str | None, upto_ms: int, reason: str
) -> Skipped | None:
    """All occurrences of (after, upto] as one record; None if there are none."""
    first = next_occurrence(schedule, after_utc_ms, after_local)
    last = nth_newest(schedule, after_utc_ms, upto_ms, 1, after_local)
    if first is None or last is None:
        return None
    count = count_occurrences(schedule, after_utc_ms, upto_ms, after_local)
    return Skipped(first.utc_ms, last.utc_ms, count, reason)


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
    """Decide about the occurrences of (after, upto], all of which the engine found to be missed.

    Under `skip` none is kept. Else those older than `now - window` are skipped, and of the rest the
    newest `limit` are kept, under `fire_once` one at the most.
    """
    last = nth_newest(schedule, after_utc_ms, upto_ms, 1, after_local)
    if last is None:
        return MissedPlan(None, None, ())
    if policy is MisfirePolicy.SKIP:
        whole = skip_range(schedule, after_utc_ms, after_local, upto_ms, "misfire_policy")
        return MissedPlan(last, None, (whole,) if whole else ())
    before_window_ms = min(upto_ms, now_ms - window_ms - 1)
    old = skip_range(schedule, after_utc_ms, after_local, before_window_ms, "misfire_window")
    inside_ms = max(after_utc_ms, before_window_ms)
    inside = count_occurrences(schedule, inside_ms, upto_ms, after_local)
    count = min(inside, limit, 1) if policy is MisfirePolicy.FIRE_ONCE else min(inside, limit)
    first = nth_newest(schedule, inside_ms, upto_ms, count, after_local) if count else None
    surplus = None
    if inside > count:
        reason = "misfire_policy" if policy is MisfirePolicy.FIRE_ONCE else "misfire_limit"
        surplus_ms = first.utc_ms - 1 if first else upto_ms
        surplus = skip_range(schedule, inside_ms, after_local, surplus_ms, reason)
    kept = Kept(first, last, count) if first else None
    return MissedPlan(last, kept, tuple(record for record in (old, surplus) if record))


def jitter_ms(seed: str, jitter_sec: int, occurrence_ms: int, next_ms: int | None) -> int:
    """The job's own delay in [0, jitter], so short that it ends before the next occurrence.

    Drawn from the shorter of both spans, not cut: jobs with a jitter above their period stay spread.
    It depends on the occurrence only through that span, so a regular job keeps its rhythm.
    """
    span_ms = jitter_sec * 1000
    if next_ms is not None:
        span_ms = min(span_ms, next_ms - occurrence_ms - 1)
    if span_ms <= 0:
        return 0
    digest = hashlib.blake2b(f"jitter\0{seed}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % (span_ms + 1)


def _first_ms(schedule: Schedule, after_utc_ms: int) -> int:
    start_ms = schedule.start_at_ms
    return after_utc_ms + 1 if start_ms is None else max(after_utc_ms + 1, start_ms)


def _last_ms(schedule: Schedule, upto_ms: int) -> int:
    return upto_ms if schedule.end_at_ms is None else min(upto_ms, schedule.end_at_ms)


def _plain(utc_ms: int) -> Occurrence:
    """Schedules without a zone: the wall clock is UTC."""
    return Occurrence(utc_ms, format_local(utc_ms // 1000))
