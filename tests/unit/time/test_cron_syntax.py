"""What an expression may be, what it selects, and how a refusal reads."""

import pytest

from streams.core.cron import MAX_CHARS, Cron, CronError, parse_cron, uses_hash
from streams.core.instants import format_local, parse_local


def times(cron: Cron, after: str, count: int) -> list[str]:
    found: list[str] = []
    at = parse_local(after, "after") // 1000
    while len(found) < count and (at := cron.next_at(at + 1) or 0):
        found.append(format_local(at))
    return found


def days(text: str, after: str, count: int) -> list[str]:
    """Days of an expression given by its last three fields."""
    return [time[:10] for time in times(parse_cron(f"0 0 {text}"), after, count)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("L", ["2026-01-31", "2026-02-28", "2026-03-31", "2026-04-30"]),
        ("LW", ["2026-01-30", "2026-02-27", "2026-03-31", "2026-04-30"]),
        ("1W", ["2026-02-02", "2026-03-02", "2026-04-01", "2026-05-01"]),
        ("31W", ["2026-01-30", "2026-03-31", "2026-05-29", "2026-07-31"]),  # not in months without a 31st
        ("15w,L", ["2026-01-15", "2026-01-31", "2026-02-16", "2026-02-28"]),
        ("*/10", ["2026-01-11", "2026-01-21", "2026-01-31", "2026-02-01"]),
        ("28-31", ["2026-01-28", "2026-01-29", "2026-01-30", "2026-01-31"]),
        ("20/5", ["2026-01-20", "2026-01-25", "2026-01-30", "2026-02-20"]),
    ],
)
def test_days_of_the_month(text: str, expected: list[str]) -> None:
    assert days(f"{text} * *", "2026-01-01T00:00:00", 4) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SUN", ["2026-01-04", "2026-01-11"]),
        ("7", ["2026-01-04", "2026-01-11"]),
        ("7-7", ["2026-01-04", "2026-01-11"]),
        ("sat-sun", ["2026-01-03", "2026-01-04"]),
        ("MON-SUN/3", ["2026-01-04", "2026-01-05"]),
        ("0-7", ["2026-01-02", "2026-01-03"]),
        ("5/1", ["2026-01-02", "2026-01-03"]),
        ("5L", ["2026-01-30", "2026-02-27"]),
        ("FRIL", ["2026-01-30", "2026-02-27"]),
        ("7L", ["2026-01-25", "2026-02-22"]),
        ("MON#1", ["2026-01-05", "2026-02-02"]),
        ("7#5", ["2026-03-29", "2026-05-31"]),
        ("1#1,1#3,5L", ["2026-01-05", "2026-01-19"]),
        ("?", ["2026-01-02", "2026-01-03"]),
    ],
)
def test_weekdays(text: str, expected: list[str]) -> None:
    assert days(f"* * {text}", "2026-01-01T00:00:00", 2) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("13 * FRI", ["2026-01-02", "2026-01-09", "2026-01-13"]),  # either
        ("*/2 * FRI", ["2026-01-09", "2026-01-23", "2026-02-13"]),  # both: one starts with a star
        ("13 * */5", ["2026-02-13", "2026-03-13", "2026-09-13"]),
        ("13 * ?", ["2026-01-13", "2026-02-13", "2026-03-13"]),
        ("? * FRI", ["2026-01-02", "2026-01-09", "2026-01-16"]),
        ("1-31 * FRI", ["2026-01-02", "2026-01-03", "2026-01-04"]),  # written out is restricted
        ("29 2 *", ["2028-02-29", "2032-02-29", "2036-02-29"]),
        ("31 4,6,9,11,1 *", ["2026-01-31", "2027-01-31", "2028-01-31"]),
        ("30 2 1#5", ["2044-02-29", "2072-02-29", "2112-02-29"]),
        ("29 2 */1", ["2028-02-29", "2032-02-29", "2036-02-29"]),
        ("L FEB SUN", ["2026-02-01", "2026-02-08", "2026-02-15"]),
    ],
)
def test_both_day_fields(text: str, expected: list[str]) -> None:
    assert days(text, "2026-01-01T00:00:00", 3) == expected


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("0 0 31 2,4 *", "31"),
        ("0 0 30W 2 *", "30W"),
        ("0 0 30 2 */2", "30"),
        ("0 0 */30 * 1#2", "*/30"),
        ("0 0 L-3 * *", "L-3"),
        ("0 0 W * *", "W"),
        ("0 0 WL * *", "WL"),
        ("0 0 1-5W * *", "1-5W"),
        ("0 0 32W * *", "32W"),
        ("0 0 * * L", "L"),
        ("0 0 * * 1#0", "1#0"),
        ("0 0 * * 1#6", "1#6"),
        ("0 0 * * 8L", "8L"),
        ("0 0 * * 7-1", "7-1"),
        ("0 0 * * SUN-7,SAT-FRI", "SAT-FRI"),
        ("0 0 15 * MONDAY", "MONDAY"),
        ("MON 0 * * *", "MON"),
        ("0 0 * MON *", "MON"),
        ("0 0 * DEC-JAN *", "DEC-JAN"),
        ("? 0 * * *", "?"),
        ("0 ? * * *", "?"),
        ("0 0 ?/2 * *", "?/2"),
        ("0 0 1,? * *", "?"),
        ("1,,2 * * * *", ""),
        (",1 * * * *", ""),
        ("1- * * * *", "1-"),
        ("1-2-3 * * * *", "1-2-3"),
        ("*/ * * * *", "*/"),
        ("*/5/2 * * * *", "*/5/2"),
        ("*5 * * * *", "*5"),
        ("** * * * *", "**"),
        ("*-5 * * * *", "*-5"),
        ("5-1 * * * *", "5-1"),
        ("1_0 * * * *", "1_0"),
        ("٣ * * * *", "٣"),
        ("5\u00a0* * * *", "\u00a0"),
        ("5 * * * *\n", "\n"),
        ("\u017fUN * * * *", "\u017f"),
        ("*/59,*/60 * * * *", "*/60"),
        ("* */24 * * *", "*/24"),
        ("* * */31 * *", "*/31"),
        ("* * * */12 *", "*/12"),
        ("* * * * */7", "*/7"),
        ("*/60 * * * * *", "*/60"),
        ("1-5/60 * * * *", "1-5/60"),
        ("R/5 * * * *", "R/5"),
        ("r * * * *", "r"),
        ("R(1-3) * * * *", "R(1-3)"),
        ("@every 5m", "@every 5m"),
        ("@", "@"),
        ("@daily @daily", "@daily @daily"),
        ("H H * * *", "H"),  # without a job
        ("99999999999999999999 * * * *", "99999999999999999999"),
    ],
)
def test_refused_by_part(text: str, part: str) -> None:
    with pytest.raises(CronError) as error:
        parse_cron(text, field="cron")
    assert error.value.field == "cron"
    assert error.value.part == part
    assert "accepted" in error.value.detail


