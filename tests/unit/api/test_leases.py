"""Leases through HTTP: the handed cases LSE-006, 015, 017 and 023, and how a worker's calls are checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.unit.api.conftest import Api

CASES = {
    case["id"]: case
    for line in (Path(__file__).parents[2] / "data/api/leases.jsonl").read_text().splitlines()
    for case in [json.loads(line)]
}


class Case:
    """One case's calls against one execution, in virtual time."""

    def __init__(self, api: Api, case: dict[str, Any]) -> None:
        self.api = api
        self.steps = case["input"]["steps"]
        self.config = case["input"]["config"]
        self.at = 0.0
        self.execution = ""

    async def run(self) -> list[httpx2.Response]:
        job = {
            "schedule": {"delaySec": 0},
            "leaseSec": self.config["lease_s"],
            "retryPolicy": {"maxAttempts": self.config["max_attempts"]},
            "maxDeliveries": self.config["max_reaps"] + 1,
        }
        made = await self.api.post("/v1/jobs", job)
        self.execution = f"/v1/executions/{made.json()['nextExecutionId']}"
        return [await self.step(step) for step in self.steps]

    async def step(self, step: dict[str, Any]) -> httpx2.Response:
        self.api.log.advance(step["t"] - self.at)
        self.at = step["t"]
        worker = step.get("worker", "A")
        if step["do"] == "claim":
            return await self.api.post("/v1/pools/default/claim", {"workerId": worker})
        if step["do"] == "cancel":
            return await self.api.post(f"{self.execution}/cancel")
        body = {"workerId": worker} | {k: v for k, v in step.items() if k == "leaseEpoch"}
        if step["do"] == "fail":
            body["error"] = "failed"
        return await self.api.post(f"{self.execution}/{step['do']}", body)

    async def read(self) -> dict[str, Any]:
        found: dict[str, Any] = (await self.api.get(self.execution)).json()
        return found


async def test_a_heartbeat_just_after_completion(api: Api) -> None:
    case = Case(api, CASES["LSE-006"])
    claim, complete, beat = await case.run()
    assert claim.json()["executions"][0]["leaseEpoch"] == 1
    assert (complete.status_code, beat.status_code) == (200, 409)
    assert beat.json()["code"] == "already_finished"
    api.log.advance(100)
    assert (await case.read())["status"] == "COMPLETED"


async def test_only_the_clock_of_the_partition_counts(api: Api) -> None:
    first, second = await Case(api, CASES["LSE-015"]).run()
    assert first.json()["executions"][0]["leaseEpoch"] == 1
    assert second.json() == {"executions": []}


async def test_a_cancel_comes_before_the_outcome(api: Api) -> None:
    case = Case(api, CASES["LSE-017"])
    _, cancel, beat, fail = await case.run()
    assert cancel.status_code == 202
    assert cancel.json()["status"] == "RUNNING"
    assert cancel.json()["cancelRequestedAt"] == "2026-05-01T00:00:05Z"
    assert (beat.status_code, beat.json()["code"]) == (409, "cancelled")
    assert fail.status_code == 409
    api.log.advance(7200)
    assert (await case.read())["status"] == "CANCELLED"


async def test_wrong_epochs(api: Api) -> None:
    case = Case(api, CASES["LSE-023"])
    answers = await case.run()
    assert [answer.status_code for answer in answers[1:]] == [409, 409, 400, 400, 400, 409, 400]
    assert all(a.json()["errors"][0]["field"] == "leaseEpoch" for a in answers if a.status_code == 400)
    lease_until = answers[0].json()["executions"][0]["leaseUntil"]
    assert (await case.read())["leaseUntil"] == lease_until


@pytest.mark.parametrize("call", ["complete", "fail", "release"])
async def test_an_outcome_repeated_is_accepted_again(api: Api, call: str) -> None:
    await api.post("/v1/jobs", {"schedule": {"delaySec": 0}})
    claim = await api.post("/v1/pools/default/claim", {"workerId": "w", "waitSec": 5})
    [execution] = claim.json()["executions"]
    body = {"workerId": "w", "leaseEpoch": 1} | ({"error": "no"} if call == "fail" else {})
    path = f"/v1/executions/{execution['executionId']}/{call}"
    answers = [await api.post(path, body) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]


