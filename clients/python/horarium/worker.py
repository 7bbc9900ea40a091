"""The worker: claims, runs handlers, reports, and ends without losing what it holds.

One claim is under way at a time, for the slots that are free when it is sent; it returns with the first
grant, so slots that become free meanwhile wait for one round trip at most. A claim without an answer is
repeated under the same claim id and brings back what it had been granted.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from datetime import datetime
from typing import Any

from horarium import work_calls
from horarium.client import AsyncClient
from horarium.clock import Clock, SystemClock, wait_tasks
from horarium.errors import ApiError, BadRequest, Forbidden, HorariumError, NotFound, Unauthorized
from horarium.exchange import NO_RETRY, RetryRules, new_key
from horarium.handlers import Handlers
from horarium.leases import LeaseKeeper
from horarium.models import Claimed, Grants
from horarium.reports import LINGER_SEC, Reporter
from horarium.runs import SHUTDOWN, Run, Tools

log = logging.getLogger("horarium.worker")

SHARED_PREFIX = "shared/"
CLAIM_MAX = 1_000  # what the server takes
WAIT_SEC = 20  # the longest poll
LAST_CLAIM_SEC = 0.5  # at the end a claim under way may bring its grants, to be handed back at once
EMPTY_SOON_SEC = 1.0  # an empty answer sooner than this is no long poll (two workers of one id?)
HAND_BACK_SEC = 5.0  # for the last releases, before the process ends


class Worker:
    """Runs handlers for the executions of one pool.

    `run` returns when the worker has drained. `drain_sec`: what is running may go on for so long after
    `drain`; then handlers are cancelled, get `cancel_grace_sec` to end, and their executions are released.
    """

    def __init__(
        self,
        client: AsyncClient,
        handlers: Handlers,
        *,
        pool: str = "default",
        slots: int = 10,
        worker_id: str | None = None,
        lease_sec: int | None = None,
        wait_sec: float = WAIT_SEC,
        drain_sec: float = 30.0,
        cancel_grace_sec: float = 5.0,
        linger_sec: float = LINGER_SEC,
        retry: RetryRules | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not 1 <= slots <= CLAIM_MAX:
            raise ValueError(f"slots are 1 to {CLAIM_MAX}")
        self.worker_id = worker_id or _worker_id()
        self.pool = pool
        self.slots = slots
        self._client = client
        self._handlers = handlers
        self._lease_sec = lease_sec
        self._wait_sec = wait_sec
        self._drain_sec = drain_sec
        self._cancel_grace_sec = cancel_grace_sec
        self._retry = retry or RetryRules()
        self._clock = clock or SystemClock()
        self._keeper = LeaseKeeper(client, self.worker_id, self._clock)
        self._reporter = Reporter(client, self._clock, linger_sec=linger_sec, retry=self._retry)
        self._tools = Tools(client, self.worker_id, self._keeper, self._reporter)
        self._runs: dict[asyncio.Task[None], Run] = {}
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()
        self._handing_back = False

    @property
    def running(self) -> int:
        """How many executions it holds."""
        return len(self._runs)

    @property
    def draining(self) -> bool:
        """Whether it claims nothing more."""
        return self._stopping.is_set()

    def drain(self) -> None:
        """Claims nothing more, finishes what it holds, then lets `run` return."""
        self._stopping.set()
        self._changed.set()

    async def run(self) -> None:
        """Works until drained; raises what keeps it from working at all (a wrong key or pool)."""
        background = [asyncio.create_task(self._keeper.run()), asyncio.create_task(self._reporter.run())]
        claiming = asyncio.create_task(self._claim_on())
        stopped = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({claiming, stopped, *background}, return_when=asyncio.FIRST_COMPLETED)
            self.drain()
            await self._end_claiming(claiming)
            await self._finish()
            for task in (claiming, *background):
                if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                    raise error
        finally:
            everything: list[asyncio.Task[Any]] = [claiming, stopped, *background, *self._runs]
            for task in everything:
                task.cancel()
            await asyncio.gather(*everything, return_exceptions=True)

    async def _claim_on(self) -> None:
        claim_id, tries, worked = new_key(), 0, False
        log.info("worker %s takes work of pool %s with %d slots", self.worker_id, self.pool, self.slots)
        while not self._stopping.is_set():
            free = await self._free_slots()
            if not free:
                return
            started = self._clock.monotonic()
            try:
                grants = await self._claim(claim_id, free)
            except HorariumError as error:
                if isinstance(error, BadRequest | Unauthorized | Forbidden | NotFound) and not worked:
                    raise
                tries += 1
                wished_sec = error.retry_after_sec if isinstance(error, ApiError) else None
                log.warning("claim failed, trying again: %s", error)
                await self._clock.sleep(self._retry.pause_sec(tries, wished_sec))
                continue
            claim_id, tries, worked = new_key(), 0, True
            await self._take(grants, free)
            if not grants.executions and self._clock.monotonic() - started < min(
                EMPTY_SOON_SEC, self._wait_sec
            ):
                await self._clock.sleep(self._retry.pause_sec(1, None))

    async def _free_slots(self) -> int:
        while (free := self.slots - len(self._runs)) < 1 and not self._stopping.is_set():
            self._changed.clear()
            await self._changed.wait()
        return 0 if self._stopping.is_set() else free

    async def _claim(self, claim_id: str, free: int) -> Grants:
        call = work_calls.claim(
            self.pool,
            self.worker_id,
            max=free,
            wait_sec=self._wait_sec,
            lease_sec=self._lease_sec,
            claim_id=claim_id,
        )
        return await self._client.run(call, NO_RETRY)

    async def _take(self, grants: Grants, free: int) -> None:
        wanted = 0 if self._stopping.is_set() else free
        for claimed in grants.executions[:wanted]:
            self._start(claimed, grants.server_time)
        surplus = grants.executions[wanted:]
        if surplus:
            self._handing_back = True
            await self._hand_back(surplus)
            self._handing_back = False

    def _start(self, claimed: Claimed, server_time: datetime | None) -> None:
        tenant = claimed.tenant if self.pool.startswith(SHARED_PREFIX) else None
        run = Run(claimed, self._handlers.get(claimed.task), self._tools, tenant, server_time)
        task = asyncio.create_task(run.to_its_end())
        self._runs[task] = run
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        run = self._runs.pop(task)
        self._changed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("execution %s ended in a bug of the worker", run.execution_id, exc_info=error)

    async def _end_claiming(self, claiming: asyncio.Task[None]) -> None:
        # The grants of an answer that is on its way would be held up until their leases end.
        await wait_tasks(self._clock, [claiming], LAST_CLAIM_SEC)
        if not self._handing_back:
            claiming.cancel()
        await asyncio.gather(claiming, return_exceptions=True)

    async def _finish(self) -> None:
        """Leases are extended all the while: the keeper ends after this."""
        if self._runs:
            log.info("worker %s drains %d executions", self.worker_id, len(self._runs))
        if not await wait_tasks(self._clock, list(self._runs), self._drain_sec):
            return
        log.warning("drain time is over: %d executions are cancelled and released", len(self._runs))
        for run in self._runs.values():
            run.cancel(SHUTDOWN)
        await wait_tasks(self._clock, list(self._runs), self._cancel_grace_sec)
        # A thread cannot be ended. What still runs is handed back all the same: the process ends now.
        await self._hand_back([run.claimed for run in self._runs.values() if run.give_up()])

    async def _hand_back(self, executions: tuple[Claimed, ...] | list[Claimed]) -> None:
        rules = RetryRules(for_sec=HAND_BACK_SEC)
        answers = await asyncio.gather(
            *(self._tools.release(claimed, self._tenant_of(claimed), retry=rules) for claimed in executions),
            return_exceptions=True,
        )
        for claimed, answer in zip(executions, answers, strict=True):
            if isinstance(answer, BaseException):
                log.warning("execution %s could not be released: %s", claimed.execution_id, answer)

    def _tenant_of(self, claimed: Claimed) -> str | None:
        return claimed.tenant if self.pool.startswith(SHARED_PREFIX) else None


def _worker_id() -> str:
    """Says where it runs, and differs for every worker."""
    return f"{socket.gethostname()[:60]}-{os.getpid()}-{secrets.token_hex(4)}"
