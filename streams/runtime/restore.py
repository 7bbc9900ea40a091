"""One partition on its way to running: what its restore has found out so far.

Owns the values. `starting` finds the store to begin with, `recovery` replays the log to its end.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from streams.runtime.background import Task
from streams.runtime.inquiries import Question, Standing
from streams.runtime.late import LATE_EVENTS
from streams.runtime.mark import NOWHERE, Positions
from streams.runtime.partition import Partition
from streams.runtime.snapshots import Found, Manifest
from streams.runtime.tail import Tail
from streams.store.kv import Incoming


class UnusableStore(Exception):
    """The store cannot be completed from the log; the message says why."""


class Stage(Enum):
    OPEN = 1
    STABLE = 2
    REPLAY = 3


@dataclass(slots=True)
class Fetch:
    """A snapshot that is being fetched; `bytes` are there."""

    manifest: Manifest
    incoming: Incoming
    task: Task[None] | None = None
    bytes: int = 0

    def got(self, count: int) -> None:
        self.bytes += count


@dataclass(slots=True)
class Restore:
    """`carried`: positions in the newest events' headers."""

    partition: Partition
    stage: Stage = Stage.OPEN
    wipes: int = 0
    search: Task[Found] | None = None
    candidates: list[Manifest] | None = None
    """Snapshots that were not tried yet; None as long as nobody looked."""
    fetch: Fetch | None = None
    question: Question | None = None
    """Where it stands, while that is asked."""
    standing: Standing | None = None
    carried: Positions = NOWHERE
    started_ms: int = 0
    complete_ms: int = 0
    check_crc: bool = False
    reading: bool = False
    position: int = -1
    waiting_since_ms: int = 0
    """Since when nothing has moved."""
    tail: Tail = field(default_factory=Tail)
    young: deque[bytes] = field(default_factory=partial(deque[bytes], maxlen=LATE_EVENTS))
    """The newest events, encoded, as far as they may not have been answered."""
    told_ms: int = 0
    in_time: bool = True

    @property
    def stands(self) -> Standing:
        """Of a restore that replays."""
        if self.standing is None:
            raise RuntimeError(f"where partition {self.partition.number} stands is not known yet")
        return self.standing

    @property
    def awaits(self) -> str:
        """What has to come before the log can be read."""
        if self.fetch is None:
            return "looking for a snapshot"
        return f"fetching a snapshot: {self.fetch.bytes >> 20} of {self.fetch.manifest.size >> 20} MiB"
