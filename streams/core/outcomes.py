"""How attempts ended lately, by tenant and target: what a circuit breaker judges by. Soft state: a restart
begins anew, an abort takes back what the transaction counted."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from schemas.entities import Execution

WINDOW_SEC = 60
JOBS_COUNTED_MAX = 3
"""Distinct jobs kept of each second: more than a breaker asks for need not be told apart."""


class Totals(NamedTuple):
    """Of one window."""

    outcomes: int
    failures: int
    jobs: int


@dataclass(slots=True)
class _Second:
    at_sec: int
    outcomes: int = 0
    failures: int = 0
    jobs: set[str] = field(default_factory=set)


class Outcomes:
    """Windows of one partition."""

    def __init__(self) -> None:
        self._windows: dict[tuple[str, str], deque[_Second]] = {}
        self._added: list[tuple[_Second, bool]] = []
        self._cleared: list[tuple[tuple[str, str], deque[_Second]]] = []
        self._swept_sec = 0

    def add(self, execution: Execution, target: str, now_ms: int, *, failed: bool) -> None:
        """An attempt ended."""
        tenant = execution.tenant
        window = self._windows.get((tenant, target))
        if window is None:
            window = self._windows[tenant, target] = deque()
        now_sec = now_ms // 1_000
        if not window or window[-1].at_sec != now_sec:
            window.append(_Second(now_sec))
            while window[0].at_sec <= now_sec - WINDOW_SEC:
                window.popleft()
        second = window[-1]
        second.outcomes += 1
        second.failures += failed
        if len(second.jobs) < JOBS_COUNTED_MAX:
            second.jobs.add(execution.job_id)
        self._added.append((second, failed))

    def totals(self, tenant: str, target: str, now_ms: int) -> Totals:
        """Of the last minute."""
        oldest = now_ms // 1_000 - WINDOW_SEC
        window = [s for s in self._windows.get((tenant, target), ()) if s.at_sec > oldest]
        jobs = set().union(*(s.jobs for s in window))
        return Totals(sum(s.outcomes for s in window), sum(s.failures for s in window), len(jobs))

    def clear(self, tenant: str, target: str) -> None:
        """What was counted has led to a decision."""
        window = self._windows.pop((tenant, target), None)
        if window is not None:
            self._cleared.append(((tenant, target), window))

    def settled(self) -> None:
        """The outcomes of the transaction are committed."""
        self._added.clear()
        self._cleared.clear()

    def undo(self) -> None:
        """The transaction was aborted: its outcomes never were."""
        for key, window in reversed(self._cleared):
            self._windows[key] = window
        for second, failed in self._added:
            second.outcomes -= 1
            second.failures -= failed
        self.settled()

    def drop_stale(self, now_ms: int) -> None:
        """Forgets windows in which nothing happened; now and then, since it looks at all of them."""
        now_sec = now_ms // 1_000
        if now_sec - self._swept_sec < WINDOW_SEC:
            return
        self._swept_sec = now_sec
        oldest = now_sec - WINDOW_SEC
        self._windows = {key: w for key, w in self._windows.items() if w and w[-1].at_sec > oldest}
