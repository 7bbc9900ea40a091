"""The server under measurement: broker, processors, projections and API in a temporary folder on loopback."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from bench.usage import Usage
from dev.broker import HOST, free_port
from dev.limits import lift
from dev.server import API, Server, is_ready
from schemas.topics import Topics
from streams.transport.kafka.log import KafkaLog

TENANT = "default"
KEEP = "HORARIUM_BENCH_KEEP"
"""Set: the folder with the logs stays, and its name is said."""


@contextmanager
def running(
    *, shards: int, processors: int, partitions: int = 8, settings: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """A fresh server whose tenant has this many shards, and no limits that a herd would meet."""
    folder = Path(mkdtemp(prefix="horarium-bench-"))
    settings = {"HORARIUM_DEV_SHARDS": f"{TENANT}={shards}", **(settings or {})}
    try:
        with Server(folder, processors=processors, partitions=partitions, settings=settings) as server:
            log = KafkaLog(server.bootstrap)
            try:
                lift(log, Topics(server.environment()["HORARIUM_NAMESPACE"]), partitions, TENANT)
            finally:
                log.close()
            yield server
    finally:
        if os.environ.get(KEEP):
            sys.stderr.write(f"logs: {folder / 'logs'}\n")
        else:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def another_api(server: Server, name: str) -> Iterator[str]:
    """One more API process of a running server; where it listens."""
    port = free_port()
    server.add(name, API, {"HORARIUM_HTTP_PORT": str(port)})
    server.restart(name)
    try:
        while not is_ready(port):
            check_alive(server)
            pause(0.1)
        yield f"http://{HOST}:{port}"
    finally:
        server.stop_part(name)


def usage_of(server: Server) -> Usage:
    """CPU of all its processes; a given broker (HORARIUM_KAFKA, Docker) is not ours to look at."""
    pids = {name: part.process.pid for name, part in server.parts.items() if part.process is not None}
    if server.broker is not None:
        pids["broker"] = server.broker.pid
    return Usage(pids)


def check_alive(server: Server) -> None:
    """Raises if a part of the server ended: figures of a crashed server are worth nothing."""
    dead = [name for name, part in server.parts.items() if not part.running]
    if dead:
        raise RuntimeError(f"ended under load: {', '.join(dead)}; see {server.data_dir / 'logs'}")


def pause(seconds: float) -> None:
    """Lets time pass outside of an event loop."""
    threading.Event().wait(seconds)
