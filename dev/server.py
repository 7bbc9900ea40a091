"""The whole server on this machine as child processes: for `make up`, the demo, and tests.

Owns which programs there are, the environment they get, the order in which they start and stop, and
what happens when one dies. Each part writes to `<data>/logs/<part>.log`. Parts are named `p0`, `p1` …
(processors), `projections` and `api`.
"""

import fcntl
import http.client
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from dev import compiled, processes
from dev.broker import HOST, LocalKafka, free_port
from dev.kafka import find_or_start
from dev.keys import OPERATOR_ROLE, load_or_make

ROOT = Path(__file__).resolve().parent.parent

# The programs of a server; docker-compose.yml runs the same ones (a test compares).
PROCESSOR = ("python", "-m", "streams.runtime.main")
PROJECTIONS = ("python", "-m", "projections.main")
API = ("python", "-m", "api.main")

DEFAULT_HTTP_PORT = 8321
DEFAULT_PARTITIONS = 8  # production has 64

READY_SEC = 90.0  # topics are made and partitions rebuilt before the API is ready
STOP_SEC = 15.0  # per group of parts; what does not end by then recovers at the next start
PROBE_SEC = 2.0  # one question to /readyz
PAUSE_SEC = 0.1

FIRST_BACKOFF_SEC = 1.0
LAST_BACKOFF_SEC = 30.0
STEADY_SEC = 60.0  # a part that lived this long starts again with the first back-off


class ServerError(Exception):
    """The server did not start; the message names the part and shows the end of its log."""


