"""Time for the worker: what it reads and how it waits, so that tests can put their own in its place.

Only differences of `monotonic` are used. The wall clock of this machine plays no part in leases.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterable
from typing import Any, Protocol


class Clock(Protocol):
    """A clock that can be waited on."""

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...

    def sleep(self, seconds: float) -> Awaitable[None]:
        """To be awaited: done after so many of these seconds."""
        ...


class SystemClock:
    """The machine's own."""

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def wait_event(clock: Clock, event: asyncio.Event, seconds: float) -> bool:
    """Waits for the event for at most so long; whether it is set."""
    await wait_tasks(clock, [asyncio.ensure_future(event.wait())], seconds, cancel=True)
    return event.is_set()


async def wait_tasks(
    clock: Clock, tasks: Iterable[asyncio.Future[Any]], seconds: float, *, cancel: bool = False
) -> set[asyncio.Future[Any]]:
    """Waits for all tasks for at most so long; those that are not done (cancelled, if so wanted)."""
    pending = {task for task in tasks if not task.done()}
    sleeper = asyncio.ensure_future(clock.sleep(seconds))
    try:
        while pending and not sleeper.done():
            _, unfinished = await asyncio.wait({*pending, sleeper}, return_when=asyncio.FIRST_COMPLETED)
            pending = unfinished - {sleeper}
    finally:
        sleeper.cancel()
        if cancel:
            for task in pending:
                task.cancel()
    return pending
