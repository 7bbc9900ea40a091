"""The scene of an end-to-end test: real processes on a real broker, and the log that judges them.

What became of the jobs is never asked of the server: the demo's follower reads the events topic, and the
checker says what was lost, early or doubled. A test has a pool of its own, so that tests can share a
server; the jobs of a pool that nobody promised count as doubled registrations.
"""

import os
import secrets
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from horarium import At, BatchItem, Client, Job, JobSpec, RetryRules

from dev import processes
from dev.demo.ledger import Follower, Ledger
from dev.demo.mix import Planned
from dev.limits import lift
from dev.server import Part, Server
from projections.checker.promises import judge
from projections.checker.report import Report
from schemas.entities import Execution
from schemas.entities import ExecutionStatus as E
from schemas.events import (
    CursorEvent,
    EngineEvent,
    Event,
    ExecutionEvent,
    JobEvent,
    JobRegistered,
    LeaseExtended,
)
from schemas.topics import Topics
from streams.ambient import monotonic_ms, wall_ms
from streams.core.lifecycle import FINAL
from streams.transport.kafka.log import KafkaLog
from streams.transport.log import (
    Isolation,
    LogError,
    LogRetriable,
    Outgoing,
    Record,
    TopicPartition,
    Written,
)
from tests.waiting import wait_until

# Two tenants, a large one on all partitions and a small one on a single one, and an operator.
KEY, SMALL_KEY, OPERATOR_KEY = "large-key", "small-key", "operator-key"
LARGE, SMALL = "large", "small"
KEYS = f"{LARGE}={KEY},{SMALL}={SMALL_KEY},ops={OPERATOR_KEY}:operator"

# What a test waits for that is only slow on a busy machine.
PATIENCE_SEC = 90.0
ONE_TRY = RetryRules(for_sec=0)
PERSISTENT = RetryRules(for_sec=PATIENCE_SEC, longest_sec=0.5)

Ev = TypeVar("Ev", bound=Event)


class Book(Ledger):
    """The demo's ledger, and how the executions of each pool stand."""

    def __init__(self) -> None:
        super().__init__()
        self.executions: dict[str, dict[str, Execution]] = defaultdict(dict)
        self.statuses: dict[str, Counter[str]] = defaultdict(Counter)
        self.registered: Counter[str] = Counter()
        # Jobs with an execution that is final.
        self.ended: set[str] = set()
        # Pools whose jobs are only counted: a flood would fill the memory.
        self.only_counted: set[str] = set()

    def add(self, partition: int, event: EngineEvent) -> None:
        if isinstance(event, JobRegistered):
            self.registered[event.job.pool] += 1
            if event.job.pool in self.only_counted:
                return
        super().add(partition, event)
        if isinstance(event, ExecutionEvent):
            execution = event.execution
            before = self.executions[execution.pool].get(execution.execution_id)
            if before is not None:
                self.statuses[execution.pool][before.status] -= 1
            self.statuses[execution.pool][execution.status] += 1
            self.executions[execution.pool][execution.execution_id] = execution
            if execution.status in FINAL:
                self.ended.add(execution.job_id)


