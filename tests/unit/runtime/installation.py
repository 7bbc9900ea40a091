"""Processors in virtual time: the real runtime and engine on the in-memory log and stores, step by step.

`Installation` is what they share (log, time, askers); `Process` is one of them and can crash at any commit
step, lose its folder, or have its clock moved.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from schemas import codec
from schemas.entities import Tenant
from schemas.topics import Topics, catalogue
from streams.ambient import Chance, Clock
from streams.config import ProcessorSettings
from streams.core.engine import Engine
from streams.runtime.background import Background, Slices
from streams.runtime.checkpoint import Step
from streams.runtime.partition import Ambient, Partition
from streams.runtime.starting import EngineFactory
from streams.runtime.telemetry import Telemetry
from streams.runtime.wiring import build
from streams.store.memory import MemoryFolder
from streams.store.objects import Objects
from streams.transport.log import Isolation, Outgoing, Record, TopicPartition
from streams.transport.memory import MemoryLog
from tests.unit.runtime.asking import Asker

NAMESPACE = "unit"
GROUP = f"{NAMESPACE}.processors"
START_MS = 1_777_593_600_000


class Crash(BaseException):
    """The process dies here; nothing of it catches this."""


class Time:
    """Wall and monotonic time of one machine, or of all."""

    def __init__(self) -> None:
        self.wall_ms = START_MS
        self.monotonic_ms = 1_000

    def pass_ms(self, ms: int) -> None:
        self.wall_ms += ms
        self.monotonic_ms += ms


class Process:
    """One processor; `step` as often as wanted."""

    def __init__(
        self,
        installation: Installation,
        name: str,
        folder: MemoryFolder,
        time: Time,
        make_engine: EngineFactory | None,
    ) -> None:
        self.installation = installation
        self.name = name
        self.folder = folder
        self.crash_at: Step | None = None
        self.at: dict[Step, Callable[[], None]] = {}
        """What happens elsewhere at a step, once."""
        self.telemetry = Telemetry()
        self.clock = Clock(lambda: time.wall_ms, lambda: time.monotonic_ms)
        self.processor = build(
            installation.settings(name),
            installation.log,
            folder,
            Ambient(self.clock, lambda: time.monotonic_ms, Chance(7).random),
            self.telemetry,
            self._on_step,
            make_engine,
            installation.objects,
            installation.background,
        )

    def _on_step(self, step: Step) -> None:
        if step is self.crash_at:
            raise Crash(step.name)
        self.at.pop(step, lambda: None)()

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.processor.step(0)

    def crash(self) -> MemoryFolder:
        """Gone without a word; gives what is left of its folder. Its group learns of it by `evict`."""
        return self.folder.copy()

    def evict(self) -> None:
        """Its session with the group times out."""
        log, topics = self.installation.log, self.installation.topics
        log.evict(GROUP, topics.commands, self.member)

    @property
    def member(self) -> str:
        return str(self.processor._group.member)  # type: ignore[union-attr]

    def partition(self, number: int) -> Partition:
        found = self.processor.ownership.get(number)
        assert found is not None, f"{self.name} does not own {number}"
        return found

    @property
    def owned(self) -> list[int]:
        return sorted(each.number for each in self.processor.ownership)

    @property
    def running(self) -> list[int]:
        return sorted(each.number for each in self.processor.ownership.running())

    def digest(self, number: int) -> str:
        engine = self.partition(number).engine
        assert engine is not None
        return engine.digest()

    def metric(self, name: str, **labels: str) -> float:
        return self.telemetry.registry.get_sample_value(f"horarium_{name}", labels) or 0.0


class Installation(Asker):
    def __init__(self, partitions: int = 1) -> None:
        super().__init__()
        self.time = Time()
        self.partitions = partitions
        self.objects: Objects | None = None
        self.snapshot_sec = 60
        self.background: Callable[[], Background] = Slices
        self.topics = Topics(NAMESPACE)
        self.log = MemoryLog(lambda: self.time.wall_ms)
        self.log.create_topics(catalogue(NAMESPACE, partitions, 1))
        self.writer = self.log.plain_writer()

    def settings(self, name: str) -> ProcessorSettings:
        return ProcessorSettings(
            kafka="memory",
            namespace=NAMESPACE,
            partitions=self.partitions,
            data=Path("unused"),
            instance=name,
            dev_shards=self.shards,
            snapshot_sec=self.snapshot_sec,
        )

    def start(
        self,
        name: str = "a",
        folder: MemoryFolder | None = None,
        time: Time | None = None,
        make_engine: EngineFactory | None = None,
    ) -> Process:
        return Process(self, name, folder or MemoryFolder(), time or self.time, make_engine)

    def until(
        self, condition: Callable[[], bool], *processes: Process, steps: int = 200, ms: int = 10
    ) -> None:
        """Steps the processes in turn, letting time pass, until it is so."""
        for _ in range(steps):
            if condition():
                return
            for process in processes:
                process.step()
            self.time.pass_ms(ms)
        assert condition(), "it did not come true"

    def run(self, *processes: Process, steps: int = 5) -> None:
        for _ in range(steps):
            for process in processes:
                process.step()
            self.time.pass_ms(1)

    def live(self, name: str = "a", folder: MemoryFolder | None = None, **kw: Any) -> Process:
        """A process that runs all partitions."""
        process = self.start(name, folder, **kw)
        self.until(lambda: len(process.running) == self.partitions, process)
        return process

    # -- asking

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self.writer.send(Outgoing(topic, partition, b"key", value))

    def read(
        self, topic: str, partition: int = 0, isolation: Isolation = Isolation.COMMITTED
    ) -> list[Record]:
        reader = self.log.reader(isolation)
        tp = TopicPartition(topic, partition)
        reader.assign({tp: self.log.start_offset(tp)})
        return reader.poll(1_000_000, 0)

    def committed(self, partition: int = 0) -> tuple[int, int]:
        commands = TopicPartition(self.topics.commands, partition)
        work = TopicPartition(self.topics.work, partition)
        found = self.log.committed(GROUP, [commands, work])
        return found.get(commands, -1), found.get(work, -1)


def engines(world: Installation, changes: type) -> EngineFactory:
    """Makes engines that differ from the real one by the methods of `changes`."""

    class Here:
        def partition_of(self, tenant: str, job_id: str) -> int:
            return world.where(job_id)

        def partitions_of(self, tenant: str) -> list[int]:
            return list(range(world.partitions))

        def settings_of(self, tenant: str) -> Tenant:
            return Tenant(tenant=tenant)

    class Changed(changes, Engine):  # type: ignore[misc]
        pass

    return lambda number, store: Changed(number, store, codec, Here())
