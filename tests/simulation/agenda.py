"""Virtual time: what happens when, in the whole world, and the clocks of its machines.

Owns true time (the brokers') and the order of everything. May not know what happens. Nothing here depends on
the host, so a seed is a whole run.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

Happening = Callable[[], None]
HAPPENINGS_MAX = 150_000
"""Five times as many as a long run has."""


class Restless(Exception):
    """Time does not get on: somebody always has something to do at once."""


class Agenda:
    """Happenings by time; those of the same instant in the order in which they were entered.

    `run_until` may be called from inside a happening: that is how a process stands still in the middle of a
    step while the rest of the world goes on.
    """

    def __init__(self, start_ms: int) -> None:
        self.now_ms = start_ms
        self.happened = 0
        self._queue: list[tuple[int, int, Happening]] = []
        self._numbers = itertools.count()

    def after(self, ms: int, what: Happening) -> None:
        """`ms` from now, at the earliest behind everything of now."""
        heapq.heappush(self._queue, (self.now_ms + max(0, ms), next(self._numbers), what))

    def run_until(self, end_ms: int) -> None:
        """Everything up to `end_ms`; time then stands there."""
        queue = self._queue
        while queue and queue[0][0] <= end_ms:
            when_ms, _, what = heapq.heappop(queue)
            if when_ms > self.now_ms:  # a nested run may have gone further already
                self.now_ms = when_ms
            self.happened += 1
            if self.happened > HAPPENINGS_MAX:
                raise Restless(f"more than {HAPPENINGS_MAX} happenings: something does not come to rest")
            what()
        self.now_ms = max(self.now_ms, end_ms)


class MachineTime:
    """Wall and monotonic time of one machine since it was started. `drift_ppm`: how much too fast it runs;
    `wall_off_ms`: how far its wall clock is off true time now."""

    def __init__(self, agenda: Agenda, drift_ppm: int = 0, wall_off_ms: int = 0) -> None:
        self._agenda = agenda
        self._started_ms = agenda.now_ms
        self._drift_ppm = drift_ppm
        self.wall_off_ms = wall_off_ms

    def _elapsed_ms(self) -> int:
        true_ms = self._agenda.now_ms - self._started_ms
        return true_ms + true_ms * self._drift_ppm // 1_000_000

    def wall_ms(self) -> int:
        """Unix time as the machine shows it."""
        return self._started_ms + self._elapsed_ms() + self.wall_off_ms

    def monotonic_ms(self) -> int:
        """Never goes back, whatever the wall clock does."""
        return 1_000 + self._elapsed_ms()

    def step(self, ms: int) -> None:
        """Someone sets the wall clock."""
        self.wall_off_ms += ms
