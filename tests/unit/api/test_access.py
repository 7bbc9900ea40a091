"""Who may do what: keys, roles, other tenants' things; and that keys are never shown."""

from __future__ import annotations

import logging

import pytest

from api.auth import Keyring, Role, parse_keys
from tests.unit.api.conftest import Api

JOB = {"schedule": {"everySec": 60}}


async def test_no_key_or_an_unknown_one(api: Api) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic dGVuYW50"}):
        answer = await api.http.get("/v1/jobs", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
        assert answer.headers["WWW-Authenticate"] == "Bearer"


ROLES: list[tuple[str, str, str, int]] = [
    ("worker-key", "GET", "/v1/jobs", 403),
    ("worker-key", "POST", "/v1/jobs", 403),
    ("worker-key", "GET", "/v1/partitions", 403),
    ("auditor-key", "GET", "/v1/jobs", 200),
    ("auditor-key", "POST", "/v1/jobs", 403),
    ("auditor-key", "DELETE", "/v1/jobs/x", 403),
    ("auditor-key", "POST", "/v1/pools/default/claim", 403),
    ("operator-key", "GET", "/v1/partitions", 200),
    ("operator-key", "GET", "/v1/jobs", 403),
    ("operator-key", "POST", "/v1/pools/default/claim", 403),
    ("tenant-key", "GET", "/v1/partitions", 403),
]


async def test_roles(api: Api) -> None:
    for key, method, path, status in ROLES:
        answer = await api.call(method, path, key=key)
        assert answer.status_code == status, (key, method, path)


async def test_a_worker_key_is_for_its_pools(api: Api) -> None:
    for pool, status in (("reports", 200), ("default", 200), ("mail", 403)):
        answer = await api.post(f"/v1/pools/{pool}/claim", {"workerId": "w"}, key="worker-key")
        assert answer.status_code == status


async def test_a_worker_key_reports_for_its_pools_alone(api: Api) -> None:
    for pool, status in (("mail", 403), ("reports", 200)):
        made = await api.post("/v1/jobs", {"schedule": {"delaySec": 0}, "target": {"pool": pool}})
        execution = made.json()["nextExecutionId"]
        await api.post(f"/v1/pools/{pool}/claim", {"workerId": "w", "waitSec": 5})
        lease = {"workerId": "w", "leaseEpoch": 1}
        item = lease | {"executionId": execution, "status": "COMPLETED"}
        batch = await api.post("/v1/executions/outcomes", {"outcomes": [item]}, key="worker-key")
        assert [result["status"] for result in batch.json()["results"]] == [status]
        if status == 403:
            for what, more in (
                ("heartbeat", {}),
                ("complete", {}),
                ("fail", {"error": "x"}),
                ("release", {}),
            ):
                answer = await api.post(f"/v1/executions/{execution}/{what}", lease | more, key="worker-key")
                assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
            position = {"Horarium-Position": batch.headers["Horarium-Position"]}
            found = await api.get(f"/v1/executions/{execution}", headers=position)
            assert found.json()["status"] == "RUNNING"


async def test_a_key_of_shared_pools_says_whose_execution_it_is(api: Api) -> None:
    made = await api.post("/v1/jobs", {"schedule": {"delaySec": 0}, "target": {"pool": "mail"}})
    execution = made.json()["nextExecutionId"]
    await api.post("/v1/pools/mail/claim", {"workerId": "w", "waitSec": 5})
    lease = {"workerId": "w", "leaseEpoch": 1}
    item = lease | {"executionId": execution, "status": "COMPLETED"}
    for tenant, status, field in (
        ({}, 400, "tenant"),
        ({"tenant": "acme"}, 404, ""),
        ({"tenant": "A b"}, 404, ""),
    ):
        for what, more in (("heartbeat", {}), ("complete", {}), ("fail", {"error": "x"}), ("release", {})):
            answer = await api.post(
                f"/v1/executions/{execution}/{what}", lease | more | tenant, key="shared-key"
            )
            assert answer.status_code == status, (what, tenant)
            assert [error["field"] for error in answer.json().get("errors", [])] == ([field] if field else [])
        batch = await api.post("/v1/executions/outcomes", {"outcomes": [item | tenant]}, key="shared-key")
        beats = {"workerId": "w", "leases": [{"executionId": execution, "leaseEpoch": 1} | tenant]}
        beaten = await api.post("/v1/executions/heartbeats", beats, key="shared-key")
        for results in (batch, beaten):
            assert [result["status"] for result in results.json()["results"]] == [status]
    others = await api.post(
        "/v1/executions/outcomes", {"outcomes": [item | {"tenant": "other"}, item | {"tenant": "acme"}]}
    )
    assert [result["status"] for result in others.json()["results"]] == [404, 200]


async def test_a_shared_pool_needs_a_key_that_names_it(api: Api) -> None:
    for key in ("tenant-key", "worker-key", "any-worker-key"):
        answer = await api.post("/v1/pools/shared%2Fgpu/claim", {"workerId": "w"}, key=key)
        assert answer.status_code == 403, key
    assert (await api.post("/v1/pools/mail/claim", {"workerId": "w"}, key="shared-key")).status_code == 403


async def test_anothers_thing_is_not_there(api: Api) -> None:
    made = await api.post("/v1/jobs", {"schedule": {"delaySec": 0}})
    job, execution = made.json()["jobId"], made.json()["nextExecutionId"]
    await api.post("/v1/pools/default/claim", {"workerId": "w", "waitSec": 5})
    for method, path, body in (
        ("GET", f"/v1/jobs/{job}", None),
        ("DELETE", f"/v1/jobs/{job}", None),
        ("POST", f"/v1/jobs/{job}/trigger", None),
        ("GET", f"/v1/jobs/{job}/executions", None),
        ("GET", f"/v1/jobs/{job}/events", None),
        ("GET", f"/v1/executions/{execution}", None),
        ("GET", f"/v1/executions/{execution}/events", None),
        ("POST", f"/v1/executions/{execution}/cancel", None),
        ("POST", f"/v1/executions/{execution}/complete", {"workerId": "w", "leaseEpoch": 1}),
    ):
        answer = await api.call(method, path, body, key="other-key")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), path
    assert (await api.get("/v1/jobs", key="other-key")).json()["jobs"] == []