class Scene:
    """A running server and everything that its log has said so far. Made by `opened`."""

    def __init__(self, server: Server, namespace: str, log: KafkaLog, book: Book, follower: Follower) -> None:
        self.server = server
        self.topics = Topics(namespace)
        self.log = log
        self.book = book
        self.follower = follower
        self.writer = log.plain_writer()
        self._added: list[str] = []

    @property
    def url(self) -> str:
        """Of the first API process."""
        return self.server.url

    # -- asking

    def client(self, key: str = "", *, retry: RetryRules = PERSISTENT, url: str = "") -> Client:
        """Of the large tenant unless a key is given. It repeats what fails, as callers do."""
        return Client(url or self.url, key or KEY, retry=retry)

    def at_once(self, key: str = "", *, url: str = "") -> Client:
        """A client that tells of every failure."""
        return self.client(key, retry=ONE_TRY, url=url)

    # -- the log

    def events(self, pool: str, kind: type[Ev]) -> list[Ev]:
        """Events of a kind of the jobs of a pool, in the order of each partition."""
        with self.book.lock:
            return [event for _, event in _of_pool(self.book.lines, pool) if isinstance(event, kind)]

    def executions(self, pool: str) -> dict[str, Execution]:
        """The newest state of every execution of a pool."""
        with self.book.lock:
            return dict(self.book.executions[pool])

    def count(self, pool: str, *statuses: str) -> int:
        """Executions of a pool in any of the statuses."""
        with self.book.lock:
            return sum(self.book.statuses[pool][status] for status in statuses)

    def until(self, condition: Callable[[], bool], timeout_sec: float = PATIENCE_SEC) -> None:
        """Waits; a failure shows what the parts of the server said last."""

        def met() -> bool:
            assert self.follower.failure is None, f"the log cannot be read: {self.follower.failure}"
            return condition()

        try:
            wait_until(met, timeout_sec)
        except AssertionError as error:
            error.add_note(self.last_words())
            raise

    def until_over(self, pool: str, plans: Sequence[Planned], timeout_sec: float = PATIENCE_SEC) -> None:
        """Until every job of a pool has run, and nothing of it waits or runs any more."""

        def over() -> bool:
            if self.count(pool, E.SCHEDULED, E.PENDING, E.RUNNING):
                return False
            with self.book.lock:
                return all(plan.job_id in self.book.ended for plan in plans)

        self.until(over, timeout_sec)

    def verdict(self, pool: str, plans: Sequence[Planned]) -> Report:
        """Of the log, read to its end."""
        end_ms = wall_ms()
        assert self.follower.reached_the_end(), f"the log cannot be read: {self.follower.failure}"
        with self.book.lock:
            return judge(_of_pool(self.book.lines, pool), [plan.promise for plan in plans], end_ms)

    def all_well(self, pool: str, plans: Sequence[Planned]) -> Report:
        """Fails unless every job was kept, none was early, and nothing was done twice."""
        verdict = self.verdict(pool, plans)
        assert verdict.good, "\n".join([str(verdict.summary()), *map(str, verdict.violations[:20])])
        assert verdict.jobs == len(plans)
        return verdict

    def end_offset(self, topic: str, partition: int, isolation: Isolation = Isolation.UNCOMMITTED) -> int:
        """Where the next record of a partition will be."""
        while True:
            try:
                return self.log.end_offset(TopicPartition(topic, partition), isolation)
            except LogRetriable:
                continue

    def written(self, topic: str) -> int:
        """How much is in all partitions of a topic; grows with every record."""
        return sum(self.end_offset(topic, number) for number in range(self.log.partitions(topic)))

    def send(self, topic: str, partition: int, value: bytes | None, key: bytes | None = b"e2e") -> int:
        """Writes a record as a trusted service would; its offset."""
        answers: list[Written | LogError | None] = []
        self.writer.send(
            Outgoing(topic, partition, key, value), lambda written, error: answers.append(error or written)
        )
        wait_until(lambda: bool(answers), 30)
        assert isinstance(answers[0], Written), answers[0]
        return answers[0].offset

    def read(self, topic: str, partition: int) -> list[Record]:
        """All records of a partition up to now."""
        tp = TopicPartition(topic, partition)
        end = self.end_offset(topic, partition, Isolation.COMMITTED)
        reader = self.log.reader(Isolation.COMMITTED)
        try:
            reader.assign({tp: self.log.start_offset(tp)})
            records: list[Record] = []

            def read() -> bool:
                records.extend(reader.poll(1_000, 0.1))
                return reader.position(tp) >= end

            wait_until(read, 30)
            return records
        finally:
            reader.close()

    # -- processes

    def pid(self, part: str) -> int:
        """Of a running part."""
        process = self.server.parts[part].process
        assert process is not None
        return process.pid

    def add(self, name: str, command: Sequence[str], **environment: str) -> None:
        """Starts one more part beside those of the server."""
        self.server.parts[name] = Part(
            name=name,
            command=[sys.executable, *command[1:]],
            environment={
                **os.environ,
                "PYTHONUNBUFFERED": "1",
                **self.server.environment(),
                **environment,
            },
            log=self.server.data_dir / "logs" / f"{name}.log",
        )
        self._added.append(name)
        self.server.restart(name)

    def close(self) -> None:
        """Ends what was added; the server ends by itself."""
        for name in self._added:
            self.server.stop_part(name)
        self.follower.stop()
        self.writer.close()
        self.log.close()

    def start_again(self, *parts: str) -> None:
        """Starts parts that were ended, and waits until the server is ready."""
        for part in parts:
            self.server.restart(part)
        self.server.wait_ready()

    def last_words(self) -> str:
        """The ends of the logs of all parts, for a message."""
        return "\n".join(
            f"{name}:\n{processes.tail(part.log, 8)}" for name, part in self.server.parts.items()
        )


