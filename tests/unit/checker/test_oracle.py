"""The oracle and the scheduler, written apart, agree on when jobs occur."""

from __future__ import annotations

from itertools import islice, takewhile

import pytest

from projections.checker.oracle import Oracle
from projections.checker.retries import is_backoff, longest_backoff_ms, redelivery_wait_ms
from schemas.commands import ScheduleSpec
from schemas.entities import RetryJitter, RetryPolicy, Schedule, ScheduleKind
from streams.ambient import Chance
from streams.core import retry
from streams.core.instants import parse_instant
from streams.core.planning import plan, resolve
from streams.core.schedule import occurrences

SECONDS = ["0", "*/7", "30", "5-50/15", "H", "59"]
MINUTES = ["*", "*/20", "0", "30", "H", "H/15", "5,35", "0-10", "H(20-40)", "7/13"]
HOURS = ["*", "*/3", "2", "1", "0", "H", "H/6", "1-3", "0,23", "*,5", "H(1-4)", "2/7"]
DAYS = ["*", "?", "L", "LW", "15W", "1W", "31", "1,15", "*/2", "H", "28-31", "10-20/5"]
MONTHS = ["*", "3,11", "OCT", "MAR-APR", "*/2", "H"]
WEEKDAYS = [
    "*",
    "?",
    "0",
    "7",
    "MON-FRI",
    "SUN",
    "6#2",
    "FRIL",
    "FRI-SUN",
    "5L",
    "1#1",
    "MON,WED",
    "*/2",
    "7/1",
]
ZONES = [
    "UTC",
    "Europe/London",
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "Pacific/Apia",
    "Asia/Kathmandu",
    "America/St_Johns",
]
STARTS = ["2026-03-28T21:13:07Z", "2026-10-24T20:59:59Z", "2011-12-28T23:00:00Z", "2028-02-27T00:00:00Z"]
SPAN_MS = 60 * 86_400_000
COMPARED_MAX = 200


def expression(chance: Chance) -> str:
    """Every form, and days that are not too rare."""
    fields = [chance.choice(MINUTES), chance.choice(HOURS)]
    fields += [chance.choice(of) if chance.random() < 0.4 else "*" for of in (DAYS, MONTHS, WEEKDAYS)]
    if chance.random() < 0.3:
        fields = [chance.choice(SECONDS), *fields]
    return " ".join(fields)


def theirs(schedule: Schedule, seed: str, after_ms: int, upto_ms: int) -> list[int]:
    found = occurrences(plan(schedule, seed), after_ms)
    return [one.utc_ms for one in takewhile(lambda one: one.utc_ms <= upto_ms, islice(found, COMPARED_MAX))]


@pytest.mark.parametrize("seed", range(8))
def test_cron(seed: int) -> None:
    chance = Chance(seed)
    oracle = Oracle()
    compared = 0
    for number in range(60):
        spec = ScheduleSpec(cron=expression(chance), time_zone=chance.choice(ZONES))
        start_ms = parse_instant(chance.choice(STARTS), "start")
        try:
            schedule = resolve(spec, f"acme/{number}", start_ms)
        except ValueError:
            continue  # dates that never meet
        assert isinstance(schedule, Schedule)
        after_ms = start_ms + chance.randrange(86_400_000)
        upto_ms = after_ms + SPAN_MS
        expected = theirs(schedule, f"acme/{number}", after_ms, upto_ms)
        if len(expected) == COMPARED_MAX:
            upto_ms = expected[-1]
        assert oracle.between(schedule, after_ms, upto_ms) == expected, (spec, after_ms)
        compared += len(expected)
    assert compared > 3_000


@pytest.mark.parametrize(
    "spec",
    [
        ScheduleSpec(every_sec=77),
        ScheduleSpec(every_sec=60, start_at="2026-02-01T00:00:00.5Z"),
        ScheduleSpec(every_sec=60, start_at="2026-03-28T22:00:00Z", end_at="2026-03-28T23:00:00Z"),
        ScheduleSpec(delay_sec=30),
        ScheduleSpec(delay_sec=0),
        ScheduleSpec(run_at="2026-03-29T02:30:00", time_zone="Europe/London"),
        ScheduleSpec(cron="@hourly", time_zone="Asia/Kathmandu"),
        ScheduleSpec(cron="*/5 * * * *", start_at="2026-03-28T22:00:00Z", end_at="2026-03-28T23:00:00Z"),
    ],
)
def test_other_kinds_and_bounds(spec: ScheduleSpec) -> None:
    now_ms = parse_instant("2026-03-28T21:13:07.250Z", "now")
    schedule = resolve(spec, "acme/a", now_ms)
    assert isinstance(schedule, Schedule)
    upto_ms = max(now_ms + 4 * 3_600_000, schedule.run_at_ms)
    after_ms = schedule.run_at_ms - 1 if schedule.kind is ScheduleKind.ONCE else now_ms
    ours = Oracle().between(schedule, after_ms, upto_ms)
    assert ours[:COMPARED_MAX] == theirs(schedule, "acme/a", after_ms, upto_ms)
    assert ours


def test_zone_data_of_another_version_are_not_guessed() -> None:
    schedule = Schedule(kind=ScheduleKind.CRON, cron="0 1 * * *", cron_expanded="0 1 * * *")
    oracle = Oracle()
    assert oracle.knows(schedule, "")
    assert not oracle.knows(schedule, "1999a")
    with pytest.raises(ValueError, match="1999a"):
        oracle.between(schedule, 0, 1, "1999a")
    assert oracle.knows(Schedule(kind=ScheduleKind.EVERY, every_ms=5), "1999a")


def test_backoffs() -> None:
    chance = Chance(1)
    for _ in range(500):
        base = chance.randrange(1, 100)
        policy = RetryPolicy(
            backoff_base_sec=base,
            backoff_factor=chance.choice([1.0, 1.5, 2.0, 3.0, 100.0]),
            backoff_max_sec=base + chance.randrange(10_000),
            jitter=chance.choice([RetryJitter.FULL, RetryJitter.NONE]),
        )
        attempt = chance.choice([1, 2, 3, 5, 9_999])
        drawn = retry.backoff_ms(policy, attempt, chance.random())
        assert is_backoff(policy, attempt, drawn), (policy, attempt, drawn)
        assert not is_backoff(policy, attempt, longest_backoff_ms(policy, attempt) + 1)
    for deliveries in range(1, 20):
        assert redelivery_wait_ms(deliveries) == retry.redelivery_wait_ms(deliveries)
