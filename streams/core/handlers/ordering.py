"""The order in which a pool's runnable executions are granted, and how many may run now (semantics §6).

By priority, 16 : 4 : 1; in a shared pool the tenant with the least running / weight; then by due time. A pool
or tenant that is paused, or at a cap, is left out by one look at a counter: no execution is touched for it,
so a pause of a million costs nothing, and its end finds all of them as they were.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace, nsmallest

from schemas.entities import Execution, Priority
from schemas.replies import Waiting
from streams.core import keys
from streams.core.caps import PoolCaps, running_max
from streams.core.fairness import Fairness
from streams.core.priorities import by_turn
from streams.core.transaction import Transaction

WAITING_ROWS_MAX = 32
"""Tenants of a priority that a reply tells of; the next ones first."""
TENANTS_SEEN_MAX = 500
"""Tenants of a priority that one pass weighs against each other (some ms); the next one goes on behind them.
With more of them waiting in one pool and partition, shares are exact within such a group only."""
READ_MIN = 16
"""Executions of a tenant read at once, at least; twice as many the next time."""


@dataclass(slots=True)
class _Tenant:
    """A tenant in the pool; `room`: how many more of it may run in the pool now."""

    name: str
    weight: int
    running: int
    room: int


@dataclass(slots=True)
class _Line:
    """Runnable executions of a tenant and priority. `left`: those of the pass's beginning that are still
    there, since what becomes runnable during a pass waits for the next one."""

    priority: str
    tenant: _Tenant
    left: int
    read_next: int
    head: deque[str] = field(default_factory=deque)
    read_to: bytes = b""


class PoolOrder:
    """One pool in one pass. `credit`: how many executions may be asked for, as far as known."""

    def __init__(
        self, tx: Transaction, fairness: Fairness, pool_key: str, partition: int, credit: int = 0
    ) -> None:
        self._tx = tx
        self._fairness = fairness
        self._pool_key = pool_key
        self._partition = partition
        self._credit = credit
        self._caps = PoolCaps(tx.router, pool_key, partition)
        self.shared = self._caps.shared
        self._look()

    def _look(self) -> None:
        """Reads who waits and may run anything now."""
        self.running = self._tx.state.indexes.running_in(self._pool_key)
        most = self._caps.running_max
        self._room = None if most is None else max(0, most - self.running)
        self._more = False
        self._waiting: tuple[int, tuple[Waiting, ...]] | None = None
        self._tenants: dict[str, _Tenant] = {}
        closed = self._caps.paused or self._room == 0
        self._lines = {p: [] if closed else self._waiting_lines(p) for p in keys.PRIORITIES}
        self._heaps = {priority: self._heap(lines) for priority, lines in self._lines.items() if lines}

    def next(self) -> Execution | None:
        """The next execution, or None if none may run now. `granted` says that it was taken."""
        found = self._next()
        if found is None and self._more:
            self._look()
            found = self._next()
        return found

    def _next(self) -> Execution | None:
        if self._room == 0 or not any(self._heaps.values()):
            return None
        for priority in by_turn(self._fairness.step(self._pool_key, self._tx.state.last_token)):
            heap = self._heaps.get(priority)
            line = self._first(heap) if heap else None
            if line is not None:
                self._waiting = None
                line.left -= 1
                return self._tx.state.execution(line.tenant.name, line.head.popleft())
        return None

    def granted(self, execution: Execution) -> None:
        """It runs: its tenant's turn and one place are used."""
        self._waiting = None
        tenant = self._tenants[execution.tenant]
        tenant.running += 1
        tenant.room -= 1
        self.running += 1
        if self._room is not None:
            self._room -= 1
        if self.shared:
            self._fairness.granted(self._pool_key, tenant.name, tenant.weight)

    def waiting(self) -> tuple[int, tuple[Waiting, ...]]:
        """How many may run now, and whose they are."""
        if self._waiting is None:
            self._waiting = self._count_waiting()
            if not self._waiting[0] and self._more:
                self._look()
                self._waiting = self._count_waiting()
        return self._waiting

    def _count_waiting(self) -> tuple[int, tuple[Waiting, ...]]:
        if not self._tenants:
            return 0, ()
        room = {tenant.name: tenant.room for tenant in self._tenants.values()}
        total, rows = 0, []
        for priority, lines in self._lines.items():
            counts = {}
            for line in lines:
                name = line.tenant.name
                counts[name] = min(line.left, room[name])
                room[name] -= counts[name]
            total += sum(counts.values())
            may_run = (line for line in lines if counts[line.tenant.name])
            for line in nsmallest(WAITING_ROWS_MAX, may_run, key=self._key):
                row = Waiting(
                    priority=Priority(priority),
                    tenant=line.tenant.name,
                    weight=line.tenant.weight,
                    backlog=counts[line.tenant.name],
                    running=line.tenant.running,
                )
                rows.append(row)
        if self._room is not None:
            total = min(total, self._room)
        return total, tuple(rows) if total else ()

    def _waiting_lines(self, priority: str) -> list[_Line]:
        """Of tenants that may run anything now, at most `TENANTS_SEEN_MAX`."""
        behind = self._fairness.seen_to(self._pool_key, priority) if self.shared else ""
        lines: list[_Line] = []
        for name, count in self._tx.state.indexes.waiting(self._pool_key, priority, behind):
            tenant = self._tenant(name)
            if not tenant.room:
                continue
            lines.append(_Line(priority, tenant, count, 0))
            if len(lines) == TENANTS_SEEN_MAX:
                self._more = True
                self._fairness.saw(self._pool_key, priority, name)
                break
        return lines

    def _tenant(self, name: str) -> _Tenant:
        known = self._tenants.get(name)
        if known is None:
            indexes, router = self._tx.state.indexes, self._tx.router
            settings = router.settings_of(name)
            everywhere = indexes.running_of(name)
            running = indexes.running_of_in(name, self._pool_key) if everywhere else 0
            room = running_max(router, settings, self._partition) - everywhere
            in_pool = self._caps.tenant_running_max(settings)
            if in_pool is not None:
                room = min(room, in_pool - running)
            room = 0 if settings.paused else max(0, room)
            known = self._tenants[name] = _Tenant(name, settings.weight, running, room)
        return known

    def _key(self, line: _Line) -> tuple[float, float, str]:
        tenant = line.tenant
        if not self.shared:
            return (0.0, 0.0, "")
        start = self._fairness.start(self._pool_key, tenant.name)
        return (tenant.running / tenant.weight, start, tenant.name)

    def _heap(self, lines: list[_Line]) -> list[tuple[tuple[float, float, str], _Line]]:
        for line in lines:
            line.read_next = max(READ_MIN, self._credit // len(lines))
        heap = [(self._key(line), line) for line in lines]
        heapify(heap)
        return heap

    def _first(self, heap: list[tuple[tuple[float, float, str], _Line]]) -> _Line | None:
        """Keys only grow in a pass, so an old one at the top is put right when it comes up."""
        while heap:
            known, line = heap[0]
            if not line.left or not line.tenant.room:
                heappop(heap)
                continue
            now = self._key(line) if self.shared else known
            if now != known:
                heapreplace(heap, (now, line))
                continue
            if line.head or self._read(line):
                return line
            heappop(heap)
        return None

    def _read(self, line: _Line) -> bool:
        limit = min(line.left, line.read_next)
        found = self._tx.state.indexes.runnable(
            self._pool_key, line.priority, line.tenant.name, limit, line.read_to
        )
        line.read_next *= 2
        if found:
            line.read_to = found[-1][0]
            line.head.extend(execution_id for _, execution_id in found)
        return bool(found)
