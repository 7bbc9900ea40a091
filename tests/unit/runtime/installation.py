"""Processors in virtual time: the real runtime and engine on the in-memory log and stores, step by step.

`Installation` is what they share (log, time, askers); `Process` is one of them and can crash at any commit
step, lose its folder, or have its clock moved.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from schemas import codec
from schemas.commands import (
    Beat,
    CancelJob,
    Command,
    Complete,
    Completion,
    ExtendLease,
    RegisterJob,
    RequestWork,
    ScheduleSpec,
    Slot,
)
from schemas.entities import Content, Execution, Policies
from schemas.entities import Record as LogRecord
from schemas.events import Event, ExecutionEvent
from schemas.replies import CommandDone, Grant, Granted, PartitionStatus
from schemas.topics import Topics, catalogue, partition_of
from streams.ambient import Chance, Clock
from streams.config import ProcessorSettings
from streams.core.engine import Engine
from streams.runtime.checkpoint import Step
from streams.runtime.partition import Ambient, Partition
from streams.runtime.recovery import EngineFactory
from streams.runtime.telemetry import Telemetry
from streams.runtime.wiring import build
from streams.store.memory import MemoryFolder, MemoryStore
from streams.transport.log import Isolation, Outgoing, Record, TopicPartition
from streams.transport.memory import MemoryLog

TENANT = "acme"
NAMESPACE = "unit"
GROUP = f"{NAMESPACE}.processors"
START_MS = 1_777_593_600_000
REPLIES = 0


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


class Installation:
    def __init__(self, partitions: int = 1) -> None:
        self.time = Time()
        self.partitions = partitions
        self.topics = Topics(NAMESPACE)
        self.log = MemoryLog(lambda: self.time.wall_ms)
        self.log.create_topics(catalogue(NAMESPACE, partitions, 1))
        self.writer = self.log.plain_writer()
        self.shards: dict[str, int] = {}
        self._ids = itertools.count(1)

    def settings(self, name: str) -> ProcessorSettings:
        return ProcessorSettings(
            kafka="memory",
            namespace=NAMESPACE,
            partitions=self.partitions,
            data=Path("unused"),
            instance=name,
            dev_shards=self.shards,
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

    # -- askers

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self.writer.send(Outgoing(topic, partition, b"key", value))

    def command(self, command: Command, partition: int, topic: str = "") -> str:
        self.send(topic or self.topics.commands, partition, codec.encode(command))
        return command.command_id

    def _who(self) -> dict[str, Any]:
        return {
            "command_id": f"command-{next(self._ids)}",
            "tenant": TENANT,
            "actor": "test",
            "reply_partition": REPLIES,
            "session": "session",
        }

    def where(self, job_id: str) -> int:
        return partition_of(TENANT, job_id, self.shards.get(TENANT, 1), self.partitions)

    def register(self, job_id: str = "job-1", delay_sec: int = 60, **policies: Any) -> str:
        command = RegisterJob(
            **self._who(),
            job_id=job_id,
            schedule=ScheduleSpec(delay_sec=delay_sec),
            pool="default",
            content=Content(name="n", task="t", payload=b"{}"),
            policies=Policies(**policies),
        )
        return self.command(command, self.where(job_id))

    def cancel(self, job_id: str) -> str:
        return self.command(CancelJob(**self._who(), job_id=job_id), self.where(job_id))

    def request(self, partition: int = 0, credit: int = 10, park_sec: int = 60, worker: str = "w") -> None:
        slots = (Slot(worker_id=worker, credit=credit),) if credit else ()
        who = self._who()
        seq = int(who["command_id"].rpartition("-")[2])
        command = RequestWork(**who, pool="default", seq=seq, grants_seen=0, park_sec=park_sec, slots=slots)
        self.command(command, partition, self.topics.work)

    def beat(self, execution: Execution, partition: int = 0) -> str:
        ref = Beat(
            execution_id=execution.execution_id,
            worker_id=execution.worker_id,
            lease_epoch=execution.lease_epoch,
        )
        return self.command(ExtendLease(**self._who(), items=(ref,)), partition, self.topics.work)

    def complete(self, execution: Execution, partition: int = 0) -> str:
        done = Completion(
            execution_id=execution.execution_id,
            worker_id=execution.worker_id,
            lease_epoch=execution.lease_epoch,
        )
        return self.command(Complete(**self._who(), items=(done,)), partition, self.topics.work)

    # -- what came of it

    def read(
        self, topic: str, partition: int = 0, isolation: Isolation = Isolation.COMMITTED
    ) -> list[Record]:
        reader = self.log.reader(isolation)
        tp = TopicPartition(topic, partition)
        reader.assign({tp: self.log.start_offset(tp)})
        return reader.poll(1_000_000, 0)

    def events(self, partition: int = 0) -> list[Record]:
        return self.read(self.topics.events, partition)

    def types(self, partition: int = 0) -> list[str]:
        return [type(codec.decode(each.value)).__name__ for each in self.events(partition) if each.value]

    def decoded(self, partition: int = 0) -> list[Event]:
        found = [codec.decode(each.value) for each in self.events(partition) if each.value]
        return [each for each in found if isinstance(each, Event)]

    def executions(self, partition: int = 0) -> Iterator[tuple[str, Execution]]:
        for each in self.events(partition):
            event = codec.decode(each.value) if each.value else None
            if isinstance(event, ExecutionEvent):
                yield type(event).__name__, event.execution

    def replies(self) -> list[LogRecord]:
        return [codec.decode(each.value or b"") for each in self.read(self.topics.replies, REPLIES)]

    def answer(self, command_id: str) -> CommandDone | None:
        found = self.answers(command_id)
        return found[-1] if found else None

    def answers(self, command_id: str) -> list[CommandDone]:
        return [each for each in self.replies() if getattr(each, "command_id", "") == command_id]  # type: ignore[misc]

    def grants(self) -> list[Grant]:
        return [grant for each in self.replies() if isinstance(each, Granted) for grant in each.grants]

    def statuses(self) -> list[PartitionStatus]:
        found = [codec.decode(each.value or b"") for each in self.read(self.topics.status)]
        return [each for each in found if isinstance(each, PartitionStatus)]

    def committed(self, partition: int = 0) -> tuple[int, int]:
        commands = TopicPartition(self.topics.commands, partition)
        work = TopicPartition(self.topics.work, partition)
        found = self.log.committed(GROUP, [commands, work])
        return found.get(commands, -1), found.get(work, -1)

    def replayed_digest(self, partition: int = 0) -> str:
        """Of a state made from the committed log alone."""
        store = MemoryStore()
        engine = Engine(partition, store, codec, _Everywhere())
        for each in self.events(partition):
            engine.apply((each.key or b"").decode(), each.value)
        store.write(engine.commit())
        engine.written()
        return engine.digest()


class _Everywhere:
    def partition_of(self, tenant: str, job_id: str) -> int:
        return 0

    def partitions_of(self, tenant: str) -> list[int]:
        return [0]
