"""Who was told lately that executions are late: at most once a minute and subject, with a count. Soft state:
a restart may tell once more, an abort takes back what the transaction told."""

from __future__ import annotations

from typing import NamedTuple

QUIET_MS = 60_000


class Subject(NamedTuple):
    """A job that has its own `latenessAlertSec`, else a tenant's pool."""

    tenant: str
    job_id: str
    target: str


class Late:
    """Of one partition."""

    def __init__(self) -> None:
        self._told: dict[Subject, tuple[int, int]] = {}  # when, and how many since
        self._undo: dict[Subject, tuple[int, int] | None] = {}

    def add(self, subject: Subject, now_ms: int, count: int = 1) -> int:
        """Of how many to tell now; 0: not yet."""
        told = self._told.get(subject)
        total = count + (told[1] if told is not None else 0)
        quiet = told is not None and now_ms - told[0] < QUIET_MS
        self._put(subject, (told[0], total) if told is not None and quiet else (now_ms, 0))
        return 0 if quiet else total

    def may_tell(self, subject: Subject, now_ms: int) -> bool:
        """Whether what still waits would be told of: it is not counted again and again."""
        told = self._told.get(subject)
        return told is None or now_ms - told[0] >= QUIET_MS

    def overdue(self, now_ms: int) -> list[tuple[Subject, int]]:
        """What was counted, and was kept back for a minute."""
        found = [(s, n) for s, (at_ms, n) in self._told.items() if n and now_ms - at_ms >= QUIET_MS]
        for subject, _ in found:
            self._put(subject, (now_ms, 0))
        return found

    @property
    def waits(self) -> bool:
        """Whether something was counted that nobody was told of."""
        return any(count for _, count in self._told.values())

    def settled(self) -> None:
        """What the transaction told is committed."""
        self._undo.clear()

    def undo(self) -> None:
        """The transaction was aborted: it told nothing."""
        for subject, told in self._undo.items():
            if told is None:
                del self._told[subject]
            else:
                self._told[subject] = told
        self._undo.clear()

    def drop_stale(self, now_ms: int) -> None:
        """Forgets who may be told again, and of whom nothing was kept back."""
        told = self._told.items()
        if any(not count and now_ms - at_ms >= QUIET_MS for _, (at_ms, count) in told):
            self._told = {s: (at, n) for s, (at, n) in told if n or now_ms - at < QUIET_MS}

    def _put(self, subject: Subject, told: tuple[int, int]) -> None:
        self._undo.setdefault(subject, self._told.get(subject))
        self._told[subject] = told
