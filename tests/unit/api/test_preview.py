"""`GET /v1/schedules/preview`: the handed cases of times and of syntax, and what else it answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.api.conftest import Api

DATA = Path(__file__).parents[2] / "data/time"
CASES = [
    json.loads(line)
    for name in ("time", "cron_syntax")
    for line in (DATA / f"{name}.jsonl").read_text().splitlines()
]
NEXT = [case for case in CASES if case["input"]["op"] == "cron_next"]
NOW = "2026-01-01T00:00:00Z"
REGISTERED = [case for case in CASES if case["input"]["op"] == "register_job"]


async def preview(api: Api, **query: Any) -> Any:
    answer = await api.get("/v1/schedules/preview", params={k: str(v) for k, v in query.items()})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_the_handed_times(api: Api) -> None:
    for case in NEXT:
        given, expected = case["input"], case["expected"]
        answer = await preview(
            api, cron=given["cron"], timeZone=given["tz"], after=given["after_utc"], count=given["count"]
        )
        utc = [one["utc"] for one in answer["occurrences"]]
        assert utc == expected.get("fires_utc", expected.get("with_2026f")), case["id"]
        if "fires_local" in expected:
            assert [one["local"] for one in answer["occurrences"]] == expected["fires_local"], case["id"]


async def test_the_handed_syntax(api: Api) -> None:
    for case in REGISTERED:
        given, expected = case["input"], case["expected"]
        for variant in given.get("each_of", [{}]):
            cron = variant.get("cron", given.get("cron"))
            query = {
                "cron": cron,
                "timeZone": variant.get("tz", given.get("tz")),
                "after": given.get("now_utc", NOW),
            }
            answer = await api.get("/v1/schedules/preview", params=query)
            first = expected.get("nextRunAt", expected.get("nextRunAt_same_for_both"))
            first = first.get(cron) if isinstance(first, dict) else first
            if expected.get("http_status") == 400 or cron in expected:
                assert answer.status_code == 400, (case["id"], cron)
                [error] = answer.json()["errors"]
                assert error["field"] == "schedule.cron"
                assert "accepted:" in error["detail"]
                continue
            assert answer.status_code == 200, (case["id"], cron, answer.text)
            utc = [one["utc"] for one in answer.json()["occurrences"]]
            wanted = expected.get("first_fires") or [first, *expected.get("then", [])]
            assert utc[: len(wanted)] == wanted, (case["id"], cron)


async def test_a_hashed_field_needs_the_job(api: Api) -> None:
    refused = await api.get("/v1/schedules/preview", params={"cron": "H H * * *"})
    assert [error["field"] for error in refused.json()["errors"]] == ["jobId"]
    one = await preview(api, cron="H H * * *", jobId="a", after="2026-01-01T00:00:00Z")
    same = await preview(api, cron="H H * * *", jobId="a", after="2026-01-01T00:00:00Z")
    assert one == same
    assert "H" not in one["schedule"]["cronExpanded"]
    await api.call("PUT", "/v1/jobs/a", {"schedule": {"cron": "H H * * *"}})
    shown = (await api.get("/v1/jobs/a")).json()
    assert shown["schedule"] == one["schedule"]
    ours = await preview(api, cron="H H * * *", jobId="a", after="2026-05-01T00:00:00Z", count=1)
    assert ours["occurrences"][0]["utc"] == shown["nextRunAt"]


async def test_the_first_cases_of_hashes(api: Api) -> None:
    """SYN-019: an id whose hash is a multiple of the step still runs every five minutes."""
    answer = await preview(
        api, cron="H/5 * * * *", jobId="lml-scamper", after="2010-01-01T10:00:00Z", count=24
    )
    minutes = [one["utc"][11:16] for one in answer["occurrences"]]
    assert len({minute[:2] for minute in minutes}) in (2, 3)
    assert len(minutes) == len(set(minutes)) == 24


async def test_notes(api: Api) -> None:
    gap = await preview(
        api, cron="30 2 * * *", timeZone="America/New_York", after="2026-03-08T06:30:00Z", count=2
    )
    assert gap["occurrences"][0]["note"].startswith("2026-03-08T02:30:00 does not exist")
    assert "note" not in gap["occurrences"][1]
    fold = await preview(
        api, cron="30 * * * *", timeZone="America/New_York", after="2026-11-01T05:00:00Z", count=2
    )
    assert ["first" in one["note"] for one in fold["occurrences"]] == [True, False]


async def test_other_kinds(api: Api) -> None:
    after = "2026-05-01T00:00:00Z"
    every = await preview(api, everySec=60, after=after, count=2)
    assert [one["utc"] for one in every["occurrences"]] == ["2026-05-01T00:01:00Z", "2026-05-01T00:02:00Z"]
    assert every["schedule"] == {"everySec": 60, "anchoredAt": after}
    delayed = await preview(api, delaySec=90, after=after)
    assert [one["utc"] for one in delayed["occurrences"]] == ["2026-05-01T00:01:30Z"]
    local = await preview(api, runAt="2026-05-01T09:00:00", timeZone="Europe/London", after=after)
    assert local["occurrences"] == [{"utc": "2026-05-01T08:00:00Z", "local": "2026-05-01T09:00:00+01:00"}]
    assert local["schedule"] == {"runAt": "2026-05-01T09:00:00", "timeZone": "Europe/London"}
    bounded = await preview(
        api,
        cron="0 * * * *",
        startAt="2026-05-01T05:00:00Z",
        endAt="2026-05-01T09:00:00Z",
        maxRuns=3,
        after=after,
    )
    assert [one["utc"][11:13] for one in bounded["occurrences"]] == ["05", "06", "07"]
    assert bounded["schedule"]["maxRuns"] == 3
    far = await preview(api, cron="0 0 29 2 *", after="2096-03-01T00:00:00Z", count=1_000)
    assert [one["utc"][:10] for one in far["occurrences"][:2]] == ["2104-02-29", "2108-02-29"]
    assert len(far["occurrences"]) == 1_000


async def test_jitter_shows_when_it_is_due(api: Api) -> None:
    query = {"cron": "0 * * * *", "jitterSec": 600, "after": "2026-05-01T00:00:00Z", "count": 1}
    [known] = (await preview(api, **query, jobId="a"))["occurrences"]
    assert known["utc"] == "2026-05-01T01:00:00Z" < known["dueAt"] <= "2026-05-01T01:10:00Z"
    [unknown] = (await preview(api, **query))["occurrences"]
    assert "dueAt" not in unknown


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({}, "schedule"),
        ({"cron": "* * * * *", "everySec": "60"}, "schedule"),
        ({"cron": ""}, "schedule.cron"),
        ({"cron": "* * * * *", "timeZone": "Mars/Phobos"}, "schedule.timeZone"),
        ({"everySec": "x"}, "schedule.everySec"),
        ({"everySec": "0"}, "schedule.everySec"),
        ({"everySec": "60", "jitterSec": "86401"}, "schedule.jitterSec"),
        ({"everySec": "60", "maxRuns": "0"}, "schedule.maxRuns"),
        ({"everySec": "60", "startAt": "today"}, "schedule.startAt"),
        ({"everySec": "60", "count": "0"}, "count"),
        ({"everySec": "60", "count": "1001"}, "count"),
        ({"everySec": "60", "after": "today"}, "after"),
        ({"everySec": "60", "jobId": "a b"}, "jobId"),
        ({"everySec": "60", "zone": "UTC"}, "zone"),
        ({"runAt": "2026-09-02T24:00:00Z"}, "schedule.runAt"),
        ({"runAt": "2026-09-02T22:00:00Z", "allowPast": "yes"}, "schedule.allowPast"),
    ],
    ids=str,
)
async def test_what_is_wrong_is_named(api: Api, query: dict[str, str], field: str) -> None:
    answer = await api.get("/v1/schedules/preview", params=query)
    assert answer.status_code == 400
    assert [error["field"] for error in answer.json()["errors"]] == [field]
