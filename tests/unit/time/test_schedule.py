"""Schedules: cursors, bounds, notes, intervals, misfire plans and jitter."""

from itertools import islice
from typing import Any

import pytest

from streams.core.cron import parse_cron
from streams.core.instants import format_instant, parse_instant
from streams.core.schedule import (
    CronSchedule,
    Every,
    MisfirePolicy,
    MissedPlan,
    Note,
    Occurrence,
    Once,
    Schedule,
    Skipped,
    count_occurrences,
    jitter_ms,
    missed,
    next_occurrence,
    nth_newest,
    occurrences,
    previous_occurrence,
    skip_range,
)
from streams.core.zones import get_zone

DAY_MS = 86_400_000


def at(text: str) -> int:
    return parse_instant(text, "test")


def cron(text: str, zone: str = "UTC", **bounds: int) -> CronSchedule:
    return CronSchedule(cron=parse_cron(text), zone=get_zone(zone), **bounds)


def told(schedule: Schedule, after: str, count: int) -> list[tuple[str, str, str]]:
    found = islice(occurrences(schedule, at(after)), count)
    return [(format_instant(one.utc_ms), one.local, one.note.value) for one in found]


def test_notes_of_a_gap() -> None:
    assert told(cron("*/30 2,3 * * *", "America/New_York"), "2026-03-08T06:00:00Z", 3) == [
        ("2026-03-08T07:00:00Z", "2026-03-08T02:00:00", "skipped"),  # also 02:30 and 03:00
        ("2026-03-08T07:30:00Z", "2026-03-08T03:30:00", "normal"),
        ("2026-03-09T06:00:00Z", "2026-03-09T02:00:00", "normal"),
    ]


def test_end_of_a_gap_is_a_normal_time() -> None:
    assert told(cron("0 3 * * *", "America/New_York"), "2026-03-08T00:00:00Z", 1) == [
        ("2026-03-08T07:00:00Z", "2026-03-08T03:00:00", "normal")
    ]


def test_notes_of_a_fold() -> None:
    assert told(cron("30 * * * *", "America/New_York"), "2026-11-01T04:40:00Z", 3) == [
        ("2026-11-01T05:30:00Z", "2026-11-01T01:30:00", "repeated_first"),
        ("2026-11-01T06:30:00Z", "2026-11-01T01:30:00", "repeated_second"),
        ("2026-11-01T07:30:00Z", "2026-11-01T02:30:00", "normal"),
    ]


def test_cursor_in_the_middle_of_a_second() -> None:
    schedule = cron("* * * * * *")
    for cursor, following in {"00:00:00.999Z": "00:00:01Z", "00:00:01Z": "00:00:02Z"}.items():
        found = next_occurrence(schedule, at(f"2026-01-01T{cursor}"))
        assert found is not None
        assert format_instant(found.utc_ms) == f"2026-01-01T{following}"


def test_new_zone_data_do_not_repeat_a_local_time() -> None:
    """The cursor ran 09:00 by old data at 16:00Z; by the present ones 09:00 is at 17:00Z that day."""
    schedule = cron("0 9 * * *", "America/Los_Angeles")
    cursor = at("2026-12-01T16:00:00Z")
    repeated = next_occurrence(schedule, cursor)
    assert repeated is not None
    assert format_instant(repeated.utc_ms) == "2026-12-01T17:00:00Z"
    found = next_occurrence(schedule, cursor, "2026-12-01T09:00:00")
    assert found is not None
    assert format_instant(found.utc_ms) == "2026-12-02T17:00:00Z"


def test_new_zone_data_do_not_go_back() -> None:
    """Now the cursor's instant is later than its local time says: strictly after the instant."""
    schedule = cron("0 9,10 * * *", "America/Los_Angeles")
    found = next_occurrence(schedule, at("2026-12-01T18:00:00Z"), "2026-12-01T09:00:00")
    assert found is not None
    assert format_instant(found.utc_ms) == "2026-12-02T17:00:00Z"