async def test_batches_answer_item_by_item(api: Api) -> None:
    await api.post("/v1/jobs/batch", {"jobs": [{"schedule": {"delaySec": 0}}] * 4})
    claim = await api.post("/v1/pools/default/claim", {"workerId": "w", "waitSec": 5, "max": 4})
    ids = [e["executionId"] for e in claim.json()["executions"]]
    assert len(ids) == 4
    leases = [{"executionId": ids[0], "leaseEpoch": 1}, {"executionId": ids[1], "leaseEpoch": "1"}]
    leases += [{"executionId": "nobody's", "leaseEpoch": 1}, {"executionId": ids[3], "leaseEpoch": 7}]
    beats = await api.post("/v1/executions/heartbeats", {"workerId": "w", "leases": leases})
    assert [result["status"] for result in beats.json()["results"]] == [200, 400, 404, 409]
    assert beats.json()["results"][0]["extendUntil"] == "2026-05-01T00:01:00Z"
    outcomes: list[Any] = [
        {"executionId": ids[0], "leaseEpoch": 1, "status": "COMPLETED", "result": [1]},
        {"executionId": ids[1], "leaseEpoch": 1, "status": "FAILED", "error": "no", "retryable": False},
        {"executionId": ids[2], "leaseEpoch": 1, "status": "FAILED"},
        {"executionId": ids[3], "leaseEpoch": 1, "status": "COMPLETED", "workerId": "another"},
        {"executionId": ids[3], "leaseEpoch": 1, "status": "COMPLETED", "lines": ["x"]},
        "not an object",
    ]
    answer = await api.post("/v1/executions/outcomes", {"workerId": "w", "outcomes": outcomes})
    results = answer.json()["results"]
    assert [result["status"] for result in results] == [200, 200, 400, 409, 400, 400]
    assert [r["problem"]["code"] for r in results if "problem" in r] == [
        "invalid",
        "lease_lost",
        "not_supported",
        "invalid",
    ]
    letters = await api.get("/v1/dead-letters")
    assert [letter["executionId"] for letter in letters.json()["deadLetters"]] == [ids[1]]


async def test_a_large_batch_is_one_command_a_kind(api: Api) -> None:
    await api.post("/v1/jobs/batch", {"jobs": [{"schedule": {"delaySec": 0}}] * 300})
    claim = await api.post("/v1/pools/default/claim", {"workerId": "w", "max": 1000, "waitSec": 2})
    ids = [e["executionId"] for e in claim.json()["executions"]]
    assert len(ids) == 300
    before = len(api.log.sent)
    outcomes = [{"executionId": i, "leaseEpoch": 1, "status": "COMPLETED"} for i in ids]
    answer = await api.post("/v1/executions/outcomes", {"workerId": "w", "outcomes": outcomes})
    assert [result["status"] for result in answer.json()["results"]] == [200] * 300
    assert [type(command).__name__ for command in api.log.sent[before:] if command.actor.startswith("t")] == [
        "Complete"
    ]


async def test_an_error_text_may_have_lines_and_is_cut(api: Api) -> None:
    await api.post("/v1/jobs", {"schedule": {"delaySec": 0}})
    claim = await api.post("/v1/pools/default/claim", {"workerId": "w", "waitSec": 5})
    path = f"/v1/executions/{claim.json()['executions'][0]['executionId']}"
    body = {"workerId": "w", "leaseEpoch": 1, "error": "Traceback\n\tline " + "x" * 20_000}
    assert (await api.post(f"{path}/fail", body)).status_code == 200
    error = (await api.get(path)).json()["error"]
    assert error.startswith("Traceback\n\tline x")
    assert len(error) <= 8 * 1024
