"""Whoever asks processors for something in tests: builds commands, sends them, and reads what came of it.

The same on the in-memory log (`installation`) and on Kafka (`tests/integration`); a subclass says how a
record is sent and a partition read.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

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
from schemas.entities import Content, Execution, Policies, Tenant
from schemas.entities import Record as LogRecord
from schemas.events import Event, ExecutionEvent
from schemas.replies import CommandDone, Grant, Granted, PartitionStatus
from schemas.topics import Topics, partition_of
from streams.core.engine import Engine
from streams.store.memory import MemoryStore
from streams.transport.log import Isolation, Record

TENANT = "acme"
REPLIES = 0


class Asker:
    topics: Topics
    partitions: int

    def __init__(self) -> None:
        self.shards: dict[str, int] = {}
        self._ids = itertools.count(1)

    def send(self, topic: str, partition: int, value: bytes) -> None:
        raise NotImplementedError

    def read(
        self, topic: str, partition: int = 0, isolation: Isolation = Isolation.COMMITTED
    ) -> list[Record]:
        raise NotImplementedError

    # -- asking

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
        """Without repeats, as askers drop them; one that was decided again would differ (`replayed`)."""
        found: list[CommandDone] = []
        for each in self.replies():
            if isinstance(each, CommandDone) and each.command_id == command_id:
                same = [replace(each, offset=known.offset) == known for known in found]
                if not any(same):
                    found.append(each)
        return found

    def grants(self) -> list[Grant]:
        return [grant for each in self.replies() if isinstance(each, Granted) for grant in each.grants]

    def statuses(self) -> list[PartitionStatus]:
        found = [codec.decode(each.value or b"") for each in self.read(self.topics.status)]
        return [each for each in found if isinstance(each, PartitionStatus)]

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

    def settings_of(self, tenant: str) -> Tenant:
        return Tenant(tenant=tenant)
