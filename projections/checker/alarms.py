"""Owns alerts of what happens: each dead letter, missed deadline, skipped misfire and change of a breaker is
told of in the same instant, and nothing else is (semantics, section 6).

Lateness, clocks and errors are left out: what they tell of is not in the log. Alerts are events since the
second release, so nothing is expected of a partition before its first one.
"""

from __future__ import annotations

from typing import NamedTuple

from projections.checker.executions import Lives
from projections.checker.report import Kind, Report
from schemas.entities import Alert, Breaker, BreakerStatus, Cursor, Execution, ExecutionStatus, SkipReason
from schemas.events import (
    AlertRaised,
    BreakerEvent,
    CursorEvent,
    Event,
    ExecutionDeadLettered,
    ExecutionSkipped,
)

KINDS = frozenset({"dead_letter", "reaped", "missed_window", "breaker"})
MISFIRES = frozenset({SkipReason.MISFIRE_POLICY, SkipReason.MISFIRE_WINDOW, SkipReason.MISFIRE_LIMIT})

REMIND_AFTER_MS = 23 * 86_400_000
"""A dead letter is forgotten after 30 days, and a person is reminded of it a week before that."""


class Telling(NamedTuple):
    """What a person is told of. `subject`: an execution, else a job or a breaker's target."""

    kind: str
    tenant: str
    subject: str
    number: int = 1


class Alarms:
    """By partition: what happened in its newest instant, and what was told in it."""

    def __init__(self, report: Report, lives: Lives) -> None:
        self._report = report
        self._lives = lives
        self._instants: dict[int, _Instant] = {}
        self._breakers: dict[tuple[int, str, str], BreakerStatus] = {}
        self._telling: set[int] = set()
        """Partitions that have alerts."""

    def take(self, partition: int, event: Event, *, judged: bool) -> None:
        """The next event of a partition."""
        instant = self._instants.get(partition)
        if instant is None or instant.at_ms != event.at_ms:
            if instant is not None:
                self._judge(partition, instant)
            instant = self._instants[partition] = _Instant(event.at_ms, judged)
        if isinstance(event, AlertRaised):
            self._telling.add(partition)
            if event.alert.kind in KINDS and not self._reminds(event.alert):
                instant.told.add(_told(event.alert))
        elif (owed := self._owed(partition, event)) is not None:
            instant.owed.add(owed)

    def finish(self) -> None:
        """Nothing more is read."""
        for partition, instant in self._instants.items():
            self._judge(partition, instant)

    def _judge(self, partition: int, instant: _Instant) -> None:
        if not instant.judged or partition not in self._telling:
            return
        for one in instant.owed - instant.told:
            detail = f"{one.kind} ({one.number}) at {instant.at_ms}, and nobody was told"
            self._report.add(Kind.ALERT, f"{one.tenant}/{one.subject}", detail)
        for one in instant.told - instant.owed:
            detail = f"{one.kind} ({one.number}) was told at {instant.at_ms}, and there was none"
            self._report.add(Kind.ALERT, f"{one.tenant}/{one.subject}", detail)

    def _owed(self, partition: int, event: Event) -> Telling | None:
        match event:
            case ExecutionDeadLettered(execution=execution):
                kind = "reaped" if execution.reason == "reaped" else "dead_letter"
                return Telling(kind, execution.tenant, execution.execution_id)
            case ExecutionSkipped(execution=execution):
                return _missed(execution)
            case CursorEvent(cursor=cursor):
                return _misfires(cursor)
            case BreakerEvent(breaker=breaker):
                return self._changed(partition, breaker)
            case _:
                return None

    def _reminds(self, alert: Alert) -> bool:
        """Whether it is of a dead letter that is going to be forgotten."""
        life = self._lives.get(f"{alert.tenant}/{alert.execution_id}")
        dead = alert.kind == "dead_letter" and life is not None and life.last.status is ExecutionStatus.FAILED
        return dead and life is not None and alert.at_ms >= life.last.finished_ms + REMIND_AFTER_MS

    def _changed(self, partition: int, breaker: Breaker) -> Telling | None:
        place = (partition, breaker.tenant, breaker.target)
        before = self._breakers.get(place)
        self._breakers[place] = breaker.status
        if before is breaker.status:
            return None  # others are tried
        return Telling("breaker", breaker.tenant, breaker.target)


class _Instant:
    def __init__(self, at_ms: int, judged: bool) -> None:
        self.at_ms = at_ms
        self.judged = judged
        self.owed: set[Telling] = set()
        self.told: set[Telling] = set()


def _told(alert: Alert) -> Telling:
    subject = alert.target if alert.kind == "breaker" else alert.execution_id or alert.job_id
    return Telling(alert.kind, alert.tenant, subject, alert.count)


def _missed(execution: Execution) -> Telling | None:
    if execution.reason != "deadline":
        return None
    return Telling("missed_window", execution.tenant, execution.execution_id)


def _misfires(cursor: Cursor) -> Telling | None:
    count = sum(skip.count for skip in cursor.skips if skip.reason in MISFIRES)
    return Telling("missed_window", cursor.tenant, cursor.job_id, count) if count else None