@contextmanager
def opened(
    folder: Path,
    bootstrap: str,
    *,
    partitions: int = 8,
    processors: int = 1,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Scene]:
    """A server under a namespace of its own, and its log followed."""
    namespace = f"e2e-{secrets.token_hex(4)}"
    # Whatever the environment says, a test leaves other data alone.
    own = {
        "HORARIUM_DATABASE_URL": f"sqlite:///{folder / 'projections.db'}",
        "HORARIUM_DEV_KEYS": KEYS,
        "HORARIUM_DEV_SHARDS": f"{LARGE}={partitions}",
    }
    server = Server(
        folder,
        bootstrap=bootstrap,
        namespace=namespace,
        partitions=partitions,
        processors=processors,
        settings=own | dict(settings or {}),
    )
    with server:
        log = KafkaLog(bootstrap)
        lift(log, Topics(namespace), partitions, LARGE, SMALL)
        book = Book()
        follower = Follower(log, Topics(namespace).events, book)
        follower.start()
        scene = Scene(server, namespace, log, book, follower)
        try:
            yield scene
        finally:
            scene.close()


def _of_pool(lines: Iterable[tuple[int, EngineEvent]], pool: str) -> list[tuple[int, EngineEvent]]:
    """A cursor or a lease says no pool: it is its job's."""
    jobs: set[str] = set()
    executions: set[str] = set()
    chosen: list[tuple[int, EngineEvent]] = []
    for partition, event in lines:
        if isinstance(event, JobEvent):
            ours = event.job.pool == pool
            if ours:
                jobs.add(event.job.job_id)
        elif isinstance(event, ExecutionEvent):
            ours = event.execution.pool == pool
            if ours:
                executions.add(event.execution.execution_id)
        elif isinstance(event, CursorEvent):
            ours = event.cursor.job_id in jobs
        else:
            ours = isinstance(event, LeaseExtended) and event.lease.execution_id in executions
        if ours:
            chosen.append((partition, event))
    return chosen


def promised(
    job: Job, schedule: Mapping[str, object], ends: str = "COMPLETED", *, recurring: bool = False
) -> Planned:
    """What must become of a job that was acknowledged."""
    return Planned(
        job_id=job.job_id,
        title=job.job_id,
        says="",
        schedule=schedule,
        spec=JobSpec(schedule={}),
        ends=frozenset({ends}),
        recurring=recurring,
    )


def insist(client: Client, specs: Sequence[JobSpec]) -> tuple[BatchItem, ...]:
    """Registers a batch, and repeats it under its key until nothing of it is without an answer."""
    key = secrets.token_hex(8)
    deadline = monotonic_ms() + PATIENCE_SEC * 1_000
    while True:
        answers = client.create_jobs(specs, idempotency_key=key)
        if all(answer.status != 503 for answer in answers):
            return answers
        assert monotonic_ms() < deadline, answers


def accepted(answers: Iterable[BatchItem], schedule: Mapping[str, object]) -> list[Planned]:
    """Of a batch that was taken whole."""
    plans = []
    for answer in answers:
        assert answer.job is not None, answer.error
        plans.append(promised(answer.job, schedule))
    return plans


def at(ms: int) -> tuple[At, Mapping[str, object]]:
    """A schedule for an instant, and what the log must make of it."""
    return At(datetime.fromtimestamp(ms / 1000, UTC)), {"run_at_ms": ms}


def after(seconds: int) -> Mapping[str, object]:
    """What the log must make of a delay."""
    return {"delay_ms": seconds * 1_000}


def each(seconds: int) -> Mapping[str, object]:
    """What the log must make of an interval."""
    return {"every_ms": seconds * 1_000}


def lateness(verdict: Report) -> str:
    """For the report of a test."""
    late = verdict.lateness
    return (
        f"{late.count} started, late p50 {late.percentile(50)} ms, p99 {late.percentile(99)} ms,"
        f" most {late.most_ms} ms"
    )
