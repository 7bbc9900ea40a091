"""A clock that moves only when a test says so; worker and fake server share one."""

import asyncio
import heapq
import itertools
import threading
from collections.abc import Callable

TURNS = 20  # of the loop; a task that was woken hands over to a few others at most


class ManualClock:
    """`horarium.clock.Clock` for tests. Listeners (the fake server's long polls) hear of every move."""

    def __init__(self) -> None:
        self._now = 0.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._moved = threading.Lock()
        self.listeners: list[Callable[[], None]] = []

    def monotonic(self) -> float:
        with self._moved:
            return self._now

    def sleep(self, seconds: float) -> asyncio.Future[None]:
        # Begins now, not when the loop gets to it: the clock may move in between.
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), future))
        return future

    async def advance_to(self, moment: float) -> None:
        """Moves on, stopping wherever somebody wakes, so that nobody sees a later time than its own."""
        await _settle()
        while self._sleepers and self._sleepers[0][0] <= moment:
            when, _, future = heapq.heappop(self._sleepers)
            if future.done():
                continue
            self._set(max(when, self._now))
            future.set_result(None)
            await _settle()
        self._set(moment)
        await _settle()

    def _set(self, moment: float) -> None:
        with self._moved:
            self._now = moment
        for listener in self.listeners:
            listener()


async def _settle() -> None:
    """Lets whoever was woken go on until it waits again."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool], timeout_sec: float = 5) -> None:
    """Returns when the condition holds; fails the test if it does not in (real) time."""
    deadline = asyncio.get_running_loop().time() + timeout_sec
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "it did not come true in time"
        await asyncio.sleep(0.002)
