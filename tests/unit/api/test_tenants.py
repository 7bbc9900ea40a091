"""Settings of tenants: set by operators, seen by the tenant, at work at once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.api.conftest import Api, MakeApi

NOW = {"schedule": {"delaySec": 0}}
LIVING = {"schedule": {"everySec": 3600}}


async def operator(api: Api, method: str, path: str, body: Any = None, **more: Any) -> Any:
    return await api.call(method, f"/v1/tenants{path}", body, key="operator-key", **more)


async def claimed(api: Api, pool: str = "default", most: int = 10, **more: Any) -> list[str]:
    answer = await api.post(f"/v1/pools/{pool}/claim", {"workerId": "w", "max": most}, **more)
    return [execution["executionId"] for execution in answer.json()["executions"]]


async def test_what_is_set_is_seen_at_once_and_the_rest_stays(api: Api) -> None:
    first = await operator(api, "PUT", "/acme", {"weight": 5, "maxRunning": 7, "reason": "they pay"})
    assert first.status_code == 200
    shown = await operator(api, "GET", "/acme")
    assert shown.json() == first.json()
    assert (shown.json()["weight"], shown.json()["maxRunning"], shown.json()["maxJobs"]) == (5, 7, 100_000)
    second = await operator(api, "PUT", "/acme", {"maxJobs": 10, "registrationsPerSec": 3})
    assert (second.json()["weight"], second.json()["maxJobs"], second.json()["version"]) == (5, 10, 2)
    own = (await api.get("/v1/tenant")).json()
    assert own["limits"] == {
        "weight": 5,
        "shards": 1,
        "maxRunning": 7,
        "maxJobs": 10,
        "registrationsPerSec": 3,
    }
    unknown = (await operator(api, "GET", "/nobody-yet")).json()
    assert (unknown["version"], unknown["maxRunning"]) == (0, 1_000)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"weight": 0}, "weight"),
        ({"shards": 0}, "shards"),
        ({"shards": 1_025}, "shards"),
        ({"maxRunning": "many"}, "maxRunning"),
        ({"latenessAlertSec": 86_401}, "latenessAlertSec"),
        ({"defaultJitterSec": -1}, "defaultJitterSec"),
        ({"pools": []}, "pools"),
    ],
    ids=str,
)
async def test_wrong_settings_name_their_field(api: Api, body: Any, field: str) -> None:
    answer = await operator(api, "PUT", "/acme", body)
    assert answer.status_code == 400
    assert [error["field"] for error in answer.json()["errors"]] == [field]
    assert not api.log.sent


async def test_who_may(api: Api) -> None:
    for method, path, body in (
        ("GET", "/v1/tenants", None),
        ("GET", "/v1/tenants/acme", None),
        ("PUT", "/v1/tenants/acme", {"weight": 9}),
        ("POST", "/v1/tenants/acme/pause", None),
        ("POST", "/v1/tenants/acme/resume", None),
    ):
        for key in ("tenant-key", "worker-key", "auditor-key"):
            assert (await api.call(method, path, body, key=key)).status_code == 403, (method, path, key)
    assert (await api.call("PATCH", "/v1/tenant", {}, key="auditor-key")).status_code == 403
    assert (await api.get("/v1/tenant", key="operator-key")).status_code == 403
    read = await api.get("/v1/tenant?tenant=other", key="auditor-key")
    assert (read.status_code, read.json()["tenant"]) == (200, "other")
    for name in ("shared", "Not-One", "x" * 41):
        assert (await operator(api, "PUT", f"/{name}", {"weight": 2})).status_code == 404
    assert not api.log.sent


async def test_tenants_are_listed_by_name_page_by_page(api: Api) -> None:
    for name in ("zoo", "bar"):
        await operator(api, "PUT", f"/{name}", {"weight": 2})
    await api.call("PUT", "/v1/jobs/a", LIVING)
    await api.call("PUT", "/v1/pools/shared%2Fgpu", {"maxRunning": 4}, key="operator-key")
    found: list[str] = []
    token = ""
    while True:
        page = await operator(api, "GET", f"?pageSize=1&pageToken={token}", fresh=True)
        found += [tenant["tenant"] for tenant in page.json()["tenants"]]
        token = page.json()["nextPageToken"]
        if not token:
            break
    assert found == ["acme", "bar", "zoo"]
    stale = await operator(api, "GET", "?pageToken=AAAA")
    assert (stale.status_code, stale.json()["code"]) == (400, "stale_page_token")


async def test_a_paused_tenant_waits_and_says_for_what(api: Api) -> None:
    paused = await operator(api, "POST", "/acme/pause", {"reason": "a bill"})
    assert paused.json()["paused"] is True
    await api.post("/v1/jobs", NOW)
    assert await claimed(api) == []
    [waiting] = (await api.get("/v1/executions?status=PENDING", fresh=True)).json()["executions"]
    assert waiting["waitingFor"] == "paused_pool"
    one = (await api.get(f"/v1/executions/{waiting['executionId']}")).json()
    assert one["waitingFor"] == "paused_pool"
    assert (await api.get("/v1/tenant")).json()["paused"] is True
    resumed = await operator(api, "POST", "/acme/resume")
    assert resumed.json()["paused"] is False
    assert await claimed(api) == [waiting["executionId"]]


async def test_a_cap_of_the_tenant_holds_over_its_pools(api: Api) -> None:
    await operator(api, "PUT", "/acme", {"maxRunning": 2})
    for pool in ("default", "default", "mail"):
        await api.post("/v1/jobs", NOW | {"target": {"pool": pool}})
    assert len(await claimed(api)) == 2
    assert await claimed(api, "mail") == []
    [waiting] = (await api.get("/v1/executions?status=PENDING", fresh=True)).json()["executions"]
    assert (waiting["pool"], waiting["waitingFor"]) == ("mail", "cap")
    usage = (await api.get("/v1/tenant")).json()
    assert usage["usage"] == {"jobs": 3, "pending": 1, "running": 2}
    assert [(pool["pool"], pool["pending"], pool["running"]) for pool in usage["pools"]] == [
        ("default", 0, 2),
        ("mail", 1, 0),
    ]
    await operator(api, "PUT", "/acme", {"maxRunning": 3})
    assert await claimed(api, "mail") == [waiting["executionId"]]


async def test_shards_are_fixed_while_anything_lives_anywhere(make_api: MakeApi) -> None:
    async with make_api(partitions=4) as api:
        assert (await operator(api, "PUT", "/acme", {"shards": 4})).json()["shards"] == 4
        # Most of these live in other partitions than the tenant's home.
        for number in range(6):
            await api.call("PUT", f"/v1/jobs/j{number}", LIVING)
        refused = await operator(api, "PUT", "/acme", {"shards": 2}, fresh=True)
        assert (refused.status_code, refused.json()["code"]) == (409, "shards_fixed")
        assert (await operator(api, "PUT", "/acme", {"shards": 4, "weight": 2})).status_code == 200
        for number in range(6):
            await api.call("DELETE", f"/v1/jobs/j{number}")
        refused = await operator(api, "PUT", "/acme", {"shards": 2})
        assert refused.json()["code"] == "shards_fixed"  # finished jobs still hold their ids
        api.log.advance(2 * 86_400)
        refused = await operator(api, "PUT", "/acme", {"shards": 2})
        assert (refused.status_code, refused.json()["code"]) == (409, "registration_open")
        await operator(api, "PUT", "/acme", {"maxJobs": 0})
        closed = await api.call("PUT", "/v1/jobs/again", LIVING)
        assert (closed.status_code, closed.json()["code"]) == (429, "too_many_jobs")
        change = {"shards": 2, "maxJobs": 9}
        moved = await operator(api, "PUT", "/acme", change, idempotency="k")
        assert (moved.status_code, moved.json().get("shards")) == (200, 2), moved.text
        again = await operator(api, "PUT", "/acme", change, idempotency="k")
        assert (again.json(), again.headers["Idempotent-Replayed"]) == (moved.json(), "true")
        assert (await api.call("PUT", "/v1/jobs/again", LIVING)).status_code == 201


@pytest.mark.parametrize(
    ("method", "path", "body", "key"),
    [
        ("PUT", "/v1/tenants/acme", {"weight": 5}, "operator-key"),
        ("POST", "/v1/tenants/acme/pause", None, "operator-key"),
        ("PATCH", "/v1/tenant", {"latenessAlertSec": 5}, "tenant-key"),
        ("PUT", "/v1/pools/mail", {"maxRunning": 5}, "tenant-key"),
        ("POST", "/v1/pools/mail/pause", None, "tenant-key"),
        ("PUT", "/v1/pools/shared%2Fgpu", {"maxRunning": 5}, "operator-key"),
    ],
)
async def test_a_repeated_change_is_not_done_again_over_a_newer_one(
    api: Api, method: str, path: str, body: Any, key: str
) -> None:
    newer = {"weight": 7, "latenessAlertSec": 7, "maxRunning": 7}
    undo = path.replace("/pause", "/resume")
    first = await api.call(method, path, body, key=key, idempotency="k")
    assert (first.status_code, first.headers.get("Idempotent-Replayed")) == (200, None), first.text
    after = await api.call(method, undo, body and {name: newer[name] for name in body}, key=key)
    assert after.json() != first.json()
    again = await api.call(method, path, body, key=key, idempotency="k")
    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (200, "true")
    assert again.json() == after.json()
    other = await api.call(method, path, {"reason": "another"}, key=key, idempotency="k")
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")


async def test_a_tenant_sets_what_is_its_own(api: Api) -> None:
    body = {"alertTarget": "https://example.com/hook?a=1", "latenessAlertSec": 5, "defaultJitterSec": 30}
    patched = await api.call("PATCH", "/v1/tenant", body)
    assert patched.status_code == 200, patched.text
    assert {name: patched.json()[name] for name in body} == body
    assert {name: (await api.get("/v1/tenant")).json()[name] for name in body} == body
    await api.call("PATCH", "/v1/tenant", {"alertTarget": None, "defaultJitterSec": None})
    own = (await api.get("/v1/tenant")).json()
    assert (own["alertTarget"], own["latenessAlertSec"], own["defaultJitterSec"]) == (None, 5, 0)
    events = api.log.cluster.events
    before = sum(map(len, events))
    assert (await api.call("PATCH", "/v1/tenant", {})).status_code == 200
    assert sum(map(len, events)) == before
    assert (await api.call("PATCH", "/v1/tenant", {"weight": 9})).status_code == 400


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com",
        "https://",
        "https:///path",
        "https://user@example.com",
        "https://example.com/#part",
        "https://exam ple.com",
        "https://example.com/\n",
        "ftp://example.com",
        "example.com",
        "https://example.com:port/",
        "https://localhost/",
        "https://10.0.0.1:8443/hook",
        "https://[::1]/",
        "https://metadata.internal/",
        "https://example.com/" + "x" * 2_000,
        7,
    ],
)
async def test_an_alert_target_is_an_https_url(api: Api, url: object) -> None:
    answer = await api.call("PATCH", "/v1/tenant", {"alertTarget": url})
    assert answer.status_code == 400
    assert [error["field"] for error in answer.json()["errors"]] == ["alertTarget"]


@pytest.mark.parametrize(
    ("method", "path", "key", "given", "default"),
    [
        (
            "PUT",
            "/v1/tenants/acme",
            "operator-key",
            {
                "weight": 2,
                "shards": 2,
                "maxRunning": 3,
                "maxJobs": 0,
                "registrationsPerSec": 5,
                "defaultJitterSec": 6,
                "latenessAlertSec": 7,
            },
            {
                "weight": 1,
                "shards": 1,
                "maxRunning": 1_000,
                "maxJobs": 100_000,
                "registrationsPerSec": 500,
                "defaultJitterSec": 0,
                "latenessAlertSec": 60,
            },
        ),
        (
            "PATCH",
            "/v1/tenant",
            "tenant-key",
            {"alertTarget": "https://example.com/", "latenessAlertSec": 5, "defaultJitterSec": 6},
            {"alertTarget": None, "latenessAlertSec": 60, "defaultJitterSec": 0},
        ),
        ("PUT", "/v1/pools/mail", "tenant-key", {"maxRunning": 3}, {"maxRunning": None}),
        (
            "PUT",
            "/v1/pools/shared%2Fgpu",
            "operator-key",
            {"maxRunning": 8, "tenantMaxRunning": 3},
            {"maxRunning": None, "tenantMaxRunning": None},
        ),
    ],
    ids=["tenant", "own", "pool", "shared pool"],
)
async def test_null_is_the_default_and_what_is_left_out_stays(
    api: Api, method: str, path: str, key: str, given: dict[str, Any], default: dict[str, Any]
) -> None:
    before = (await api.call(method, path, given, key=key)).json()
    assert {name: before[name] for name in given} == given
    assert (await api.call(method, path, {}, key=key)).json() == before
    after = await api.call(method, path, dict.fromkeys(given), key=key)
    assert {name: after.json().get(name) for name in default} == default, after.text
