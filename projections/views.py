"""Owns what the queries answer with: frozen values around the entities of the log.

Views hold `schemas.entities` so that one renderer serves the answer to a change and the read that follows.
Times are milliseconds; 0 says "not yet" or "none", as in the entities.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from schemas.entities import (
    Content,
    Cursor,
    Execution,
    ExecutionKind,
    ExecutionStatus,
    Job,
    JobStatus,
    LeaseEnd,
    Policies,
    SkipReason,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job as it stands. `job` has its payload in `get_job` only. `cursor` None: at its beginning.

    `next_run_ms` 0: none is due, for it is paused, finished, or its last occurrence was fired.
    """

    job: Job
    cursor: Cursor | None
    status: JobStatus
    next_run_ms: int
    next_run_local: str
    next_execution_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LastExecution:
    """The newest occurrence that was fired."""

    execution_id: str
    status: ExecutionStatus
    scheduled_ms: int
    finished_ms: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDetail:
    """One job with what became of it. `counts`: executions by status; finished ones of all times counted."""

    view: JobView
    last_execution: LastExecution | None
    counts: Mapping[ExecutionStatus, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionView:
    """An execution, with name, task and labels as it was fired.

    `virtual`: the next occurrence of a job, not fired yet: SCHEDULED (or CANCELLED with its one-off job).
    `lease_until_ms` and `progress` are those of the newest heartbeat. `discarded_by`: who dealt with a dead
    letter otherwise.
    """

    execution: Execution
    name: str
    task: str
    labels: Mapping[str, str]
    lease_until_ms: int
    progress: bytes
    virtual: bool
    discarded_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One grant. `lease_end` NONE and `ended_ms` 0: it still runs."""

    lease_epoch: int
    attempt: int
    delivery_count: int
    fencing_token: int
    worker_id: str
    claimed_ms: int
    ended_ms: int
    lease_end: LeaseEnd
    error: str
    reported: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionDetail:
    """One execution with every grant, oldest first, and what its workers are given.

    For a dead letter, `content` is what a replay would deliver.
    """

    view: ExecutionView
    attempts: tuple[Attempt, ...]
    content: Content
    policies: Policies


@dataclass(frozen=True, slots=True, kw_only=True)
class EventView:
    """One event of the log. `changes`: attribute (camelCase, as in JSON) to its value before and after.

    The first known event of an entity shows what differs from the defaults, each with None before.
    """

    partition: int
    offset: int
    at_ms: int
    actor: str
    cause: str
    type: str
    entity: str
    changes: Mapping[str, tuple[object, object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipView:
    """Occurrences that never became executions."""

    at_ms: int
    from_ms: int
    to_ms: int
    count: int
    reason: SkipReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurred:
    """An occurrence that became an execution."""

    scheduled_ms: int
    execution_id: str
    status: ExecutionStatus
    kind: ExecutionKind
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TzShift:
    """A job whose next occurrence new zone data moved; 0: there was none, or is none any more."""

    tenant: str
    job_id: str
    time_zone: str
    at_ms: int
    before_ms: int
    after_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TzShifts:
    """What one version of the data moved: how many jobs, and the newest of them."""

    version: str
    count: int
    shifts: tuple[TzShift, ...]


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page, newest first. `next_token` "": the end."""

    items: tuple[T, ...]
    next_token: str


@dataclass(frozen=True, slots=True)
class PageRequest:
    """`size` 0: the default; larger than the limit: the limit. `token` "": from the newest."""

    size: int = 0
    token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """Start minus due of first grants. Percentiles come from a histogram: interpolated, never above max."""

    count: int
    sum_ms: int
    max_ms: int
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """What happened in a window (by the hour), and what waits right now.

    `skipped`: executions with an id that were not run; `missed`: occurrences that never got one.
    """

    from_ms: int
    to_ms: int
    fired: int
    completed: int
    failed: int
    cancelled: int
    skipped: int
    failed_attempts: int
    expired: int
    missed: int
    replayed: int
    lateness: Lateness
    backlog: Mapping[str, int]
    running: Mapping[str, int]
    dead_letters: int

    @property
    def failure_rate(self) -> float:
        """Failed executions among those that ended by themselves; 0 if there were none."""
        ended = self.completed + self.failed
        return self.failed / ended if ended else 0.0


@dataclass(frozen=True, slots=True)
class Position:
    """How far a partition is folded: the next offset, and the time of the newest event."""

    next_offset: int
    at_ms: int
