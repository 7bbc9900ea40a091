"""Workers, API processes and processors in virtual time: real askers and real engines, every message delayed.

A processor takes what came for its partitions in one transaction after another, each of which takes time; so
replies of several partitions come together, and late when there is much to do. Replies may be lost or come
twice, processors die and lose what is soft, API processes vanish.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from api.work.asker import Asker
from api.work.waiting import Claim
from schemas.commands import (
    Complete,
    Completion,
    Handback,
    JobCommand,
    RegisterJob,
    Release,
    RequestWork,
    ScheduleSpec,
    WorkCommand,
)
from schemas.entities import Content, Policies, Priority
from schemas.ids import SHARED
from schemas.replies import Grant, Granted, WorkHinted, WorkSeen
from streams.ambient import Chance
from tests.unit.api.cluster import Cluster

MESSAGE_SEC = (0.001, 0.004)
FIRE_LIMIT = 1_000
FIRE_SHARE_MIN = 20
RECORDS_MAX = 500


@dataclass
class Work:
    """What became of executions, whoever ran them."""

    granted: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    done: set[str] = field(default_factory=set)
    released: int = 0
    waits: list[float] = field(default_factory=list)
    most_over: int = 0
    """The most that a worker was ever handed beyond its slots."""

    @property
    def grants_each(self) -> float:
        """Grants for each execution."""
        return sum(self.granted.values()) / max(1, len(self.granted))


class Simulation:
    """The clock, the messages and the processors. `txn_sec`: of a transaction, and of each event in it."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        processors: int = 1,
        txn_sec: tuple[float, float] = (0.0, 0.0),
        seed: int = 1,
    ) -> None:
        self.cluster = cluster
        self.now = 0.0
        self.chance = Chance(seed)
        self.work = Work()
        self.lease_sec = 60
        self.lost = 0.0
        self.twice = 0.0
        """Shares of replies."""
        self.messages = 0
        self.offices: dict[str, Office] = {}
        self._began_ms = cluster.now_ms
        self._txn_sec = txn_sec
        self._numbers = itertools.count(1)
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._arrivals: dict[tuple[str, int], float] = {}
        self._inboxes: list[deque[JobCommand | WorkCommand]] = [deque() for _ in range(cluster.partitions)]
        self._processors = [
            _Processor([p for p in range(cluster.partitions) if p % processors == number])
            for number in range(processors)
        ]

    # -- driving

    def run(self, until: float) -> None:
        """Everything up to then."""
        while self._queue and self._queue[0][0] <= until:
            self.now, _, function, arguments = heapq.heappop(self._queue)
            self.cluster.now_ms = max(self.cluster.now_ms, self._began_ms + int(self.now * 1000))
            function(*arguments)
        self.now = until

    def at(self, when: float, function: Callable[..., None], *arguments: Any) -> None:
        """A call then."""
        heapq.heappush(self._queue, (when, next(self._numbers), function, arguments))

    def number(self) -> int:
        """Never the same."""
        return next(self._numbers)

    def send(self, partition: int, command: JobCommand | WorkCommand) -> None:
        """To the log."""
        self._message(f"in{type(command) is RegisterJob}", partition, self._arrive, partition, command)

    def register(
        self,
        tenant: str,
        pool: str,
        delay_sec: int = 0,
        priority: Priority = Priority.NORMAL,
        job_id: str = "",
    ) -> None:
        """A one-off."""
        job_id = job_id or f"j{self.number()}"
        command = RegisterJob(
            command_id=job_id,
            tenant=tenant,
            actor="test",
            job_id=job_id,
            schedule=ScheduleSpec(delay_sec=delay_sec),
            pool=pool,
            content=Content(name=job_id, task="t"),
            policies=Policies(priority=priority, lease_sec=self.lease_sec),
        )
        self.send(self.cluster.partition_of(tenant, job_id), command)

    def kill(self, number: int, away_sec: float) -> None:
        """A processor ends; its partitions go on elsewhere, without what was soft."""
        processor = self._processors[number]
        processor.dead_until = self.now + away_sec
        for partition in processor.partitions:
            self.cluster.rebuild(partition)
        self._turn_at(processor.dead_until, processor)

    # -- messages

    def _message(self, way: str, partition: int, function: Callable[..., None], *arguments: Any) -> None:
        """Those of one partition stay in order."""
        self.messages += 1
        earliest = self._arrivals.get((way, partition), 0.0) + 1e-6
        when = max(earliest, self.now + self.chance.uniform(*MESSAGE_SEC))
        self._arrivals[way, partition] = when
        self.at(when, function, *arguments)

    def _arrive(self, partition: int, command: JobCommand | WorkCommand) -> None:
        if isinstance(command, RequestWork):
            office = self.offices.get(command.session)
            if office is not None and not office.gone:
                office.asker.delivered(partition, command.seq, self.now)
        self._inboxes[partition].append(command)
        self._wake(partition)

    def _wake(self, partition: int) -> None:
        self._turn_at(self.now, next(each for each in self._processors if partition in each.partitions))

    def _turn_at(self, when: float, processor: _Processor) -> None:
        when = max(when, processor.free_at, processor.dead_until)
        if when < processor.next_at:
            processor.next_at = when
            self.at(when, self._turn, processor, when)

    def _turn(self, processor: _Processor, when: float) -> None:
        """One transaction over the partitions that have something to do."""
        if when != processor.next_at:
            return
        processor.next_at = float("inf")
        if self.now < processor.dead_until:
            self._turn_at(self.now, processor)
            return
        busy = [p for p in processor.partitions if self._inboxes[p] or p in processor.more]
        busy += [p for p in processor.partitions if p not in busy and self.cluster.is_due(p)]
        events, replies = 0, []
        limit = max(FIRE_SHARE_MIN, FIRE_LIMIT // max(1, len(busy)))
        processor.more.clear()
        for partition in busy:
            inbox = self._inboxes[partition]
            taken = [inbox.popleft() for _ in range(min(len(inbox), max(20, RECORDS_MAX // len(busy))))]
            said, more, count = self.cluster.step(partition, taken, limit)
            events += count
            replies += [(partition, reply) for reply in said]
            if more or inbox:
                processor.more.add(partition)
        processor.free_at = self.now + self._txn_sec[0] + self._txn_sec[1] * events
        for partition, reply in replies:
            if isinstance(reply, Granted):
                for grant in reply.grants:
                    self.work.granted[grant.execution.execution_id] += 1
                    self.work.waits.append((grant.execution.started_ms - grant.execution.due_ms) / 1000)
            if isinstance(reply, Granted | WorkHinted | WorkSeen) and self.chance.random() >= self.lost:
                for _ in range(1 + (self.chance.random() < self.twice)):
                    self.at(processor.free_at, self._reply, partition, reply)
        wakeup_ms = self.cluster.wakeup_ms(processor.partitions)
        at = self.now if processor.more else (wakeup_ms - self._began_ms) / 1000
        self._turn_at(max(at, self.now + 0.0005), processor)

    def _reply(self, partition: int, reply: Granted | WorkHinted | WorkSeen) -> None:
        self._message("out", partition, self._heard, reply)

    def _heard(self, reply: Granted | WorkHinted | WorkSeen) -> None:
        office = self.offices.get(reply.session)
        if office is not None and not office.gone:
            office.hear(reply)


@dataclass(eq=False)
class _Processor:
    partitions: list[int]
    free_at: float = 0.0
    dead_until: float = 0.0
    next_at: float = float("inf")
    more: set[int] = field(default_factory=set)


class Office:
    """One API process's asker for one pool. `tenant` owns the pool (`shared` for shared ones)."""

    def __init__(self, simulation: Simulation, session: str, tenant: str, pool: str) -> None:
        self.simulation = simulation
        self.session, self.tenant, self.pool = session, tenant, pool
        self.gone = False
        cluster = simulation.cluster
        shared = tenant == SHARED
        partitions = list(range(cluster.partitions)) if shared else cluster.partitions_of(tenant)
        self.asker = Asker(partitions, simulation.now)
        self._callers: dict[int, Callable[[list[Grant]], None]] = {}
        self._tick_at: float | None = None
        simulation.offices[session] = self

    def claim(
        self,
        worker: str,
        most: int,
        then: Callable[[list[Grant]], None],
        claim_id: str = "",
        wait_sec: float = 20,
    ) -> int:
        """A long poll."""
        now = self.simulation.now
        token = self.simulation.number()
        self._callers[token] = then
        self.asker.claim(
            Claim(token=token, worker_id=worker, max=most, until=now + wait_sec, claim_id=claim_id), now
        )
        self.act()
        return token

    def vanish(self) -> None:
        """The process is killed: nobody hears of it."""
        self.gone = True
        self._callers.clear()

    def hear(self, reply: Granted | WorkHinted | WorkSeen) -> None:
        match reply:
            case Granted():
                self.asker.granted(reply, self.simulation.now)
            case WorkHinted():
                self.asker.hinted(reply, self.simulation.now)
            case WorkSeen():
                self.asker.seen(reply, self.simulation.now)
        self.act()

    def act(self) -> None:
        simulation, now = self.simulation, self.simulation.now
        actions = self.asker.act(now)
        for token, grants in actions.answers:
            simulation.at(now + 0.0005, self._callers.pop(token), grants)
        for partition, grant in actions.releases:
            simulation.work.released += 1
            report(simulation, partition, [grant], Release, Handback)
        for request in actions.requests:
            command = RequestWork(
                command_id=str(simulation.number()),
                tenant=self.tenant,
                actor="test",
                reply_partition=0,
                session=self.session,
                pool=self.pool,
                seq=request.seq,
                grants_seen=request.grants_seen,
                park_sec=10,
                slots=request.slots,
                ack=True,
                running_max=request.running_max,
            )
            simulation.send(request.partition, command)
        due = self.asker.due_at(now)
        if due is not None and (self._tick_at is None or due < self._tick_at):
            self._tick_at = max(due, now + 1e-4)
            simulation.at(self._tick_at, self._tick, self._tick_at)

    def _tick(self, when: float) -> None:
        if self._tick_at == when and not self.gone:
            self._tick_at = None
            self.act()


def report(simulation: Simulation, partition: int, grants: list[Grant], command: Any, item: Any) -> None:
    """Outcomes of executions of one tenant, partition and pool."""
    items = tuple(
        item(
            execution_id=grant.execution.execution_id,
            worker_id=grant.execution.worker_id,
            lease_epoch=grant.execution.lease_epoch,
        )
        for grant in grants
    )
    number = str(simulation.number())
    tenant, pools = grants[0].execution.tenant, (grants[0].execution.pool,)
    outcomes = command(command_id=number, tenant=tenant, actor="test", items=items, pools=pools)
    simulation.send(partition, outcomes)


class Worker:
    """Claims for its free slots, one claim at a time. `run_sec`: of an execution. `in_one`: runs all that a
    claim brings before it claims again, and reports it in one call."""

    def __init__(
        self,
        office: Office,
        name: str,
        slots: int,
        run_sec: Callable[[Grant], float],
        *,
        claim_ids: bool = False,
        in_one: bool = False,
    ) -> None:
        self.office, self.name, self.slots = office, name, slots
        self.held: dict[tuple[str, int], Grant] = {}
        self.stopped = False
        self._run_sec = run_sec
        self._claim_ids = claim_ids
        self._in_one = in_one
        self._asking = False

    def claim(self) -> None:
        """If it has room and asks nobody."""
        free = self.slots - len(self.held)
        if self._asking or self.stopped or free <= 0 or self.office.gone:
            return
        self._asking = True
        claim_id = f"{self.name}-{self.office.simulation.number()}" if self._claim_ids else ""
        self.office.claim(self.name, free, self._answered, claim_id)

    def _answered(self, grants: list[Grant]) -> None:
        self._asking = False
        simulation, work = self.office.simulation, self.office.simulation.work
        for grant in grants:
            self.held[grant.execution.execution_id, grant.execution.lease_epoch] = grant
        work.most_over = max(work.most_over, len(self.held) - self.slots)
        if self._in_one and grants:
            simulation.at(simulation.now + max(map(self._run_sec, grants)), self._finish, grants)
            return
        for grant in grants:
            simulation.at(simulation.now + self._run_sec(grant), self._finish, [grant])
        simulation.at(simulation.now + 0.001, self.claim)

    def _finish(self, grants: list[Grant]) -> None:
        simulation = self.office.simulation
        by_place: dict[tuple[int, str], list[Grant]] = defaultdict(list)
        for grant in grants:
            execution = grant.execution
            del self.held[execution.execution_id, execution.lease_epoch]
            simulation.work.done.add(execution.execution_id)
            partition = simulation.cluster.partition_of(execution.tenant, execution.job_id)
            by_place[partition, execution.tenant].append(grant)
        for (partition, _), some in by_place.items():
            report(simulation, partition, some, Complete, Completion)
        simulation.at(simulation.now + 0.002, self.claim)
