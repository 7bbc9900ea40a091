"""Reports outcomes: many in one request, again and again until the server has decided about each.

Repeating is safe, since the accepted outcome of a lease answers 200 again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass

from horarium import work_calls
from horarium.client import AsyncClient
from horarium.clock import Clock
from horarium.errors import ApiError, HorariumError
from horarium.exchange import NO_RETRY, RetryRules, encode
from horarium.models import LeaseAnswer
from horarium.work_calls import Outcome

log = logging.getLogger("horarium.worker")

BATCH_MAX = 1_000  # what the server takes
BATCH_BYTES_MAX = 4 * 1024 * 1024  # half of what the server takes
REQUESTS_MAX = 4  # at once; meanwhile the next batch grows
LINGER_SEC = 0.005  # shorter than a commit of the server, long enough to share a request


@dataclass(slots=True, eq=False)
class _Waiting:
    outcome: Outcome
    size: int
    answer: asyncio.Future[LeaseAnswer]


class Reporter:
    """Outcomes of one worker on their way. `run` is its task."""

    def __init__(
        self,
        client: AsyncClient,
        clock: Clock,
        *,
        linger_sec: float = LINGER_SEC,
        retry: RetryRules | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._linger_sec = linger_sec
        self._retry = retry or RetryRules()
        self._waiting: deque[_Waiting] = deque()
        self._arrived = asyncio.Event()
        self._room = asyncio.Semaphore(REQUESTS_MAX)
        self._requests: set[asyncio.Task[None]] = set()

    async def report(self, outcome: Outcome) -> LeaseAnswer:
        """The server's decision, waited for as long as it takes; the caller may cancel."""
        size = len(encode(outcome.to_json()))
        tries = 0
        while True:
            answer = await self._once(outcome, size)
            if not _undecided(answer.status):
                return answer
            tries += 1
            await self._clock.sleep(self._retry.pause_sec(tries, None))

    async def _once(self, outcome: Outcome, size: int) -> LeaseAnswer:
        future: asyncio.Future[LeaseAnswer] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(outcome, size, future)
        self._waiting.append(waiting)
        self._arrived.set()
        return await future

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                await self._arrived.wait()
                if self._linger_sec:
                    await self._clock.sleep(self._linger_sec)
                await self._room.acquire()
                task = asyncio.create_task(self._send(self._next_batch()))
                self._requests.add(task)
                task.add_done_callback(self._sent)
        finally:
            for task in self._requests:
                task.cancel()
            await asyncio.gather(*self._requests, return_exceptions=True)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._requests.discard(task)
        self._room.release()

    def _next_batch(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        size = 0
        while self._waiting and len(batch) < BATCH_MAX and (not batch or size < BATCH_BYTES_MAX):
            waiting = self._waiting.popleft()
            # One whose caller has gone need not be sent.
            if not waiting.answer.done():
                batch.append(waiting)
                size += waiting.size
        if not self._waiting:
            self._arrived.clear()
        return batch

    async def _send(self, batch: list[_Waiting]) -> None:
        if not batch:
            return
        try:
            call = work_calls.outcomes([waiting.outcome for waiting in batch])
            answers = await self._client.run(call, NO_RETRY)
        except ApiError as error:
            if len(batch) > 1 and not _undecided(error.status):
                # One of them is not acceptable; the others shall not suffer from it.
                for waiting in batch:
                    await self._send([waiting])
                return
            answers = tuple(
                LeaseAnswer(status=error.status, code=error.code, detail=error.detail) for _ in batch
            )
        except HorariumError as error:
            log.warning("%d outcomes could not be reported, trying again: %s", len(batch), error)
            answers = tuple(LeaseAnswer(status=503) for _ in batch)
        # An answer that is missing is asked for again.
        answers += tuple(LeaseAnswer(status=503) for _ in batch[len(answers) :])
        for waiting, answer in zip(batch, answers, strict=False):
            if not waiting.answer.done():
                waiting.answer.set_result(answer)


def _undecided(status: int) -> bool:
    """Whether to ask again: what failed, and a key that is not taken right now, may be mended meanwhile."""
    return status in (401, 403, 429) or status >= 500
