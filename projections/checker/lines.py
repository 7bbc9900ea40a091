"""Owns what waits for a worker: by partition and pool, and there by priority and tenant."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from schemas.entities import Execution, Priority


class Line:
    """Executions of a tenant and priority, by due time and by when they came."""

    def __init__(self) -> None:
        self._waits: dict[str, tuple[int, int]] = {}  # since when, and due
        self._by_due: list[tuple[int, str]] = []
        self._arrivals: deque[tuple[int, str]] = deque()

    def __len__(self) -> int:
        return len(self._waits)

    def add(self, execution: Execution, at_ms: int) -> None:
        self._waits[execution.execution_id] = (at_ms, execution.due_ms)
        heappush(self._by_due, (execution.due_ms, execution.execution_id))
        self._arrivals.append((at_ms, execution.execution_id))

    def remove(self, execution: Execution) -> None:
        self._waits.pop(execution.execution_id, None)

    def first(self) -> tuple[int, str, int]:
        """Due time and id of the one that is due first, and since when it has waited. Of a line with any."""
        while True:
            due_ms, execution_id = self._by_due[0]
            since_ms, really_due_ms = self._waits.get(execution_id, (0, -1))
            if really_due_ms == due_ms:
                return due_ms, execution_id, since_ms
            heappop(self._by_due)

    def waits_since_before(self, at_ms: int) -> bool:
        """Whether any has waited since an earlier instant. Instants asked for never go back."""
        while self._arrivals:
            since_ms, execution_id = self._arrivals[0]
            if self._waits.get(execution_id, (-1, 0))[0] == since_ms:
                return since_ms < at_ms
            self._arrivals.popleft()
        return False


class PoolLines:
    """The lines of a pool (`key`: `<owner>/<pool>`) in a partition; a line without anybody is not there."""

    def __init__(self, partition: int, key: str) -> None:
        self.partition = partition
        self.key = key
        self._lines: dict[Priority, dict[str, Line]] = {priority: {} for priority in Priority}

    def __bool__(self) -> bool:
        return any(self._lines.values())

    def of(self, priority: Priority) -> dict[str, Line]:
        """By tenant."""
        return self._lines[priority]

    def add(self, execution: Execution, at_ms: int) -> None:
        self._lines[execution.priority].setdefault(execution.tenant, Line()).add(execution, at_ms)

    def remove(self, execution: Execution) -> None:
        lines = self._lines[execution.priority]
        line = lines.get(execution.tenant)
        if line is not None:
            line.remove(execution)
            if not line:
                del lines[execution.tenant]
