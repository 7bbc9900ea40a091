"""The handed cases about time, each run as data (tests/data/time, one JSON object a line)."""

import json
import re
import uuid
from collections import Counter
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest

from streams.core.cron import CronError, parse_cron
from streams.core.instants import InstantError, format_instant, parse_instant
from streams.core.schedule import (
    CronSchedule,
    MisfirePolicy,
    count_occurrences,
    missed,
    next_occurrence,
    occurrences,
)
from streams.core.zones import TZ_VERSION, ZoneError, format_zoned, get_zone

DATA = Path(__file__).parents[2] / "data" / "time"
DAY_MS = 86_400_000


def load(name: str) -> dict[str, Any]:
    lines = (DATA / f"{name}.jsonl").read_text("utf-8").splitlines()
    return {case["id"]: case for case in map(json.loads, lines)}


CASES = load("time") | load("cron_syntax")
API = load("api")
OVERLAP = load("overlap_misfire")


def having(operation: str) -> pytest.MarkDecorator:
    ids = [name for name, case in CASES.items() if case["input"]["op"] == operation]
    return pytest.mark.parametrize("name", ids)


def make(cron: str, zone: str, seed: str = "acme/job") -> CronSchedule:
    return CronSchedule(cron=parse_cron(cron, seed), zone=get_zone(zone))


def at(text: str) -> int:
    return parse_instant(text, "test")


def fires(schedule: CronSchedule, after: str, count: int) -> list[str]:
    return [format_instant(found.utc_ms) for found in islice(occurrences(schedule, at(after)), count)]


def test_every_kind_of_case_is_run() -> None:
    operations = {case["input"]["op"] for case in CASES.values()}
    assert operations == {"cron_next", "register_job", "expand_hash"}
    assert len(CASES) == 55


@having("cron_next")
def test_cron_next(name: str) -> None:
    given, expected = CASES[name]["input"], CASES[name]["expected"]
    schedule = make(given["cron"], given["tz"])
    found = list(islice(occurrences(schedule, at(given["after_utc"])), given["count"]))
    utc = [format_instant(one.utc_ms) for one in found]
    assert utc == expected.get("fires_utc", expected.get("with_2026f"))
    if "fires_local" in expected:
        assert [format_zoned(schedule.zone, one.utc_ms) for one in found] == expected["fires_local"]
    for earlier, later in pairwise(found):
        assert earlier.utc_ms < later.utc_ms
        assert next_occurrence(schedule, earlier.utc_ms) == later


@having("register_job")
def test_register_job(name: str) -> None:
    given, expected = CASES[name]["input"], CASES[name]["expected"]
    variants = given.get("each_of", [{}])
    for variant in variants:
        asked = {"cron": given.get("cron"), "tz": given.get("tz", "UTC"), **variant}
        next_run = expected.get("nextRunAt", expected.get("nextRunAt_same_for_both"))
        if isinstance(next_run, dict):
            next_run = next_run.get(asked["cron"])
        refused = expected.get("http_status") == 400 or expected.get(asked["cron"]) is not None
        if refused:
            with pytest.raises(CronError) as error:
                make(asked["cron"], asked["tz"])
            assert error.value.field == "schedule.cron"
            assert error.value.part in asked["cron"]
            assert "accepted:" in error.value.detail
            continue
        schedule = make(asked["cron"], asked["tz"])
        assert schedule.zone.name == asked["tz"]
        wanted = expected.get("first_fires") or [next_run, *expected.get("then", [])]
        assert fires(schedule, given["now_utc"], len(wanted)) == wanted


def test_refusals_say_why() -> None:
    for text, words in {
        "R R * * *": "R is not deterministic",
        "@reboot": "not supported",
        "0 8 * * FRI-MON": "FRI-MON",
        "0 0 30 2 *": "'30'",
        "*/90 * * * *": "*/90",
    }.items():
        with pytest.raises(CronError, match=re.escape(words)):
            parse_cron(text)


def test_hash_reaches_all_minutes() -> None:
    expected = CASES["SYN-013"]["expected"]
    ids = [str(uuid.uuid5(uuid.NAMESPACE_OID, str(number))) for number in range(10_000)]
    pairs = Counter(parse_cron("H H * * *", f"acme/{job}").expanded for job in ids)
    assert len(pairs) >= expected["distinct_minute_hour_pairs_at_least"]
    assert max(pairs.values()) <= expected["max_jobs_on_one_pair_at_most"]


