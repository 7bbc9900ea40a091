"""Processors as processes on a real broker, and an asker that speaks to them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dev import processes
from schemas import codec
from schemas.entities import Tenant
from schemas.topics import Topics, catalogue
from streams.core.engine import Engine
from streams.runtime.checkpoint import Step
from streams.store.rocks import RocksFolder
from streams.transport.kafka.log import KafkaLog
from streams.transport.log import Isolation, LogRetriable, Outgoing, Reader, Record, TopicPartition
from tests.unit.runtime.asking import Asker
from tests.waiting import wait_until

TRIES = 100
"""Polls to the end of a partition."""

ROOT = Path(__file__).resolve().parent.parent.parent
STOP_SEC = 30.0
END_SEC = 60.0
"""In which a process ends that is to end by itself, on a busy machine; and what is waited for comes about."""


class Real(Asker):
    """One installation on a broker. Use as `with Real(...) as world`; it ends what it started."""

    def __init__(self, bootstrap: str, namespace: str, folder: Path, partitions: int) -> None:
        super().__init__()
        self.bootstrap = bootstrap
        self.namespace = namespace
        self.folder = folder
        self.partitions = partitions
        self.topics = Topics(namespace)
        self.log = KafkaLog(bootstrap)
        self.log.create_topics(catalogue(namespace, partitions, 1))
        self.writer = self.log.plain_writer()
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self.settings: dict[str, str] = {}
        """Of processes that are started from now on, by variable."""
        self._readers: dict[tuple[TopicPartition, Isolation], tuple[Reader, list[Record]]] = {}

    def __enter__(self) -> Real:
        return self

    def __exit__(self, *_: object) -> None:
        processes.stop_all(list(self.children.values()), STOP_SEC)
        self.writer.close()
        for reader, _seen in self._readers.values():
            reader.close()

    # -- processes

    def start(
        self, name: str, *, crash_at: Step | None = None, data: str = "data"
    ) -> subprocess.Popen[bytes]:
        environment = os.environ | {
            "HORARIUM_KAFKA": self.bootstrap,
            "HORARIUM_NAMESPACE": self.namespace,
            "HORARIUM_PARTITIONS": str(self.partitions),
            "HORARIUM_DATA": str(self.folder / data),
            "HORARIUM_INSTANCE": name,
            "HORARIUM_DEV_SHARDS": ",".join(f"{tenant}={k}" for tenant, k in self.shards.items()),
            "PYTHONPATH": str(ROOT),
            **self.settings,
        }
        module = "streams.runtime.main"
        if crash_at is not None:
            module = "tests.integration.runtime_entry"
            environment |= {"CRASH_AT": crash_at.name, "CRASH_WHEN": str(self.armed)}
        child = processes.start(
            [sys.executable, "-m", module], log=self.log_of(name), environment=environment, cwd=ROOT
        )
        self.children[name] = child
        return child

    def log_of(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    @property
    def armed(self) -> Path:
        return self.folder / "armed"

    def stop(self, name: str) -> None:
        assert processes.stop(self.children[name], STOP_SEC), processes.tail(self.log_of(name))

    def owners(self) -> dict[int, str]:
        """Who runs what, by the newest status of each partition."""
        newest = {status.partition: status for status in self.statuses()}
        return {number: each.owner for number, each in newest.items() if each.state == "RUNNING"}

    def until(self, condition: Callable[[], bool], timeout_sec: float = END_SEC) -> None:
        try:
            wait_until(condition, timeout_sec)
        except AssertionError as error:
            logs = "\n".join(f"{name}:\n{processes.tail(self.log_of(name))}" for name in self.children)
            raise AssertionError(f"{error}\n{logs}") from error

    def until_owned_by(self, *names: str, timeout_sec: float = END_SEC) -> None:
        self.until(
            lambda: len(self.owners()) == self.partitions and set(self.owners().values()) == set(names),
            timeout_sec,
        )

    # -- asking

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self.writer.send(Outgoing(topic, partition, b"key", value))

    def read(
        self, topic: str, partition: int = 0, isolation: Isolation = Isolation.COMMITTED
    ) -> list[Record]:
        """All records up to now; readers are kept, since each costs a tenth of a second."""
        tp = TopicPartition(topic, partition)
        kept = self._readers.get((tp, isolation))
        if kept is None:
            kept = self._readers[tp, isolation] = (self.log.reader(isolation), [])
            kept[0].assign({tp: insist(lambda: self.log.start_offset(tp))})
        reader, seen = kept
        end = insist(lambda: self.log.end_offset(tp, isolation))
        for _ in range(TRIES):
            if reader.position(tp) >= end:
                break
            seen += reader.poll(10_000, 0.05)
        return seen

    def stored_digest(self, name: str, partition: int, data: str = "data") -> str:
        """Of the state that a stopped process left."""
        folder = RocksFolder(self.folder / data / "state" / name, "test")
        try:
            engine = Engine(partition, folder.open(partition), codec, _Nowhere())
            return engine.digest()
        finally:
            folder.close()


class _Nowhere:
    def partition_of(self, tenant: str, job_id: str) -> int:
        return 0

    def partitions_of(self, tenant: str) -> list[int]:
        return []

    def settings_of(self, tenant: str) -> Tenant:
        return Tenant(tenant=tenant)


def insist(call: Callable[[], int]) -> int:
    """Its answer once there is one: a topic just made has no leader for a moment."""
    found: list[int] = []

    def answered() -> bool:
        try:
            found.append(call())
        except LogRetriable:
            return False
        return True

    wait_until(answered, 20)
    return found[0]


@contextmanager
def installation(kafka: str, namespace: str, folder: Path, partitions: int = 1) -> Iterator[Real]:
    with Real(kafka, namespace, folder, partitions) as world:
        yield world
