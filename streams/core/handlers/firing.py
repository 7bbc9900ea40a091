"""Makes executions: what every way of becoming one (due, kept, triggered, backfilled) has in common."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from schemas.entities import Execution, ExecutionKind, ExecutionStatus, Job, Priority, WaitingFor
from schemas.events import ExecutionFired, ExecutionSkipped
from schemas.ids import scheduled_execution_id
from streams.core.handlers.gating import place
from streams.core.key_templates import render
from streams.core.transaction import Transaction


class Origin(msgspec.Struct, frozen=True, gc=False):
    """What sets an execution apart from the scheduled one of its instant."""

    execution_id: str
    kind: ExecutionKind
    priority: Priority | None = None
    backfill: str = ""


def scheduled(job: Job, scheduled_ms: int) -> Origin:
    """An occurrence of the schedule itself."""
    execution_id = scheduled_execution_id(job.job_id, job.incarnation, scheduled_ms)
    return Origin(execution_id=execution_id, kind=ExecutionKind.SCHEDULE)


def new_execution(
    job: Job,
    origin: Origin,
    scheduled_ms: int,
    now_ms: int,
    due_ms: int | None = None,
    waiting: WaitingFor = WaitingFor.NOTHING,
) -> Execution:
    """An execution before its first event. `due_ms` None: due when scheduled. It is PENDING if it is to wait
    for something."""
    due_ms = scheduled_ms if due_ms is None else due_ms
    policies = job.policies
    deadline_ms = 0
    if policies.start_deadline_sec:
        # What is made late (a kept misfire, a backfill) has its time to start from then on.
        deadline_ms = max(due_ms, now_ms) + policies.start_deadline_sec * 1000
    key = ""
    if policies.idempotency_key_template:
        key = render(
            policies.idempotency_key_template,
            job.job_id,
            origin.execution_id,
            scheduled_ms,
            job.schedule.time_zone,
        )
    return Execution(
        tenant=job.tenant,
        execution_id=origin.execution_id,
        job_version=job.version,
        kind=origin.kind,
        pool=job.pool,
        priority=origin.priority or policies.priority,
        scheduled_ms=scheduled_ms,
        due_ms=due_ms,
        fired_ms=now_ms,
        status=ExecutionStatus.PENDING if waiting is not WaitingFor.NOTHING else ExecutionStatus.SCHEDULED,
        waiting_for=waiting,
        idempotency_key=key,
        start_deadline_ms=deadline_ms,
        backfill=origin.backfill,
        exclusion_group=policies.exclusion_group,
        lateness_alert_sec=policies.lateness_alert_sec,
    )


def fire(
    tx: Transaction,
    job: Job,
    origin: Origin,
    scheduled_ms: int,
    waiting: WaitingFor,
    due_ms: int | None = None,
) -> Execution:
    """It is PENDING: for an earlier execution of its job, or, if it may run as far as that is concerned, for
    its exclusion group or a worker."""
    execution = new_execution(job, origin, scheduled_ms, tx.now_ms, due_ms, waiting)
    if waiting is WaitingFor.WORKER and (other := place(tx, execution)) is not waiting:
        execution = replace(execution, waiting_for=other)
    tx.emit_execution(ExecutionFired, execution)
    tx.want_work(execution)
    return execution


def fire_skipped(tx: Transaction, job: Job, origin: Origin, scheduled_ms: int) -> Execution:
    """It has an id, but the overlap policy stops it."""
    execution = new_execution(job, origin, scheduled_ms, tx.now_ms)
    skipped = replace(execution, status=ExecutionStatus.SKIPPED, reason="overlap", finished_ms=tx.now_ms)
    return tx.emit_execution(ExecutionSkipped, skipped)
