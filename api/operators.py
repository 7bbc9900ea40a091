"""Owns what operators ask: who runs which partition, from the topic `status`, not from the read model."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from api import rendering
from api.answers import PartitionList
from api.auth import Caller, Role, requires
from api.changes import encoded
from api.openapi import described
from api.params import Params
from api.services import services

router = APIRouter(prefix="/v1", tags=["operations"])

Operator = Annotated[Caller, Depends(requires(Role.OPERATOR))]


@router.get("/partitions", **described(gives={200: PartitionList}))
async def partitions(request: Request, caller: Operator) -> Response:
    """Who runs each partition, how far it is, and why it does not run if it does not."""
    Params(request)
    served = services(request)
    statuses = served.followed.statuses()
    numbers = range(max(served.client.partitions, max(statuses, default=-1) + 1))
    return encoded(
        PartitionList(partitions=[rendering.partition(number, statuses.get(number)) for number in numbers])
    )
