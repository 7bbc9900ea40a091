"""One execution in a worker, from its grant to the server's decision about its outcome."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from horarium import handlers, work_calls
from horarium.client import AsyncClient
from horarium.context import Context
from horarium.errors import Conflict
from horarium.exchange import RetryRules
from horarium.handlers import Handler, PayloadError
from horarium.leases import LeaseKeeper
from horarium.models import Claimed, LeaseAnswer
from horarium.reports import Reporter
from horarium.results import Completed, Ended, Failed, Snooze, error_text
from horarium.work_calls import Outcome

log = logging.getLogger("horarium.worker")

SHUTDOWN = "shutdown"
"""Why a handler is cancelled at the end of its worker; its lease is still held, and is released."""

FOR_EVER = RetryRules(for_sec=float("inf"))


@dataclass(frozen=True, slots=True)
class Tools:
    """What all runs of a worker share."""

    client: AsyncClient
    worker_id: str
    keeper: LeaseKeeper
    reporter: Reporter

    async def release(
        self, claimed: Claimed, tenant: str | None, delay_sec: int = 0, retry: RetryRules = FOR_EVER
    ) -> None:
        """Hands an execution back; that it is not ours any more is as good."""
        call = work_calls.release(
            claimed.execution_id, self.worker_id, claimed.lease_epoch, delay_sec=delay_sec, tenant=tenant
        )
        try:
            await self.client.run(call, retry)
        except Conflict as error:
            log.info("execution %s needs no release: %s", claimed.execution_id, error.code)


class Run:
    """One delivery in hand."""

    def __init__(
        self,
        claimed: Claimed,
        handler: Handler | None,
        tools: Tools,
        tenant: str | None,
        server_time: datetime | None,
    ) -> None:
        self.claimed = claimed
        self.execution_id = claimed.execution_id
        self._handler = handler
        self._tools = tools
        self._tenant = tenant
        self._ctx: Context[Any] | None = None
        self._work: asyncio.Task[Ended] | None = None
        self._cancel_reason = ""
        self._settling = False
        self._loop = asyncio.get_running_loop()
        self._lease = tools.keeper.hold(claimed, server_time, self.cancel, tenant)

    def cancel(self, reason: str) -> None:
        """Cancels the handler: the lease was lost (said by the keeper), or the worker ends."""
        if self._settling:
            # The handler is done. Its outcome goes out all the same: the server decides whether it counts.
            return
        log.warning("execution %s is cancelled here: %s", self.execution_id, reason)
        self._cancel_reason = self._cancel_reason or reason
        if self._ctx is not None:
            self._ctx.cancel(reason)
        if self._work is not None and self._handler is not None and self._handler.is_async:
            self._work.cancel()

    def give_up(self) -> bool:
        """Whether the execution is to be released although its handler does not end."""
        self._tools.keeper.drop(self._lease)
        return not self._settling and self._cancel_reason == SHUTDOWN

    async def to_its_end(self) -> None:
        """Runs the handler and settles what came of it."""
        try:
            ended = await self._run_handler()
            if self._cancel_reason == SHUTDOWN:
                self._settling = True
                await self._tools.release(self.claimed, self._tenant)
            elif not self._cancel_reason:
                self._settling = True
                await self._settle(ended)
        finally:
            self._tools.keeper.drop(self._lease)

    async def _run_handler(self) -> Ended:
        if self._cancel_reason:
            return Failed("cancelled before it began")
        if self._handler is None:
            return Failed(error_text(f"this worker has no handler for task {self.claimed.task!r}"))
        try:
            payload = handlers.decode(self._handler.payload, self.claimed.content)
        except PayloadError as error:
            return handlers.refusal(error)
        self._ctx = Context(self.claimed, payload, self._progress)
        self._work = asyncio.create_task(handlers.call(self._handler, self._ctx))
        try:
            await asyncio.wait({self._work})
        except asyncio.CancelledError:
            # The worker ends without waiting for it.
            self._work.cancel()
            raise
        if self._work.cancelled():
            return Failed("the handler cancelled itself")
        return self._work.result()

    def _progress(self, progress: Any) -> None:
        # Handlers call this from threads, too.
        self._loop.call_soon_threadsafe(self._tools.keeper.progress, self._lease, progress)

    async def _settle(self, ended: Ended) -> None:
        if not isinstance(ended, Completed):
            await self._tools.keeper.flush(self._lease)
        if isinstance(ended, Snooze):
            await self._tools.release(self.claimed, self._tenant, ended.delay_sec)
            return
        answer = await self._report(ended)
        if answer.status in (400, 413):
            # Left alone it would be delivered again and refused again, without a word to anybody.
            what = "result" if isinstance(ended, Completed) else "error"
            text = f"the server refused the {what}: {answer.code} {answer.detail}"
            answer = await self._report(Failed(error_text(text), retryable=False))
        if not answer.accepted:
            log.warning("outcome of execution %s was not taken: %s", self.execution_id, answer.code)

    async def _report(self, ended: Completed | Failed) -> LeaseAnswer:
        outcome = Outcome(
            execution_id=self.execution_id,
            lease_epoch=self.claimed.lease_epoch,
            worker_id=self._tools.worker_id,
            tenant=self._tenant,
        )
        if isinstance(ended, Failed):
            outcome = replace(
                outcome, error=ended.error, retryable=ended.retryable, retry_after_sec=ended.retry_after_sec
            )
        elif ended.result is not None:
            outcome = replace(outcome, result=ended.result)
        return await self._tools.reporter.report(outcome)
