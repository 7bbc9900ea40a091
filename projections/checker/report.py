"""Owns what a check says: counts, lateness, and each violation of a promise (semantics, section 1)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

# Violations kept with their words; the counts go on.
SHOWN_MAX = 1_000
# Lateness is exact to here, and to three digits above: memory stays bounded however much is counted.
EXACT_MS = 1_000


class Kind(StrEnum):
    """What can be wrong."""

    UNEXPLAINED = "unexplained"
    """An occurrence was due and is neither executed nor recorded as skipped."""
    NOT_DUE = "notDue"
    """An execution of the schedule, or a record of a skip, for an instant that is no occurrence."""
    EARLY = "early"
    """Fired, started or retried before its time."""
    JITTER = "jitter"
    """Due before its scheduled time, or later than its jitter allows."""
    ACCEPTED_TWICE = "acceptedTwice"
    """A second outcome of an execution, or an outcome under a lease that was not the current one."""
    EPOCH = "epoch"
    """A lease epoch that did not grow by one, or a fencing token that did not grow."""
    OVERLAP = "overlap"
    """More executions of a job at a time than its policy allows."""
    EXCLUSION = "exclusion"
    """Two executions of an exclusion group at a time."""
    CAP = "cap"
    """More executions at a time than a cap allows."""
    TURN = "turn"
    """A grant before another's turn: one due first, a tenant with a lesser share, a priority left behind."""
    RETRY = "retry"
    """An attempt, delivery or backoff outside of the policy."""
    LEASE = "lease"
    """A lease that ended before its time, or was extended past its bounds."""
    BREAKER = "breaker"
    """A circuit breaker that opened without a cause, or too early again, or that a retry passed."""
    ALERT = "alert"
    """Something that a person should see and was not told of, or the other way round."""
    PAYLOAD = "payload"
    """An execution that lost its payload, or kept another one than it was fired with."""
    SKIP = "skip"
    """A skip whose reason or count cannot be right."""
    LIFE = "life"
    """A change that the life of a job or execution does not have."""
    TIME = "time"
    """The time of a partition's events went back."""
    UNFINISHED = "unfinished"
    """At an end where everything should be over, something is not; or the end of a wait or of a lease passed
    long ago, and nothing was done."""
    PROMISE = "promise"
    """What was acknowledged to a caller is not what the log has."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One promise that was broken. `subject` is a job or execution as `<tenant>/<id>`."""

    kind: Kind
    subject: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.subject}: {self.detail}"


class Lateness:
    """How late things started, in milliseconds, in bounded memory."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self.count = 0
        self.most_ms = 0

    def add(self, late_ms: int) -> None:
        rounded, scale = late_ms, 1
        while rounded >= EXACT_MS:
            rounded, scale = rounded // 10, scale * 10
        self._counts[rounded * scale] += 1
        self.count += 1
        self.most_ms = max(self.most_ms, late_ms)

    def percentile(self, percent: int) -> int:
        """The value that so many percent do not exceed; 0 of nothing."""
        wanted = -(-self.count * percent // 100)
        for late_ms in sorted(self._counts):
            wanted -= self._counts[late_ms]
            if wanted <= 0:
                return late_ms
        return 0


@dataclass(slots=True)
class Report:
    """Everything a check found out. Occurrences are those of schedules; executions are all of them.

    due = fired + skipped + kept + undecided + unexplained, and each fired one is in one of the statuses.
    """

    events: int = 0
    jobs: int = 0
    due: int = 0
    fired: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    """Occurrences that never became executions, by reason."""
    kept: int = 0
    """Missed occurrences that are still to be made."""
    undecided: int = 0
    """Due so shortly before the end that nobody had to decide them yet."""
    executions: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    """How the executions stand at the end, skipped ones by `SKIPPED:<reason>`."""
    attempts_failed: int = 0
    redelivered: int = 0
    released: int = 0
    replayed: int = 0
    lateness: Lateness = field(default_factory=Lateness)
    """First grant of what the schedule or a trigger asked for, after it was due. What waited for the tenant's
    own overlap, exclusion group, cap, breaker or pool is left out (semantics, section 1)."""
    unjudged: Counter[str] = field(default_factory=Counter)
    """What could not be judged, by reason."""
    found: Counter[str] = field(default_factory=Counter)
    """Violations by kind."""
    violations: list[Violation] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.found

    @property
    def completed(self) -> int:
        """Executions that succeeded."""
        return self.statuses["COMPLETED"]

    def add(self, kind: Kind, subject: str, detail: str, count: int = 1) -> None:
        self.found[kind] += count
        if len(self.violations) < SHOWN_MAX:
            self.violations.append(Violation(kind, subject, detail))

    def summary(self) -> dict[str, Any]:
        """One JSON object. Kinds of violation that nobody hopes for are 0 unless found."""
        return {
            "events": self.events,
            "jobs": self.jobs,
            "occurrences": {
                "due": self.due,
                "fired": self.fired,
                "skipped": dict(sorted(self.skipped.items())),
                "kept": self.kept,
                "undecided": self.undecided,
                "unexplained": self.found[Kind.UNEXPLAINED],
            },
            "executions": {"total": self.executions, **dict(sorted(self.statuses.items()))},
            "attemptsFailed": self.attempts_failed,
            "redelivered": self.redelivered,
            "released": self.released,
            "replayed": self.replayed,
            "latenessMs": {
                "count": self.lateness.count,
                "p50": self.lateness.percentile(50),
                "p99": self.lateness.percentile(99),
                "max": self.lateness.most_ms,
            },
            "unjudged": dict(sorted(self.unjudged.items())),
            "violations": {kind.value: self.found[kind] for kind in Kind},
        }
