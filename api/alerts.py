"""Owns `GET /v1/alerts`: what a person should see, of a tenant or, for operators, of the installation."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from api import params
from api.auth import Caller, Role, read_tenant, requires
from api.changes import encoded
from api.jobs import tenant_param
from api.openapi import described
from api.params import Params
from api.services import services
from api.tenant_answers import AlertAnswer, AlertList
from projections.alerts import AlertFilter, list_alerts
from schemas.entities import Alert
from streams.core.instants import format_instant

router = APIRouter(prefix="/v1/alerts", tags=["alerts"])

Viewer = Annotated[Caller, Depends(requires(Role.TENANT, Role.AUDITOR, Role.OPERATOR))]

_FILTERS = (
    params.Param("kind", doc="dead_letter, reaped, breaker, lateness, missed_window, tz_shift, …"),
    params.Param("jobId"),
    params.Param("since", doc="Raised at or after (RFC 3339)"),
)


@router.get(
    "",
    **described(gives={200: AlertList}, query=(*_FILTERS, *params.PAGE, params.TENANT), reads=True),
)
async def list_(request: Request, caller: Viewer) -> Response:
    """Alerts, newest first; operators see those of the installation."""
    query = Params(request, *_FILTERS, *params.PAGE, *tenant_param(caller))
    filters = AlertFilter(
        kind=query.text("kind"), job_id=query.text("jobId"), since_ms=query.instant("since")
    )
    tenant = "" if caller.role is Role.OPERATOR else read_tenant(request, caller)
    seen = partial(list_alerts, tenant=tenant, filters=filters, page=query.page())
    page = await services(request).reads.ask(request, caller.tenant, seen)
    alerts = [_answer(alert) for alert in page.items]
    return encoded(AlertList(alerts=alerts, next_page_token=page.next_token))


def _answer(alert: Alert) -> AlertAnswer:
    return AlertAnswer(
        alert_id=alert.alert_id,
        kind=alert.kind,
        at=format_instant(alert.at_ms),
        detail=alert.detail,
        job_id=alert.job_id or None,
        execution_id=alert.execution_id or None,
        target=alert.target or None,
        count=alert.count,
    )