@dataclass(slots=True, kw_only=True)
class Part:
    """One child: what to run, and what became of it."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    # Set while the part is meant to run; a part that somebody killed or stopped on purpose stays down.
    wanted: bool = False
    backoff_sec: float = FIRST_BACKOFF_SEC
    restart_at: float | None = None

    @property
    def running(self) -> bool:
        """Whether its process lives."""
        return self.process is not None and self.process.poll() is None


class Server:
    """A broker if none is given, processors, projections and the API.

    >>> with Server(tmp_path, bootstrap=kafka, namespace=namespace) as server:
    ...     server.url, server.key          # where, and as whom
    ...     server.kill("p0")               # kill -9; stays down until
    ...     server.restart("p0")            # it is started again
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        processors: int = 1,
        http_port: int = 0,
        bootstrap: str | None = None,
        namespace: str | None = None,
        partitions: int | None = None,
        settings: Mapping[str, str] | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.data_dir = data_dir.resolve()
        self.http_port = http_port or free_port()
        self.bootstrap = bootstrap or ""
        # Our own broker, where it runs from jars.
        self.broker: LocalKafka | None = None
        self.keys = load_or_make(self.data_dir)
        self.parts: dict[str, Part] = {}
        self._given_bootstrap = bootstrap
        self._processors = processors
        self._namespace = namespace
        self._partitions = partitions
        self._settings = dict(settings or {})
        self._say = say
        self._open = ExitStack()

    @property
    def url(self) -> str:
        """Where the API listens."""
        return f"http://{HOST}:{self.http_port}"

    @property
    def key(self) -> str:
        """A tenant's key."""
        entry = self.keys.first()
        return entry.key if entry else self.keys.entries[0].key

    @property
    def operator_key(self) -> str | None:
        """The operator's key, if there is one."""
        entry = self.keys.first(OPERATOR_ROLE)
        return entry.key if entry else None

    def environment(self) -> dict[str, str]:
        """What every part is told; the processors get their HORARIUM_INSTANCE as well."""
        given = os.environ
        mine = {
            "HORARIUM_KAFKA": self.bootstrap,
            "HORARIUM_DATA": str(self.data_dir),
            "HORARIUM_NAMESPACE": self._namespace or given.get("HORARIUM_NAMESPACE", "horarium"),
            "HORARIUM_PARTITIONS": str(
                self._partitions or given.get("HORARIUM_PARTITIONS", DEFAULT_PARTITIONS)
            ),
            "HORARIUM_HTTP_HOST": HOST,
            "HORARIUM_HTTP_PORT": str(self.http_port),
            "HORARIUM_DATABASE_URL": given.get(
                "HORARIUM_DATABASE_URL", f"sqlite:///{self.data_dir / 'projections.db'}"
            ),
            "HORARIUM_DEV_KEYS": self.keys.text,
            "HORARIUM_DEV_SHARDS": given.get("HORARIUM_DEV_SHARDS", ""),
        }
        return mine | self._settings

    def start(self) -> None:
        """Starts everything and returns when the API is ready; on failure nothing is left running."""
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._lock_data()
        if self._given_bootstrap is None:
            found = self._open.enter_context(find_or_start(self.data_dir / "kafka"))
            self.bootstrap, self.broker = found.bootstrap, found.broker
            self._say(f"Kafka answers at {self.bootstrap}")
        for number in range(self._processors):
            self.add(f"p{number}", PROCESSOR, {"HORARIUM_INSTANCE": f"p{number}"})
        self.add("projections", PROJECTIONS)
        self.add("api", API)
        for part in self.parts.values():
            self._launch(part)
        self.wait_ready()

    def _lock_data(self) -> None:
        lock = self._open.enter_context((self.data_dir / "server.lock").open("w"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ServerError(f"another server already runs on {self.data_dir}") from None

    def add(self, name: str, command: Sequence[str], more: Mapping[str, str] | None = None) -> None:
        """One more part, with settings of its own; it runs from `restart` on."""
        inherited = {name: value for name, value in os.environ.items() if name != "HORARIUM_INSTANCE"}
        self.parts[name] = Part(
            name=name,
            command=[sys.executable, *command[1:]],
            environment={
                **inherited,
                "PYTHONUNBUFFERED": "1",
                **self.environment(),
                **compiled.environment(),
                **(more or {}),
            },
            log=self.data_dir / "logs" / f"{name}.log",
        )

    def _launch(self, part: Part) -> None:
        part.wanted = True
        part.restart_at = None
        part.started_at = time.monotonic()
        part.process = processes.start(part.command, log=part.log, environment=part.environment, cwd=ROOT)

    def wait_ready(self, timeout_sec: float = READY_SEC) -> None:
        """Returns when /readyz answers 200; a part that ends meanwhile, or no answer in time, is an error."""
        deadline = time.monotonic() + timeout_sec
        while not self.ready():
            for part in self.parts.values():
                if part.wanted and not part.running:
                    raise ServerError(f"{_epitaph(part)}:\n{processes.tail(part.log)}")
            if time.monotonic() > deadline:
                log = self.parts["api"].log
                raise ServerError(f"the API did not get ready; the end of {log}:\n{processes.tail(log)}")
            threading.Event().wait(PAUSE_SEC)

    def ready(self) -> bool:
        """Whether the API says now that the server can serve."""
        return is_ready(self.http_port)

    def kill(self, name: str) -> None:
        """Ends a part as a crash would (SIGKILL); it stays down until `restart`."""
        part = self.parts[name]
        part.wanted = False
        if part.process is not None:
            processes.kill(part.process)

    def stop_part(self, name: str) -> bool:
        """Ends a part in good order; it stays down until `restart`. False if it had to be killed."""
        part = self.parts[name]
        part.wanted = False
        return part.process is None or processes.stop(part.process, STOP_SEC)

    def restart(self, name: str) -> None:
        """Starts a part again, after stopping it if it still runs."""
        self.stop_part(name)
        self._launch(self.parts[name])

    def tend(self) -> None:
        """Reports what died and starts it again, parts after a back-off; to be called every moment."""
        if self.broker is not None and self.broker.died:
            self._say(f"the broker ended by itself; it starts again (see {self.broker.log})")
            self.broker.start()
        now = time.monotonic()
        for part in self.parts.values():
            if not part.wanted or part.running:
                continue
            if part.restart_at is None:
                if now - part.started_at > STEADY_SEC:
                    part.backoff_sec = FIRST_BACKOFF_SEC
                part.restart_at = now + part.backoff_sec
                self._say(f"{_epitaph(part)}; it starts again in {part.backoff_sec:.0f} s (see {part.log})")
                part.backoff_sec = min(2 * part.backoff_sec, LAST_BACKOFF_SEC)
            elif now >= part.restart_at:
                self._launch(part)
                self._say(f"{part.name} started again")

    def stop(self) -> None:
        """Stops the API first, so that nothing new comes in, then readers, processors, and the broker."""
        groups = (["api"], ["projections"], [f"p{number}" for number in range(self._processors)])
        for group in groups:
            parts = [self.parts[name] for name in group if name in self.parts]
            for part in parts:
                part.wanted = False
            alive = [part.process for part in parts if part.process is not None]
            if not processes.stop_all(alive, STOP_SEC):
                self._say(f"{', '.join(group)} did not end within {STOP_SEC:.0f} s and was killed")
        self._open.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def is_ready(port: int) -> bool:
    """Whether an API that listens there says that it can serve."""
    connection = http.client.HTTPConnection(HOST, port, timeout=PROBE_SEC)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _epitaph(part: Part) -> str:
    code = part.process.returncode if part.process is not None else None
    how = f"was ended by signal {-code}" if code is not None and code < 0 else f"ended with code {code}"
    return f"{part.name} {how}"
