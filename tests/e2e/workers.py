"""Workers of end-to-end tests, made with the client library: threads of this process, or processes to kill.

The task is `work`. Its payload may say how many seconds it takes (`{"sec": 0.2}`).
"""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from horarium import App, AsyncClient, Context

from dev import processes, programs

STOP_SEC = 20.0
WAIT_SEC = 5.0  # of a claim: a test that ends does not wait longer for its workers


def app(url: str, key: str, pool: str, worker_id: str, slots: int, lease_sec: int | None = None) -> App:
    """A worker's program."""
    program = App(
        url, key, pool=pool, slots=slots, worker_id=worker_id, lease_sec=lease_sec, wait_sec=WAIT_SEC
    )

    @program.handler("work")
    async def work(ctx: Context[Any]) -> None:
        if ctx.payload:
            await asyncio.sleep(ctx.payload["sec"])

    return program


class Crew:
    """Workers in one thread; `work` is done until `dismiss`."""

    def __init__(self, programs: Sequence[App]) -> None:
        self._programs = programs
        self._loop = asyncio.new_event_loop()
        self._stop: asyncio.Event | None = None
        self._ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="crew", daemon=True)
        self.failures: list[BaseException] = []

    def start(self) -> None:
        """Returns when the workers are about to claim."""
        self._thread.start()
        self._ready.result(STOP_SEC)

    def call(self, function: Callable[[], object]) -> None:
        """Runs a function in the workers' thread."""
        self._loop.call_soon_threadsafe(function)

    def dismiss(self) -> None:
        """Drains the workers and ends the thread; raises what ended one of them before."""
        if self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(3 * STOP_SEC)
        assert not self._thread.is_alive(), "the workers did not drain"
        if self.failures:
            raise self.failures[0]

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._work())
        except BaseException as error:
            self.failures.append(error)
        finally:
            self._loop.close()

    async def _work(self) -> None:
        self._stop = asyncio.Event()
        clients = [AsyncClient(program.url, program.key) for program in self._programs]
        workers = [program.worker(client) for program, client in zip(self._programs, clients, strict=True)]
        running = [asyncio.create_task(worker.run()) for worker in workers]
        stopped = asyncio.create_task(self._stop.wait())
        self._ready.set_result(None)
        await asyncio.wait({stopped, *running}, return_when=asyncio.FIRST_COMPLETED)
        for worker in workers:
            worker.drain()
        results = await asyncio.gather(*running, return_exceptions=True)
        stopped.cancel()
        self.failures += [result for result in results if isinstance(result, BaseException)]
        for client in clients:
            await client.close()


@contextmanager
def working(*programs: App) -> Iterator[Crew]:
    """The programs' workers run meanwhile."""
    crew = Crew(programs)
    crew.start()
    try:
        yield crew
    finally:
        crew.dismiss()


@contextmanager
def worker_processes(
    url: str, key: str, pool: str, names: Sequence[str], *, slots: int, folder: Path
) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """A process for each name; those that still live are ended."""
    children = {
        name: programs.start(
            "tests.e2e.workers", url, key, pool, name, str(slots), log=folder / f"{name}.log"
        )
        for name in names
    }
    try:
        yield children
    finally:
        processes.stop_all(list(children.values()), STOP_SEC)


if __name__ == "__main__":
    _url, _key, _pool, _name, _slots = sys.argv[1:]
    app(_url, _key, _pool, _name, int(_slots)).run()
