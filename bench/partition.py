"""One partition's engine in virtual time, driven as the runtime drives it, without Kafka.

A turn takes as many commands and timers as one transaction of the runtime does. Owns the bench's commands,
too: one-off jobs with a payload of 200 bytes, in one tenant and pool.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from hashlib import shake_128

from msgspec.structs import replace

from schemas import codec, ids
from schemas.commands import (
    Complete,
    Completion,
    JobCommand,
    RegisterJob,
    RequestWork,
    ScheduleSpec,
    Slot,
    WorkCommand,
)
from schemas.entities import Content, Policies, Tenant
from schemas.events import JobRegistered
from schemas.replies import Grant, Granted, Reply
from streams.ambient import Chance
from streams.core import keys, limits
from streams.core.effects import Answer
from streams.core.engine import Engine
from streams.core.instants import format_instant
from streams.core.transaction import Source
from streams.runtime.deciding import BATCH_RECORDS
from streams.runtime.sharing import FIRE_LIMIT
from streams.store.kv import KeyValue
from streams.store.memory import MemoryStore

TENANT = "bench"
POOL = "default"
SESSION = "bench-session"
WORKER = "bench-worker"
PAYLOAD = b'{"pad":"' + b"x" * 190 + b'"}'
POLICIES = Policies()
UNBOUNDED = Tenant(
    tenant=TENANT,
    max_running=limits.RUNNING[1],
    max_jobs=limits.JOBS[1],
    registrations_per_sec=limits.REGISTRATIONS_PER_SEC[1],
)
"""A bench measures what the machine can do, not what a tenant may."""
ACTOR = "bench"
ITEMS = 500
"""Outcomes of one command."""
REPLAYED = 2_000
"""Events between two writes of a replay."""


class OnePartition:
    """Everything lives in partition 0."""

    def partition_of(self, tenant: str, job_id: str) -> int:
        return 0

    def partitions_of(self, tenant: str) -> list[int]:
        return [0]

    def settings_of(self, tenant: str) -> Tenant:
        return UNBOUNDED


class Partition:
    """An engine on a store; `now_ms` is the caller's to move. What is not needed is thrown away."""

    def __init__(self, store: KeyValue, now_ms: int) -> None:
        self.now_ms = now_ms
        self.engine = Engine(0, store, codec, OnePartition())
        self.events = 0
        self.event_bytes = 0
        self._store = store
        self._chance = Chance(1)
        self._offset = itertools.count()
        self._seq = itertools.count(1)
        self._grants_seen = 0

    def turn(self, commands: Iterable[JobCommand | WorkCommand] = ()) -> tuple[list[Reply], bool]:
        """One transaction; its replies, and whether more may be due."""
        engine = self.engine
        engine.begin(self.now_ms, self._chance.random)
        for command in commands:
            topic = "work" if isinstance(command, WorkCommand) else "commands"
            engine.decide(command, Source(topic, next(self._offset), self.now_ms))
        more = engine.fire(self.now_ms, FIRE_LIMIT)
        engine.grant()
        decided = engine.decided()
        self.events += len(decided.events)
        self.event_bytes += sum(len(event.value) for event in decided.events if event.value)
        replies = [effect.reply for effect in decided.effects if isinstance(effect, Answer)]
        self._store.write(engine.commit())
        engine.written()
        return replies, more or engine.next_wakeup_ms(self.now_ms) <= self.now_ms

    def run(self, commands: Iterable[JobCommand | WorkCommand]) -> None:
        """All of them, in turns as large as the runtime's."""
        waiting = iter(commands)
        while batch := list(itertools.islice(waiting, BATCH_RECORDS)):
            self.turn(batch)

    def fire(self) -> None:
        """Turns until nothing is due any more."""
        while self.turn()[1]:
            pass

    def replay_jobs(self, first: int, count: int, run_at_ms: int, spacing_ms: float) -> None:
        """Registers like `registrations`, but from events, as a restart does: several times faster."""
        for number, (key, event) in enumerate(
            registered(first, count, self.now_ms, run_at_ms, spacing_ms), 1
        ):
            self.engine.apply(key, codec.encode(event))
            if number % REPLAYED == 0 or number == count:
                self._store.write(self.engine.commit())
                self.engine.written()

    def claim(self, count: int) -> list[Grant]:
        """Grants of one request with this credit."""
        request = RequestWork(
            command_id="claim",
            tenant=TENANT,
            actor=ACTOR,
            reply_partition=0,
            session=SESSION,
            pool=POOL,
            seq=next(self._seq),
            grants_seen=self._grants_seen,
            park_sec=1,
            slots=(Slot(worker_id=WORKER, credit=count),),
        )
        grants: list[Grant] = []
        replies, more = self.turn([request])
        while True:
            for reply in replies:
                if isinstance(reply, Granted):
                    self._grants_seen = reply.number
                    grants += reply.grants
            if not more:
                return grants
            replies, more = self.turn()


