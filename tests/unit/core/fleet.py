"""Workers with a fixed number of slots in virtual time, and tenants whose backlog never ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from heapq import heappop, heappush

from schemas.commands import Complete, Completion, RequestWork, Slot, TriggerJob, WorkCommand
from schemas.entities import Execution, OverlapPolicy, Priority
from schemas.ids import SHARED
from schemas.replies import Grant
from tests.unit.core.world import TENANT, World, granted

POOL = "shared/p"
AHEAD = 40
"""Executions that wait at least, of each endless backlog."""


class Backlogs:
    """Each name is a job of its own: (tenant, priority) whose executions never run out."""

    def __init__(self, world: World, wanted: Mapping[str, tuple[str, Priority]], pool: str = POOL) -> None:
        self.world = world
        self.wanted = wanted
        self.waiting = Counter(dict.fromkeys(wanted, 0))
        for job_id, (tenant, priority) in wanted.items():
            world.register(
                job_id,
                tenant=tenant,
                pool=pool,
                delay_sec=86_400 * 300,
                overlap=OverlapPolicy.ALLOW,
                priority=priority,
                lease_sec=3_600,
            )
        self.fill()

    def fill(self) -> list[TriggerJob]:
        """Triggers what was taken since."""
        triggers = [
            TriggerJob(**self.world._envelope(tenant=tenant), job_id=job_id)
            for job_id, (tenant, _) in self.wanted.items()
            for _ in range(AHEAD - self.waiting[job_id])
        ]
        self.waiting = Counter(dict.fromkeys(self.wanted, AHEAD))
        self.world.run(*triggers)
        return triggers


class Fleet:
    """One session with one worker of `slots` places."""

    def __init__(
        self, world: World, slots: int, runs_ms: Callable[[Execution], int], pool: str = POOL
    ) -> None:
        self.world, self.slots, self.pool = world, slots, pool
        self._runs_ms = runs_ms
        self._ends: list[tuple[int, int, Grant]] = []
        self._numbers = 0
        self._seq = 0
        self.granted: list[Execution] = []
        self.held_ms: Counter[str] = Counter()

    def held(self) -> Counter[str]:
        """Slots in use by tenant."""
        return Counter(grant.execution.tenant for _, _, grant in self._ends)

    def ask(self, *reports: WorkCommand) -> list[Grant]:
        """Offers all free slots; what is granted runs."""
        self._seq += 1
        request = RequestWork(
            **self.world._envelope(tenant=SHARED if self.pool.startswith("shared/") else TENANT),
            pool=self.pool,
            seq=self._seq,
            grants_seen=self.world.grants_seen,
            park_sec=60,
            slots=(Slot(worker_id="w", credit=self.slots - len(self._ends)),),
        )
        grants = granted(self.world.run(*reports, request))
        for grant in grants:
            self._numbers += 1
            ends_ms = self.world.now_ms + self._runs_ms(grant.execution)
            heappush(self._ends, (ends_ms, self._numbers, grant))
            self.granted.append(grant.execution)
        return grants

    def finish_next(self) -> None:
        """Time goes on to the next end, or ends, at one instant; their slots are offered again."""
        now_ms = self._ends[0][0]
        for tenant, count in self.held().items():
            self.held_ms[tenant] += count * (now_ms - self.world.now_ms)
        self.world.now_ms = now_ms
        reports: list[WorkCommand] = []
        while self._ends and self._ends[0][0] == now_ms:
            execution = heappop(self._ends)[2].execution
            item = Completion(
                execution_id=execution.execution_id, worker_id="w", lease_epoch=execution.lease_epoch
            )
            envelope = self.world._envelope(tenant=execution.tenant)
            reports.append(Complete(**envelope, items=(item,), pools=(execution.pool,)))
        self.ask(*reports)

    def run(self, backlogs: Backlogs, for_ms: int) -> None:
        """Works on endless backlogs."""
        until_ms = self.world.now_ms + for_ms
        taken = len(self.granted)
        self.ask()
        while self._ends and self._ends[0][0] <= until_ms:
            for execution in self.granted[taken:]:
                backlogs.waiting[execution.job_id] -= 1
            taken = len(self.granted)
            if min(backlogs.waiting.values()) < AHEAD // 2:
                backlogs.fill()
            self.finish_next()
