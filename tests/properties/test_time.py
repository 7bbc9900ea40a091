"""Properties of instants, cron expressions and schedules over generated input."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import pytest
from croniter import croniter
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from streams.core.cron import Cron, CronError, parse_cron
from streams.core.instants import (
    MAX_INSTANT_MS,
    MIN_INSTANT_MS,
    TimeInputError,
    format_instant,
    parse_instant,
    parse_local,
)
from streams.core.schedule import (
    CronSchedule,
    Every,
    MisfirePolicy,
    Note,
    Schedule,
    count_occurrences,
    jitter_ms,
    missed,
    next_occurrence,
    nth_newest,
    occurrences,
)
from streams.core.zones import ZoneError, get_zone, zone_names

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_MS = 86_400_000
RANGES = {"minute": (0, 59), "hour": (0, 23), "day": (1, 31), "month": (1, 12), "weekday": (0, 6)}
# Zones whose changes differ in size, direction, hour and era.
ZONES = (
    *("UTC", "America/New_York", "Europe/Dublin", "Australia/Lord_Howe", "Antarctica/Troll", "Asia/Gaza"),
    *(
        "Pacific/Apia",
        "Africa/Casablanca",
        "America/Nuuk",
        "Pacific/Chatham",
        "Africa/Monrovia",
        "Asia/Tehran",
    ),
)
EVERY_DAY = parse_cron("0 0 * * *").day_table
# 1970 to 2120, so that explicit transitions and the yearly rule both occur.
moments = st.integers(0, 4_733_510_400_000)


@st.composite
def plain_fields(draw: st.DrawFn, name: str) -> str:
    low, high = RANGES[name]
    items = []
    for _ in range(draw(st.integers(1, 3))):
        first = draw(st.integers(low, high - 1))
        last = draw(st.integers(first + 1, high))  # croniter reads a range of one value as all values
        step = draw(st.integers(1, high - low))
        items.append(
            draw(
                st.sampled_from(
                    ["*", f"*/{step}", f"{first}", f"{last}", f"{first}-{last}", f"{first}-{last}/{step}"]
                )
            )
        )
    return ",".join(items)


@st.composite
def plain_crons(draw: st.DrawFn) -> str:
    star = st.just("*")
    parts = [draw(plain_fields(name)) for name in ("minute", "hour")]
    parts += [draw(star | plain_fields(name)) for name in ("day", "month", "weekday")]
    return " ".join(parts)


@st.composite
def any_crons(draw: st.DrawFn) -> str:
    """Also seconds, macros, hashed and calendar forms."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from(["@hourly", "@daily", "@weekly", "@monthly", "@yearly"]))
    minute, hour, day, month, weekday = draw(plain_crons()).split()
    minute = draw(st.sampled_from([minute, "H", "H/7", "H(5-20)"]))
    hour = draw(st.sampled_from([hour, "*", "H", "H/5", "2", "1,2,3"]))
    day = draw(st.sampled_from([day, "L", "LW", "15W,L", "H", "?"]))
    weekday = draw(st.sampled_from([weekday, "*", "?", "5#3", "FRIL,1", "SAT-SUN"]))
    second = draw(st.sampled_from(["", "0 ", "*/20 ", "7,59 "]))
    return f"{second}{minute} {hour} {day} {month} {weekday}"


def parsed(text: str) -> Cron:
    try:
        return parse_cron(text, "acme/job")
    except CronError as error:
        assume("never meet" not in error.detail)  # drawn without regard to the calendar
        raise


@st.composite
def cron_schedules(draw: st.DrawFn) -> CronSchedule:
    return CronSchedule(cron=parsed(draw(any_crons())), zone=get_zone(draw(st.sampled_from(ZONES))))


schedules: st.SearchStrategy[Schedule] = cron_schedules() | st.builds(
    Every, every_ms=st.integers(1000, 90 * DAY_MS), anchor_ms=moments
)