@pytest.mark.parametrize("text", [None, 5, ["0 0 * * *"], {"cron": "0 0 * * *"}, b"0 0 * * *", "0" * 2000])
def test_refused_whole(text: object) -> None:
    with pytest.raises(CronError):
        parse_cron(text)


def test_longest_list_is_accepted() -> None:
    every_second = ",".join(map(str, range(60)))
    text = f"{every_second} {every_second} {','.join(map(str, range(24)))} * * *"
    assert len(text) < MAX_CHARS
    assert parse_cron(text).times_per_day == 86_400


@pytest.mark.parametrize(
    ("text", "elapsed"),
    [
        ("0 * * * *", True),
        ("0 */2 * * *", True),
        ("0 *,5 * * *", True),
        ("@hourly", True),
        ("0 0 */2 * * *", True),
        ("0 H/4 * * *", True),
        ("0 h/4,5 * * *", True),
        ("0 0-23 * * *", False),
        ("0 5,*/6 * * *", False),
        ("0 H * * *", False),
        ("0 H(0-5) * * *", False),
        ("0 H(0-23)/4 * * *", False),
        ("@daily", False),
    ],
)
def test_hour_field_chooses_the_clock(text: str, elapsed: bool) -> None:
    assert parse_cron(text, "acme/job").follows_elapsed is elapsed


