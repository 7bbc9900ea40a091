"""Schedules, and the checker's oracle, against the slow reference around every offset change of every zone,
1990 to 2040."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from projections.checker.oracle import Oracle
from projections.checker.walls import zone_info
from schemas.entities import Schedule, ScheduleKind
from streams.core.cron import parse_cron
from streams.core.schedule import CronSchedule, count_occurrences, nth_newest, occurrences
from streams.core.zones import Zone, get_zone, zone_names
from tests.unit.time.reference import Expression, Window

EXPRESSIONS = [
    Expression(text)
    for text in (
        # fixed hours in and around the usual gaps and folds
        "30 2 * * *",
        "0 0 * * *",
        "30 1 * * *",
        "0 2 * * *",
        "0 3 * * *",
        "59 23 * * *",
        "*/15 2 * * *",
        "*/20 0-3 * * *",
        "5,20,35,50 1 * * *",
        "0 1-23/2 * * *",
        "0,30 0,1,2,3,22,23 * * *",
        "10 0-23 * * *",
        "45 12 * * *",
        # the day decides
        "30 0 * * 0",
        "0 0 1 * *",
        "15 0 L * *",
        "30 2 8-14 3,11 0",
        "0 1 */2 * 0-3",
        "30 23 * * 6#2",
        "0 0 1,15 * 5",
        # elapsed time
        "0 * * * *",
        "15,45 * * * *",
        "0 */2 * * *",
        "30 */5 * * *",
        "*/10 */3 * * 0",
        "20 * L * *",
        "0 *,5 1 * 0",
    )
]
DENSE = Expression("* * * * *")
DENSE_FIXED = Expression("* 0-23 * * *")
ORACLE = Oracle()
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FROM_S = int((datetime(1990, 1, 1, tzinfo=UTC) - EPOCH).total_seconds())
UPTO_S = int((datetime(2041, 1, 1, tzinfo=UTC) - EPOCH).total_seconds())


def transitions() -> Iterator[tuple[Zone, int]]:
    """A zone and instant for each distinct offset change; zones that change alike count once."""
    seen: set[tuple[int, int, int]] = set()
    for name in sorted(zone_names()):
        zone = get_zone(name)
        index = zone.segment_at(FROM_S)
        before = zone.offset_at(FROM_S)
        while (segment := zone.segment(index + 1)) is not None and segment[0] < UPTO_S:
            index += 1
            start_s, offset_s, _ = segment
            if (start_s, before, offset_s) not in seen:
                seen.add((start_s, before, offset_s))
                yield zone, start_s
            before = offset_s


def ms(at: datetime) -> int:
    return int((at - EPOCH).total_seconds()) * 1000


def check(zone: Zone, window: Window, expression: Expression, start: datetime, end: datetime) -> int:
    """Compare all answers for [start, end); the window reaches far enough before to know first passes."""
    schedule = CronSchedule(cron=parse_cron(expression.text), zone=zone)
    wanted = [ms(at) for at in window.occurrences(expression) if start <= at < end]
    after, upto = ms(start) - 1, ms(end) - 1
    found = list(islice(occurrences(schedule, after), len(wanted) + 1))
    got = [one.utc_ms for one in found if one.utc_ms <= upto]
    label = f"{expression.text} in {zone.name} from {start}"
    as_logged = Schedule(
        kind=ScheduleKind.CRON, cron=expression.text, cron_expanded=expression.text, time_zone=zone.name
    )
    assert ORACLE.between(as_logged, after, upto) == wanted, label
    assert got == wanted, label
    assert count_occurrences(schedule, after, upto) == len(wanted), label
    for n in {1, 2, len(wanted) // 2 + 1, len(wanted), len(wanted) + 1} - {0}:
        newest = nth_newest(schedule, after, upto, n)
        assert (newest and newest.utc_ms) == (wanted[-n] if n <= len(wanted) else None), f"{label}, n={n}"
    return len(wanted)


def walk(zone: Zone, start_s: int, expressions: list[Expression]) -> int:
    around = EPOCH + timedelta(seconds=start_s)
    around = around.replace(second=0)
    window = Window(zone_info(zone.name), around - timedelta(hours=78), around + timedelta(hours=52))
    start, end = around - timedelta(hours=50), around + timedelta(hours=50)
    compared = sum(check(zone, window, expression, start, end) for expression in expressions)
    near = timedelta(hours=1, minutes=30)
    return compared + sum(
        check(zone, window, dense, around - near, around + near) for dense in (DENSE, DENSE_FIXED)
    )


@pytest.mark.slow
def test_a_sample_of_all_transitions() -> None:
    """Every 167th change (a prime, so that no zone's rhythm is met), and the known oddities."""
    odd = [
        ("Pacific/Apia", "2011-12-30T10:00"),  # a day without a date
        ("Antarctica/Troll", "2026-03-29T01:00"),  # two hours
        ("Antarctica/Troll", "2026-10-25T01:00"),
        ("Australia/Lord_Howe", "2026-04-04T15:00"),  # half an hour
        ("America/Caracas", "2016-05-01T07:00"),
        ("Asia/Pyongyang", "2018-05-04T15:00"),
        ("Pacific/Kwajalein", "1993-08-21T12:00"),
        ("Africa/Casablanca", "2026-02-15T02:00"),
        ("Europe/Dublin", "2026-10-25T01:00"),
    ]
    chosen = list(islice(transitions(), 0, None, 167))
    chosen += [(get_zone(name), ms(datetime.fromisoformat(f"{text}Z")) // 1000) for name, text in odd]
    assert sum(walk(zone, start_s, EXPRESSIONS) for zone, start_s in chosen) > 10_000


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_all_transitions() -> None:
    """Some 4,400 distinct changes; takes about ten minutes."""
    compared = [walk(zone, start_s, EXPRESSIONS) for zone, start_s in transitions()]
    assert len(compared) > 4_000
    assert sum(compared) > 2_000_000
