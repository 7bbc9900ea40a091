"""`App`: the handlers of a program, and the process that runs them until it is told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any, TypeVar

from horarium.client import AsyncClient
from horarium.handlers import Handler, Handlers, Payload
from horarium.worker import Worker

F = TypeVar("F", bound=Callable[..., Any])

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class App:
    """Handlers by task, for one pool. Options beyond `slots` are those of `Worker`.

    ::

        app = App("http://127.0.0.1:8321", key, pool="reports", slots=10)

        @app.handler("nightly-report")
        def nightly_report(ctx):
            return {"rows": write_report(ctx.payload)}

        app.run()
    """

    def __init__(self, url: str, key: str, *, pool: str = "default", slots: int = 10, **options: Any) -> None:
        self.url = url
        self.key = key
        self.pool = pool
        self.slots = slots
        self.handlers = Handlers()
        self._options = options

    def handler(self, task: str, *, payload: Payload | None = None) -> Callable[[F], F]:
        """Registers a function for a task; `async def` runs on the loop, `def` in a thread.

        `payload` makes `ctx.payload`: a pydantic model, a msgspec Struct, a dataclass or any function of
        the JSON value. The function itself stays as it is.
        """

        def register(function: F) -> F:
            self.handlers.add(task, function, payload)
            return function

        return register

    def find(self, task: str) -> Handler:
        """The handler of a task, for tests."""
        handler = self.handlers.get(task)
        if handler is None:
            raise KeyError(f"no handler for task {task!r}")
        return handler

    def worker(self, client: AsyncClient, **options: Any) -> Worker:
        """A worker of these handlers, to run inside a program of one's own."""
        chosen = {"pool": self.pool, "slots": self.slots, **self._options, **options}
        return Worker(client, self.handlers, **chosen)

    def run(self) -> None:
        """Works until SIGTERM or SIGINT, then drains. A second signal ends the process at once."""
        asyncio.run(self.serve())

    async def serve(self) -> None:
        """The same within a running loop (of the main thread)."""
        async with AsyncClient(self.url, self.key) as client:
            worker = self.worker(client)
            loop = asyncio.get_running_loop()
            for number in SIGNALS:
                loop.add_signal_handler(number, _on_signal, worker, number)
            try:
                await worker.run()
            finally:
                for number in SIGNALS:
                    loop.remove_signal_handler(number)


def _on_signal(worker: Worker, number: int) -> None:
    if worker.draining:
        # Leases held now end by themselves. Nothing of Python's own end is waited for.
        os._exit(128 + number)
    worker.drain()
