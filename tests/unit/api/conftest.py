"""The API over HTTP, on a log in memory with the real engines behind it and a real read model on SQLite."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from api.app import create_app
from api.main import assemble
from api.services import Services
from api.settings import ApiSettings
from projections.consumer import Follower
from projections.store import Store
from tests.unit.api.cluster import Cluster
from tests.unit.api.fake_log import NAMESPACE, FakeLog
from tests.waiting import wait_until

KEYS = (
    "acme=tenant-key,acme=worker-key:worker:reports+default,acme=any-worker-key:worker,"
    "acme=auditor-key:auditor,ops=operator-key:operator,ops=shared-key:worker:shared/gpu+shared/cpu,"
    "other=other-key,big=big-key"
)


class Api:
    """One API process, its log and its read model."""

    def __init__(self, log: FakeLog, store: Store, services: Services, client: httpx2.AsyncClient) -> None:
        self.log = log
        self.store = store
        self.services = services
        self.http = client

    async def call(self, method: str, path: str, body: Any = None, **more: Any) -> httpx2.Response:
        """A request as a tenant; `key` names another bearer, `idempotency` an Idempotency-Key. `fresh`: a
        read waits for everything that is in the log."""
        headers = {"Authorization": f"Bearer {more.pop('key', 'tenant-key')}"} | more.pop("headers", {})
        if "idempotency" in more:
            headers["Idempotency-Key"] = more.pop("idempotency")
        if more.pop("fresh", False):
            events = enumerate(self.log.cluster.events)
            ends = [f"{number}:{len(logged) - 1}" for number, logged in events if logged]
            headers["Horarium-Position"] = ",".join(ends)
        if body is not None:
            more["json"] = body
        return await self.http.request(method, path, headers=headers, **more)

    async def post(self, path: str, body: Any = None, **more: Any) -> httpx2.Response:
        return await self.call("POST", path, body, **more)

    async def get(self, path: str, **more: Any) -> httpx2.Response:
        return await self.call("GET", path, **more)


MakeApi = Callable[..., Any]


@pytest.fixture
def make_api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeApi:
    """Starts an API; `partitions`, `shards`, `now` as in `Cluster`; `follow=False`: no projections."""
    monkeypatch.setenv("HORARIUM_KAFKA", "nowhere:9092")
    monkeypatch.setenv("HORARIUM_NAMESPACE", NAMESPACE)
    monkeypatch.setenv("HORARIUM_DEV_KEYS", KEYS)

    @asynccontextmanager
    async def make(follow: bool = True, **cluster: Any) -> AsyncIterator[Api]:
        log = FakeLog(Cluster(**cluster))
        store = Store(f"sqlite:///{tmp_path / 'read.db'}")
        store.ensure()
        services = assemble(ApiSettings.load(), log, store)
        stop = threading.Event()
        follower = Follower(store, log, log.topics.events, log.cluster.partitions)
        thread = threading.Thread(target=follower.run, args=(stop,), daemon=True)
        if follow:
            thread.start()
        services.followed.start()
        services.client.start(asyncio.get_running_loop())
        transport = httpx2.ASGITransport(create_app(services), raise_app_exceptions=False)
        try:
            async with httpx2.AsyncClient(transport=transport, base_url="http://api") as client:
                api = Api(log, store, services, client)
                await asyncio.to_thread(wait_until, lambda: services.client.connected)
                yield api
        finally:
            await services.desks.close()
            stop.set()
            await asyncio.to_thread(services.client.stop)
            await asyncio.to_thread(services.followed.stop)
            if follow:
                await asyncio.to_thread(thread.join)
            await asyncio.to_thread(services.reads.close)
            log.end()

    return make


@pytest.fixture
async def api(make_api: MakeApi) -> AsyncIterator[Api]:
    async with make_api() as started:
        yield started