def test_elapsed_time_knows_no_local_cursor() -> None:
    schedule = cron("0 * * * *", "America/New_York")
    found = next_occurrence(schedule, at("2026-11-01T05:00:00Z"), "2026-11-01T01:00:00")
    assert found == Occurrence(at("2026-11-01T06:00:00Z"), "2026-11-01T01:00:00", Note.REPEATED_SECOND)


def test_bounds_are_inclusive() -> None:
    start, end = at("2026-01-02T00:00:00Z"), at("2026-01-04T00:00:00Z")
    for schedule in (
        cron("0 0 * * *", start_at_ms=start, end_at_ms=end),
        Every(every_ms=DAY_MS, anchor_ms=start, start_at_ms=start, end_at_ms=end),
    ):
        found = [one.utc_ms for one in occurrences(schedule, at("2025-01-01T00:00:00Z"))]
        assert found == [start, start + DAY_MS, end]
        assert count_occurrences(schedule, 0, end + 9 * DAY_MS) == 3
        newest = previous_occurrence(schedule, end + 9 * DAY_MS)
        assert newest is not None
        assert newest.utc_ms == end
        assert previous_occurrence(schedule, start - 1) is None
    late = cron("0 0 * * *", start_at_ms=start + 1)
    assert told(late, "2025-01-01T00:00:00Z", 1)[0][0] == "2026-01-03T00:00:00Z"


def test_once() -> None:
    schedule = Once(run_at_ms=1_500)
    assert next_occurrence(schedule, 1_499) == Occurrence(1_500, "1970-01-01T00:00:01")
    assert next_occurrence(schedule, 1_500) is None
    assert count_occurrences(schedule, 0, 1_500) == 1
    assert nth_newest(schedule, 0, 1_500, 2) is None
    assert previous_occurrence(schedule, 1_499) is None


def test_every_never_drifts_and_reaches_before_its_anchor() -> None:
    schedule = Every(every_ms=7_000, anchor_ms=10_500)
    assert [one.utc_ms for one in islice(occurrences(schedule, 10_500), 2)] == [17_500, 24_500]
    assert [one.utc_ms for one in islice(occurrences(schedule, 3_499), 2)] == [3_500, 10_500]
    assert count_occurrences(schedule, 3_500, 24_500) == 3
    assert count_occurrences(schedule, 24_500, 3_500) == 0
    third = nth_newest(schedule, 3_500, 24_500, 3)
    assert third is not None
    assert third.utc_ms == 10_500
    assert nth_newest(schedule, 3_500, 24_500, 4) is None


def plan(policy: MisfirePolicy, **changed: Any) -> MissedPlan:
    """Every ten minutes, last run on midnight of the first, back at 00:05 on the third."""
    now_ms = at("2026-05-03T00:05:00Z")
    arguments: dict[str, Any] = {"window_ms": DAY_MS, "limit": 100} | changed
    return missed(
        cron("*/10 * * * *"),
        at("2026-05-01T00:00:00Z"),
        "2026-05-01T00:00:00",
        now_ms,
        now_ms=now_ms,
        policy=policy,
        **arguments,
    )


def records(found: MissedPlan) -> list[tuple[str, str, int, str]]:
    return [
        (format_instant(one.from_ms)[5:16], format_instant(one.to_ms)[5:16], one.count, one.reason)
        for one in found.skipped
    ]


def test_fire_all() -> None:
    found = plan(MisfirePolicy.FIRE_ALL)
    assert records(found) == [
        ("05-01T00:10", "05-02T00:00", 144, "misfire_window"),
        ("05-02T00:10", "05-02T07:20", 44, "misfire_limit"),
    ]
    assert found.kept is not None
    assert (found.kept.first.local, found.kept.last.local, found.kept.count) == (
        "2026-05-02T07:30:00",
        "2026-05-03T00:00:00",
        100,
    )
    assert found.last == found.kept.last


