"""Owns the application: which endpoints there are, what is done around every request, and its description."""

from __future__ import annotations

import time

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import (
    alerts,
    backfills,
    dead_letter_bulk,
    dead_letters,
    executions,
    health,
    job_batches,
    job_bulk,
    job_control,
    jobs,
    occurrences,
    openapi,
    operators,
    own_tenant,
    pools,
    problems,
    schedules,
    short_form,
    stats,
    tenants,
)
from api.health import Readiness
from api.metrics import Metrics
from api.services import Services
from api.work import claims, reports

VERSION = "1"
ROUTERS = (
    job_batches.router,
    job_bulk.router,
    jobs.router,
    job_control.router,
    backfills.router,
    occurrences.router,
    schedules.router,
    executions.router,
    reports.router,
    claims.router,
    dead_letter_bulk.router,
    dead_letters.router,
    alerts.router,
    own_tenant.router,
    tenants.router,
    pools.router,
    stats.router,
    short_form.router,
    operators.router,
    health.router,
)


def create_app(services: Services) -> FastAPI:
    """The application on these services; whoever made them ends them."""
    app = FastAPI(
        title="Horarium",
        version=VERSION,
        summary="A job scheduler whose truth is a log",
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
    )
    app.state.services = services
    app.state.readiness = Readiness()
    for router in ROUTERS:
        app.include_router(router)
    problems.install(app)
    openapi.install(app)
    app.add_middleware(Measured, metrics=services.metrics)
    return app


class Measured:
    """Counts and times requests by route template; a plain ASGI layer, so that streams pass untouched."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 500

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            # Unknown paths and methods are one label each: callers must not be able to make new ones.
            route = getattr(scope.get("route"), "path", "unknown")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.requests.labels(method, route, str(status)).inc()
            if not route.endswith("/claim"):
                self._metrics.request_seconds.labels(method, route).observe(time.perf_counter() - began)


_METHODS = frozenset({"GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"})
