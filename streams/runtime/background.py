"""Work beside the loop: what may wait for a disk, a network, or another process's transaction.

Work is a generator: what it does between two `yield`s is one bounded slice, a file at most. A process gives
slices to threads (`Threads`), since a slice may wait for a disk or a network; a simulation runs them in the
loop itself, one a turn (`Slices`), in virtual time and with a crash between any two.

Owns who runs a slice, and when. May not know what the work is. Work must touch nothing that the loop uses.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")
Work = Generator[None, None, T]

THREADS = 4
"""One snapshot is taken at a time; the others are for partitions that wait for theirs."""
CLOSE_SEC = 2.0
"""For the slices that run when the process stops; beyond it they end with the process."""


def once(call: Callable[[], T]) -> Work[T]:
    """A single call as work: one slice."""
    yield from ()
    return call()


class Cancelled(Exception):
    """Nobody waits for the result any more."""


class Task(Generic[T]):
    """Work that was begun. `done`, `result` and `cancel` are for the loop, `advance` for whoever runs it."""

    def __init__(self, work: Work[T], undo: Callable[[], None]) -> None:
        self._work = work
        self._undo = undo
        self._cancelled = False
        self._result: list[T] = []
        self._error: Exception = Cancelled()
        self.done = False

    def cancel(self) -> None:
        """It ends after the slice that runs."""
        self._cancelled = True

    def result(self) -> T:
        """Of work that is done. Raises what the work raised, or Cancelled."""
        if not self._result:
            raise self._error
        return self._result[0]

    def advance(self) -> bool:
        """One slice; False when it was the last."""
        try:
            if not self._cancelled:
                next(self._work)
                return True
            self._work.close()
        except StopIteration as stop:
            self._result.append(stop.value)
        except Exception as error:
            self._error = error
        if not self._result:
            self._undo()
        self.done = True
        return False


class Background(Protocol):
    """Whoever runs the work."""

    def start(self, work: Work[T], undo: Callable[[], None]) -> Task[T]:
        """`undo` is called, by whoever runs the work, if it ends without a result, even before it began."""
        ...

    def step(self) -> None:
        """Called once a turn of the loop."""
        ...

    def close(self) -> None:
        """Cancels everything."""
        ...


class Slices:
    """In the loop: a slice of each task a turn."""

    def __init__(self) -> None:
        self._tasks: list[Task[Any]] = []

    def start(self, work: Work[T], undo: Callable[[], None]) -> Task[T]:
        task = Task(work, undo)
        self._tasks.append(task)
        return task

    def step(self) -> None:
        self._tasks = [task for task in self._tasks if task.advance()]

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self.step()


class Threads:
    """Beside the loop. Daemon threads: a request that hangs must not hold up the end of a process."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[Task[Any] | None] = SimpleQueue()
        self._tasks: list[Task[Any]] = []
        self._threads: list[threading.Thread] = []

    def start(self, work: Work[T], undo: Callable[[], None]) -> Task[T]:
        task = Task(work, undo)
        self._tasks = [each for each in self._tasks if not each.done] + [task]
        if len(self._threads) < min(THREADS, len(self._tasks)):
            thread = threading.Thread(target=self._run, name=f"background-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._waiting.put(task)
        return task

    def _run(self) -> None:
        while (task := self._waiting.get()) is not None:
            while task.advance():
                pass

    def step(self) -> None:
        """The threads go on by themselves."""

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join(CLOSE_SEC / len(self._threads))
