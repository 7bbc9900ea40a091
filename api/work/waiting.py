"""Claims that wait, and which partitions have yet to say what they hold. Pure: no I/O, time is passed in."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from schemas.replies import Grant

RECENT_SEC = 90.0
"""Processors repeat replies younger than a minute after a crash; a client repeats a claim sooner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A worker that waits for executions. `until`: when it gets an empty answer."""

    token: int
    worker_id: str
    max: int
    until: float
    claim_id: str = ""
    lease_sec: int = 0
    patient: bool = True


@dataclass(slots=True, eq=False)
class Waiting:
    """A claim and what it has got so far. `unchecked`: partitions that have not said what it holds there;
    `unsure`: one of them never did. `repeated`: it was answered before, so it may hold something."""

    claim: Claim
    got: list[tuple[int, Grant]] = field(default_factory=list)
    keys: set[tuple[str, int]] = field(default_factory=set)
    unchecked: set[int] = field(default_factory=set)
    unsure: bool = False
    check_until: float = 0.0
    repeated: bool = False
    first_got_at: float = 0.0
    answer_at: float = 0.0

    @property
    def room(self) -> int:
        return self.claim.max - len(self.got)

    def knows(self, partition: int) -> bool:
        """Whether the partition has said what the claim holds there."""
        return not self.unsure and partition not in self.unchecked


class Checks:
    """Which claims are still to be asked after, and which were, by partition."""

    def __init__(self, partitions: Sequence[int]) -> None:
        self._to_ask: dict[int, dict[int, Waiting]] = {partition: {} for partition in partitions}
        self._asked: dict[int, deque[tuple[int, Waiting]]] = {partition: deque() for partition in partitions}

    def begin(self, waiting: Waiting) -> None:
        """Every partition is to say what the claim holds."""
        waiting.unchecked = set(self._to_ask)
        for to_ask in self._to_ask.values():
            to_ask[waiting.claim.token] = waiting

    def end(self, waiting: Waiting) -> None:
        """Nobody wants to know any more."""
        for partition in waiting.unchecked:
            self._to_ask[partition].pop(waiting.claim.token, None)
        waiting.unchecked.clear()

    def to_ask(self, partition: int) -> list[Waiting]:
        """Claims that no request to the partition has named yet."""
        return list(self._to_ask[partition].values())

    def asked(self, partition: int, seq: int, claims: Iterable[Waiting]) -> None:
        """They stand in this request."""
        for waiting in claims:
            if self._to_ask[partition].pop(waiting.claim.token, None) is not None:
                self._asked[partition].append((seq, waiting))

    def seen(self, partition: int, seq: int) -> Iterator[Waiting]:
        """The claims that the partition has spoken about now."""
        asked = self._asked[partition]
        while asked and asked[0][0] <= seq:
            _, waiting = asked.popleft()
            waiting.unchecked.discard(partition)
            yield waiting


class Recent:
    """What came lately; a repeat is recognised for at least RECENT_SEC."""

    def __init__(self, now: float) -> None:
        self._turned_at = now
        self._older: set[int] = set()
        self._newer: set[int] = set()

    def has(self, key: tuple[str, object]) -> bool:
        return hash(key) in self._newer or hash(key) in self._older

    def add(self, key: tuple[str, object], now: float) -> bool:
        """False if it was there."""
        if now - self._turned_at > RECENT_SEC:
            self._older, self._newer, self._turned_at = self._newer, set(), now
        if self.has(key):
            return False
        self._newer.add(hash(key))
        return True
