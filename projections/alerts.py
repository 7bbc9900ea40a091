"""Owns alerts: what a person should see, folded from the events that raise it, and how it is listed."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from sqlalchemy import Connection, select

from projections import paging
from projections.history_tables import alerts
from projections.paging import FIRST_PAGE, SortKey
from projections.store import Row, Upsert, Writer
from projections.views import Page, PageRequest
from schemas.entities import Alert

KEEP = Upsert(alerts)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertFilter:
    """Which alerts. Empty: any. They were raised at `since_ms` or later."""

    kind: str = ""
    job_id: str = ""
    since_ms: int | None = None


ANY_ALERT = AlertFilter()


class AlertRows:
    """Alerts of one batch. What the engine forgets of them stays here, as long as other details do."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Row] = {}

    def fold(self, alert: Alert, partition: int) -> None:
        """Keeps an alert. Its id is one of its partition."""
        row = msgspec.structs.asdict(alert) | {"alert_id": f"{partition}.{alert.alert_id}"}
        self._rows[alert.tenant, row["alert_id"]] = row

    def write(self, writer: Writer) -> None:
        """All rows of the batch."""
        writer.upsert(KEEP, list(self._rows.values()))


def list_alerts(
    connection: Connection, tenant: str, filters: AlertFilter = ANY_ALERT, page: PageRequest = FIRST_PAGE
) -> Page[Alert]:
    """Alerts, newest first by time and id; tenant "": those for operators."""
    walk = paging.begin(connection, {"list": "alerts", "tenant": tenant, "filters": filters}, page)
    statement = select(alerts).where(alerts.c.tenant == tenant)
    if filters.kind:
        statement = statement.where(alerts.c.kind == filters.kind)
    if filters.job_id:
        statement = statement.where(alerts.c.job_id == filters.job_id)
    if filters.since_ms is not None:
        statement = statement.where(alerts.c.at_ms >= filters.since_ms)
    found = connection.execute(walk.select(statement, alerts.c.at_ms, alerts.c.alert_id))
    return walk.page(
        [
            (SortKey(row.at_ms, row.alert_id), msgspec.convert(row, Alert, from_attributes=True))
            for row in found
        ]
    )
