"""A trusted service on Kafka as load: registers jobs, asks for work and reports outcomes by records alone.

One thread; it keeps counts and times, no more.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator

from bench.partition import ACTOR, POOL, SESSION, TENANT, completions, registrations
from schemas import codec
from schemas.commands import Command, RequestWork, Slot
from schemas.replies import CommandDone, Granted, Reply, WorkDone
from schemas.topics import Topics, partition_of, tenant_partitions
from streams.ambient import wall_ms
from streams.transport.log import Isolation, Log, LogRetriable, Outgoing, TopicPartition

REPLIES = 0
"""The partition of `replies` that answers come to."""
POLL_SEC = 0.05
RECORDS = 2_000
RENEW_SEC = 5.0
PARK_SEC = 60
QUEUED = 5_000
"""Registrations handed to the client at once."""


class Service:
    """Drives one processor group as one tenant."""

    def __init__(self, log: Log, topics: Topics, *, shards: int, partitions: int) -> None:
        self._topics = topics
        self._shards, self._partitions = shards, partitions
        self._writer = log.plain_writer()
        self._reader = log.reader(Isolation.COMMITTED)
        self._reader.assign({TopicPartition(topics.replies, REPLIES): 0})
        self._seq = itertools.count(1)
        self._seen: dict[int, int] = {}
        self.late_ms: list[int] = []
        self.received_ms: list[int] = []
        self.accepted: Counter[str] = Counter()
        self._reported: dict[str, list[str]] = {}
        self.refused = 0
        self.last_ms = 0

    def register(self, first: int, count: int, due_ms: int, within_sec: float) -> int:
        """How many of them were answered 201."""
        waiting = self._encoded(first, count, due_ms)
        sent = answered = made = 0
        deadline = time.monotonic() + within_sec
        while answered < count and time.monotonic() < deadline:
            for record in itertools.islice(waiting, max(0, QUEUED - (sent - answered))):
                self._send(record)
                sent += 1
            for reply in self._replies():
                if isinstance(reply, CommandDone):
                    answered += 1
                    made += reply.status == 201
        return made

    def _encoded(self, first: int, count: int, due_ms: int) -> Iterator[Outgoing]:
        for command in registrations(first, count, due_ms):
            partition = partition_of(TENANT, command.job_id, self._shards, self._partitions)
            yield Outgoing(self._topics.commands, partition, TENANT.encode(), codec.encode(command))

    def work(self, expected: int, credit: int, within_sec: float, each_turn: Callable[[], None]) -> None:
        """Asks, and completes what it gets, until that many outcomes are accepted or the time is up."""
        deadline = time.monotonic() + within_sec
        target = len(self.accepted) + expected
        mine = tenant_partitions(TENANT, self._shards, self._partitions)
        renew_at = 0.0
        while len(self.accepted) < target and (now := time.monotonic()) < deadline:
            each_turn()
            if now >= renew_at:
                renew_at = now + RENEW_SEC
                for partition in mine:
                    self._ask(partition, credit)
            for partition in {self._take(reply) for reply in self._replies()} - {-1}:
                self._ask(partition, credit)

    def close(self) -> None:
        """Lets go of the connections."""
        self._reader.close()
        self._writer.close()

    def _take(self, reply: Reply) -> int:
        """Uses a reply; the partition to ask again, or -1."""
        match reply:
            case Granted():
                self._report(reply)
                return reply.partition
            case WorkDone():
                self.last_ms = wall_ms()
                for execution_id, result in zip(
                    self._reported.pop(reply.command_id), reply.results, strict=True
                ):
                    if result.status == 200:
                        self.accepted[execution_id] += 1
                    else:
                        self.refused += 1
        return -1

    def _report(self, reply: Granted) -> None:
        now_ms = wall_ms()
        self._seen[reply.partition] = reply.number
        executions = [grant.execution for grant in reply.grants]
        self.late_ms += [each.started_ms - each.scheduled_ms for each in executions]
        self.received_ms += [now_ms - each.scheduled_ms for each in executions]
        for command in completions(reply.grants, f"outcomes-{reply.partition}-{reply.number}"):
            self._reported[command.command_id] = [item.execution_id for item in command.items]
            self._work(reply.partition, command)

    def _ask(self, partition: int, credit: int) -> None:
        request = RequestWork(
            command_id=f"ask-{partition}",
            tenant=TENANT,
            actor=ACTOR,
            reply_partition=REPLIES,
            session=SESSION,
            pool=POOL,
            seq=next(self._seq),
            grants_seen=self._seen.get(partition, 0),
            park_sec=PARK_SEC,
            slots=(Slot(worker_id=f"bench-{partition}", credit=credit),),
        )
        self._work(partition, request)

    def _work(self, partition: int, command: Command) -> None:
        self._send(Outgoing(self._topics.work, partition, TENANT.encode(), codec.encode(command)))

    def _send(self, record: Outgoing) -> None:
        while True:
            try:
                return self._writer.send(record)
            except LogRetriable:
                self._writer.flush(1.0)

    def _replies(self) -> list[Reply]:
        records = self._reader.poll(RECORDS, POLL_SEC)
        return [codec.decode(record.value) for record in records if record.value]  # type: ignore[misc]
