"""What callers see when the log, the processors or the answers fail."""

from __future__ import annotations

import asyncio
import time

import pytest

from schemas.replies import PartitionStatus
from tests.unit.api.conftest import Api, MakeApi
from tests.waiting import wait_until

JOB = {"schedule": {"everySec": 60}}


async def test_a_lost_answer_is_unknown_and_safe_to_repeat(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.log_client.ANSWER_SEC", 0.2)
    api.log.mute = True
    lost = await api.post("/v1/jobs", JOB)
    assert (lost.status_code, lost.json()["code"]) == (503, "outcome_unknown")
    key = lost.json()["idempotencyKey"]
    assert lost.headers["Idempotency-Key"] == key
    assert lost.headers["Retry-After"]
    batch = await api.post("/v1/jobs/batch", {"jobs": [JOB]}, idempotency="b")
    assert batch.json()["results"][0]["problem"]["idempotencyKey"] == "b#0"
    report = {"workerId": "w", "leaseEpoch": 1}
    assert (await api.post("/v1/executions/a.b.c.d/complete", report)).json()["code"] == "outcome_unknown"
    api.log.mute = False
    repeated = await api.post("/v1/jobs", JOB, idempotency=key)
    assert repeated.status_code == 201
    assert repeated.headers["Idempotent-Replayed"] == "true"
    assert api.services.client.waiting == 0


async def test_a_full_queue_is_said_at_once(api: Api) -> None:
    api.log.full = True
    began = time.monotonic()
    answer = await api.post("/v1/jobs", JOB)
    assert (answer.status_code, answer.json()["code"]) == (503, "log_unavailable")
    assert time.monotonic() - began < 5
    assert api.services.client.waiting == 0


async def test_a_broker_that_takes_nothing_is_noticed(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.log_client.STALLED_SEC", 0.1)
    api.log.hold = True
    first = asyncio.create_task(api.post("/v1/jobs", JOB))
    client = api.services.client
    await asyncio.to_thread(wait_until, lambda: client.waiting == 1 and client._progress.stalled())
    second = await api.post("/v1/jobs", JOB)
    claim = await api.post("/v1/pools/default/claim", {"workerId": "w", "waitSec": 5})
    assert (second.status_code, second.json()["code"]) == (503, "log_unavailable")
    assert claim.status_code == 503
    api.log.release_held()
    assert (await first).status_code == 201
    assert (await api.post("/v1/jobs", JOB)).status_code == 201


async def test_readiness(make_api: MakeApi) -> None:
    async with make_api(partitions=2) as api:
        assert (await api.http.get("/livez")).status_code == 200
        assert (await api.http.get("/readyz")).json() == {"status": "ready", "missing": []}
        # Once started, reads are served whatever becomes of the processors.
        api.log.status(PartitionStatus(partition=1, owner="p0", state="STOPPED", reason="test"))
        assert (await api.http.get("/readyz")).status_code == 200
        metrics = await api.http.get("/metrics")
        assert 'horarium_api_requests_total{method="GET",route="/livez",status="200"} 1.0' in metrics.text


async def test_partitions_are_shown(make_api: MakeApi) -> None:
    async with make_api(partitions=2) as api:
        stopped = PartitionStatus(partition=1, owner="p0", state="STOPPED", reason="bad event", at_ms=1)
        api.log.status(stopped)
        async with asyncio.timeout(5):
            while True:
                answer = await api.get("/v1/partitions", key="operator-key")
                if answer.json()["partitions"][1]["state"] == "STOPPED":
                    break
        assert answer.json()["partitions"][1]["reason"] == "bad event"
