"""`Client` and `AsyncClient`: the calls of the API as methods, over HTTP.

Every method is made from the pure function of the same name in `horarium.calls`, `horarium.time_calls`,
`horarium.tenant_calls` or `horarium.work_calls`, with its parameters, types and docstring; the two classes
differ only in how they send and wait.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar

import httpx2

from horarium import calls, tenant_calls, time_calls, work_calls
from horarium.exchange import Answer, Call, Lost, Pause, RetryRules, Send, Session, exchange
from horarium.models import Page

P = ParamSpec("P")
T = TypeVar("T")

CONNECT_SEC = 5.0
# Idle connections go before common servers close them (5 s), or a request may meet a closed one.
LIMITS = httpx2.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=3.0)

Steps = Generator[Send | Pause, Answer | Lost | None, T]


class _Method(Generic[P, T]):
    """`client.name(…)` runs the call that the function makes of the arguments."""

    def __init__(self, build: Callable[P, Call[T]]) -> None:
        self.build = build

    def __get__(self, client: Client, owner: type[Client]) -> Callable[P, T]:
        @functools.wraps(self.build)
        def method(*args: P.args, **kwargs: P.kwargs) -> T:
            return client.run(self.build(*args, **kwargs))

        return method


class _Items(Generic[P, T]):
    """`client.name(…)` walks over all pages of a list."""

    def __init__(self, build: Callable[P, Call[Page[T]]]) -> None:
        self.build = build

    def __get__(self, client: Client, owner: type[Client]) -> Callable[P, Iterator[T]]:
        @functools.wraps(self.build)
        def method(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
            call: Call[Page[T]] | None = self.build(*args, **kwargs)
            while call is not None:
                page = client.run(call)
                yield from page.items
                call = calls.next_page(call, page)

        return method


class _AsyncMethod(Generic[P, T]):
    """`await client.name(…)`."""

    def __init__(self, build: Callable[P, Call[T]]) -> None:
        self.build = build

    def __get__(self, client: AsyncClient, owner: type[AsyncClient]) -> Callable[P, Coroutine[Any, Any, T]]:
        @functools.wraps(self.build)
        async def method(*args: P.args, **kwargs: P.kwargs) -> T:
            return await client.run(self.build(*args, **kwargs))

        return method


class _AsyncItems(Generic[P, T]):
    """`async for item in client.name(…)`."""

    def __init__(self, build: Callable[P, Call[Page[T]]]) -> None:
        self.build = build

    def __get__(self, client: AsyncClient, owner: type[AsyncClient]) -> Callable[P, AsyncIterator[T]]:
        @functools.wraps(self.build)
        async def method(*args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
            call: Call[Page[T]] | None = self.build(*args, **kwargs)
            while call is not None:
                page = await client.run(call)
                for item in page.items:
                    yield item
                call = calls.next_page(call, page)

        return method


class _Base:
    """What both clients are made with. `retry`: how long a call is repeated before its error is raised."""

    def __init__(
        self, url: str, key: str, *, timeout_sec: float = 30.0, retry: RetryRules | None = None
    ) -> None:
        self.url = url.rstrip("/")
        self.session = Session(key=key, timeout_sec=timeout_sec, retry=retry or RetryRules())

    def _request_of(self, send: Send) -> dict[str, Any]:
        return {
            "method": send.method,
            "url": self.url + send.path,
            "params": dict(send.params) or None,
            "headers": dict(send.headers),
            "content": send.body,
            "timeout": httpx2.Timeout(send.timeout_sec, connect=min(CONNECT_SEC, send.timeout_sec)),
        }


def _tls(url: str) -> ssl.SSLContext | bool:
    """Reading the system's certificates takes a tenth of a second: not done for plain HTTP.

    Redirects are not followed, so that client never meets TLS; if it did, it would trust nobody.
    """
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if url.startswith("http://") else True


def _answer_of(response: httpx2.Response) -> Answer:
    return Answer(response.status_code, dict(response.headers.items()), response.content)


class Client(_Base):
    """The API for synchronous code; threads may share one. Close it, or use it as a context manager."""

    def __init__(
        self,
        url: str,
        key: str,
        *,
        timeout_sec: float = 30.0,
        retry: RetryRules | None = None,
        sleep: Callable[[float], object] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(url, key, timeout_sec=timeout_sec, retry=retry)
        self._http = httpx2.Client(limits=LIMITS, verify=_tls(url))
        self._sleep = sleep or threading.Event().wait
        self._now = now

    def run(self, call: Call[T], retry: RetryRules | None = None) -> T:
        """Runs a call made by hand from `horarium.calls`; `retry` replaces the client's rules."""
        steps: Steps[T] = exchange(call, self.session, self._now, retry)
        said: Answer | Lost | None = None
        while True:
            try:
                step = steps.send(said)
            except StopIteration as done:
                result: T = done.value
                return result
            if isinstance(step, Pause):
                said = None
                self._sleep(step.seconds)
                continue
            try:
                said = _answer_of(self._http.request(**self._request_of(step)))
            except httpx2.TransportError as error:
                said = Lost(error)

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    create_job = _Method(calls.create_job)
    create_jobs = _Method(calls.create_jobs)
    put_job = _Method(calls.put_job)
    get_job = _Method(calls.get_job)
    list_jobs = _Method(calls.list_jobs)
    iter_jobs = _Items(calls.list_jobs)
    cancel_job = _Method(calls.cancel_job)
    trigger_job = _Method(calls.trigger_job)
    schedule_task = _Method(calls.schedule_task)
    preview_schedule = _Method(time_calls.preview_schedule)
    update_job = _Method(time_calls.update_job)
    pause_job = _Method(time_calls.pause_job)
    resume_job = _Method(time_calls.resume_job)
    backfill_job = _Method(time_calls.backfill_job)
    job_occurrences = _Method(time_calls.job_occurrences)
    bulk_jobs = _Method(time_calls.bulk_jobs)
    tz_shifts = _Method(time_calls.tz_shifts)
    job_executions = _Method(calls.job_executions)
    job_events = _Method(calls.job_events)
    list_executions = _Method(calls.list_executions)
    iter_executions = _Items(calls.list_executions)
    get_execution = _Method(calls.get_execution)
    cancel_execution = _Method(calls.cancel_execution)
    execution_events = _Method(calls.execution_events)
    list_dead_letters = _Method(calls.list_dead_letters)
    iter_dead_letters = _Items(calls.list_dead_letters)
    get_dead_letter = _Method(calls.get_dead_letter)
    replay_dead_letter = _Method(calls.replay_dead_letter)
    partitions = _Method(calls.partitions)
    own_tenant = _Method(tenant_calls.own_tenant)
    update_own_tenant = _Method(tenant_calls.update_own_tenant)
    list_tenants = _Method(tenant_calls.list_tenants)
    iter_tenants = _Items(tenant_calls.list_tenants)
    get_tenant = _Method(tenant_calls.get_tenant)
    configure_tenant = _Method(tenant_calls.configure_tenant)
    pause_tenant = _Method(tenant_calls.pause_tenant)
    resume_tenant = _Method(tenant_calls.resume_tenant)
    list_pools = _Method(tenant_calls.list_pools)
    iter_pools = _Items(tenant_calls.list_pools)
    get_pool = _Method(tenant_calls.get_pool)
    configure_pool = _Method(tenant_calls.configure_pool)
    pause_pool = _Method(tenant_calls.pause_pool)
    resume_pool = _Method(tenant_calls.resume_pool)
    list_alerts = _Method(tenant_calls.list_alerts)
    iter_alerts = _Items(tenant_calls.list_alerts)
    stats = _Method(tenant_calls.stats)
    replay_dead_letters = _Method(tenant_calls.replay_dead_letters)
    discard_dead_letter = _Method(tenant_calls.discard_dead_letter)
    claim = _Method(work_calls.claim)
    heartbeat = _Method(work_calls.heartbeat)
    heartbeats = _Method(work_calls.heartbeats)
    complete = _Method(work_calls.complete)
    fail = _Method(work_calls.fail)
    release = _Method(work_calls.release)
    outcomes = _Method(work_calls.outcomes)


