"""Owns waiting for the read model: a read that brings the position of a write sees that write.

One thread looks at the positions for all who wait, and only while someone waits: a hundred waiting requests
cost one small query every few milliseconds.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass

from sqlalchemy.exc import SQLAlchemyError

from projections.queries import positions
from projections.store import Store
from projections.views import Position

logger = logging.getLogger(__name__)

# A follower's batch takes some milliseconds; looking more often than this finds nothing new.
LOOK_SEC = 0.005
LOOK_AGAIN_AFTER_ERROR_SEC = 0.5

Wanted = Mapping[int, int]
"""Partition to the offset of an event that must have been folded."""


@dataclass(frozen=True, eq=False)
class _Waiter:
    wanted: Wanted
    seen: Future[None]


class PositionWatch:
    """Waits for positions of one store; thread-safe. Started by the first who waits, ended by `close`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changed = threading.Condition()
        self._waiters: list[_Waiter] = []
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def wait_for(self, wanted: Wanted, timeout_sec: float) -> bool:
        """Whether the events at these offsets are folded within the time. Blocks the calling thread."""
        future = self.when(wanted)
        try:
            future.result(timeout_sec)
        except (FutureTimeout, CancelledError):
            return False
        finally:
            future.cancel()
        return True

    def when(self, wanted: Wanted) -> Future[None]:
        """Done once the events at these offsets are folded. Cancel it to stop waiting; for asyncio, wrap it:
        `await asyncio.wait_for(asyncio.wrap_future(watch.when(wanted)), timeout)`."""
        waiter = _Waiter(dict(wanted), Future())
        with self._changed:
            if self._closed.is_set():
                waiter.seen.cancel()
                return waiter.seen
            self._waiters.append(waiter)
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="positions", daemon=True)
                self._thread.start()
            self._changed.notify()
        return waiter.seen

    def close(self) -> None:
        """Ends the thread; whoever still waits is cancelled."""
        self._closed.set()
        with self._changed:
            self._changed.notify()
            waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.seen.cancel()
        if self._thread is not None:
            self._thread.join()

    def _look(self) -> None:
        while self._someone_waits():
            pause = LOOK_SEC
            try:
                with self._store.reading() as connection:
                    self._answer(positions(connection))
            except SQLAlchemyError as error:
                logger.warning("positions cannot be read: %s", error)
                pause = LOOK_AGAIN_AFTER_ERROR_SEC
            self._closed.wait(pause)

    def _someone_waits(self) -> bool:
        """Waits for a waiter; False once closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiters or self._closed.is_set())
        return not self._closed.is_set()

    def _answer(self, known: Mapping[int, Position]) -> None:
        # Nothing is remembered from look to look: a rebuild takes positions back.
        with self._changed:
            ready: list[_Waiter] = []
            waiting: list[_Waiter] = []
            for waiter in self._waiters:
                if not waiter.seen.cancelled():
                    (ready if _reached(waiter.wanted, known) else waiting).append(waiter)
            self._waiters = waiting
        for waiter in ready:
            if waiter.seen.set_running_or_notify_cancel():
                waiter.seen.set_result(None)


def _reached(wanted: Wanted, known: Mapping[int, Position]) -> bool:
    return all(
        partition in known and known[partition].next_offset > offset for partition, offset in wanted.items()
    )
