"""Pools over HTTP: what they have to do, pause, settings, and who may; `%2F` in their names."""

from __future__ import annotations

from typing import Any

from tests.unit.api.conftest import Api


async def make(api: Api, pool: str, count: int = 1, **more: Any) -> None:
    for _ in range(count):
        job = {"schedule": {"delaySec": 0}, "target": {"pool": pool}} | more
        assert (await api.post("/v1/jobs", job)).status_code == 201


async def claimed(api: Api, pool: str, most: int = 10, worker: str = "w") -> list[str]:
    answer = await api.post(f"/v1/pools/{pool}/claim", {"workerId": worker, "max": most})
    return [execution["executionId"] for execution in answer.json()["executions"]]


async def test_what_a_pool_has_to_do(api: Api) -> None:
    await make(api, "mail", 2, priority="high")
    await make(api, "mail", 3, priority="low")
    await claimed(api, "mail", 1, "w1")
    await claimed(api, "mail", 1, "w2")
    pool = (await api.get("/v1/pools/mail", fresh=True)).json()
    assert pool.pop("oldestPendingSec") > 0
    assert sum(pool.pop("pendingByPriority").values()) == 3
    assert pool == {
        "pool": "mail",
        "paused": False,
        "maxRunning": None,
        "tenantMaxRunning": None,
        "running": 2,
        "workers": 2,
    }
    idle = (await api.get("/v1/pools/idle")).json()
    assert (idle["pendingByPriority"], idle["oldestPendingSec"]) == ({"high": 0, "normal": 0, "low": 0}, None)
    assert (await api.get("/v1/pools/mail", key="other-key")).json()["running"] == 0


async def test_pools_are_listed_by_name(api: Api) -> None:
    await make(api, "mail")
    await make(api, "shared/gpu")
    await api.call("PUT", "/v1/jobs/later", {"schedule": {"everySec": 60}, "target": {"pool": "web"}})
    await api.call("PUT", "/v1/pools/kept", {"maxRunning": 2})
    found: list[str] = []
    token = ""
    while True:
        page = (await api.get(f"/v1/pools?pageSize=3&pageToken={token}", fresh=True)).json()
        found += [pool["pool"] for pool in page["pools"]]
        token = page["nextPageToken"]
        if not token:
            break
    assert found == ["kept", "mail", "shared/gpu", "web"]
    assert (await api.get("/v1/pools", key="other-key")).json()["pools"] == []
    operators = (await api.get("/v1/pools", key="operator-key")).json()["pools"]
    assert [(pool["pool"], pool["pendingByPriority"]["normal"]) for pool in operators] == [("shared/gpu", 1)]


async def test_a_paused_pool_waits_and_says_so(api: Api) -> None:
    paused = await api.post("/v1/pools/mail/pause", {"reason": "provider is down"})
    assert (paused.status_code, paused.json()["paused"]) == (200, True)
    await make(api, "mail")
    await make(api, "web")
    assert await claimed(api, "mail") == []
    assert len(await claimed(api, "web")) == 1
    [waiting] = (await api.get("/v1/executions?status=PENDING", fresh=True)).json()["executions"]
    assert waiting["waitingFor"] == "paused_pool"
    assert (await api.get("/v1/pools/mail")).json()["paused"] is True
    assert (await api.post("/v1/pools/mail/resume")).json()["paused"] is False
    assert await claimed(api, "mail") == [waiting["executionId"]]


async def test_a_cap_of_a_pool(api: Api) -> None:
    settings = await api.call("PUT", "/v1/pools/mail", {"maxRunning": 1})
    assert (settings.status_code, settings.json()["maxRunning"]) == (200, 1)
    await make(api, "mail", 2)
    assert len(await claimed(api, "mail")) == 1
    [waiting] = (await api.get("/v1/executions?status=PENDING", fresh=True)).json()["executions"]
    assert waiting["waitingFor"] == "cap"
    assert (await api.call("PUT", "/v1/pools/mail", {"maxRunning": None})).json()["maxRunning"] is None
    assert await claimed(api, "mail", worker="other") == [waiting["executionId"]]


async def test_shared_pools_are_the_operators(api: Api) -> None:
    path = "/v1/pools/shared%2Fgpu"
    for method, more in (("PUT", ""), ("POST", "/pause"), ("POST", "/resume")):
        body = {"maxRunning": 8} if method == "PUT" else None
        assert (await api.call(method, path + more, body)).status_code == 403
        own = await api.call(method, "/v1/pools/mail" + more, body, key="operator-key")
        assert own.status_code == 403
    made = await api.call("PUT", path, {"maxRunning": 8}, key="operator-key")
    assert (made.json()["pool"], made.json()["tenantMaxRunning"]) == ("shared/gpu", 4)
    made = await api.call("PUT", path, {"tenantMaxRunning": 3}, key="operator-key")
    assert (made.json()["maxRunning"], made.json()["tenantMaxRunning"]) == (8, 3)
    assert (await api.post(path + "/pause", key="operator-key")).json()["paused"] is True
    await make(api, "shared/gpu")
    [waiting] = (await api.get("/v1/executions?status=PENDING", fresh=True)).json()["executions"]
    assert (waiting["pool"], waiting["waitingFor"]) == ("shared/gpu", "paused_pool")
    own = (await api.get("/v1/tenant")).json()
    assert own["share"] == [
        {"pool": "shared/gpu", "running": 0, "runningOfAll": 0, "maxRunning": 8, "tenantMaxRunning": 3}
    ]
    seen = (await api.get(path)).json()
    assert (seen["paused"], seen["maxRunning"], seen["pendingByPriority"]["normal"]) == (True, 8, 1)
    assert (await api.get(path, key="other-key")).json()["pendingByPriority"]["normal"] == 0


async def test_bad_names_and_settings(api: Api) -> None:
    for method, path, body, status in (
        ("GET", "/v1/pools/a%2Fb", None, 404),
        ("GET", "/v1/pools/shared%2Fa%2Fb", None, 404),
        ("GET", "/v1/pools/%C3%BC", None, 404),
        ("PUT", "/v1/pools/a b", {"maxRunning": 1}, 404),
        ("PUT", "/v1/pools/mail", {"maxRunning": 0}, 400),
        ("PUT", "/v1/pools/mail", {"maxRunning": 1_000_001}, 400),
        ("PUT", "/v1/pools/mail", {"tenantMaxRunning": 1}, 400),
        ("PUT", "/v1/pools/mail", {"paused": True}, 400),
        ("POST", "/v1/pools/mail/pause", {"why": "x"}, 400),
        ("GET", "/v1/pools/mail?tenant=other", None, 400),
    ):
        assert (await api.call(method, path, body)).status_code == status, (method, path, body)
    assert not api.log.sent
