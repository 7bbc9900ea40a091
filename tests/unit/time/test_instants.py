"""Strict RFC 3339 in, canonical text out."""

import pytest

from streams.core.instants import (
    MAX_INSTANT_MS,
    MIN_INSTANT_MS,
    InstantError,
    format_instant,
    format_local,
    format_offset,
    parse_instant,
    parse_local,
)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z"),
        ("1970-01-01t00:00:00z", "1970-01-01T00:00:00Z"),
        ("2024-02-29T12:00:00+05:30", "2024-02-29T06:30:00Z"),
        ("2024-02-29T12:00:00-23:59", "2024-03-01T11:59:00Z"),
        ("2024-02-29T12:00:00+23:59", "2024-02-28T12:01:00Z"),
        ("2024-02-29T12:00:00.5Z", "2024-02-29T12:00:00.500Z"),
        ("2024-02-29T12:00:00.000Z", "2024-02-29T12:00:00Z"),
        ("2024-02-29T12:00:00.0000000000000001Z", "2024-02-29T12:00:00.001Z"),
        ("2024-12-31T23:59:59.9991Z", "2025-01-01T00:00:00Z"),
        ("1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.999Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
    ],
)
def test_accepted(text: str, canonical: str) -> None:
    assert format_instant(parse_instant(text, "runAt")) == canonical


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-09-02T22:30:00",  # no offset
        "2026-09-02 22:30:00Z",
        "2026-09-02T22:30Z",
        "2026-09-02T22:30:00.Z",
        "2026-09-02T22:30:00,5Z",
        "2026-09-02T22:30:00+0200",
        "2026-09-02T22:30:00+02",
        "2026-09-02T22:30:00+02:00:00",
        "2026-09-02T22:30:00+24:00",
        "2026-09-02T22:30:00+02:60",
        "2026-09-02T22:60:00Z",
        "2026-09-02T25:00:00Z",
        "2026-13-02T22:30:00Z",
        "2026-00-02T22:30:00Z",
        "2023-02-29T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "+2026-09-02T22:30:00Z",
        "12026-09-02T22:30:00Z",
        "2026-245T22:30:00Z",
        "2026-09-02T22:30:00Z\n",
        " 2026-09-02T22:30:00Z",
        "2026-09-02T22:30:00Z[Europe/Berlin]",
        "\uff12026-09-02T22:30:00Z",
        "2026-09-02T22:30:00\u221202:00",
        "0001-01-01T00:00:00+00:01",  # before the year 1 in UTC
        "9999-12-31T23:59:59-00:01",
        "9999-12-31T23:59:59.9999Z",  # rounds up into the year 10000
        "2026-09-02T22:30:00." + "1" * 100 + "Z",
        None,
        1_788_388_200_000,
        1.5,
        ["2026-09-02T22:30:00Z"],
    ],
)
def test_refused_with_its_field(text: object) -> None:
    with pytest.raises(InstantError) as error:
        parse_instant(text, "schedule.runAt")
    assert error.value.field == "schedule.runAt"
    assert error.value.detail
    assert len(error.value.detail) < 300


def test_leap_second_and_midnight_get_a_hint() -> None:
    for text in ("2026-12-31T23:59:60Z", "2026-09-02T24:00:00Z"):
        with pytest.raises(InstantError, match="leap second or 24:00"):
            parse_instant(text, "runAt")


def test_local_time_has_no_offset() -> None:
    assert parse_local("2026-03-08T02:30:00.25", "runAt") == parse_instant("2026-03-08T02:30:00.25Z", "runAt")
    for text in ("2026-03-08T02:30:00Z", "2026-03-08", "2026-03-08T02:30", 5):
        with pytest.raises(InstantError):
            parse_local(text, "runAt")


def test_formats() -> None:
    assert format_local(0) == "1970-01-01T00:00:00"
    assert format_local(-1) == "1969-12-31T23:59:59"
    assert [format_offset(s) for s in (0, -16200, 49500, -2670)] == [
        "+00:00",
        "-04:30",
        "+13:45",
        "-00:44:30",
    ]
    assert format_instant(MIN_INSTANT_MS) == "0001-01-01T00:00:00Z"
    assert format_instant(MAX_INSTANT_MS) == "9999-12-31T23:59:59.999Z"
