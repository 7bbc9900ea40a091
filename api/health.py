"""Owns what machines ask of the process itself: alive, ready, and its metrics. Needs no key.

Ready once means: the log is reached, every tenant's partitions are known, and every partition had an owner.
That is asked for the start alone; later, reads go on without brokers and processors, so only the read model
counts.
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

from api.answers import HealthAnswer
from api.changes import encoded
from api.services import Services, services

router = APIRouter(tags=["health"])

STARTED = frozenset({"RUNNING", "STOPPED"})
"""STOPPED is a fault of that partition: no reason to keep the others' callers out."""


class Readiness:
    """Whether the start is over."""

    def __init__(self) -> None:
        self._started = False

    def missing_for_start(self, served: Services) -> list[str]:
        """What the process still waits for after its start."""
        if self._started:
            return []
        if not served.client.connected:
            return ["log"]
        statuses = served.followed.statuses()
        missing = [
            f"partition {number}"
            for number in range(served.client.partitions)
            if number not in statuses or statuses[number].state not in STARTED
        ]
        self._started = not missing
        return missing


@router.get("/livez", response_model=None)
async def livez() -> Response:
    """The process answers."""
    return encoded(HealthAnswer(status="alive", missing=[]))


@router.get("/readyz", response_model=None)
async def readyz(request: Request) -> Response:
    """200 when it can serve, else 503 with what is missing."""
    served = services(request)
    readiness: Readiness = request.app.state.readiness
    missing = readiness.missing_for_start(served)
    if not await served.reads.is_usable():
        missing.append("read model")
    if missing:
        return encoded(HealthAnswer(status="starting", missing=missing[:20]), 503, {"Retry-After": "1"})
    return encoded(HealthAnswer(status="ready", missing=[]))


@router.get("/metrics", response_model=None)
async def metrics(request: Request) -> Response:
    """Prometheus text."""
    return Response(generate_latest(services(request).metrics.registry), media_type=CONTENT_TYPE_LATEST)
