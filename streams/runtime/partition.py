"""What one owned partition is: its store and engine, how far it is, its time, and what it has yet to decide.

Owns the values of one partition and the instant up to which lease ends may be
decided (architecture §5.9). May not know readers,
writers or the group: `processor` drives it, `recovery` brings it to life, `checkpoint` moves it on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from msgspec.structs import replace

from schemas.entities import Record as LogRecord
from schemas.events import Event
from streams.ambient import Clock
from streams.core.effects import Effect
from streams.core.transaction import Logged, Source
from streams.runtime.mark import NO_MARK, NOWHERE, Mark, Positions, write_marked
from streams.runtime.snapshots import Manifest
from streams.store.kv import Batch, KeyValue
from streams.transport.log import Record

BEFORE_ALL_TIME = -(2**62)


@dataclass(frozen=True, slots=True)
class Ambient:
    """Time and chance as the process has them; a simulation gives its own."""

    clock: Clock
    monotonic_ms: Callable[[], int]
    chance: Callable[[], float]


class Codec(Protocol):
    """The part of `schemas.codec` that the runtime needs."""

    def encode(self, record: LogRecord, /) -> bytes: ...

    def decode(self, data: bytes, /) -> LogRecord: ...


class Decided(Protocol):
    """What came out of one transaction of the engine."""

    @property
    def events(self) -> Sequence[Logged]: ...

    @property
    def effects(self) -> Sequence[Effect]: ...


class Engine(Protocol):
    """`streams.core.engine.Engine` as the runtime drives it."""

    def begin(self, now_ms: int, chance: Callable[[], float], /) -> None: ...

    def open_partition(self, partition_count: int, /) -> None: ...

    def alert(self, kind: str, detail: str, /) -> None: ...

    def decide(self, command: Any, source: Source, /) -> None: ...

    def fire(self, settled_ms: int, limit: int, /) -> bool: ...

    def grant(self) -> None: ...

    def decided(self) -> Decided: ...

    def commit(self) -> Batch: ...

    def written(self) -> None: ...

    def abort(self) -> None: ...

    def settings_changed(self) -> None: ...

    def next_wakeup_ms(self, now_ms: int, /) -> int: ...

    def lease_due(self, now_ms: int, /) -> bool: ...

    def apply(self, key: str, value: bytes | None, /) -> None: ...

    def digest(self) -> str: ...


class GivenUp(Exception):
    """The process must not go on; the message says what the operator should look at."""


class PartitionState(StrEnum):
    """As `/v1/partitions` shows it."""

    RESTORING = "RESTORING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"


class Settlement:
    """Up to when lease ends may be decided: log lag is not death (§5.9).

    `ask` notes what `work` held when the clock stood at `now_ms`; once all of that is decided, whoever has
    not been heard of by then is late by the broker's clock, not by our lag. At a take-over nothing is.
    """

    def __init__(self) -> None:
        self.settled_ms = BEFORE_ALL_TIME
        self._asked_ms = 0
        self._target: int | None = None

    @property
    def asked(self) -> bool:
        return self._target is not None

    def ask(self, now_ms: int, end_offset: Callable[[], int]) -> None:
        """The clock is read before the log is asked, so that every record of before `now_ms` counts."""
        self._asked_ms = now_ms
        self._target = end_offset()

    def decided_to(self, work_position: int) -> bool:
        """All of `work` before the position is decided for good; True if that answers what was asked."""
        if self._target is None or work_position < self._target:
            return False
        self.settled_ms = max(self.settled_ms, self._asked_ms)
        self._target = None
        return True


@dataclass(slots=True, eq=False)
class Partition:
    """One partition as long as this process owns it. `store` and `engine` are there once it is open."""

    number: int
    state: PartitionState = PartitionState.RESTORING
    reason: str = ""
    store: KeyValue | None = None
    engine: Engine | None = None
    mark: Mark = NO_MARK
    positions: Positions = NOWHERE
    """Next to decide. Ahead of `committed` only by records that nothing came of."""
    committed: Positions = NOWHERE
    """As the newest transaction left them."""
    behind_since_ms: int | None = None
    """Monotonic instant since when `positions` are ahead of `committed`."""
    settlement: Settlement = field(default_factory=Settlement)
    work: deque[Record] = field(default_factory=deque)
    commands: deque[Record] = field(default_factory=deque)
    opened: bool = False
    """The log says what it was made with, or is about to."""
    wakeup_ms: int = 0
    """When the engine has something to do by itself, lease ends left aside."""
    more_due: bool = False
    """The last pass over the timers was cut at its limit."""
    heavy: bool = False
    """Its last turn left something over: it had more than its share (`sharing`)."""
    passed_over: int = 0
    """So many turns since then had no part for it, although it was busy."""
    lease_check_ms: int = 0
    restore_remaining: int = 0
    snapshot: Manifest | None = None
    """The newest that this process knows of."""
    alerts: list[tuple[str, str]] = field(default_factory=list)
    """Kind and detail of what operators were told, and the log not yet."""
    unanswered: Sequence[Event] = ()
    """Young events that another process committed, and may have died before it answered."""

    @property
    def running(self) -> bool:
        return self.state is PartitionState.RUNNING

    @property
    def backlog(self) -> bool:
        return bool(self.work or self.commands)

    @property
    def work_next(self) -> int:
        """Next offset of `work` to fetch: behind what waits here."""
        return self.work[-1].offset + 1 if self.work else self.positions.work

    def forget_fetched(self) -> None:
        self.work.clear()
        self.commands.clear()

    def mark_complete(self, now_ms: int) -> None:
        """Of a partition that runs: its store says that up to now nothing was missed."""
        if self.store is not None:
            self.mark = replace(self.mark, complete_ms=now_ms)
            write_marked(self.store, Batch(), self.mark)

    def close(self) -> None:
        """Everything applied is written already; the log has the rest."""
        self.forget_fetched()
        self.engine = None
        if self.store is not None:
            self.store.close()
            self.store = None
