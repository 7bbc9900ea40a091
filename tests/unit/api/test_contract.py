"""The description is kept: whatever is sent to any described route, the answer is one that is described.

Calls are drawn from the description itself: its paths, parameters and members, with values that fit, nearly
fit, or do not fit at all. No answer is a 500, none has a status or a content type that is not described.
"""

from __future__ import annotations

import random  # noqa: TID251 seeded
from typing import Any
from urllib.parse import quote

import pytest

from tests.unit.api.conftest import Api, MakeApi

CALLS = 250
KEYS = ("tenant-key", "operator-key", "auditor-key", "shared-key", "none")
KNOWN = {"job_id": ["job", "a"], "pool": ["mail", "shared/gpu"], "tenant": ["acme", "new"]}
TEXTS = [
    "",
    "a",
    "job",
    "shared/gpu",
    "acme",
    "0",
    "*/5 * * * *",
    "2026-05-01T00:00:00Z",
    "é",
    "a b",
    "x" * 300,
]
TEXTS += ["job.1.2.s", "UTC", "PENDING", "manual", "https://example.com/x", "\x00", "🚀", "null", "-1"]
VALUES: list[Any] = [None, True, 0, 1, -1, 60, 2**31, 2**63, 10**30, 0.5, [], {}, [1], {"a": 1}, *TEXTS]
# These wait on purpose: every call of them would take their time.
SLOW = ("/v1/pools/{pool}/claim",)


class Drawn:
    """Calls drawn from the description."""

    def __init__(self, described: dict[str, Any], execution_id: str, seed: int) -> None:
        self._known = KNOWN | {"execution_id": [execution_id]}
        self._chance = random.Random(seed)
        self._schemas = described["components"]["schemas"]
        self._operations = [
            (method, path, operation)
            for path, operations in sorted(described["paths"].items())
            for method, operation in sorted(operations.items())
            if path.startswith(("/v1", "/api")) and path not in SLOW
        ]

    def call(self) -> tuple[str, str, str, dict[str, Any], dict[str, Any]]:
        """Method, described path, path as sent, its operation, and what goes along."""
        method, path, operation = self._chance.choice(self._operations)
        sent, more = path, {}
        query = {}
        for parameter in operation.get("parameters", []):
            if parameter["in"] == "path":
                known = self._chance.random() < 0.7
                value = self._chance.choice(self._known[parameter["name"]] if known else TEXTS[1:])
                sent = sent.replace(f"{{{parameter['name']}}}", quote(value, safe=""))
            elif parameter["in"] == "query" and self._chance.random() < 0.2:
                query[parameter["name"]] = str(self._chance.choice(VALUES))
        more["params"] = query
        body = operation.get("requestBody")
        if body is not None:
            [content] = body["content"].values()
            more["json"] = self._value(content["schema"], depth=0)
        if self._chance.random() < 0.5:
            more["headers"] = {"If-Match": self._chance.choice(['"1"', '"2"', "x"])}
        return method.upper(), path, sent, operation, more

    def _value(self, schema: dict[str, Any], depth: int) -> Any:
        if self._chance.random() < 0.04 or depth > 4:
            return self._chance.choice(VALUES)
        if "$ref" in schema:
            return self._value(self._schemas[schema["$ref"].rpartition("/")[2]], depth)
        if "anyOf" in schema:
            return self._value(self._chance.choice(schema["anyOf"]), depth)
        if "enum" in schema:
            return self._chance.choice(schema["enum"])
        match schema.get("type"):
            case "object":
                return self._object(schema, depth)
            case "array":
                return [
                    self._value(schema.get("items", {}), depth + 1) for _ in range(self._chance.randint(0, 3))
                ]
            case "integer" | "number":
                return self._chance.choice([0, 1, 5, 60, 3600, -1, 2**40])
            case "boolean":
                return self._chance.random() < 0.5
            case "string":
                return self._chance.choice(TEXTS)
            case _:
                return self._chance.choice(VALUES)

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        needed = schema.get("required", [])
        made = {
            name: self._value(member, depth + 1)
            for name, member in schema.get("properties", {}).items()
            if self._chance.random() < (0.95 if name in needed else 0.25)
        }
        if self._chance.random() < 0.05:
            made["unheardOf"] = 1
        return made

    def key(self) -> str:
        return self._chance.choice(KEYS)


@pytest.mark.parametrize("seed", range(3))
async def test_every_answer_is_a_described_one(make_api: MakeApi, seed: int) -> None:
    async with make_api() as api:
        execution_id = await _something_to_find(api)
        drawn = Drawn((await api.http.get("/openapi.json")).json(), execution_id, seed)
        for _ in range(CALLS):
            method, path, sent, operation, more = drawn.call()
            answer = await api.call(method, sent, key=drawn.key(), **more)
            for key in ("tenant-key", "operator-key"):
                if answer.status_code in (401, 403):
                    answer = await api.call(method, sent, key=key, **more)
            what = (seed, method, path, sent, more, answer.status_code, answer.text[:300])
            described = operation["responses"].get(str(answer.status_code))
            # A path that a drawn id turned into another one, or into none.
            if answer.status_code in (404, 405) and described is None:
                assert answer.headers["Content-Type"] == "application/problem+json", what
                continue
            assert described is not None, what
            assert answer.headers["Content-Type"] in described["content"], what
            if answer.status_code >= 400:
                problem = answer.json()
                assert (problem["status"], bool(problem["code"])) == (answer.status_code, True), what


async def _something_to_find(api: Api) -> str:
    await api.call("PUT", "/v1/jobs/job", {"schedule": {"everySec": 60}, "exclusionGroup": "a"})
    await api.call("PUT", "/v1/pools/shared%2Fgpu", {"maxRunning": 4}, key="operator-key")
    job = {"schedule": {"delaySec": 0}, "target": {"pool": "shared/gpu"}}
    made = await api.call("PUT", "/v1/jobs/a", job)
    api.log.advance(60)
    execution_id: str = made.json()["nextExecutionId"]
    return execution_id
