"""Owns circuit breakers: when one may open, for how long, and whom it holds back (semantics, section 6).

When one *must* open the log does not say: the minute of outcomes is kept in memory, and a partition that
moves begins another. So what a breaker says that it saw is held against what there was to be seen.
"""

from __future__ import annotations

from collections import defaultdict, deque

from projections.checker.report import Kind, Report
from schemas import ids
from schemas.entities import Breaker, Execution
from schemas.entities import BreakerStatus as B
from schemas.events import (
    AttemptFailed,
    BreakerEvent,
    ExecutionClaimed,
    ExecutionCompleted,
    ExecutionDeadLettered,
    ExecutionEvent,
)

OUTCOMES_MIN = 20
PROBES_MAX = 3
PAUSE_MS, PAUSE_MAX_MS = 30_000, 600_000
WINDOW_MS = 61_000
"""A minute of whole seconds, the one that has begun with it."""
LIFE: dict[B, frozenset[B]] = {
    B.CLOSED: frozenset({B.OPEN}),
    B.OPEN: frozenset({B.PROBING}),
    B.PROBING: frozenset({B.PROBING, B.OPEN, B.CLOSED}),
}
Place = tuple[int, str, str]
"""Partition, tenant and target: a tenant of several shards has a breaker in each."""


class Breakers:
    """Of all partitions, with the newest outcomes of each target: when, and whether it was a failure."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._breakers: dict[Place, Breaker] = {}
        self._outcomes: dict[Place, deque[tuple[int, bool]]] = defaultdict(deque)

    def executed(self, partition: int, event: ExecutionEvent, *, judged: bool) -> None:
        """Something happened to an execution: a grant that a breaker may forbid, or an outcome."""
        execution = event.execution
        place = (partition, execution.tenant, ids.target_of(execution))
        match event:
            case ExecutionClaimed():
                if judged and execution.attempt > 1:
                    self._check_grant(self._breakers.get(place), execution)
            case ExecutionCompleted():
                self._ended(place, event.at_ms, failed=False)
            case AttemptFailed():
                self._ended(place, event.at_ms, failed=True)
            case ExecutionDeadLettered():
                if execution.reason == "attempts":
                    self._ended(place, event.at_ms, failed=True)

    def changed(self, partition: int, event: BreakerEvent, *, judged: bool) -> None:
        """A breaker is now what the event says."""
        now = event.breaker
        place = (partition, now.tenant, now.target)
        before = self._breakers.get(place)
        if judged:
            for wrong in self._wrongs(place, now, before, event.at_ms):
                self._report.add(Kind.BREAKER, f"{now.tenant} {now.target}", f"{wrong}, at {event.at_ms}")
        self._breakers[place] = now

    def forgotten(self, name: str) -> None:
        """The breaker of `<tenant>:<target>` is forgotten, in the partition where it was closed for a day."""
        tenant, _, target = name.partition(":")
        of_name = [place for place in self._breakers if place[1:] == (tenant, target)]
        closed = [place for place in of_name if self._breakers[place].status is B.CLOSED]
        if of_name and not closed:
            self._report.add(Kind.BREAKER, f"{tenant} {target}", "forgotten, and not closed")
        for place in closed[:1]:
            del self._breakers[place]

    def _check_grant(self, breaker: Breaker | None, execution: Execution) -> None:
        """A retry waits while its breaker is open, and unless it is a probe, while others are tried."""
        if breaker is None or breaker.status is B.CLOSED:
            return
        is_probe = execution.execution_id in breaker.probes or len(breaker.probes) < PROBES_MAX
        if breaker.status is B.OPEN or not is_probe:
            detail = f"attempt {execution.attempt} was granted; the breaker of its pool is {breaker.status}"
            self._report.add(Kind.BREAKER, f"{execution.tenant}/{execution.execution_id}", detail)

    def _ended(self, place: Place, at_ms: int, *, failed: bool) -> None:
        outcomes = self._outcomes[place]
        outcomes.append((at_ms, failed))
        while outcomes[0][0] <= at_ms - WINDOW_MS:
            outcomes.popleft()

    def _wrongs(self, place: Place, now: Breaker, before: Breaker | None, at_ms: int) -> list[str]:
        status = before.status if before is not None else B.CLOSED
        wrong = []
        if now.status not in LIFE[status]:
            wrong.append(f"{status} to {now.status}")
        elif now.status is B.OPEN:
            wrong += self._opened(place, now, before, at_ms)
        elif now.status is B.PROBING and len(now.probes) > PROBES_MAX:
            wrong.append(f"{len(now.probes)} are tried at a time")
        if status is B.OPEN and before is not None and at_ms < before.until_ms:
            wrong.append(f"some are tried before {before.until_ms}")
        return wrong

    def _opened(self, place: Place, now: Breaker, before: Breaker | None, at_ms: int) -> list[str]:
        wrong = []
        again = before is not None and before.status is B.PROBING
        openings = before.openings + 1 if before is not None and again else 1
        pause_ms = min(PAUSE_MAX_MS, PAUSE_MS << (openings - 1))
        if (now.openings, now.until_ms) != (openings, at_ms + pause_ms):
            wrong.append(f"opening {now.openings} until {now.until_ms}, not {openings} for {pause_ms} ms")
        if again:
            return wrong
        seen = [failed for when_ms, failed in self._outcomes[place] if when_ms > at_ms - WINDOW_MS]
        if now.outcomes < OUTCOMES_MIN or now.failures * 2 < now.outcomes:
            wrong.append(f"opened by {now.failures} of {now.outcomes}")
        if now.outcomes > len(seen) or now.failures > sum(seen):
            wrong.append(f"opened by {now.failures} of {now.outcomes}; there were {sum(seen)} of {len(seen)}")
        return wrong
