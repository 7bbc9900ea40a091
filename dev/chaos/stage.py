"""What a chaos or a scenario runs on: three brokers, a whole server, workers, and its log followed.

Real processes on this machine, each of which can be killed, frozen and started again.
"""

import secrets
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from horarium import Client, RetryRules

from dev import processes, programs
from dev.broker import KafkaCluster
from dev.chaos.effects import Effects
from dev.demo.ledger import Follower, Ledger
from dev.opening import Opening
from dev.server import Server
from projections.checker.checker import Checker
from projections.checker.promises import GRACE_MS, Promise, check_promises
from projections.checker.reading import read_all
from projections.checker.report import Report
from schemas.entities import ExecutionStatus
from schemas.topics import Topics
from streams.ambient import monotonic_ms, wall_ms
from streams.transport.kafka.log import KafkaLog
from streams.transport.log import LogError

PARTITIONS = 8
POOL = "chaos"
KEY, SMALL_KEY, OPERATOR_KEY = "chaos-key", "small-key", "ops-key"
# The large tenant lives in all partitions, the small one in one of them.
KEYS = f"large={KEY},small={SMALL_KEY},ops={OPERATOR_KEY}:operator"
PATIENCE_SEC = 120.0
STOP_SEC = 10.0
TICK_SEC = 0.1
# As callers should: what fails is repeated until it is answered.
PERSISTENT = RetryRules(for_sec=PATIENCE_SEC, longest_sec=1.0)


class StageError(Exception):
    """Something did not come about in time; the message shows what the parts said last."""


class Stage(Opening):
    """Made once, used by one thread; leaving the context ends every process."""

    def __init__(
        self,
        folder: Path,
        *,
        processors: int = 2,
        settings: Mapping[str, str] | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        super().__init__()
        self.folder = folder.resolve()
        self.brokers = KafkaCluster(self.folder / "kafka")
        self.namespace = f"chaos-{secrets.token_hex(4)}"
        self.effects_path = self.folder / "effects.db"
        self.ledger = Ledger()
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self._processors = processors
        self._settings = dict(settings or {})
        self._tell = say
        # Parts that a signal ended which was not ours.
        self.crashes: list[str] = []
        self._made = 0

    def _start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._open.enter_context(self.brokers)
        own = {
            "HORARIUM_DATABASE_URL": f"sqlite:///{self.folder / 'projections.db'}",
            "HORARIUM_DEV_KEYS": KEYS,
            "HORARIUM_DEV_SHARDS": f"large={PARTITIONS}",
            "HORARIUM_REPLICATION": "3",
            # A crash in a library leaves the stacks of all threads in the log of its process.
            "PYTHONFAULTHANDLER": "1",
        }
        self.server = Server(
            self.folder / "server",
            bootstrap=self.brokers.bootstrap,
            namespace=self.namespace,
            partitions=PARTITIONS,
            processors=self._processors,
            settings=own | self._settings,
            say=self._say,
        )
        self._open.enter_context(self.server)
        self.log = KafkaLog(self.brokers.bootstrap)
        self._open.callback(self.log.close)
        self.topics = Topics(self.namespace)
        self.follower = Follower(self.log, self.topics.events, self.ledger)
        self.follower.start()
        self._open.callback(self.follower.stop)
        self.effects = Effects(self.effects_path)
        self._open.callback(self._stop_workers)

    def _say(self, line: str) -> None:
        if "was ended by signal" in line:
            self.crashes.append(line)
        self._tell(line)

    def client(self, key: str = KEY, retry: RetryRules = PERSISTENT) -> Client:
        """Of the large tenant unless a key is given; it repeats what fails."""
        return Client(self.server.url, key, retry=retry)

    # -- workers

    def start_worker(self, slots: int, key: str = KEY) -> str:
        """One more worker process; its name."""
        self._made += 1
        name = f"w{self._made}"
        arguments = [self.server.url, key, POOL, name, str(slots), str(self.effects_path)]
        log = self.folder / "logs" / f"{name}.log"
        self.workers[name] = programs.start("dev.chaos.worker", *arguments, log=log)
        return name

    def kill_worker(self, name: str) -> None:
        """As a crash would."""
        processes.kill(self.workers.pop(name))

    def _stop_workers(self) -> None:
        processes.stop_all(list(self.workers.values()), STOP_SEC)

    # -- waiting

    def until(self, condition: Callable[[], bool], what: str, timeout_sec: float = PATIENCE_SEC) -> float:
        """Waits, and keeps the server's parts alive; the seconds it took. StageError names `what`."""
        begun = monotonic_ms()
        while not condition():
            waited_sec = (monotonic_ms() - begun) / 1000
            if self.follower.failure is not None:
                raise StageError(f"the log cannot be read: {self.follower.failure}")
            if waited_sec > timeout_sec:
                raise StageError(f"not within {timeout_sec:.0f} s: {what}\n{self.last_words()}")
            self.server.tend()
            threading.Event().wait(TICK_SEC)
        return (monotonic_ms() - begun) / 1000

    def completed(self) -> int:
        """Executions that succeeded so far."""
        with self.ledger.lock:
            return sum(row.count(ExecutionStatus.COMPLETED) for row in self.ledger.rows.values())

    def until_over(self, job_ids: list[str], timeout_sec: float = PATIENCE_SEC) -> float:
        """Until every job is over and nothing of it waits or runs."""
        return self.until(lambda: not self.ledger.unfinished(job_ids), "all jobs over", timeout_sec)

    def last_words(self) -> str:
        """The ends of all logs."""
        parts = {name: part.log for name, part in self.server.parts.items()}
        return "\n".join(f"{name}:\n{processes.tail(log, 6)}" for name, log in parts.items())

    # -- judging

    def verdict(self, promises: list[Promise]) -> Report:
        """Of the log, read again from its beginning, with the words of workers, and of what was promised."""
        end_ms = wall_ms()
        checker = Checker()
        try:
            read_all(self.log, self.topics, checker, lambda line: None)
        except LogError as error:
            raise StageError(str(error)) from error
        report = checker.finish(end_ms, drained=True, grace_ms=GRACE_MS)
        if not self.follower.reached_the_end():
            raise StageError(f"the log could not be followed to its end: {self.follower.failure}")
        with self.ledger.lock:
            check_promises(promises, [event for _, event in self.ledger.lines], report)
        return report

    def effects_agree(self) -> list[str]:
        """What is wrong between the fenced ledger and the log; nothing, if all is well."""
        counts = self.effects.counts()
        wrong = []
        if counts["duplicatesFenced"]:
            wrong.append(f"{counts['duplicatesFenced']} duplicate effects in the fenced ledger")
        done = {
            execution.idempotency_key or execution.execution_id
            for row in self.ledger.rows.values()
            for execution in row.executions.values()
            if execution.status is ExecutionStatus.COMPLETED
        }
        missing = done - self.effects.keys()
        if missing:
            wrong.append(f"{len(missing)} completed executions without an effect, such as {min(missing)}")
        return wrong
