"""The API's process: `python -m api.main` serves HTTP until SIGTERM or SIGINT.

Owns the wiring and the life of the process. The broker may be down at the start and at any time: reads are
served, changes are refused with 503 until it is reached. At the end waiting claims are answered, what was on
its way to them is handed back, and what was sent is delivered.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from types import FrameType

import uvicorn
import uvloop
from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool

from api.app import create_app
from api.auth import Keyring
from api.followed import Followed
from api.log_client import LogClient
from api.metrics import Metrics
from api.positions import OwnWrites
from api.reads import Reads
from api.services import Services
from api.settings import ApiSettings
from api.work.desk import Desks
from projections.store import Store
from streams import collector
from streams.config import SettingsError
from streams.runtime.telemetry import log_as_json
from streams.transport.kafka.log import KafkaLog
from streams.transport.log import Log

log = logging.getLogger(__name__)

WRONG_SETTINGS = 2
KEEP_ALIVE_SEC = 75
"""Longer than the idle time of common proxies and clients, so that it is they who close."""
STOP_SEC = 5
"""Requests under way at the end get so long; claims are answered at once."""


def assemble(settings: ApiSettings, log_: Log, store: Store) -> Services:
    """Everything an application needs, not yet started."""
    metrics = Metrics()
    own_writes = OwnWrites()
    followed = Followed(log_, settings.topics)
    client = LogClient(log_, settings.topics, followed)
    metrics.commands_waiting.set_function(lambda: client.waiting)
    return Services(
        keyring=Keyring(settings.keys),
        client=client,
        followed=followed,
        desks=Desks(client, metrics),
        reads=Reads(store, own_writes),
        own_writes=own_writes,
        metrics=metrics,
    )


class Server(uvicorn.Server):
    """Uvicorn, told to end the long polls first: it waits for open requests before anything of ours runs."""

    def __init__(self, config: uvicorn.Config, services: Services) -> None:
        super().__init__(config)
        self._services = services
        self._closing: asyncio.Task[None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Not uvicorn's own: that raises the signal once more at the end, before we have cleared up.
        self.should_exit = True
        asyncio.get_running_loop().call_soon_threadsafe(self._close)

    def _close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._services.desks.close())

    async def closed(self) -> None:
        """Once the claims' rest was handed back."""
        if self._closing is not None:
            await self._closing


async def serve(settings: ApiSettings, services: Services, app: FastAPI) -> None:
    """Until a signal."""
    services.followed.start()
    services.client.start(asyncio.get_running_loop())
    config = uvicorn.Config(
        app,
        host=settings.http_host,
        port=settings.http_port,
        loop="uvloop",
        http="httptools",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SEC,
        timeout_graceful_shutdown=STOP_SEC,
    )
    server = Server(config, services)
    try:
        await server.serve()
        await server.closed()
    finally:
        await run_in_threadpool(services.client.stop)
        await run_in_threadpool(services.followed.stop)
        await run_in_threadpool(services.reads.close)


def run(settings: ApiSettings) -> None:
    """Serves with these settings."""
    if not settings.keys:
        log.warning("HORARIUM_DEV_KEYS has no key: every call that needs one is 401")
    log_ = KafkaLog(settings.kafka)
    store = Store(settings.store_url)
    services = assemble(settings, log_, store)
    app = create_app(services)
    collector.settle()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(settings, services, app))
    finally:
        log_.close()


def main() -> int:
    """The exit code."""
    try:
        settings = ApiSettings.load()
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return WRONG_SETTINGS
    log_as_json("api", settings.log_level)
    run(settings)
    return 0


if __name__ == "__main__":
    sys.exit(main())