def test_macros() -> None:
    assert {
        name: parse_cron(f"@{name}").expanded for name in ("hourly", "midnight", "annually", "WEEKLY")
    } == {
        "hourly": "0 * * * *",
        "midnight": "0 0 * * *",
        "annually": "0 0 1 1 *",
        "WEEKLY": "0 0 * * 0",
    }


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("H 0 1 1 *", 0, 59),
        ("H(7-9) 0 1 1 *", 7, 9),
        ("H(5-5) 0 1 1 *", 5, 5),
        ("h(7-9) 0 1 1 *", 7, 9),
    ],
)
def test_hash_reaches_its_whole_range_and_no_more(text: str, low: int, high: int) -> None:
    found = {parse_cron(text, f"acme/{job}").minutes for job in range(1000)}
    assert found == {(minute,) for minute in range(low, high + 1)}


def test_hash_in_day_fields() -> None:
    jobs = [f"acme/{job}" for job in range(400)]
    assert {parse_cron("0 0 H * *", job).expanded.split()[2] for job in jobs} == {
        str(d) for d in range(1, 29)
    }
    assert {parse_cron("0 0 * * H", job).expanded.split()[4] for job in jobs} == {str(d) for d in range(7)}
    assert {parse_cron("0 0 * * H(MON-FRI)", job).expanded.split()[4] for job in jobs} == set("12345")
    assert {parse_cron("0 0 * * H(6-7)", job).expanded.split()[4] for job in jobs} == set("06")
    assert {parse_cron("0 0 1 H *", job).expanded.split()[3] for job in jobs} == {
        str(m) for m in range(1, 13)
    }
    stepped = {parse_cron("0 0 H/30 * *", job).expanded.split()[2] for job in jobs}
    assert stepped == {f"{first}-31/30" for first in range(1, 29)}  # no month goes without


def test_hash_steps() -> None:
    assert {parse_cron("H/20 0 * * *", f"acme/{job}").minutes[0] for job in range(300)} == set(range(20))
    assert {parse_cron("H(10-12)/5 0 * * *", f"acme/{job}").minutes for job in range(100)} == {
        (10,),
        (11,),
        (12,),
    }


@pytest.mark.parametrize(
    "text",
    ["H(9-7) * * * *", "H(0-60) * * * *", "H/60 * * * *", "H/0 * * * *", "H() * * * *", "H(1,2) * * * *"],
)
def test_hash_refused(text: str) -> None:
    with pytest.raises(CronError):
        parse_cron(text, "acme/job")


def test_hash_is_stable_for_ever() -> None:
    """Values that were handed out once; jobs keep them over restarts, nodes and releases."""
    assert parse_cron("H H H H H", "acme/nightly").expanded == STABLE


STABLE = "3 15 20 8 0"


def test_only_hashed_expressions_need_the_job() -> None:
    for text in ("H * * * *", "0 0 * * h", "0 1,h(2-3) * * *", "* H/5 * * *"):
        assert uses_hash(text)
        assert parse_cron(text, "acme/a")
    for text in ("0 0 * * THU", "0 0 * MAR *", "@hourly", ""):
        assert not uses_hash(text)


def test_equal_expressions_are_one_object() -> None:
    assert parse_cron("0 9 * * MON-FRI", "acme/a") is parse_cron("0 9 * * MON-FRI", "acme/b")


def test_months_and_end_of_time() -> None:
    assert times(parse_cron("0 0 1 jan,Jun-AUG *"), "2026-02-01T00:00:00", 2) == [
        "2026-06-01T00:00:00",
        "2026-07-01T00:00:00",
    ]
    last = parse_local("9999-12-31T23:59:59", "x") // 1000
    assert parse_cron("* * * * *").next_at(last) is None
    assert parse_cron("0 0 29 2 *").next_at(last - 86_400 * 400) is None
    assert parse_cron("0 0 1 1 *").nth_back(parse_local("0001-01-05T00:00:00", "x") // 1000, 2) is None
