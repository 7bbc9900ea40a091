"""Alerts and circuit breakers over HTTP, as the log tells of them."""

from __future__ import annotations

from typing import Any

from schemas import codec, ids
from schemas.entities import Alert, Breaker, BreakerStatus
from schemas.events import AlertRaised, BreakerOpened, EngineEvent, entity_of
from streams.core.transaction import Logged
from tests.unit.api.conftest import Api

T0 = 1_777_593_600_000
"""2026-05-01T00:00:00Z"""


def tell(api: Api, event: EngineEvent) -> None:
    key = ids.key_of(entity_of(event))
    api.log.cluster.events[0].append(Logged(key, codec.encode(event), type(event).__name__))
    api.log.advance(0)


def raise_alert(api: Api, alert_id: str, kind: str, tenant: str = "acme", **more: Any) -> None:
    at_ms = T0 + 1000 * int(alert_id)
    alert = Alert(tenant=tenant, alert_id=alert_id, kind=kind, at_ms=at_ms, detail="so it is", **more)
    tell(api, AlertRaised(at_ms=at_ms, actor="system", cause="time", alert=alert))


async def listed(api: Api, query: str = "", **more: Any) -> list[str]:
    answer = await api.get(f"/v1/alerts{query}", fresh=True, **more)
    assert answer.status_code == 200, answer.text
    return [alert["kind"] for alert in answer.json()["alerts"]]


async def test_alerts_by_tenant_filter_and_page(api: Api) -> None:
    raise_alert(api, "1", "reaped", job_id="j", execution_id="j.1.2.s")
    raise_alert(api, "2", "lateness", target="mail", count=3)
    raise_alert(api, "3", "breaker", tenant="other")
    raise_alert(api, "4", "partition_stopped", tenant="")
    assert await listed(api) == ["lateness", "reaped"]
    assert await listed(api, "?kind=reaped") == ["reaped"]
    assert await listed(api, "?jobId=j") == ["reaped"]
    assert await listed(api, "?since=2026-05-01T00:00:02Z") == ["lateness"]
    assert await listed(api, key="other-key") == ["breaker"]
    assert await listed(api, "?tenant=other", key="auditor-key") == ["breaker"]
    assert await listed(api, key="operator-key") == ["partition_stopped"]
    first = (await api.get("/v1/alerts?pageSize=1")).json()
    assert first["alerts"] == [
        {
            "alertId": "0.2",
            "kind": "lateness",
            "at": "2026-05-01T00:00:02Z",
            "detail": "so it is",
            "jobId": None,
            "executionId": None,
            "target": "mail",
            "count": 3,
        }
    ]
    assert await listed(api, f"?pageSize=1&pageToken={first['nextPageToken']}") == ["reaped"]
    for query in ("?since=now", "?kind=a&kind=b", "?tenant=other", "?level=high"):
        assert (await api.get(f"/v1/alerts{query}")).status_code == 400
    assert (await api.get("/v1/alerts", key="worker-key")).status_code == 403


async def test_a_tenant_sees_its_breakers(api: Api) -> None:
    breaker = Breaker(
        tenant="acme",
        target="pool:mail",
        status=BreakerStatus.OPEN,
        changed_ms=T0,
        until_ms=T0 + 30_000,
        openings=1,
        outcomes=20,
        failures=11,
    )
    tell(api, BreakerOpened(at_ms=T0, actor="system", cause="time", breaker=breaker))
    assert (await api.get("/v1/tenant", fresh=True)).json()["breakers"] == [
        {
            "target": "pool:mail",
            "partition": 0,
            "status": "OPEN",
            "changedAt": "2026-05-01T00:00:00Z",
            "until": "2026-05-01T00:00:30Z",
            "openings": 1,
            "outcomes": 20,
            "failures": 11,
            "probes": [],
        }
    ]
    assert (await api.get("/v1/tenant", key="other-key")).json()["breakers"] == []
