"""Tenants, pools, alerts, figures, dead letters by filter: what is sent and what is read, on both clients."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from horarium import NONE, App, Completed, Context, Delay, JobSpec, RateLimited, TestContext

from tests.unit.sdk.fake_server import FakeServer
from tests.unit.sdk.test_client import JOB, Either
from tests.unit.sdk.test_client import client as client  # the fixture

NINE = datetime(2026, 7, 1, 9, tzinfo=UTC)
AT_NINE = "2026-07-01T09:00:00Z"
LIMITED = {"status": 429, "problem": {"code": "rate_limited", "detail": "slow", "retryAfterSec": 1}}
FULL = {"status": 429, "problem": {"code": "too_many_jobs", "retryAfterSec": 60}}
MADE = {"status": 201, "job": JOB}

CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any], str, str, Any]] = [
    ("update_own_tenant", (), {"alert_target": "https://a", "default_jitter_sec": NONE}, "PATCH",
     "/v1/tenant", {"alertTarget": "https://a", "defaultJitterSec": None}),
    ("get_tenant", ("a",), {}, "GET", "/v1/tenants/a", None),
    ("configure_tenant", ("a",), {"weight": 2, "max_running": NONE, "registrations_per_sec": 9},
     "PUT", "/v1/tenants/a", {"weight": 2, "maxRunning": None, "registrationsPerSec": 9}),
    ("pause_tenant", ("a",), {"reason": "x"}, "POST", "/v1/tenants/a/pause", {"reason": "x"}),
    ("resume_tenant", ("a",), {}, "POST", "/v1/tenants/a/resume", {}),
    ("configure_pool", ("shared/g",), {"max_running": NONE, "tenant_max_running": 2}, "PUT",
     "/v1/pools/shared%2Fg", {"maxRunning": None, "tenantMaxRunning": 2}),
    ("pause_pool", ("p",), {"reason": "x"}, "POST", "/v1/pools/p/pause", {"reason": "x"}),
    ("resume_pool", ("p",), {}, "POST", "/v1/pools/p/resume", {}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "args", "options", "method", "path", "body"), CALLS, ids=[call[0] for call in CALLS]
)
async def test_what_is_sent(
    client: Either,
    server: FakeServer,
    name: str,
    args: tuple[Any, ...],
    options: dict[str, Any],
    method: str,
    path: str,
    body: Any,
) -> None:
    server.plan(path, 200, {"tenant": "a", "pool": "p", "version": 3, "maxRunning": 5, "paused": True})
    found = await client.do(name, *args, **options)
    [seen] = server.seen
    assert (seen.method, seen.body) == (method, body)
    assert (getattr(found, "version", 3), found.paused) == (3, True)


async def test_a_tenant_sees_itself(client: Either, server: FakeServer) -> None:
    breaker = {"target": "pool:p", "status": "OPEN", "until": AT_NINE, "probes": ["x"]}
    body = {"tenant": "a", "limits": {"maxRunning": 5}, "usage": {"jobs": 1}, "breakers": [breaker]}
    server.plan("/v1/tenant", 200, body | {"share": [{"pool": "shared/g"}], "new": 1})
    own = await client.do("own_tenant")
    assert (own.limits, own.usage, own.share) == ({"maxRunning": 5}, {"jobs": 1}, ({"pool": "shared/g"},))
    [one] = own.breakers
    assert (one.target, one.until, one.probes) == ("pool:p", NINE, ("x",))
    assert own.raw["new"] == 1


async def test_lists(client: Either, server: FakeServer) -> None:
    server.plan("/v1/tenants", 200, {"tenants": [{"tenant": "a"}], "nextPageToken": "t"})
    page = await client.do("list_tenants", page_size=1)
    assert (page.items[0].tenant, page.next_page_token) == ("a", "t")
    server.plan("/v1/pools", 200, {"pools": [{"pool": "p", "running": 2}], "nextPageToken": ""})
    assert (await client.do("list_pools")).items[0].running == 2
    server.plan("/v1/pools/p", 200, {"pool": "p", "pendingByPriority": {"high": 1}, "oldestPendingSec": 4})
    assert (await client.do("get_pool", "p")).oldest_pending_sec == 4
    alert = {"alertId": "1", "kind": "reaped", "at": AT_NINE, "count": 2}
    server.plan("/v1/alerts", 200, {"alerts": [alert], "nextPageToken": ""})
    found = await client.do("list_alerts", kind="reaped", since=NINE)
    assert server.seen[-1].query == {"kind": "reaped", "since": AT_NINE}
    assert (found.items[0].at, found.items[0].count) == (NINE, 2)
    server.plan("/v1/stats", 200, {"fired": 3, "backlog": {"p": 1}, "lateness": {"count": 1, "p99Ms": 2.5}})
    stats = await client.do("stats", window_sec=60)
    assert (stats.fired, stats.backlog, stats.lateness.p99_ms) == (3, {"p": 1}, 2.5)
    assert server.seen[-1].query == {"window": "60"}


async def test_dead_letters(client: Either, server: FakeServer) -> None:
    server.plan("/v1/dead-letters/replay", 200, {"count": 4})
    count = await client.do(
        "replay_dead_letters", pool="p", failed_because="reaped", since=NINE, payload={"n": 1}, dry_run=False
    )
    assert count == 4
    assert server.seen[0].body == {
        "filter": {"pool": "p", "reason": "reaped", "from": AT_NINE},
        "dryRun": False,
        "payload": {"n": 1},
    }
    assert server.seen[0].headers["idempotency-key"]
    server.plan("/v1/dead-letters/x", 200, {"executionId": "x", "status": "FAILED", "reason": "discarded"})
    discarded = await client.do("discard_dead_letter", "x", reason="by hand")
    assert (server.seen[1].method, server.seen[1].body) == ("DELETE", {"reason": "by hand"})
    assert discarded.reason == "discarded"


async def test_a_batch_that_is_too_fast_is_repeated_until_all_are_in(
    client: Either, server: FakeServer
) -> None:
    for results in ([MADE, LIMITED, LIMITED], [MADE, MADE, LIMITED], [MADE, MADE, MADE]):
        server.plan("/v1/jobs/batch", 200, {"results": results})
    items = await client.do("create_jobs", [JobSpec(schedule=Delay(5))] * 3)
    assert [item.status for item in items] == [201, 201, 201]
    assert len(client.pauses) == 2
    assert min(client.pauses) >= 1
    assert len({seen.headers["idempotency-key"] for seen in server.seen}) == 1
    assert server.seen[0].body == server.seen[1].body == server.seen[2].body


async def test_a_full_tenant_is_not_waited_for(client: Either, server: FakeServer) -> None:
    server.plan("/v1/jobs/batch", 200, {"results": [MADE, FULL]})
    made, full = await client.do("create_jobs", [JobSpec(schedule=Delay(5))] * 2)
    assert (made.status, client.pauses) == (201, [])
    assert isinstance(full.error, RateLimited)
    assert (full.error.code, full.error.retry_after_sec) == ("too_many_jobs", 60)


async def test_a_batch_that_stays_too_fast_says_so_in_the_end(client: Either, server: FakeServer) -> None:
    for _ in range(50):
        server.plan("/v1/jobs/batch", 200, {"results": [LIMITED]})
    [item] = await client.do("create_jobs", [JobSpec(schedule=Delay(5))])
    assert isinstance(item.error, RateLimited)
    assert sum(client.pauses) <= 10


def test_group_and_lateness_alert_of_a_job() -> None:
    spec = JobSpec(schedule=Delay(1), exclusion_group="ledger", lateness_alert_sec=9)
    assert spec.to_json() == {
        "schedule": {"delaySec": 1},
        "exclusionGroup": "ledger",
        "latenessAlertSec": 9,
    }


async def test_a_handler_of_a_shared_pool_knows_whose_execution_it_is() -> None:
    app = App("http://nowhere", "key", pool="shared/gpu")

    @app.handler("t")
    def whose(ctx: Context[Any]) -> str:
        return ctx.tenant

    assert await TestContext(tenant="acme").run(app.find("t")) == Completed("acme")
