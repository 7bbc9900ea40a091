"""What executions wait for, as callers see it: a group, a breaker; and what the engine raises meanwhile."""

from __future__ import annotations

from typing import Any

from tests.unit.api.conftest import Api


async def claimed(api: Api, pool: str, most: int = 50) -> list[dict[str, Any]]:
    answer = await api.post(f"/v1/pools/{pool}/claim", {"workerId": "w", "max": most, "waitSec": 1})
    executions: list[dict[str, Any]] = answer.json()["executions"]
    return executions


async def waiting(api: Api) -> list[tuple[str, str | None]]:
    found = (await api.get("/v1/executions?status=PENDING", fresh=True)).json()["executions"]
    return sorted((one["jobId"], one["waitingFor"]) for one in found)


async def test_a_group_is_one_at_a_time(api: Api) -> None:
    for job_id, pool in (("a", "mail"), ("b", "mail"), ("c", "web")):
        job = {"schedule": {"delaySec": 0}, "exclusionGroup": "ledger", "target": {"pool": pool}}
        await api.call("PUT", f"/v1/jobs/{job_id}", job)
    [first] = await claimed(api, "mail")
    others = {"a", "b"} - {first["jobId"]}
    assert await claimed(api, "web") == []
    assert await waiting(api) == sorted((job_id, "exclusion") for job_id in (*others, "c"))
    read = (await api.get(f"/v1/executions/{first['executionId']}")).json()
    assert read["exclusionGroup"] == "ledger"
    lease = {"workerId": "w", "leaseEpoch": first["leaseEpoch"]}
    await api.post(f"/v1/executions/{first['executionId']}/complete", lease)
    [second] = await claimed(api, "mail")
    assert second["fencingToken"] > first["fencingToken"]
    # The earliest of each pool may try; who comes second waits again.
    assert await claimed(api, "web") == []
    assert await waiting(api) == [("c", "exclusion")]


async def test_a_breaker_holds_back_retries_and_is_shown(api: Api) -> None:
    retry = {"maxAttempts": 3, "backoffBaseSec": 1, "jitter": "none"}
    for number in range(20):
        job = {"schedule": {"delaySec": 0}, "target": {"pool": "mail"}, "retryPolicy": retry}
        await api.call("PUT", f"/v1/jobs/j{number}", job)
    executions = await claimed(api, "mail")
    assert len(executions) == 20
    for one in executions:
        report = {"workerId": "w", "leaseEpoch": one["leaseEpoch"], "error": "down"}
        await api.post(f"/v1/executions/{one['executionId']}/fail", report)
    [breaker] = (await api.get("/v1/tenant", fresh=True)).json()["breakers"]
    assert (breaker["target"], breaker["status"], breaker["failures"]) == ("pool:mail", "OPEN", 20)
    api.log.advance(2)
    await claimed(api, "mail")
    assert {reason for _, reason in await waiting(api)} == {"breaker"}
    alerts = (await api.get("/v1/alerts?kind=breaker", fresh=True)).json()["alerts"]
    assert [alert["target"] for alert in alerts] == ["pool:mail"]


async def test_a_dead_letter_is_an_alert(api: Api) -> None:
    job = {"schedule": {"delaySec": 0}, "retryPolicy": {"maxAttempts": 1}}
    await api.call("PUT", "/v1/jobs/a", job)
    [one] = await claimed(api, "default")
    report = {"workerId": "w", "leaseEpoch": one["leaseEpoch"], "error": "broken"}
    await api.post(f"/v1/executions/{one['executionId']}/fail", report)
    [alert] = (await api.get("/v1/alerts?jobId=a", fresh=True)).json()["alerts"]
    assert (alert["kind"], alert["executionId"]) == ("dead_letter", one["executionId"])
