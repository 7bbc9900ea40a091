"""Workers between two claims: what partitions grant them meanwhile waits for the next claim for a moment.

A worker is answered with what came first; what another partition granted at the same time comes when nobody
waits. Handed back at once it would be granted twice, and by then its worker mostly has asked again (measured:
two grants an execution in a herd over eight partitions). So it is kept for as long as the worker was away
last time and somewhat longer, or until the end of HOLD_SEC if nobody else here could take it. Pure.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from schemas.replies import Grant

HOLD_SEC = 1.0
"""The longest that an execution waits for its worker."""
FIRST_SEC = 0.1
"""For a worker of which nothing is known yet."""
MARGIN_SEC = 0.02
FORGET_SEC = 60.0
"""How long a worker's habit is remembered, at least."""

Granted = tuple[int, Grant]


@dataclass(slots=True)
class _Absent:
    """`expected_until`: by its habit it is back; `room`: places it said were free and did not get."""

    since: float
    expected_until: float
    room: int
    grants: list[Granted] = field(default_factory=list)


class Away:
    """The workers of one pool that were answered and did not ask again yet."""

    def __init__(self, now: float) -> None:
        self._absent: dict[str, _Absent] = {}
        self._holding: dict[str, _Absent] = {}
        self._ends: list[tuple[float, str]] = []
        self._left_at = _Memory(now)
        self._gaps = _Memory(now)

    def left(self, worker_id: str, room: int, now: float) -> None:
        """The worker was answered; so many places were still free."""
        self._left_at.put(worker_id, now, now)
        if room > 0:
            expected_sec = 2 * self._gaps.get(worker_id, FIRST_SEC / 2) + MARGIN_SEC
            self._absent[worker_id] = _Absent(now, now + min(expected_sec, HOLD_SEC), room)
            heapq.heappush(self._ends, (now + HOLD_SEC, worker_id))

    def back(self, worker_id: str, now: float) -> list[Granted]:
        """The worker asks again: what was kept for it."""
        left_at = self._left_at.get(worker_id, now)
        if left_at < now:
            self._gaps.put(worker_id, now - left_at, now)
        absent = self._absent.pop(worker_id, None)
        self._holding.pop(worker_id, None)
        return absent.grants if absent is not None else []

    def keep(self, worker_id: str, partition: int, grant: Grant) -> bool:
        """Takes a grant of an absent worker in, if it had room for it."""
        absent = self._absent.get(worker_id)
        if absent is None or len(absent.grants) >= absent.room:
            return False
        absent.grants.append((partition, grant))
        self._holding[worker_id] = absent
        return True

    def give_up(self, now: float, others_wait: bool) -> list[Granted]:
        """What waits no longer. `others_wait`: somebody here would take it."""
        late = [worker_id for worker_id, absent in self._holding.items() if absent.expected_until <= now]
        given = [grant for worker_id in late if others_wait for grant in self._forget(worker_id)]
        while self._ends and self._ends[0][0] <= now:
            _, worker_id = heapq.heappop(self._ends)
            absent = self._absent.get(worker_id)
            if absent is not None and absent.since + HOLD_SEC <= now:
                given += self._forget(worker_id)
        return given

    def end(self) -> list[Granted]:
        """Nobody will come back."""
        return [grant for worker_id in list(self._absent) for grant in self._forget(worker_id)]

    def due_at(self, now: float) -> float | None:
        """When `give_up` is to be called next, if nobody comes."""
        return min(
            (
                absent.expected_until if absent.expected_until > now else absent.since + HOLD_SEC
                for absent in self._holding.values()
            ),
            default=None,
        )

    def _forget(self, worker_id: str) -> list[Granted]:
        self._holding.pop(worker_id, None)
        return self._absent.pop(worker_id).grants


class _Memory:
    """A number for each worker, kept for at least FORGET_SEC."""

    def __init__(self, now: float) -> None:
        self._turned_at = now
        self._older: dict[str, float] = {}
        self._newer: dict[str, float] = {}

    def put(self, worker_id: str, value: float, now: float) -> None:
        if now - self._turned_at > FORGET_SEC:
            self._older, self._newer, self._turned_at = self._newer, {}, now
        self._newer[worker_id] = value

    def get(self, worker_id: str, default: float) -> float:
        return self._newer.get(worker_id, self._older.get(worker_id, default))