class AsyncClient(_Base):
    """The API for asyncio. Close it, or use it as an async context manager."""

    def __init__(
        self,
        url: str,
        key: str,
        *,
        timeout_sec: float = 30.0,
        retry: RetryRules | None = None,
        sleep: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(url, key, timeout_sec=timeout_sec, retry=retry)
        self._http = httpx2.AsyncClient(limits=LIMITS, verify=_tls(url))
        self._sleep = sleep
        self._now = now

    async def run(self, call: Call[T], retry: RetryRules | None = None) -> T:
        """Runs a call made by hand from `horarium.calls`; `retry` replaces the client's rules."""
        steps: Steps[T] = exchange(call, self.session, self._now, retry)
        said: Answer | Lost | None = None
        while True:
            try:
                step = steps.send(said)
            except StopIteration as done:
                result: T = done.value
                return result
            if isinstance(step, Pause):
                said = None
                await self._sleep(step.seconds)
                continue
            try:
                said = _answer_of(await self._http.request(**self._request_of(step)))
            except httpx2.TransportError as error:
                said = Lost(error)

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    create_job = _AsyncMethod(calls.create_job)
    create_jobs = _AsyncMethod(calls.create_jobs)
    put_job = _AsyncMethod(calls.put_job)
    get_job = _AsyncMethod(calls.get_job)
    list_jobs = _AsyncMethod(calls.list_jobs)
    iter_jobs = _AsyncItems(calls.list_jobs)
    cancel_job = _AsyncMethod(calls.cancel_job)
    trigger_job = _AsyncMethod(calls.trigger_job)
    schedule_task = _AsyncMethod(calls.schedule_task)
    preview_schedule = _AsyncMethod(time_calls.preview_schedule)
    update_job = _AsyncMethod(time_calls.update_job)
    pause_job = _AsyncMethod(time_calls.pause_job)
    resume_job = _AsyncMethod(time_calls.resume_job)
    backfill_job = _AsyncMethod(time_calls.backfill_job)
    job_occurrences = _AsyncMethod(time_calls.job_occurrences)
    bulk_jobs = _AsyncMethod(time_calls.bulk_jobs)
    tz_shifts = _AsyncMethod(time_calls.tz_shifts)
    job_executions = _AsyncMethod(calls.job_executions)
    job_events = _AsyncMethod(calls.job_events)
    list_executions = _AsyncMethod(calls.list_executions)
    iter_executions = _AsyncItems(calls.list_executions)
    get_execution = _AsyncMethod(calls.get_execution)
    cancel_execution = _AsyncMethod(calls.cancel_execution)
    execution_events = _AsyncMethod(calls.execution_events)
    list_dead_letters = _AsyncMethod(calls.list_dead_letters)
    iter_dead_letters = _AsyncItems(calls.list_dead_letters)
    get_dead_letter = _AsyncMethod(calls.get_dead_letter)
    replay_dead_letter = _AsyncMethod(calls.replay_dead_letter)
    partitions = _AsyncMethod(calls.partitions)
    own_tenant = _AsyncMethod(tenant_calls.own_tenant)
    update_own_tenant = _AsyncMethod(tenant_calls.update_own_tenant)
    list_tenants = _AsyncMethod(tenant_calls.list_tenants)
    iter_tenants = _AsyncItems(tenant_calls.list_tenants)
    get_tenant = _AsyncMethod(tenant_calls.get_tenant)
    configure_tenant = _AsyncMethod(tenant_calls.configure_tenant)
    pause_tenant = _AsyncMethod(tenant_calls.pause_tenant)
    resume_tenant = _AsyncMethod(tenant_calls.resume_tenant)
    list_pools = _AsyncMethod(tenant_calls.list_pools)
    iter_pools = _AsyncItems(tenant_calls.list_pools)
    get_pool = _AsyncMethod(tenant_calls.get_pool)
    configure_pool = _AsyncMethod(tenant_calls.configure_pool)
    pause_pool = _AsyncMethod(tenant_calls.pause_pool)
    resume_pool = _AsyncMethod(tenant_calls.resume_pool)
    list_alerts = _AsyncMethod(tenant_calls.list_alerts)
    iter_alerts = _AsyncItems(tenant_calls.list_alerts)
    stats = _AsyncMethod(tenant_calls.stats)
    replay_dead_letters = _AsyncMethod(tenant_calls.replay_dead_letters)
    discard_dead_letter = _AsyncMethod(tenant_calls.discard_dead_letter)
    claim = _AsyncMethod(work_calls.claim)
    heartbeat = _AsyncMethod(work_calls.heartbeat)
    heartbeats = _AsyncMethod(work_calls.heartbeats)
    complete = _AsyncMethod(work_calls.complete)
    fail = _AsyncMethod(work_calls.fail)
    release = _AsyncMethod(work_calls.release)
    outcomes = _AsyncMethod(work_calls.outcomes)
