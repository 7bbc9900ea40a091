"""The handed cases of the API, each as it is written: requests in, answers compared."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from schemas.commands import RegisterJob
from streams.core.instants import parse_instant
from tests.unit.api.conftest import Api, MakeApi

CASES = {
    case["id"]: case
    for line in (Path(__file__).parents[2] / "data/api/cases.jsonl").read_text().splitlines()
    for case in [json.loads(line)]
}


def body_of(given: dict[str, Any]) -> dict[str, Any]:
    """The project's words for the cases' words."""
    schedule = {{"tz": "timeZone", "delay_s": "delaySec"}.get(k, k): v for k, v in given["schedule"].items()}
    return given | {"schedule": schedule}


def registered(api: Api) -> int:
    """How many jobs the log has."""
    return sum(event.type == "JobRegistered" for events in api.log.cluster.events for event in events)


async def test_a_key_with_another_body(api: Api) -> None:
    first, second = CASES["API-001"]["input"]["steps"]
    answers = [
        await api.post("/v1/jobs", body_of(step["body"]), idempotency=step["key"]) for step in (first, second)
    ]
    assert [answer.status_code for answer in answers] == [201, 422]
    assert answers[1].json()["code"] == "idempotency_key_reused"
    assert registered(api) == 1


async def test_a_repeated_delay_keeps_its_time(make_api: MakeApi) -> None:
    case = CASES["API-003"]
    first, second = case["input"]["steps"]
    async with make_api(now=first["t"]) as api:
        body = body_of(first["body"])
        answers = [await api.post("/v1/jobs", body, idempotency="k3")]
        api.log.advance((parse_instant(second["t"], "t") - parse_instant(first["t"], "t")) / 1000)
        answers.append(await api.post("/v1/jobs", body, idempotency="k3"))
        expected = case["expected"]["both_responses_nextRunAt"]
        assert [answer.json()["nextRunAt"] for answer in answers] == [expected, expected]
        assert answers[0].json() == answers[1].json()
        assert answers[1].headers["Idempotent-Replayed"] == "true"


async def test_a_reserialised_retry(api: Api) -> None:
    steps = CASES["API-005"]["input"]["steps"]
    raws = [step["raw"].replace('"tz"', '"timeZone"') for step in steps]
    answers = [await api.post("/v1/jobs", content=raw, idempotency="k5") for raw in raws]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json() == answers[1].json()
    assert registered(api) == 1


async def test_payload_sizes(api: Api) -> None:
    case = CASES["API-007"]
    statuses = []
    for step in case["input"]["steps"]:
        payload = json.dumps("x" * (step["payload_bytes"] - 2))
        raw = f'{{"schedule": {{"everySec": 60}}, "payload": {payload}}}'
        began = time.monotonic()
        statuses.append((await api.post("/v1/jobs", content=raw)).status_code)
        assert time.monotonic() - began < case["expected"]["answer_within_s"]
    assert statuses == case["expected"]["responses"]
    assert registered(api) == case["expected"]["events_appended"]
    assert len(api.log.sent) == 1


async def test_time_zones(api: Api) -> None:
    case = CASES["API-009"]
    refused = set(case["expected"]["http_400"]) - {"A x300"}
    for zone in case["input"]["each_of"]:
        job = {"schedule": {"cron": "0 9 * * *", "timeZone": zone}}
        answer = await api.post("/v1/jobs", job)
        expected = 400 if zone in refused or len(zone) == 300 else 201
        assert answer.status_code == expected, (zone, answer.text)
        if expected == 400:
            assert [error["field"] for error in answer.json()["errors"]] == ["schedule.timeZone"]


async def test_a_one_off_for_now(make_api: MakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["API-011"]
    monkeypatch.setenv("TZ", case["input"]["host_TZ"])
    time.tzset()
    try:
        async with make_api(now=case["input"]["now"]) as api:
            answer = await api.post(case["input"]["POST"], case["input"]["body"])
            assert answer.json()["nextRunAt"] == case["expected"]["nextRunAt"]
            claimed = await api.post("/v1/pools/default/claim", {"workerId": "w", "waitSec": 1})
            assert len(claimed.json()["executions"]) == 1
    finally:
        monkeypatch.undo()
        time.tzset()


async def test_pages_of_jobs_made_in_one_millisecond(api: Api) -> None:
    answer = await api.post("/v1/jobs/batch", {"jobs": [{"schedule": {"everySec": 60}}] * 15})
    assert len({result["job"]["createdAt"] for result in answer.json()["results"]}) == 1
    pages = await _walk(api, "/v1/jobs", "jobs", 10)
    assert [len(page) for page in pages] == CASES["API-013"]["expected"]["pages"]
    assert len({job["jobId"] for page in pages for job in page}) == 15


async def test_pages_of_executions_while_new_ones_arrive(api: Api) -> None:
    job = {"schedule": {"runAt": "2026-05-01T00:00:00Z"}}
    answer = await api.post("/v1/jobs/batch", {"jobs": [job] * 4})
    old = {result["job"]["nextExecutionId"] for result in answer.json()["results"]}
    first = (await api.get("/v1/executions", params={"pageSize": 2})).json()
    api.log.advance(5)
    await api.post("/v1/jobs/batch", {"jobs": [{"schedule": {"delaySec": 0}}] * 3})
    seen = [execution["executionId"] for execution in first["executions"]]
    token = first["nextPageToken"]
    while token:
        page = (await api.get("/v1/executions", params={"pageSize": 2, "pageToken": token})).json()
        seen += [execution["executionId"] for execution in page["executions"]]
        token = page["nextPageToken"]
    assert set(seen) >= old
    assert len(seen) == len(set(seen))


async def test_large_integers_are_delivered_as_sent(api: Api) -> None:
    payloads = [json.dumps(payload) for payload in CASES["API-015"]["input"]["payloads"]]
    payloads.append('{ "n" : 1.10, "big": 123456789012345678901234567890, "e":1E2 }')
    for payload in payloads:
        await api.post("/v1/jobs", content=f'{{"schedule":{{"delaySec":0}},"payload":{payload}}}')
    assert {
        command.content.payload.decode() for command in api.log.sent if isinstance(command, RegisterJob)
    } == set(payloads)
    answer = await api.post("/v1/pools/default/claim", {"workerId": "w", "max": 9, "waitSec": 1})
    assert all(payload in answer.text for payload in payloads)
    executions = answer.json()["executions"]
    assert all(e["leaseEpoch"] < 2**53 and e["fencingToken"] < 2**53 for e in executions)


async def test_forms_of_run_at(api: Api) -> None:
    case = CASES["API-017"]
    accepted = case["expected"]["if_accepted"]
    for text in case["input"]["runAt_each_of"]:
        answer = await api.post("/v1/jobs", {"schedule": {"runAt": text}})
        if text in case["expected"]["http_400"]:
            assert answer.status_code == 400, text
        else:
            assert answer.status_code in (201, 400), text
        if answer.status_code == 400:
            assert answer.json()["errors"][0]["field"] == "schedule.runAt"
        elif text.endswith("123456789Z"):
            assert answer.json()["nextRunAt"] == "2026-09-02T22:30:00.124Z"
        elif text in accepted:
            assert answer.json()["nextRunAt"] == accepted[text]


async def _walk(api: Api, path: str, member: str, size: int) -> list[list[dict[str, Any]]]:
    pages, token = [], ""
    while True:
        params: dict[str, Any] = {"pageSize": size} | ({"pageToken": token} if token else {})
        answer: httpx2.Response = await api.get(path, params=params)
        pages.append(answer.json()[member])
        token = answer.json()["nextPageToken"]
        if not token:
            return pages
