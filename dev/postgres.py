"""A PostgreSQL of our own for tests and benchmarks: a fresh cluster in a temporary folder.

PostgreSQL refuses to run as root; then the cluster belongs to, and runs as, the user `postgres` that
its packages create.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dev import processes
from dev.broker import HOST, free_port

START_SEC = 60.0
STOP_SEC = 15.0
INIT_SEC = 120.0
PAUSE_SEC = 0.05

INIT_OPTIONS = ("--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync")

INSTALL_HINT = (
    "PostgreSQL was not found: neither `pg_config --bindir` nor /usr/lib/postgresql/*/bin has initdb "
    "(Debian: apt-get install postgresql)."
)


class PostgresError(Exception):
    """No PostgreSQL, or it did not start; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """An empty database `postgres` of the user `horarium`; `pid` is the server's."""

    port: int
    pid: int
    host: str = HOST

    @property
    def url(self) -> str:
        """As SQLAlchemy names it."""
        return f"postgresql+psycopg://horarium@{self.host}:{self.port}/postgres"


def find_bin() -> Path:
    """The folder of the server's programs, of the newest version there is."""
    places = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: path.parent.name.zfill(4), reverse=True
    )
    if shutil.which("pg_config"):
        told = subprocess.run(["pg_config", "--bindir"], capture_output=True, text=True, check=False)
        if told.returncode == 0:
            places.insert(0, Path(told.stdout.strip()))
    on_path = shutil.which("initdb")
    if on_path:
        places.append(Path(on_path).resolve().parent)
    for place in places:
        if (place / "initdb").exists() and (place / "postgres").exists():
            return place
    raise PostgresError(INSTALL_HINT)


@contextmanager
def temporary_cluster() -> Iterator[Cluster]:
    """Gives an empty database; cluster and data are gone afterwards."""
    programs = find_bin()
    user = "postgres" if os.geteuid() == 0 else ""
    # Directly under the system's temporary folder: the test runner's own is closed to other users.
    folder = Path(tempfile.mkdtemp(prefix="horarium-postgres-"))
    try:
        if user:
            shutil.chown(folder, user, user)
        yield from _run(programs, folder, user)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(programs: Path, folder: Path, user: str) -> Iterator[Cluster]:
    data, log, port = folder / "data", folder / "postgres.log", free_port()
    made = subprocess.run(
        [str(programs / "initdb"), f"--pgdata={data}", "--username=horarium", *INIT_OPTIONS],
        capture_output=True,
        text=True,
        check=False,
        timeout=INIT_SEC,
        cwd=folder,
        user=user or None,
        group=user or None,
        extra_groups=[] if user else None,
    )
    if made.returncode != 0:
        raise PostgresError(f"initdb failed:\n{made.stdout}{made.stderr}")
    # Its data need not survive the machine.
    options = ["-c", "fsync=off", "-c", f"listen_addresses={HOST}", "-c", f"unix_socket_directories={folder}"]
    server = processes.start(
        [str(programs / "postgres"), "-D", str(data), "-p", str(port), *options],
        log=log,
        cwd=folder,
        user=user,
    )
    try:
        _wait_ready(programs, server, port, log)
        yield Cluster(port=port, pid=server.pid)
    finally:
        # SIGINT: shut down now, do not wait for clients to leave.
        processes.stop(server, STOP_SEC, signal.SIGINT)


def _wait_ready(programs: Path, server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SEC
    ask = [str(programs / "pg_isready"), "--quiet", f"--host={HOST}", f"--port={port}", "--dbname=postgres"]
    while server.poll() is None and time.monotonic() < deadline:
        if subprocess.run(ask, check=False).returncode == 0:
            return
        threading.Event().wait(PAUSE_SEC)
    raise PostgresError(f"PostgreSQL did not start:\n{processes.tail(log)}")