def job_id_of(number: int) -> str:
    """The bench's job ids, of one length."""
    return f"bench-{number:09d}"


def registrations(first: int, count: int, run_at_ms: int, spacing_ms: float = 0) -> Iterator[RegisterJob]:
    """One-off jobs `bench-<number>`, due at the same time or one after the other."""
    for number in range(first, first + count):
        job_id = job_id_of(number)
        due_ms = run_at_ms + round((number - first) * spacing_ms)
        yield RegisterJob(
            command_id=job_id,
            tenant=TENANT,
            actor=ACTOR,
            reply_partition=0,
            session=SESSION,
            job_id=job_id,
            schedule=ScheduleSpec(run_at=format_instant(due_ms)),
            pool=POOL,
            content=Content(
                name=job_id, task="noop", payload=PAYLOAD, content_type="application/json", labels={}
            ),
            policies=POLICIES,
        )


def registered(
    first: int, count: int, now_ms: int, run_at_ms: int, spacing_ms: float
) -> Iterator[tuple[str, JobRegistered]]:
    """Entity keys and events of `registrations`, as the engine writes them at `now_ms`: it decides the first
    one, the others are made after it."""
    store = MemoryStore()
    Partition(store, now_ms).turn(registrations(first, 1, run_at_ms))
    found = codec.decode(store.get(keys.entity(ids.job_key(TENANT, job_id_of(first)))) or b"")
    if not isinstance(found, JobRegistered):
        raise TypeError(f"{job_id_of(first)} is not registered")
    for number in range(count):
        job_id, due_ms = job_id_of(first + number), run_at_ms + round(number * spacing_ms)
        job = replace(
            found.job,
            job_id=job_id,
            schedule=replace(found.job.schedule, run_at_ms=due_ms),
            content=replace(found.job.content, payload=_own_payload(number)),
            first_next_ms=due_ms,
            first_due_ms=due_ms,
        )
        yield ids.job_key(TENANT, job_id), replace(found, job=job)


def _own_payload(number: int) -> bytes:
    """As long as `PAYLOAD`, and no two alike: else the store would keep very many in the room of one."""
    return b'{"pad":"' + shake_128(number.to_bytes(8, "big")).hexdigest(95).encode() + b'"}'


def completions(grants: Iterable[Grant], name: str = "outcomes") -> Iterator[Complete]:
    """The outcomes of what was granted, in commands of `ITEMS`, with ids that begin with `name`."""
    waiting = iter(grants)
    number = itertools.count()
    while some := list(itertools.islice(waiting, ITEMS)):
        items = tuple(
            Completion(
                execution_id=grant.execution.execution_id,
                worker_id=grant.execution.worker_id,
                lease_epoch=grant.execution.lease_epoch,
            )
            for grant in some
        )
        yield Complete(
            command_id=f"{name}-{next(number)}",
            tenant=TENANT,
            actor=ACTOR,
            reply_partition=0,
            session=SESSION,
            items=items,
        )
