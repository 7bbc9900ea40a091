"""A trusted service on Kafka as load: registers jobs, asks for work and reports outcomes by records alone.

One thread; it keeps counts and times, no more.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from bench.partition import ACTOR, POOL, SESSION, TENANT, completions, registrations
from bench.report import VALID, spread
from bench.wire import Refused
from schemas import codec
from schemas.commands import Command, RegisterJob, RequestWork, Slot
from schemas.replies import CommandDone, Granted, Reply, WorkDone
from schemas.topics import Topics, partition_of, tenant_partitions
from streams.ambient import wall_ms
from streams.transport.log import Isolation, Log, LogRetriable, Outgoing, PlainWriter, TopicPartition

REPLIES = 0
"""The partition of `replies` that answers come to."""
POLL_SEC = 0.05
RECORDS = 2_000
RENEW_SEC = 5.0
PARK_SEC = 60
QUEUED = 5_000
"""Registrations handed to the client at once."""
WARM_UP = 2_000
WARM_UP_LEAD_MS = 3_000
WARM_UP_SEC = 60.0


def send(writer: PlainWriter, record: Outgoing) -> None:
    """Waits for room."""
    while True:
        try:
            return writer.send(record)
        except LogRetriable:
            writer.flush(1.0)


class Came(NamedTuple):
    """A grant as it came, in Unix milliseconds."""

    partition: int
    due_ms: int
    started_ms: int
    received_ms: int


class Service:
    """Drives one processor group as one tenant."""

    def __init__(self, log: Log, topics: Topics, *, shards: int, partitions: int) -> None:
        self._topics = topics
        self._shards, self._partitions = shards, partitions
        self._writer = log.plain_writer()
        self._reader = log.reader(Isolation.COMMITTED)
        self._reader.assign({TopicPartition(topics.replies, REPLIES): 0})
        self._seq = itertools.count(1)
        self._numbers = itertools.count()
        self._seen: dict[int, int] = {}
        self._reports = itertools.count()
        self._reported: dict[str, list[str]] = {}
        self._leases: set[tuple[str, int]] = set()
        self._early: list[Granted] = []
        """Grants that came while it registered."""
        self.came: list[Came] = []
        self.accepted: Counter[str] = Counter()
        self.refused = 0
        self.last_ms = 0

    def warm_up(self, credit: int) -> float:
        """A small herd that counts for nothing; how many were registered a second."""
        began = time.perf_counter()
        deadline = time.monotonic() + WARM_UP_SEC
        made = 0
        # The tenant's limits are lifted a moment after the start; until then some are refused.
        while made < WARM_UP and time.monotonic() < deadline:
            made += self.register(WARM_UP - made, wall_ms() + WARM_UP_LEAD_MS, WARM_UP_SEC)
        rate = made / (time.perf_counter() - began)
        self.work(made, credit, WARM_UP_SEC)
        if len(self.accepted) < WARM_UP:
            raise Refused(f"only {len(self.accepted)} of {WARM_UP} executions of the warm-up ran")
        self.came.clear()
        self.accepted.clear()
        self.last_ms = 0
        return rate

    def register(self, count: int, due_ms: int, within_sec: float, spacing_ms: float = 0) -> int:
        """One-off jobs, due at the same time or one after the other; how many were answered 201."""
        first = next(self._numbers)
        self._numbers = itertools.count(first + count)
        return self.register_all(registrations(first, count, due_ms, spacing_ms), count, within_sec)

    def register_all(self, commands: Iterable[RegisterJob], count: int, within_sec: float) -> int:
        """Any jobs; how many were answered 201."""
        waiting = iter(commands)
        unanswered: Counter[str] = Counter()
        sent = answered = made = 0
        deadline = time.monotonic() + within_sec
        while answered < count and time.monotonic() < deadline:
            for command in itertools.islice(waiting, max(0, QUEUED - (sent - answered))):
                self._send(self._encoded(command))
                unanswered[command.command_id] += 1
                sent += 1
            for reply in self._replies():
                # A new owner of a partition repeats its predecessor's latest answers.
                if isinstance(reply, CommandDone) and unanswered[reply.command_id]:
                    unanswered[reply.command_id] -= 1
                    answered += 1
                    made += reply.status == 201
                elif isinstance(reply, Granted):
                    self._early.append(reply)
        return made

    def _encoded(self, command: RegisterJob) -> Outgoing:
        partition = partition_of(command.tenant, command.job_id, self._shards, self._partitions)
        return Outgoing(self._topics.commands, partition, command.tenant.encode(), codec.encode(command))

    def work(
        self,
        expected: int,
        credit: int,
        within_sec: float,
        each_turn: Callable[[], None] = lambda: None,
    ) -> None:
        """Asks, and completes what it gets, until that many outcomes are accepted or the time is up."""
        deadline = time.monotonic() + within_sec
        target = len(self.accepted) + expected
        renew_at = 0.0
        early, self._early = self._early, []
        for reply in early:
            self._take(reply)
        while len(self.accepted) < target and (now := time.monotonic()) < deadline:
            each_turn()
            if now >= renew_at:
                renew_at = now + RENEW_SEC
                for partition in self._asked():
                    self._ask(partition, credit)
            for partition in {self._take(reply) for reply in self._replies()} - {-1}:
                self._ask(partition, credit)

    def _asked(self) -> list[int]:
        """Partitions that may have work."""
        return tenant_partitions(TENANT, self._shards, self._partitions)

    def verdict(self, registered: int) -> dict[str, Any]:
        """Lateness, and whether everything ran once and nothing early."""
        lost = registered - len(self.accepted)
        twice = sum(count - 1 for count in self.accepted.values())
        late = [each.started_ms - each.due_ms for each in self.came]
        early = sum(ms < 0 for ms in late)
        return {
            "startedLateMs": spread(late),
            "receivedLateMs": spread([each.received_ms - each.due_ms for each in self.came]),
            "lost": lost,
            "acceptedTwice": twice,
            "early": early,
            "refused": self.refused,
            VALID: lost == twice == early == self.refused == 0,
        }

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
            case WorkDone() if reply.command_id in self._reported:
                self.last_ms = wall_ms()
                reported = self._reported.pop(reply.command_id)
                for execution_id, result in zip(reported, reply.results, strict=True):
                    if result.status == 200:
                        self.accepted[execution_id] += 1
                    else:
                        self.refused += 1
        return -1

    def _report(self, reply: Granted) -> None:
        """Who takes a partition over repeats replies that may have been lost; what is known is dropped."""
        now_ms = wall_ms()
        self._seen[reply.partition] = reply.number
        fresh = []
        for grant in reply.grants:
            lease = (grant.execution.execution_id, grant.execution.lease_epoch)
            if lease not in self._leases:
                self._leases.add(lease)
                fresh.append(grant)
        self.came += [
            Came(reply.partition, grant.execution.scheduled_ms, grant.execution.started_ms, now_ms)
            for grant in fresh
        ]
        for command in completions(fresh, f"outcomes-{next(self._reports)}"):
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
        send(self._writer, record)

    def _replies(self) -> list[Reply]:
        records = self._reader.poll(RECORDS, POLL_SEC)
        return [codec.decode(record.value) for record in records if record.value]  # type: ignore[misc]
