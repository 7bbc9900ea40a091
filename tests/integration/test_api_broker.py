"""The API while its broker is down: reads go on, changes say at once that they were not done."""

from __future__ import annotations

import time
from pathlib import Path

import httpx2
import pytest

from dev.broker import LocalKafka
from dev.server import Server
from tests.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

JOB = {"schedule": {"everySec": 3600}}


@pytest.mark.timeout(240)
def test_a_broker_that_is_killed_and_comes_back(tmp_path: Path) -> None:
    settings = {"HORARIUM_DEV_KEYS": "acme=tenant-key"}
    with (
        LocalKafka(tmp_path / "kafka") as broker,
        Server(
            tmp_path / "server",
            bootstrap=broker.bootstrap,
            namespace="test-broker",
            partitions=2,
            settings=settings,
        ) as server,
        httpx2.Client(
            base_url=server.url, headers={"Authorization": "Bearer tenant-key"}, timeout=20
        ) as http,
    ):
        made = http.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": "before"})
        assert made.status_code == 201
        path = f"/v1/jobs/{made.json()['jobId']}"
        assert http.get(path).status_code == 200

        broker.kill()
        first = http.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": "meanwhile"})
        assert first.status_code == 503
        began = time.monotonic()
        second = http.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": "meanwhile"})
        assert (second.status_code, second.json()["code"]) == (503, "log_unavailable")
        assert http.post("/v1/pools/default/claim", json={"workerId": "w"}).status_code == 503
        assert http.get(path).status_code == 200
        # None of them waited for the broker, as the first did.
        assert time.monotonic() - began < 8

        broker.start()
        # How a running processor comes through this is the runtime's test; here a fresh one answers.
        server.restart("p0")

        def registered() -> bool:
            answer = http.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": "meanwhile"})
            return answer.status_code == 201

        wait_until(registered, timeout_sec=90)
        repeated = http.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": "before"})
        assert repeated.json() == made.json()
