"""Owns what the endpoints share in one process; `api.main` makes it, tests make their own."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from api.auth import Keyring
from api.followed import Followed
from api.log_client import LogClient
from api.metrics import Metrics
from api.positions import OwnWrites
from api.reads import Reads
from api.work.desk import Desks


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """One of each."""

    keyring: Keyring
    client: LogClient
    followed: Followed
    desks: Desks
    reads: Reads
    own_writes: OwnWrites
    metrics: Metrics


def services(request: Request) -> Services:
    """Of the application that serves the request."""
    found: Services = request.app.state.services
    return found