@given(st.integers(MIN_INSTANT_MS, MAX_INSTANT_MS))
def test_instants_round_trip(instant_ms: int) -> None:
    assert parse_instant(format_instant(instant_ms), "at") == instant_ms


@given(st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1)), st.integers(-1439, 1439))  # noqa: DTZ001
def test_instants_agree_with_datetime(local: datetime, offset_min: int) -> None:
    sign = "-" if offset_min < 0 else "+"
    text = f"{local.isoformat()}{sign}{abs(offset_min) // 60:02d}:{abs(offset_min) % 60:02d}"
    exact = local.replace(tzinfo=UTC) - timedelta(minutes=offset_min) - EPOCH
    assert parse_instant(text, "at") == -(-exact // timedelta(milliseconds=1))


@given(st.text(max_size=40) | st.text("0123456789-+:.TZ ", max_size=40))
def test_bad_input_raises_nothing_else(text: str) -> None:
    for parse in (parse_instant, parse_local):
        with suppress(TimeInputError):
            parse(text, "field")
    if text not in zone_names():
        with pytest.raises(ZoneError):
            get_zone(text)


@given(st.text(max_size=30) | st.text("0123456789*/-,LWH#?R()@ \tMONFRIsun", max_size=30))
def test_any_text_is_an_expression_or_a_cron_error(text: str) -> None:
    with suppress(CronError):
        parse_cron(text, "acme/job")


@given(plain_crons(), st.integers(0, 2_500_000_000))
@settings(max_examples=150, deadline=None)
def test_plain_expressions_match_as_croniter_has_it(text: str, after_s: int) -> None:
    """croniter on UTC, where it is right; its `implement_cron_bug` is Vixie's rule for the day fields."""
    _, _, day, _, weekday = text.split()
    for field, alone in ((day, f"0 0 {day} * *"), (weekday, f"0 0 * * {weekday}")):
        # By Vixie's rule `1-31` and `2,*` are restricted; croniter takes any full set for a star.
        assume(field.startswith("*") or parse_cron(alone).day_table != EVERY_DAY)
    cron = parsed(text)
    start = EPOCH + timedelta(seconds=after_s)
    oracle = croniter(text, start, ret_type=datetime, implement_cron_bug=True)
    at = after_s
    for _ in range(5):
        found = cron.next_at(at + 1)
        assert found is not None
        at = found
        assert EPOCH + timedelta(seconds=at) == oracle.get_next()


@given(cron_schedules(), moments)
@settings(max_examples=150, deadline=None)
def test_any_cursor_on_the_way_gives_the_same_next(schedule: CronSchedule, after_ms: int) -> None:
    found = list(islice(occurrences(schedule, after_ms), 8))
    assert all(early.utc_ms < late.utc_ms for early, late in pairwise(found))
    assert found[0].utc_ms > after_ms
    for early, late in pairwise(found):
        between = (early.utc_ms + late.utc_ms) // 2
        assert next_occurrence(schedule, between) == late
        assert next_occurrence(schedule, early.utc_ms) == late
        assert next_occurrence(schedule, late.utc_ms - 1, early.local) == late


@given(cron_schedules(), moments)
@settings(max_examples=150, deadline=None)
def test_nominal_time_is_the_wall_clock_unless_skipped(schedule: CronSchedule, after_ms: int) -> None:
    for one in islice(occurrences(schedule, after_ms), 8):
        assert one.utc_ms % 1000 == 0
        utc_s, nominal_s = one.utc_ms // 1000, parse_local(one.local, "local") // 1000
        wall_s = utc_s + schedule.zone.offset_at(utc_s)
        assert schedule.cron.next_at(nominal_s) == nominal_s
        if one.note is Note.SKIPPED:
            assert not schedule.cron.follows_elapsed
            assert utc_s - 1 + schedule.zone.offset_at(utc_s - 1) < nominal_s < wall_s
        else:
            assert wall_s == nominal_s
        if one.note is Note.REPEATED_SECOND:
            assert schedule.cron.follows_elapsed
        if not schedule.cron.follows_elapsed:
            assert schedule.zone.to_utc(nominal_s) == utc_s


@given(schedules, moments, st.integers(0, 40 * DAY_MS))
@settings(max_examples=200, deadline=None)
def test_counting_is_listing(schedule: Schedule, after_ms: int, length_ms: int) -> None:
    listed = []
    for one in islice(occurrences(schedule, after_ms), 300):
        if one.utc_ms > after_ms + length_ms:
            break
        listed.append(one)
    else:
        length_ms = listed[-1].utc_ms - after_ms  # too many: count to the last one listed
    upto_ms = after_ms + length_ms
    assert count_occurrences(schedule, after_ms, upto_ms) == len(listed)
    for n in (1, 2, len(listed)):
        if 0 < n <= len(listed):
            assert nth_newest(schedule, after_ms, upto_ms, n) == listed[-n]
    assert nth_newest(schedule, after_ms, upto_ms, len(listed) + 1) is None


@given(schedules, moments, st.integers(0, 2000 * DAY_MS), st.floats(0, 1))
@settings(max_examples=200, deadline=None)
def test_counts_of_parts_add_up(schedule: Schedule, after_ms: int, length_ms: int, part: float) -> None:
    upto_ms, middle_ms = after_ms + length_ms, after_ms + int(length_ms * part)
    whole = count_occurrences(schedule, after_ms, upto_ms)
    before, behind = (
        count_occurrences(schedule, after_ms, middle_ms),
        count_occurrences(schedule, middle_ms, upto_ms),
    )
    assert whole == before + behind


@given(
    schedules,
    moments,
    st.integers(0, 60 * DAY_MS),
    st.sampled_from(MisfirePolicy),
    st.integers(0, 30 * DAY_MS),
    st.integers(1, 1000),
)
@settings(max_examples=200, deadline=None)
def test_a_misfire_plan_loses_nothing(
    schedule: Schedule, after_ms: int, length_ms: int, policy: MisfirePolicy, window_ms: int, limit: int
) -> None:
    upto_ms = after_ms + length_ms
    first = next_occurrence(schedule, after_ms)
    plan = missed(
        schedule, after_ms, None, upto_ms, now_ms=upto_ms + 1, policy=policy, window_ms=window_ms, limit=limit
    )
    kept = plan.kept.count if plan.kept else 0
    total = count_occurrences(schedule, after_ms, upto_ms)
    assert kept + sum(record.count for record in plan.skipped) == total
    assert len({record.reason for record in plan.skipped}) == len(plan.skipped)
    spans = [(record.from_ms, record.to_ms, record.count) for record in plan.skipped]
    if plan.kept:
        spans.append((plan.kept.first.utc_ms, plan.kept.last.utc_ms, plan.kept.count))
        assert kept <= (1 if policy is MisfirePolicy.FIRE_ONCE else limit)
        assert plan.kept.first.utc_ms >= upto_ms + 1 - window_ms
    for begin, end, count in spans:
        assert count_occurrences(schedule, begin - 1, end) == count
    assert all(early[1] < late[0] for early, late in pairwise(spans))
    if total:
        assert first is not None
        assert plan.last is not None
        assert spans[0][0] == first.utc_ms
        assert spans[-1][1] == plan.last.utc_ms


@given(st.text(max_size=20), st.integers(0, 86_400), moments, st.integers(1, DAY_MS))
def test_jitter_ends_before_the_next(seed: str, jitter_sec: int, at_ms: int, gap_ms: int) -> None:
    seed = seed.encode("utf-8", "replace").decode()
    delay = jitter_ms(seed, jitter_sec, at_ms, at_ms + gap_ms)
    assert 0 <= delay <= min(jitter_sec * 1000, gap_ms - 1)
    assert delay == jitter_ms(seed, jitter_sec, at_ms, at_ms + gap_ms)
    assert 0 <= jitter_ms(seed, jitter_sec, at_ms, None) <= jitter_sec * 1000