async def test_an_auditor_reads_every_tenant(api: Api) -> None:
    made = await api.post("/v1/jobs", JOB, key="other-key")
    path = f"/v1/jobs/{made.json()['jobId']}"
    position = {"Horarium-Position": made.headers["Horarium-Position"]}
    assert (await api.get(path, key="auditor-key")).status_code == 404
    answer = await api.get(path, key="auditor-key", params={"tenant": "other"}, headers=position)
    assert answer.status_code == 200
    assert (await api.get(path, key="auditor-key", params={"tenant": "Oth er"})).status_code == 400


async def test_the_actor_is_the_keys(api: Api) -> None:
    made = await api.post("/v1/jobs", JOB)
    actor = made.json()["createdBy"]
    assert actor.startswith("tenant:acme:")
    assert "tenant-key" not in actor


async def test_keys_are_not_logged(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        await api.post("/v1/jobs", JOB)
        await api.post("/v1/jobs", content=b"{")
        await api.get("/v1/jobs", key="a-wrong-key")
    assert "tenant-key" not in caplog.text
    assert "a-wrong-key" not in caplog.text


def test_keys_are_read_from_text() -> None:
    entries = parse_keys("a=k1, a=k2:worker:p+q ,b=k3:operator,")
    assert [(e.tenant, e.role, sorted(e.pools)) for e in entries] == [
        ("a", Role.TENANT, []),
        ("a", Role.WORKER, ["p", "q"]),
        ("b", Role.OPERATOR, []),
    ]
    assert "k1" not in repr(entries)
    ring = Keyring(entries)
    assert ring.find("k2") is not None
    assert ring.find("k") is None


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "a=",
        "A=k",
        "a=k:boss",
        "a=k:worker:p q",
        "a=k:tenant:p",
        "a=k,b=k",
        "=k",
        "a=k:worker:shared/x+p",
        "a=k:worker:shared/",
        "shared=k",
        "shared=k:worker:x",
    ],
)
def test_wrong_keys_are_refused_without_being_shown(text: str) -> None:
    with pytest.raises(ValueError, match=r"entry \d|same key") as error:
        parse_keys(text + ",z=secret-key")
    assert "secret-key" not in str(error.value)
