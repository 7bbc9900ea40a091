"""The API's process on a real broker, with a real processor and real projections behind it."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from dev.server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.kafka

KEYS = "acme=tenant-key,acme=worker-key:worker,ops=operator-key:operator,big=big-key"


@pytest.fixture(scope="module")
def server(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {"HORARIUM_DEV_KEYS": KEYS, "HORARIUM_DEV_SHARDS": "big=4"}
    folder = tmp_path_factory.mktemp("server")
    namespace = f"test-api-{folder.name.replace('_', '-')}-{time.monotonic_ns() % 100_000}"
    with Server(folder, bootstrap=kafka, namespace=namespace, partitions=4, settings=settings) as server:
        yield server


@pytest.fixture
def http(server: Server) -> Iterator[httpx2.Client]:
    headers = {"Authorization": "Bearer tenant-key"}
    with httpx2.Client(base_url=server.url, headers=headers, timeout=30) as client:
        yield client


def _claim(http: httpx2.Client, pool: str, **more: Any) -> list[dict[str, Any]]:
    body = {"workerId": "w", "max": 1, "waitSec": 10} | more
    answer = http.post(f"/v1/pools/{pool}/claim", json=body)
    assert answer.status_code == 200, answer.text
    executions: list[dict[str, Any]] = answer.json()["executions"]
    return executions


def test_a_job_is_registered_read_run_and_reported(http: httpx2.Client) -> None:
    job = {"schedule": {"delaySec": 1}, "target": {"pool": "one"}, "payload": {"n": 9007199254740993}}
    made = http.post("/v1/jobs", json=job, headers={"Idempotency-Key": "one"})
    assert made.status_code == 201, made.text
    again = http.post("/v1/jobs", json=job, headers={"Idempotency-Key": "one"})
    assert (again.status_code, again.json()) == (201, made.json())
    assert again.headers["Idempotent-Replayed"] == "true"
    read = http.get(f"/v1/jobs/{made.json()['jobId']}")
    assert read.status_code == 200
    assert read.json()["nextRunAt"] == made.json()["nextRunAt"]

    [execution] = _claim(http, "one", claimId="c1")
    assert execution["payload"] == {"n": 9007199254740993}
    # The answer was lost: the same claim gets the same execution under the same lease.
    assert _claim(http, "one", claimId="c1") == [execution]

    path = f"/v1/executions/{execution['executionId']}"
    lease = {"workerId": "w", "leaseEpoch": execution["leaseEpoch"]}
    assert http.post(f"{path}/heartbeat", json=lease).status_code == 200
    assert http.post(f"{path}/complete", json=lease | {"result": {"ok": 1}}).status_code == 200
    late = http.post(f"{path}/heartbeat", json=lease)
    assert (late.status_code, late.json()["code"]) == (409, "already_finished")
    assert http.get(path).json()["status"] == "COMPLETED"


def test_a_claim_gets_what_becomes_due_while_it_waits(http: httpx2.Client) -> None:
    http.post("/v1/jobs", json={"schedule": {"delaySec": 1}, "target": {"pool": "wait"}})
    began = time.monotonic()
    [execution] = _claim(http, "wait", waitSec=20)
    assert time.monotonic() - began < 15
    assert execution["attempt"] == 1


def test_a_client_that_hangs_up_gets_nothing(http: httpx2.Client) -> None:
    with pytest.raises(httpx2.ReadTimeout):
        http.post("/v1/pools/gone/claim", json={"workerId": "gone", "max": 1, "waitSec": 20}, timeout=0.5)
    http.post("/v1/jobs", json={"schedule": {"delaySec": 0}, "target": {"pool": "gone"}})
    [execution] = _claim(http, "gone")
    assert execution["deliveryCount"] == 1


def test_every_partition_of_a_large_tenant_is_asked(server: Server) -> None:
    headers = {"Authorization": "Bearer big-key"}
    with httpx2.Client(base_url=server.url, headers=headers, timeout=30) as http:
        jobs = [{"schedule": {"delaySec": 0}, "target": {"pool": "p"}} for _ in range(40)]
        answer = http.post("/v1/jobs/batch", json={"jobs": jobs})
        assert {result["status"] for result in answer.json()["results"]} == {201}
        done: set[str] = set()
        while len(done) < 40:
            executions = _claim(http, "p", max=7)
            assert 0 < len(executions) <= 7
            outcomes = [
                {"executionId": e["executionId"], "leaseEpoch": e["leaseEpoch"], "status": "COMPLETED"}
                for e in executions
            ]
            answer = http.post("/v1/executions/outcomes", json={"workerId": "w", "outcomes": outcomes})
            assert {result["status"] for result in answer.json()["results"]} == {200}
            done |= {e["executionId"] for e in executions}


def test_a_huge_body_is_refused_at_once(http: httpx2.Client) -> None:
    began = time.monotonic()
    answer = http.post("/v1/jobs", content=b"[" * (100 * 1024 * 1024))
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    answer = http.post("/v1/jobs", content=(b"[" * 65_536 for _ in range(200)))
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert time.monotonic() - began < 10
    assert http.post("/v1/jobs", json={"schedule": {"everySec": 60}}).status_code == 201


def test_millions_of_values_are_refused_and_long_texts_are_not(http: httpx2.Client) -> None:
    size = 8 * 1024 * 1024 - 1_000
    lists = b'{"jobs": [{"schedule": {"everySec": 60}, "payload": ["\\n"' + b",[]" * (size // 3) + b"]}]}"
    answer = http.post("/v1/jobs/batch", content=lists)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert answer.json()["detail"] == "body may be at most 1000000 JSON values"
    job = {"schedule": {"everySec": 60}, "payload": ',[{"\n' * 36_000}
    answer = http.post("/v1/jobs/batch", json={"jobs": [job] * 25})
    assert {result["status"] for result in answer.json()["results"]} == {201}


def test_operators_see_the_partitions(server: Server) -> None:
    answer = httpx2.get(f"{server.url}/v1/partitions", headers={"Authorization": "Bearer operator-key"})
    assert [p["state"] for p in answer.json()["partitions"]] == ["RUNNING"] * 4


@pytest.mark.slow
def test_a_stop_answers_those_who_wait(server: Server, http: httpx2.Client) -> None:
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = pool.submit(_claim, http, "idle", waitSec=20)
        wait_until(lambda: "horarium_api_claims_waiting 1.0" in http.get("/metrics").text)
        began = time.monotonic()
        assert server.stop_part("api")
        assert waiting.result() == []
        assert time.monotonic() - began < 10
    process = server.parts["api"].process
    assert process is not None
    assert process.returncode == 0
    server.restart("api")
    wait_until(server.ready, timeout_sec=60)


@pytest.mark.slow
def test_the_api_is_killed_in_a_request_and_the_repeat_is_the_same_job(server: Server) -> None:
    def register() -> httpx2.Response:
        headers = {"Authorization": "Bearer tenant-key", "Idempotency-Key": "killed"}
        job = {"schedule": {"everySec": 3600}}
        return httpx2.post(f"{server.url}/v1/jobs", json=job, headers=headers, timeout=15)

    with concurrent.futures.ThreadPoolExecutor() as pool:
        under_way = [pool.submit(register) for _ in range(8)]
        server.kill("api")
        for future in under_way:
            future.exception()
    server.restart("api")
    wait_until(server.ready, timeout_sec=60)
    first, second = register(), register()
    assert first.status_code == second.status_code == 201
    assert first.json() == second.json()


@pytest.mark.slow
def test_reads_go_on_and_changes_say_so_without_processors(server: Server, http: httpx2.Client) -> None:
    made = http.post("/v1/jobs", json={"schedule": {"everySec": 3600}}).json()
    assert http.get(f"/v1/jobs/{made['jobId']}").status_code == 200
    server.stop_part("p0")
    try:
        assert http.get(f"/v1/jobs/{made['jobId']}").status_code == 200
        answer = http.post("/v1/jobs", json={"schedule": {"everySec": 60}}, headers={"Idempotency-Key": "u"})
        assert (answer.status_code, answer.json()["code"]) == (503, "outcome_unknown")
        assert answer.json()["idempotencyKey"] == "u"
    finally:
        server.restart("p0")
    wait_until(
        lambda: (
            http.post(
                "/v1/jobs", json={"schedule": {"everySec": 60}}, headers={"Idempotency-Key": "u"}
            ).status_code
            == 201
        ),
        timeout_sec=60,
    )
