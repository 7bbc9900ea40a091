"""Zones against `zoneinfo` reading the same package, and the names that must not load."""

from datetime import UTC, datetime, timedelta

import pytest

from projections.checker.walls import zone_info
from streams.core.instants import parse_instant, parse_local
from streams.core.zones import (
    CYCLE_S,
    NEVER_S,
    TZ_VERSION,
    Zone,
    ZoneError,
    format_zoned,
    get_zone,
    resolve_local,
    zone_names,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SINCE_S = -2_208_988_800  # 1900: before it zoneinfo chooses another first offset than RFC 8536
FAR_S = 253_000_000_000  # 9987


def starts(zone: Zone, upto_s: int) -> list[int]:
    found, index = [], 1
    while (segment := zone.segment(index)) is not None and segment[0] < upto_s:
        found.append(segment[0])
        index += 1
    return found


def expected_offset(zone: Zone, utc_s: int) -> int:
    offset = (EPOCH + timedelta(seconds=utc_s)).astimezone(zone_info(zone.name)).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


@pytest.mark.parametrize("letter", "AEIPU")
def test_offsets_are_those_of_zoneinfo(letter: str) -> None:
    """Just before, at and after every change until 2120, and at odd instants until 9987."""
    for name in sorted(zone_names()):
        if not name.startswith(letter):
            continue
        zone = get_zone(name)
        probes = [start + delta for start in starts(zone, 4_733_510_400) for delta in (-1, 0)]
        probes += range(2_000_000_000, FAR_S, 3_600_000_007 * 7)
        for utc_s in probes:
            if utc_s >= SINCE_S:
                assert zone.offset_at(utc_s) == expected_offset(zone, utc_s), (name, utc_s)


def test_segments_go_on_for_ever() -> None:
    zone = get_zone("Europe/London")
    near, far = zone.segment_at(2_500_000_000), zone.segment_at(2_500_000_000 + 7 * CYCLE_S)
    assert far - near == 7 * 800
    for index in (near, near + 1):
        early, late = zone.segment(index), zone.segment(index + 7 * 800)
        assert early is not None
        assert late == (early[0] + 7 * CYCLE_S, early[1], early[2] + 7 * CYCLE_S)
    utc = get_zone("UTC")
    assert utc.segment(0) == (NEVER_S, 0, NEVER_S)
    assert utc.segment(1) is None


def test_no_zone_falls_back_into_its_own_gap() -> None:
    """Holds for all data so far, and keeps "first pass" and "first instant that reaches it" the same."""
    for name in zone_names():
        zone, index, gap_end = get_zone(name), 1, NEVER_S
        while (segment := zone.segment(index)) is not None and segment[0] < 5_000_000_000:
            start_s, offset_s, peak_s = segment
            assert start_s + offset_s >= gap_end, (name, start_s)
            if start_s + offset_s > peak_s:
                gap_end = start_s + offset_s
            index += 1


@pytest.mark.parametrize(
    ("zone", "local", "utc"),
    [
        ("America/New_York", "2026-03-08T01:59:59", "2026-03-08T06:59:59Z"),
        ("America/New_York", "2026-03-08T02:00:00", "2026-03-08T07:00:00Z"),
        ("America/New_York", "2026-03-08T02:30:00.500", "2026-03-08T07:00:00Z"),
        ("America/New_York", "2026-03-08T03:00:00.500", "2026-03-08T07:00:00.500Z"),
        ("America/New_York", "2026-11-01T01:30:00", "2026-11-01T05:30:00Z"),
        ("America/New_York", "2026-11-01T02:00:00", "2026-11-01T07:00:00Z"),
        ("Pacific/Apia", "2011-12-30T09:00:00", "2011-12-30T10:00:00Z"),
        ("Africa/Monrovia", "1971-12-31T00:00:00", "1971-12-31T00:44:30Z"),
        ("America/New_York", "9000-07-01T00:00:00", "9000-07-01T04:00:00Z"),
        ("America/New_York", "2500-01-01T00:00:00", "2500-01-01T05:00:00Z"),
    ],
)
def test_local_to_instant(zone: str, local: str, utc: str) -> None:
    assert resolve_local(get_zone(zone), parse_local(local, "runAt")) == parse_instant(utc, "runAt")


def test_zoned_text() -> None:
    instant = parse_instant("2026-03-08T07:00:00.25Z", "at")
    assert format_zoned(get_zone("America/New_York"), instant) == "2026-03-08T03:00:00.250-04:00"
    assert format_zoned(get_zone("Asia/Kathmandu"), instant) == "2026-03-08T12:45:00.250+05:45"


@pytest.mark.parametrize(
    "name",
    [
        *(None, 5, ["UTC"], "utc", "UTC ", " UTC", "UTC\n", "UTC\0", "\ud800", "x" * 100_000),
        *("Europe", "Europe/", "Europe/Berlin/", "Europe//Berlin", "Europe/../UTC", "Europe\\Berlin"),
        *("/UTC", "./UTC", "posix/UTC", "right/UTC", "tzdata.zi", "zone1970.tab", "__init__.py"),
        *("Europe/__init__.py", "GMT+1", "Z", "CEST"),
    ],
)
def test_refused_names(name: object) -> None:
    with pytest.raises(ZoneError) as error:
        get_zone(name, "tz")
    assert error.value.field == "tz"
    assert TZ_VERSION in error.value.detail
    assert len(error.value.detail) < 300


def test_names_share_one_zone_each_and_keep_their_own() -> None:
    assert get_zone("Europe/Kiev").name == "Europe/Kiev"
    assert get_zone("Europe/Kyiv") is get_zone("Europe/Kyiv")
    assert "Factory" not in zone_names()
    assert len(zone_names()) > 590