def test_hashed_step_keeps_its_spacing() -> None:
    given = CASES["SYN-019"]["input"]
    for job in [*given["job_ids"], *map(str, range(200))]:
        schedule = make(given["cron"], given["tz"], f"acme/{job}")
        after = at(given["after_utc"])
        assert count_occurrences(schedule, after - 1, after + 7_200_000 - 1) == 24
        found = [one.utc_ms for one in islice(occurrences(schedule, after), given["count"])]
        assert {later - earlier for earlier, later in pairwise(found)} == {300_000}


def test_zone_names() -> None:
    expected = API["API-009"]["expected"]
    refused = [name for name in API["API-009"]["input"]["each_of"] if name not in expected["http_201"]]
    assert len(refused) == len(expected["http_400"])
    for name in refused:
        with pytest.raises(ZoneError) as error:
            get_zone(name, "schedule.timeZone")
        assert error.value.field == "schedule.timeZone"
    for name in expected["http_201"]:
        assert get_zone(name).name == name


def test_instants() -> None:
    assert at(API["API-011"]["input"]["body"]["schedule"]["runAt"]) == at("2016-04-28T13:29:42Z")
    accepted = {
        "2026-09-02T22:30:00.123456789Z": "2026-09-02T22:30:00.124Z",
        "2026-09-02T22:30:00-00:00": "2026-09-02T22:30:00Z",
    }
    for text in API["API-017"]["input"]["runAt_each_of"]:
        if text in accepted:
            assert format_instant(at(text)) == accepted[text]
            continue
        with pytest.raises(InstantError) as error:
            parse_instant(text, "schedule.runAt")
        assert error.value.field == "schedule.runAt"


def test_fire_once_after_a_week() -> None:
    expected = OVERLAP["OVL-001"]["expected"]
    schedule = make("* * * * *", "UTC")
    now_ms = at("2026-05-08T00:00:30Z")
    plan = missed(
        schedule,
        at("2026-05-01T00:00:00Z"),
        "2026-05-01T00:00:00",
        now_ms - 10_001,
        now_ms=now_ms,
        policy=MisfirePolicy.FIRE_ONCE,
        window_ms=DAY_MS,
        limit=1000,
    )
    assert plan.kept is not None
    assert plan.kept.count == expected["runs_created_at_start"]
    assert plan.kept.first == plan.kept.last == plan.last
    assert format_instant(plan.kept.first.utc_ms) == expected["its_scheduledTime"]
    assert sum(record.count for record in plan.skipped) == expected["missed_reported"]
    following = next_occurrence(schedule, plan.kept.last.utc_ms, plan.kept.last.local)
    assert following is not None
    assert format_instant(following.utc_ms) == expected["next_run"]


def test_fire_all_keeps_the_newest() -> None:
    expected = OVERLAP["OVL-013"]["expected"]
    now_ms = at("2026-05-02T00:00:30Z")
    plan = missed(
        make("* * * * *", "UTC"),
        at("2026-05-01T00:00:00Z"),
        "2026-05-01T00:00:00",
        now_ms - 10_001,
        now_ms=now_ms,
        policy=MisfirePolicy.FIRE_ALL,
        window_ms=2 * DAY_MS,
        limit=1000,
    )
    assert plan.kept is not None
    assert plan.kept.count == expected["kept"]
    assert format_instant(plan.kept.first.utc_ms) == "2026-05-01T07:21:00Z"
    assert format_instant(plan.kept.last.utc_ms) == "2026-05-02T00:00:00Z"
    assert [(record.count, record.reason) for record in plan.skipped] == [
        (expected["dropped_reported"], "misfire_limit")
    ]
    assert format_instant(plan.skipped[0].from_ms) == "2026-05-01T00:01:00Z"
    assert format_instant(plan.skipped[0].to_ms) == "2026-05-01T07:20:00Z"


def test_zone_data_are_the_pinned_ones() -> None:
    assert TZ_VERSION >= "2026f"
