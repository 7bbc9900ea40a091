"""Processors and a broker alone, in a temporary folder on loopback: no API, no read model.

Owns their start, kill, stop and restart, and who runs which partition (topic `status`). The load is a
trusted service that writes commands and reads replies (`service`).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.partition import TENANT
from bench.service import Service, send
from bench.usage import Usage
from bench.wire import Refused
from dev import compiled, processes
from dev.kafka import find_or_start
from dev.limits import lift
from dev.server import PROCESSOR, ROOT
from schemas import codec
from schemas.replies import PartitionStatus
from schemas.topics import Topics, catalogue
from streams.ambient import new_id, wall_ms
from streams.runtime.partition import PartitionState
from streams.runtime.startup import insist
from streams.transport.kafka.log import KafkaLog
from streams.transport.log import Isolation, Outgoing, TopicPartition

READY_SEC = 60.0
STOP_SEC = 30.0
WRITTEN_SEC = 300.0
POLL_SEC = 0.05


class Processors:
    """Made by `running`."""

    def __init__(
        self, folder: Path, bootstrap: str, broker_pid: int | None, *, partitions: int, shards: int
    ) -> None:
        self.folder = folder
        self.topics = Topics(f"bench-{new_id()[:8]}")
        self.partitions = partitions
        self.shards = shards
        self.log = KafkaLog(bootstrap)
        self._broker_pid = broker_pid
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._environment = {
            "HORARIUM_KAFKA": bootstrap,
            "HORARIUM_DATA": str(folder),
            "HORARIUM_NAMESPACE": self.topics.namespace,
            "HORARIUM_PARTITIONS": str(partitions),
            "HORARIUM_DEV_SHARDS": f"{TENANT}={shards}",
        }
        insist(partial(self.log.create_topics, catalogue(self.topics.namespace, partitions, 1)))
        lift(self.log, self.topics, partitions, TENANT)

    def start(self, name: str, settings: Mapping[str, str] | None = None) -> None:
        """Returns at once; `wait_until_running` says when it serves. `settings`: variables besides."""
        self._processes[name] = processes.start(
            [sys.executable, *PROCESSOR[1:]],
            log=self.folder / f"{name}.log",
            environment={
                **self._environment,
                **compiled.environment(),
                "HORARIUM_INSTANCE": name,
                **(settings or {}),
            },
            cwd=ROOT,
        )

    def kill(self, name: str) -> None:
        """As a crash would."""
        processes.kill(self._processes.pop(name))

    def stop(self, name: str) -> bool:
        """In good order; False if it had to be killed."""
        return processes.stop(self._processes.pop(name), STOP_SEC)

    def stop_all(self) -> None:
        processes.stop_all(list(self._processes.values()), STOP_SEC)
        self._processes.clear()

    def forget_state(self, name: str) -> None:
        """Deletes what a stopped processor kept on its disk."""
        shutil.rmtree(self.folder / "state" / name)

    def wait_until_running(
        self, since_ms: int, within_sec: float = READY_SEC, *, owners: int = 1
    ) -> dict[int, str]:
        """Owner of each partition, once every one said after `since_ms` that it runs and so many processors
        share them. Raises Refused."""
        deadline = time.monotonic() + within_sec
        status = TopicPartition(self.topics.status, 0)
        found: dict[int, str] = {}
        reader = self.log.reader(Isolation.COMMITTED)
        try:
            end = insist(partial(self.log.end_offset, status, Isolation.COMMITTED))
            reader.assign({status: 0})
            while (
                reader.position(status) < end
                or len(found) < self.partitions
                or len(set(found.values())) < owners
            ):
                self._check(deadline)
                for record in reader.poll(1_000, POLL_SEC):
                    said = codec.decode(record.value) if record.value else None
                    if not isinstance(said, PartitionStatus) or said.at_ms < since_ms:
                        continue
                    if said.state == PartitionState.RUNNING:
                        found[said.partition] = said.owner
                    else:
                        found.pop(said.partition, None)
        finally:
            reader.close()
        return found

    def _check(self, deadline: float) -> None:
        dead = [name for name, process in self._processes.items() if process.poll() is not None]
        if dead or time.monotonic() > deadline:
            name = (dead or list(self._processes))[0]
            what = "ended" if dead else "is not ready in time"
            raise Refused(f"{name} {what}:\n{processes.tail(self.folder / f'{name}.log')}")

    def write(self, records: Iterable[Outgoing]) -> None:
        """To the log, past the processors. Raises Refused if it takes too long."""
        writer = self.log.plain_writer()
        for record in records:
            send(writer, record)
        if not writer.flush(WRITTEN_SEC):
            raise Refused("the log was not written in time")
        writer.close()

    def usage(self) -> Usage:
        """CPU of processors and broker; a given broker (HORARIUM_KAFKA, Docker) is not ours to look at."""
        pids = {name: process.pid for name, process in self._processes.items()}
        if self._broker_pid is not None:
            pids["broker"] = self._broker_pid
        return Usage(pids)

    @contextmanager
    def service(self) -> Iterator[Service]:
        """A client that registers, claims and completes."""
        service = Service(self.log, self.topics, shards=self.shards, partitions=self.partitions)
        try:
            yield service
        finally:
            service.close()


@contextmanager
def running(*, processors: int = 1, partitions: int = 8, shards: int = 8) -> Iterator[Processors]:
    """A broker and this many processors, `p0`, `p1` …, which run all partitions; the topics are there."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="horarium-bench-")))
        found = stack.enter_context(find_or_start(folder / "kafka", keep=False))
        broker_pid = found.broker.pid if found.broker is not None else None
        made = Processors(folder, found.bootstrap, broker_pid, partitions=partitions, shards=shards)
        stack.callback(made.log.close)
        stack.callback(made.stop_all)
        since_ms = wall_ms()
        for number in range(processors):
            made.start(f"p{number}")
        if processors:
            made.wait_until_running(since_ms, owners=processors)
        yield made
