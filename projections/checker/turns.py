"""Owns whose turn it was: each grant is held against what waited for a worker of the same pool and partition
(semantics, section 6).

Only what has waited since an earlier instant counts: a pass goes by what was there when it began. Within a
tenant and priority due time decides, at every grant. Of priorities, each has its part of the turns; where in
a round a pool is the engine keeps in memory, so there what counts is how far a priority falls behind.
"""

from __future__ import annotations

from projections.checker.lines import PoolLines
from projections.checker.report import Kind, Report
from projections.checker.shares import WEIGHED_MAX, Shares
from schemas import ids
from schemas.entities import Execution, Priority, WaitingFor
from schemas.events import ExecutionClaimed, ExecutionEvent

WEIGHTS = {Priority.HIGH: 16, Priority.NORMAL: 4, Priority.LOW: 1}
ROUND = sum(WEIGHTS.values())
BEHIND_MAX = 6 * ROUND
"""How far a priority that waits may fall behind, in parts of a turn. Within a round it is less than two
turns; each owner that begins another round may add to it, and nothing makes up for that (simulated: three
turns, of a partition that moved every few grants)."""


class Turns:
    """Everything that waits for a worker."""

    def __init__(self, report: Report, shares: Shares) -> None:
        self._report = report
        self._shares = shares
        self._pools: dict[tuple[int, str], _Pool] = {}

    def changed(
        self, partition: int, event: ExecutionEvent, before: Execution | None, *, judged: bool
    ) -> None:
        """An execution is now what the event says; it is not yet counted as running."""
        now = event.execution
        waited = before is not None and before.waiting_for is WaitingFor.WORKER
        waits = now.waiting_for is WaitingFor.WORKER
        if not waited and not waits:
            return
        place = (partition, ids.pool_key(now.tenant, now.pool))
        pool = self._pools.get(place)
        if pool is None:
            pool = self._pools[place] = _Pool(*place)
        if waited:
            if not isinstance(event, ExecutionClaimed):
                pool.behind[now.priority] = 0  # it may have had its turn, and found that it has to wait
            elif judged:
                self._granted(pool, event)
            pool.remove(now)
        if waits:
            pool.add(now, event.at_ms)
        if not pool:
            del self._pools[place]

    def _granted(self, pool: _Pool, event: ExecutionClaimed) -> None:
        now, at_ms = event.execution, event.at_ms
        due_ms, execution_id, since_ms = pool.of(now.priority)[now.tenant].first()
        if since_ms < at_ms and (due_ms, execution_id) < (now.due_ms, now.execution_id):
            self._add(pool, event, f"{execution_id} was due first, at {due_ms}")
        if pool.is_shared and (wrong := self._shares.why_wrong(pool, now, at_ms)):
            self._add(pool, event, wrong)
        self._check_priorities(pool, event)

    def _check_priorities(self, pool: _Pool, event: ExecutionClaimed) -> None:
        """A round has a turn for each part of the weights; one that waits is owed its part of each turn."""
        for priority, weight in WEIGHTS.items():
            behind = pool.behind[priority] + weight
            if priority is event.execution.priority:
                behind = max(0, behind - ROUND)
            elif not self._waits(pool, priority, event.at_ms):
                behind = 0
            elif behind > BEHIND_MAX:
                self._add(pool, event, f"{priority} waits, and is {behind // ROUND} turns behind")
                behind = 0
            pool.behind[priority] = behind

    def _waits(self, pool: _Pool, priority: Priority, at_ms: int) -> bool:
        """Whether anything of a priority could have been granted instead."""
        lines = pool.of(priority)
        if not pool.is_shared:
            return any(line.waits_since_before(at_ms) for line in lines.values())
        return len(lines) <= WEIGHED_MAX and any(
            self._shares.waits(pool, tenant, line, at_ms) for tenant, line in lines.items()
        )

    def _add(self, pool: _Pool, event: ExecutionClaimed, wrong: str) -> None:
        execution = event.execution
        where = f"{pool.key} of partition {pool.partition}"
        detail = f"granted in {where} at {event.at_ms}: {wrong}"
        self._report.add(Kind.TURN, f"{execution.tenant}/{execution.execution_id}", detail)


class _Pool(PoolLines):
    """`behind`: how far each priority is behind its part of the turns, in parts of a turn."""

    def __init__(self, partition: int, key: str) -> None:
        super().__init__(partition, key)
        self.is_shared = ids.is_shared(key)
        self.behind = dict.fromkeys(WEIGHTS, 0)
