"""Owns how the read model is asked: fresh enough for the caller, in a thread, and told apart when it is
missing.

Reads need the database alone: they go on when brokers, processors or projections are down.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from api import positions
from api.positions import WAIT_SEC, OwnWrites
from api.problems import Problem, not_found, wrong
from projections.paging import PageSizeError, StaleTokenError
from projections.positions import PositionWatch
from projections.store import Store

log = logging.getLogger(__name__)

T = TypeVar("T")

POLL_SEC = 0.1
Connection = Any
"""Of the database library, which only the read model knows."""


class Reads:
    """The read side of this process."""

    def __init__(self, store: Store, own_writes: OwnWrites) -> None:
        self._store = store
        self._watch = PositionWatch(store)
        self._own_writes = own_writes

    def close(self) -> None:
        """Ends the thread; blocks."""
        self._watch.close()
        self._store.close()

    async def ask(self, request: Request, tenant: str, question: Callable[[Connection], T]) -> T:
        """The answer of a query that has something to say in any case, such as a list."""
        await self._wait(request, tenant)
        return await self._run(question)

    async def one(
        self,
        request: Request,
        tenant: str,
        what: str,
        question: Callable[[Connection], T | None],
        job_id: str = "",
    ) -> T:
        """The answer of a query for one thing; 404 if it is not there, unless it may be on its way.
        `job_id`: the only job that it is about, so that what was written of others is not waited for."""
        behind = await self._wait(request, tenant, job_id)
        found = await self._run(question)
        if found is None:
            raise _behind() if behind else not_found(what)
        return found

    async def awaited(self, question: Callable[[Connection], T | None]) -> T | None:
        """The answer of a query for what may be on its way; None if it does not come within `WAIT_SEC`."""
        for _ in range(round(WAIT_SEC / POLL_SEC)):
            found = await self._run(question)
            if found is not None:
                return found
            await asyncio.sleep(POLL_SEC)
        return None

    async def is_usable(self) -> bool:
        """Whether the database answers and has the tables of this version."""
        try:
            return await run_in_threadpool(self._store.is_current)
        except Exception as error:
            log.warning("the read model cannot be asked: %s", error)
            return False

    async def _wait(self, request: Request, tenant: str, job_id: str = "") -> bool:
        """Waits for what the read should include; True if this process's own writes are still missing."""
        asked = positions.sent(request)
        if asked and not await self._reached(asked):
            raise _behind()
        own = self._own_writes.of(tenant, job_id)
        if not own:
            return False
        if await self._reached(own):
            self._own_writes.seen(tenant, job_id, own)
            return False
        return True

    async def _reached(self, wanted: Mapping[int, int]) -> bool:
        try:
            await asyncio.wait_for(asyncio.wrap_future(self._watch.when(wanted)), WAIT_SEC)
        except TimeoutError:
            return False
        return True

    async def _run(self, question: Callable[[Connection], T]) -> T:
        def run() -> T:
            with self._store.reading() as connection:
                return question(connection)

        try:
            return await run_in_threadpool(run)
        except StaleTokenError as error:
            raise wrong("pageToken", str(error), "stale_page_token") from None
        except PageSizeError as error:
            raise wrong("pageSize", str(error)) from None
        except Exception as error:
            # A missing database is no bug of ours; anything else is.
            if await self.is_usable():
                raise
            raise Problem(503, "projection_unavailable", "the read model cannot be read now") from error


def _behind() -> Problem:
    return Problem(503, "projection_behind", "the read model has not seen that write yet; ask again")