def test_fire_once() -> None:
    found = plan(MisfirePolicy.FIRE_ONCE)
    assert records(found) == [
        ("05-01T00:10", "05-02T00:00", 144, "misfire_window"),
        ("05-02T00:10", "05-02T23:50", 143, "misfire_policy"),
    ]
    assert found.kept is not None
    assert found.kept.first == found.kept.last


def test_skip() -> None:
    found = plan(MisfirePolicy.SKIP)
    assert records(found) == [("05-01T00:10", "05-03T00:00", 288, "misfire_policy")]
    assert found.kept is None
    assert found.last is not None
    assert found.last.local == "2026-05-03T00:00:00"


def test_exactly_as_old_as_the_window_is_kept() -> None:
    found = plan(MisfirePolicy.FIRE_ALL, window_ms=DAY_MS + 300_000, limit=1000)
    assert [one.count for one in found.skipped] == [143]
    assert found.kept is not None
    assert found.kept.first.local == "2026-05-02T00:00:00"


def test_all_older_than_the_window() -> None:
    found = plan(MisfirePolicy.FIRE_ONCE, window_ms=0)
    assert [(one.count, one.reason) for one in found.skipped] == [(288, "misfire_window")]
    assert found.kept is None
    assert found.last is not None


def test_a_limit_of_none() -> None:
    found = plan(MisfirePolicy.FIRE_ALL, limit=0, window_ms=9 * DAY_MS)
    assert [(one.count, one.reason) for one in found.skipped] == [(288, "misfire_limit")]
    assert found.kept is None


def test_nothing_missed() -> None:
    instant = at("2026-05-01T00:00:00Z")
    found = missed(
        cron("0 0 * * *"),
        instant,
        "2026-05-01T00:00:00",
        instant + DAY_MS - 1,
        now_ms=instant + DAY_MS,
        policy=MisfirePolicy.FIRE_ALL,
        window_ms=DAY_MS,
        limit=1000,
    )
    assert found == MissedPlan(None, None, ())


def test_a_second_job_after_a_long_outage_is_counted_exactly() -> None:
    """Half a year and a spring change of New York; one step for each would be 15 million."""
    schedule = cron("* * 0-23 * * *", "America/New_York")
    after, upto = at("2026-01-01T00:00:00Z"), at("2026-07-01T00:00:00Z")
    skipped = skip_range(schedule, after, None, upto, "paused")
    assert skipped == Skipped(after + 1000, upto, (upto - after) // 1000, "paused")
    thousandth = nth_newest(schedule, after, upto, 1000)
    assert thousandth is not None
    assert thousandth.utc_ms == upto - 999_000


def test_jitter_is_stable_spread_and_bounded() -> None:
    delays = {jitter_ms(f"acme/{job}", 60, 0, None) for job in range(2000)}
    assert min(delays) >= 0
    assert max(delays) <= 60_000
    assert max(delays) - min(delays) > 59_000
    assert jitter_ms("acme/a", 60, 0, None) == jitter_ms("acme/a", 60, 86_400_000, 172_800_000)
    short = {jitter_ms(f"acme/{job}", 86_400, 0, 60_000) for job in range(2000)}
    assert max(short) < 60_000
    assert len(short) > 1900  # not cut to one value: no herd at the end of the period
    assert jitter_ms("acme/a", 0, 0, None) == 0


@pytest.mark.parametrize("upto", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"])
def test_ends_of_time_are_survived(upto: str) -> None:
    for zone in ("UTC", "Pacific/Kiritimati", "America/New_York", "Pacific/Pago_Pago"):
        for text in ("* * * * *", "0 0 29 2 *", "0 0 1 1 *"):
            schedule = cron(text, zone)
            next_occurrence(schedule, at(upto))
            previous_occurrence(schedule, at(upto))
            assert next_occurrence(schedule, at("9999-12-31T00:00:00Z")) is None
    assert next_occurrence(Every(every_ms=31_536_000_000, anchor_ms=0), at("9999-12-31T00:00:00Z")) is None
