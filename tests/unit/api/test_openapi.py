"""The description is complete: every route, every reference, no answer that is never given."""

from __future__ import annotations

import json
import re

from fastapi.routing import APIRoute

from tests.unit.api.conftest import Api


async def test_the_description(api: Api) -> None:
    answer = await api.http.get("/openapi.json")
    assert answer.status_code == 200
    described = answer.json()
    schemas = described["components"]["schemas"]
    for name in re.findall(r'"#/components/schemas/(\w+)"', json.dumps(described)):
        assert name in schemas
    assert "HTTPValidationError" not in json.dumps(described)
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            responses = operation["responses"]
            assert any(status.startswith("2") for status in responses), (method, path)
            if path.startswith(("/v1", "/api")):
                assert {"400", "401", "403"} <= set(responses), (method, path)
                assert operation["security"] == [{"key": []}]
                for status, response in responses.items():
                    kind = "application/json" if status.startswith("2") else "application/problem+json"
                    assert list(response["content"]) == [kind], (method, path, status)
    job = schemas["JobBody"]
    assert job["required"] == ["schedule"]
    assert job["additionalProperties"] is False


def test_every_route_is_described() -> None:
    from api.app import ROUTERS

    for router in ROUTERS:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            assert route.description, route.path


async def test_what_may_be_refused_for_a_while_says_when_to_come_back(api: Api) -> None:
    described = (await api.http.get("/openapi.json")).json()
    limited = set()
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            for status, response in operation["responses"].items():
                headers = set(response.get("headers", ()))
                assert ("Retry-After" in headers) == (status in ("429", "503")), (method, path, status)
                assert ("RateLimit" in headers and "RateLimit-Policy" in headers) == (status == "429")
                if status == "429":
                    limited.add((method, path))
    # What makes a job, and nothing else.
    assert limited == {
        ("post", "/v1/jobs"),
        ("put", "/v1/jobs/{job_id}"),
        ("post", "/api/v1/jobs/schedule"),
    }
