"""Who was told lately that executions are late: at most once a minute and subject, with a count. Soft state:
a restart may tell once more, an abort takes back what the transaction told."""

from __future__ import annotations

from heapq import nsmallest
from typing import NamedTuple

QUIET_MS = 60_000
SWEEP_MS = 1_000
OVERDUE_MAX = 1_000
"""Told of in one transaction; the others are counted on until the next pass."""


class Subject(NamedTuple):
    """A job that has its own `latenessAlertSec`, else a tenant's pool."""

    tenant: str
    job_id: str
    target: str


class Late:
    """Of one partition."""

    def __init__(self) -> None:
        self._told: dict[Subject, tuple[int, int]] = {}  # when, and how many since
        self._kept: set[Subject] = set()
        """Those of which something was counted and kept back: asked for after each transaction."""
        self._undo: dict[Subject, tuple[int, int] | None] = {}
        self._swept_ms = 0

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
        """What was counted, and was kept back for a minute; at most `OVERDUE_MAX`, those first that were kept
        back for longest."""
        kept = ((self._told[subject][0], subject) for subject in self._kept)
        due = nsmallest(OVERDUE_MAX, (one for one in kept if now_ms - one[0] >= QUIET_MS))
        found = [(subject, self._told[subject][1]) for _, subject in due]
        for subject, _ in found:
            self._put(subject, (now_ms, 0))
        return found

    @property
    def waits(self) -> bool:
        """Whether something was counted that nobody was told of."""
        return bool(self._kept)

    def settled(self) -> None:
        """What the transaction told is committed."""
        self._undo.clear()

    def undo(self) -> None:
        """The transaction was aborted: it told nothing."""
        for subject, told in self._undo.items():
            if told is None:
                del self._told[subject]
                self._kept.discard(subject)
            else:
                self._set(subject, told)
        self._undo.clear()

    def drop_stale(self, now_ms: int) -> None:
        """Forgets who may be told again, and of whom nothing was kept back; now and then, since it looks at
        all of them."""
        if now_ms - self._swept_ms < SWEEP_MS:
            return
        self._swept_ms = now_ms
        self._told = {s: (at, n) for s, (at, n) in self._told.items() if n or now_ms - at < QUIET_MS}

    def _put(self, subject: Subject, told: tuple[int, int]) -> None:
        self._undo.setdefault(subject, self._told.get(subject))
        self._set(subject, told)

    def _set(self, subject: Subject, told: tuple[int, int]) -> None:
        self._told[subject] = told
        if told[1]:
            self._kept.add(subject)
        else:
            self._kept.discard(subject)
