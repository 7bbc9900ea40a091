"""The examples in docs/time.md are what the preview says."""

from __future__ import annotations

from pathlib import Path

from schemas.commands import ScheduleSpec
from schemas.entities import Schedule
from streams.core.instants import parse_instant
from streams.core.planning import resolve
from streams.core.preview import preview

PAGE = Path(__file__).parents[3] / "docs" / "time.md"


def rows() -> list[list[str]]:
    lines = PAGE.read_text(encoding="utf-8").split("| cron | zone |")[1].splitlines()[2:]
    table = lines[: lines.index("")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def test_the_table_of_clock_changes() -> None:
    cron = zone = ""
    after_ms = 0
    assert len(rows()) == 14
    for named, in_zone, utc, local, note in rows():
        if named:
            cron, zone, after_ms = named.strip("`"), in_zone, parse_instant(utc, "utc") - 1
        schedule = resolve(ScheduleSpec(cron=cron, time_zone=zone), "a/b", 0)
        assert isinstance(schedule, Schedule)
        [one] = preview(schedule, "a/b", after_ms, 1)
        assert [one.utc, one.local, one.note or ""] == [utc, local, note]
        after_ms = one.utc_ms
