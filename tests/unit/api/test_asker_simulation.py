"""Workers, an asker and 64 real partitions in virtual time, with every message delayed: the goals of the
design.

No partition's work waits for more than a second while a worker of its pool is idle, and no worker is ever
granted more than its slots.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from api.work.asker import Asker
from api.work.waiting import Claim
from schemas.commands import (
    Complete,
    Completion,
    Handback,
    RegisterJob,
    Release,
    RequestWork,
    ScheduleSpec,
    Slot,
    WorkCommand,
)
from schemas.entities import Content, Policies
from schemas.replies import Grant, Granted, Reply, WorkHinted, WorkSeen
from streams.ambient import Chance
from tests.unit.api.cluster import Cluster

TENANT = "acme"
MESSAGE_SEC = (0.002, 0.008)


class Simulation:
    """`workers` with `slots` each; jobs due at once come at `rate` a second, a run takes about `run_sec`."""

    def __init__(
        self, k: int, workers: int, slots: int, rate: float, run_sec: float, claim_ids: bool, seed: int = 1
    ) -> None:
        self.now = 0.0
        self.cluster = Cluster(64, {TENANT: k})
        self.began_ms = self.cluster.now_ms
        self.asker = Asker(self.cluster.partitions_of(TENANT), 0.0)
        self.workers, self.slots, self.rate, self.run_sec = workers, slots, rate, run_sec
        self.claim_ids = claim_ids
        self.chance = Chance(seed)
        self.end = 0.0
        self.held: dict[str, int] = {}
        self.most_held = 0
        self.released = 0
        self.waits: list[float] = []
        self.idle: set[str] = set()
        self.messages = 0
        self._claims: dict[int, str] = {}
        self._numbers = itertools.count(1)
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._arrivals: dict[tuple[str, int], float] = {}
        self._tick_at: float | None = None

    def run(self, sec: float) -> None:
        self.end = sec
        for number in range(self.workers):
            self._at(0.01 * number, self._claim, f"w{number}")
        self._at(1.0, self._job)
        while self._queue and self._queue[0][0] < sec + 2:
            self.now, _, function, arguments = heapq.heappop(self._queue)
            self.cluster.now_ms = self.began_ms + int(self.now * 1000)
            function(*arguments)

    def _at(self, when: float, function: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._queue, (when, next(self._numbers), function, arguments))

    def _message(self, way: str, partition: int, function: Callable[..., None], *arguments: Any) -> None:
        """Messages of one partition stay in order."""
        self.messages += 1
        earliest = self._arrivals.get((way, partition), 0.0) + 1e-6
        when = max(earliest, self.now + self.chance.uniform(*MESSAGE_SEC))
        self._arrivals[way, partition] = when
        self._at(when, function, *arguments)

    def _send(self, partition: int, command: WorkCommand | RegisterJob) -> None:
        self._message("in", partition, self._decide, partition, command)

    def _decide(self, partition: int, command: WorkCommand | RegisterJob) -> None:
        if isinstance(command, RequestWork):
            self.asker.delivered(partition, command.seq, self.now)
        for reply in self.cluster.run(partition, command):
            if isinstance(reply, Granted):
                for grant in reply.grants:
                    self._granted(grant)
            if isinstance(reply, Granted | WorkHinted | WorkSeen):
                self._message("out", partition, self._hear, partition, reply)

    def _granted(self, grant: Grant) -> None:
        execution = grant.execution
        self.held[execution.worker_id] = self.held.get(execution.worker_id, 0) + 1
        self.most_held = max(self.most_held, self.held[execution.worker_id])
        self.waits.append((execution.started_ms - execution.due_ms) / 1000)

    def _hear(self, partition: int, reply: Reply) -> None:
        match reply:
            case Granted():
                self.asker.granted(reply, self.now)
            case WorkHinted():
                self.asker.hinted(reply, self.now)
            case WorkSeen():
                self.asker.seen(reply, self.now)
        self._act()

    def _act(self) -> None:
        actions = self.asker.act(self.now)
        for token, grants in actions.answers:
            self._answered(self._claims.pop(token), grants)
        for partition, grant in actions.releases:
            self.released += 1
            self._report(partition, grant, Release, Handback)
        for request in actions.requests:
            self._send(
                request.partition,
                self._request(request.partition, request.seq, request.grants_seen, request.slots),
            )
        due = self.asker.due_at(self.now)
        if due is not None and (self._tick_at is None or due < self._tick_at):
            self._tick_at = max(due, self.now + 1e-4)
            self._at(self._tick_at, self._tick, self._tick_at)

    def _tick(self, when: float) -> None:
        if self._tick_at == when:
            self._tick_at = None
            self._act()

    def _request(self, partition: int, seq: int, seen: int, slots: tuple[Slot, ...]) -> RequestWork:
        return RequestWork(
            command_id=str(next(self._numbers)),
            tenant=TENANT,
            actor="test",
            reply_partition=0,
            session="s",
            pool="p",
            seq=seq,
            grants_seen=seen,
            park_sec=10,
            slots=slots,
            ack=True,
        )

    def _claim(self, worker: str) -> None:
        free = self.slots - self.held.get(worker, 0)
        if self.now > self.end or free <= 0 or worker in self._claims.values():
            return
        token = next(self._numbers)
        self._claims[token] = worker
        claim_id = f"c{token}" if self.claim_ids else ""
        self.asker.claim(
            Claim(token=token, worker_id=worker, max=free, until=self.now + 20, claim_id=claim_id), self.now
        )
        self._act()

    def _answered(self, worker: str, grants: list[Grant]) -> None:
        for grant in grants:
            self._at(self.now + self.run_sec * self.chance.uniform(0.5, 1.5), self._finish, grant)
        self._at(self.now + 0.001, self._claim, worker)

    def _finish(self, grant: Grant) -> None:
        partition = self.cluster.partition_of(TENANT, grant.execution.job_id)
        self._report(partition, grant, Complete, Completion)
        self._claim(grant.execution.worker_id)

    def _report(self, partition: int, grant: Grant, command: Any, item: Any) -> None:
        execution = grant.execution
        self.held[execution.worker_id] -= 1
        done = item(
            execution_id=execution.execution_id,
            worker_id=execution.worker_id,
            lease_epoch=execution.lease_epoch,
        )
        number = str(next(self._numbers))
        self._send(partition, command(command_id=number, tenant=TENANT, actor="test", items=(done,)))

    def _job(self) -> None:
        if self.now > self.end:
            return
        job_id = f"j{next(self._numbers)}"
        command = RegisterJob(
            command_id=job_id,
            tenant=TENANT,
            actor="test",
            job_id=job_id,
            schedule=ScheduleSpec(delay_sec=0),
            pool="p",
            content=Content(name=job_id, task="t"),
            policies=Policies(),
        )
        self._send(self.cluster.partition_of(TENANT, job_id), command)
        self._at(self.now + self.chance.expovariate(self.rate), self._job)


@pytest.mark.parametrize("claim_ids", [True, False], ids=["claim ids", "no claim ids"])
def test_ten_workers_with_one_slot_over_64_partitions(claim_ids: bool) -> None:
    simulation = Simulation(k=64, workers=10, slots=1, rate=20, run_sec=0.05, claim_ids=claim_ids)
    simulation.run(6)
    assert len(simulation.waits) > 70
    assert max(simulation.waits) < 0.2
    assert simulation.most_held == 1
    assert simulation.released == 0


def test_busy_workers_leave_no_partition_behind() -> None:
    """More work than workers for a while: the backlog is worked off everywhere, nobody is granted too
    much."""
    simulation = Simulation(k=64, workers=4, slots=2, rate=60, run_sec=0.1, claim_ids=False)
    simulation.run(6)
    assert len(simulation.waits) > 250
    assert max(simulation.waits) < 1
    assert simulation.most_held <= 2


def test_one_partition_costs_few_messages() -> None:
    simulation = Simulation(k=1, workers=10, slots=1, rate=50, run_sec=0.02, claim_ids=True)
    simulation.run(6)
    assert max(simulation.waits) < 0.1
    assert simulation.most_held == 1
    # A request and a completion in, what was seen and granted out, and some registrations.
    assert simulation.messages < 7 * len(simulation.waits)
