"""Lives of jobs and executions: every legal transition, as data (`docs/lifecycle.md` is drawn from it)."""

from __future__ import annotations

from schemas.entities import BreakerStatus as B
from schemas.entities import ExecutionStatus as E
from schemas.entities import JobStatus as J

EXECUTION: dict[E | None, frozenset[E]] = {
    None: frozenset({E.PENDING, E.SKIPPED, E.CANCELLED}),
    E.SCHEDULED: frozenset({E.PENDING, E.CANCELLED}),
    E.PENDING: frozenset({E.PENDING, E.RUNNING, E.CANCELLED, E.SKIPPED}),
    E.RUNNING: frozenset({E.RUNNING, E.PENDING, E.SCHEDULED, E.COMPLETED, E.FAILED, E.CANCELLED}),
    E.FAILED: frozenset({E.PENDING, E.FAILED}),
    E.COMPLETED: frozenset(),
    E.CANCELLED: frozenset(),
    E.SKIPPED: frozenset(),
}
"""PENDING to PENDING is a wait that ended (overlap, redelivery); FAILED to PENDING a replayed dead letter,
FAILED to FAILED a discarded one."""

JOB: dict[J, frozenset[J]] = {
    J.ACTIVE: frozenset({J.ACTIVE, J.PAUSED, J.CANCELLED, J.COMPLETED}),
    J.PAUSED: frozenset({J.PAUSED, J.ACTIVE, J.CANCELLED}),
    J.CANCELLED: frozenset(),
    J.COMPLETED: frozenset(),
}

BREAKER: dict[B, frozenset[B]] = {
    B.CLOSED: frozenset({B.OPEN}),
    B.OPEN: frozenset({B.PROBING}),
    B.PROBING: frozenset({B.PROBING, B.OPEN, B.CLOSED}),
}
"""PROBING to PROBING: others are tried in place of probes that told nothing."""

FINAL = frozenset({E.COMPLETED, E.FAILED, E.CANCELLED, E.SKIPPED})
DISCARDED = "discarded"
"""Reason of a FAILED execution that is a dead letter no more."""
JOB_FINAL = frozenset({J.CANCELLED, J.COMPLETED})
