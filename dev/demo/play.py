"""The play: a server, two workers, a mix of jobs, three accidents, and a wait for the end."""

import os
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from horarium import Client

from dev import processes, programs
from dev.demo import door, mix
from dev.demo.ledger import Follower, Ledger
from dev.demo.mix import Planned
from dev.demo.table import Show
from dev.keys import load_or_make
from dev.opening import Opening
from dev.server import Server
from projections.checker.promises import judge
from projections.checker.report import Report
from schemas.topics import Topics
from streams.ambient import wall_ms
from streams.transport.kafka.log import KafkaLog

SHARDS = 4  # the demo's tenant is spread over partitions, as a large one would be
WORKERS = ("worker-a", "worker-b")
STOP_WORKER_SEC = 10.0
TICK_SEC = 0.1

# When what happens, in seconds after the last registration.
CANCEL_SEC = 8.0
KILL_WORKER_SEC = 8.0
NEW_WORKER_SEC = 10.0
KILL_PROCESSOR_SEC = 15.0
RESTART_PROCESSOR_SEC = 16.0
LAST_SEC = 34.0
PATIENCE_SEC = 30.0  # for what runs then; the checker calls what is not over by its name


class PlayError(Exception):
    """The demo could not be played; nothing is said about the scheduler."""


Step = Callable[[Show], bool]
"""One accident; False: not yet possible."""


class Play(Opening):
    """Everything that is started, and what it is about. Leaving the context ends all of it."""

    def __init__(self, data: Path, say: Callable[[str], None]) -> None:
        super().__init__()
        self.plans: list[Planned] = []
        self.ledger = Ledger()
        self._data = data
        self._topics = Topics(f"demo-{os.urandom(4).hex()}")
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        self._made = 0
        key = load_or_make(data.resolve()).first()
        if key is None:
            raise PlayError("HORARIUM_DEV_KEYS has no key of a tenant")
        self._tenant = key.tenant
        self._server = Server(
            data,
            namespace=self._topics.namespace,
            settings={
                "HORARIUM_DEV_SHARDS": f"{key.tenant}={SHARDS}",
                # Whatever the environment says, the demo leaves other data alone.
                "HORARIUM_DATABASE_URL": f"sqlite:///{data.resolve() / 'projections.db'}",
            },
            say=say,
        )

    def _start(self) -> None:
        """Server, follower of the log, workers; they end in the opposite order."""
        self._open.enter_context(self._server)
        self._log = KafkaLog(self._server.bootstrap)
        self._open.callback(self._log.close)
        self._follower = Follower(self._log, self._topics.events, self.ledger)
        self._follower.start()
        self._open.callback(self._follower.stop)
        self._client = self._open.enter_context(Client(self._server.url, self._server.key))
        self._open.callback(self._stop_workers)
        for name in WORKERS:
            self._start_worker(name)

    def _start_worker(self, name: str) -> None:
        self._made += 1
        worker_id = f"{name}-{self._made}"
        arguments = [self._server.url, self._server.key, worker_id]
        log = self._data / "logs" / f"{worker_id}.log"
        self._workers[worker_id] = programs.start("dev.demo.worker", *arguments, log=log)

    def _stop_workers(self) -> None:
        processes.stop_all(list(self._workers.values()), STOP_WORKER_SEC)

    def register(self) -> None:
        """Through every door there is."""
        for planned in [mix.one_off(wall_ms()), *mix.single_jobs()]:
            self._client.put_job(planned.job_id, planned.spec)
            self.plans.append(planned)
        herd = mix.herd()
        answers = self._client.create_jobs(planned.spec for planned in herd)
        for planned, answer in zip(herd, answers, strict=True):
            if answer.job is None:
                raise PlayError(f"a job of the batch was refused: {answer.error}")
            self.plans.append(_under(planned, answer.job.job_id))
        at_ms = wall_ms() + 8_000
        when = datetime.fromtimestamp(at_ms / 1000, UTC)
        short = self._client.schedule_task(mix.SHORT_FORM, when, pool=mix.POOL)
        self.plans.append(mix.short_form(short.job_id, at_ms))
        by_kafka = mix.by_kafka()
        door.register(self._log, self._topics, self._tenant, SHARDS, by_kafka)
        self.plans.append(by_kafka)

    def run(self, show: Show) -> None:
        """The accidents, each at its time, until every job is over."""
        started = time.monotonic()
        steps: list[tuple[float, Step]] = [
            (CANCEL_SEC, self._cancel_two),
            (KILL_WORKER_SEC, self._kill_worker),
            (NEW_WORKER_SEC, self._replace_worker),
            (KILL_PROCESSOR_SEC, self._kill_processor),
            (RESTART_PROCESSOR_SEC, self._restart_processor),
            (LAST_SEC, self._cancel_recurring),
        ]
        while steps or self.ledger.unfinished([plan.job_id for plan in self.plans]):
            second = time.monotonic() - started
            show.refresh(second, wall_ms())
            if self._follower.failure is not None:
                raise PlayError(f"the log cannot be read: {self._follower.failure}")
            while steps and steps[0][0] <= second and steps[0][1](show):
                del steps[0]
            if second > LAST_SEC + PATIENCE_SEC:
                break
            self._server.tend()
            threading.Event().wait(TICK_SEC)
        show.refresh(time.monotonic() - started, wall_ms())

    def verdict(self) -> Report:
        """Of the log, read to its end."""
        end_ms = wall_ms()
        if not self._follower.reached_the_end():
            raise PlayError(f"the log could not be read to its end: {self._follower.failure}")
        with self.ledger.lock:
            return judge(self.ledger.lines, [plan.promise for plan in self.plans], end_ms)

    def _cancel_two(self, show: Show) -> bool:
        for job_id in (mix.CANCELLED, mix.CANCELLED_RUNNING):
            self._client.cancel_job(job_id)
        show.say(f"cancelled {mix.CANCELLED} (not yet due) and {mix.CANCELLED_RUNNING} (running)")
        return True

    def _kill_worker(self, show: Show) -> bool:
        worker_id = self.ledger.running_on(mix.KILLED)
        if not worker_id:
            return False
        process = self._workers.pop(worker_id)
        processes.kill(process)
        show.say(f"kill -9 of {worker_id}, which runs {mix.KILLED}")
        return True

    def _replace_worker(self, show: Show) -> bool:
        self._start_worker("worker-c")
        show.say("started another worker")
        return True

    def _kill_processor(self, show: Show) -> bool:
        self._server.kill("p0")
        show.say("kill -9 of the processor")
        return True

    def _restart_processor(self, show: Show) -> bool:
        self._server.restart("p0")
        show.say("started the processor again")
        return True

    def _cancel_recurring(self, show: Show) -> bool:
        for planned in self.plans:
            if planned.recurring:
                self._client.cancel_job(planned.job_id)
        show.say("cancelled what recurs; waiting for what still runs")
        return True


def _under(planned: Planned, job_id: str) -> Planned:
    """The same job under the id that the server gave it."""
    return replace(planned, job_id=job_id)
