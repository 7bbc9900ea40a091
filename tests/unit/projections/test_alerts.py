"""Alerts as they are listed, circuit breakers as they stand, and who changed a tenant's settings."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Connection, func, select

from projections.alerts import AlertFilter, list_alerts
from projections.breakers import list_breakers
from projections.history_tables import alerts, history
from projections.retention import Retention
from projections.store import Store
from projections.views import PageRequest
from schemas import ids
from schemas.entities import Alert, Breaker, BreakerStatus, Tenant
from schemas.events import AlertRaised, BreakerClosed, BreakerOpened, TenantConfigured
from schemas.topics import DAY_MS
from tests.unit.projections.story import T0, TENANT, Story, fold, job


def raised(story: Story, alert_id: str, kind: str = "reaped", tenant: str = TENANT, **more: Any) -> Alert:
    alert = Alert(
        tenant=tenant, alert_id=alert_id, kind=kind, at_ms=story.now_ms + 1_000, detail="so", **more
    )
    story.tell(AlertRaised, alert=alert)
    return alert


def ids_of(page: object) -> list[str]:
    return [alert.alert_id for alert in page.items]  # type: ignore[attr-defined]


def test_alerts_newest_first_by_filter(store: Store, db: Connection) -> None:
    story = Story()
    raised(story, "a", job_id="j")
    second = raised(story, "b", "lateness")
    raised(story, "c", tenant="")
    raised(story, "d", tenant="other")
    fold(store, story.records)
    found = list_alerts(db, TENANT)
    assert ids_of(found) == ["0.b", "0.a"]
    assert (found.items[0].kind, found.items[0].detail, found.items[0].at_ms) == (
        "lateness",
        "so",
        second.at_ms,
    )
    assert ids_of(list_alerts(db, TENANT, AlertFilter(kind="reaped"))) == ["0.a"]
    assert ids_of(list_alerts(db, TENANT, AlertFilter(job_id="j"))) == ["0.a"]
    assert ids_of(list_alerts(db, TENANT, AlertFilter(since_ms=second.at_ms))) == ["0.b"]
    assert ids_of(list_alerts(db, "")) == ["0.c"]


def test_alerts_of_one_id_in_two_partitions_are_two(store: Store, db: Connection) -> None:
    stories = Story(0), Story(1)
    for story in stories:
        raised(story, "late")
    fold(store, [*stories[0].records, *stories[1].records])
    first = list_alerts(db, TENANT, page=PageRequest(size=1))
    second = list_alerts(db, TENANT, page=PageRequest(size=1, token=first.next_token))
    assert (ids_of(first), ids_of(second), second.next_token) == (["1.late"], ["0.late"], "")


def test_alerts_stay_when_the_engine_forgets_and_go_in_time(store: Store, db: Connection) -> None:
    story = Story()
    raised(story, "a")
    story.forget(ids.alert_key(TENANT, "a"))
    story.at(T0 + 20 * DAY_MS)
    raised(story, "b")
    fold(store, story.records)
    assert ids_of(list_alerts(db, TENANT)) == ["0.b", "0.a"]
    db.rollback()
    story.at(T0 + 31 * DAY_MS).register(job("later"))
    fold(store, story.records)
    while Retention().purge(store, limit=1):
        pass
    assert db.execute(select(func.count()).select_from(alerts)).scalar_one() == 1


@pytest.mark.parametrize("size", [1, 10])
def test_a_breaker_as_it_stands(store: Store, db: Connection, size: int) -> None:
    story = Story(3)

    def breaker(status: BreakerStatus, target: str = "pool:mail", **more: int) -> Breaker:
        return Breaker(
            tenant=TENANT, target=target, status=status, changed_ms=story.now_ms, probes=("p",), **more
        )

    opened = breaker(BreakerStatus.OPEN, until_ms=T0, outcomes=20, failures=11, openings=2)
    story.tell(BreakerOpened, breaker=opened)
    story.tell(BreakerOpened, breaker=breaker(BreakerStatus.OPEN, "pool:web"))
    story.tell(BreakerClosed, breaker=breaker(BreakerStatus.CLOSED, "pool:web"))
    story.tell(BreakerOpened, breaker=breaker(BreakerStatus.OPEN, "pool:gone"))
    story.forget(ids.breaker_key(TENANT, "pool:gone"))
    fold(store, story.records, size)
    (partition, mail), (_, web) = list_breakers(db, TENANT)
    assert (partition, mail) == (3, opened)
    assert (web.target, web.status) == ("pool:web", BreakerStatus.CLOSED)
    assert list_breakers(db, "other") == []


def test_who_changed_settings_is_history(store: Store, db: Connection) -> None:
    story = Story()
    story.tell(TenantConfigured, configured=Tenant(tenant=TENANT, weight=3, version=1))
    fold(store, story.records)
    row = db.execute(select(history)).one()
    assert (row.tenant, row.scope, row.subject, row.entity) == (TENANT, "tenant", TENANT, "Tenant")
