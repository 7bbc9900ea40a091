"""Owns what callers were told: each acknowledged job is in the log as it was asked for, and ends as it must.

A caller's view, apart from the log: without it nobody can tell that an acknowledged registration is missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from projections.checker.checker import Checker
from projections.checker.report import Kind, Report
from schemas.entities import Execution, ExecutionKind, Job
from schemas.entities import ExecutionStatus as E
from schemas.events import CursorEvent, Event, ExecutionEvent, JobCancelled, JobEvent, JobRegistered


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """One acknowledged job. `schedule`: attributes that its schedule must have in the log, and `delay_ms`, of
    a one-off that was asked for so long after its registration. `ends`: what its executions may come to."""

    job_id: str
    schedule: Mapping[str, object] = field(default_factory=dict)
    ends: Collection[str] = frozenset({"COMPLETED"})


GRACE_MS = 1_000
"""What is due at the very end of a log that must be over need not be decided yet."""


def judge(lines: Sequence[tuple[int, Event]], promises: Iterable[Promise], end_ms: int) -> Report:
    """A whole log, as partitions and events, in which everything that was promised is over."""
    checker = Checker()
    for partition, event in lines:
        checker.take(partition, event)
    report = checker.finish(end_ms, drained=True, grace_ms=GRACE_MS)
    check_promises(promises, [event for _, event in lines], report)
    return report


def check_promises(promises: Iterable[Promise], events: Iterable[Event], report: Report) -> None:
    """Adds to the report what was promised and is not in the log, and jobs that nobody promised. Job ids are
    taken to be unique over tenants."""
    jobs: dict[str, Job] = {}
    cancelled: set[str] = set()
    executions: dict[str, dict[str, Execution]] = defaultdict(dict)
    for event in events:
        if isinstance(event, JobEvent):
            if isinstance(event, JobRegistered):
                jobs[event.job.job_id] = event.job
        elif isinstance(event, CursorEvent):
            if isinstance(event, JobCancelled):
                cancelled.add(event.cursor.job_id)
        elif isinstance(event, ExecutionEvent) and event.execution.kind is ExecutionKind.SCHEDULE:
            executions[event.execution.job_id][event.execution.execution_id] = event.execution
    promised = {promise.job_id: promise for promise in promises}
    for job_id, promise in promised.items():
        job = jobs.get(job_id)
        if job is None:
            report.add(Kind.PROMISE, job_id, "acknowledged, but the log has no registration")
            continue
        _check_schedule(promise, job, report)
        # The next occurrence of a cancelled job may have an execution, too: it was cancelled with it.
        may_be = {*promise.ends, E.SKIPPED, *([E.CANCELLED] if job_id in cancelled else [])}
        for execution in executions[job_id].values():
            if execution.status not in may_be:
                detail = f"{execution.execution_id} is {execution.status}, {execution.error}"
                report.add(Kind.PROMISE, job_id, detail)
    for job_id in jobs.keys() - promised.keys():
        report.add(Kind.PROMISE, job_id, "nobody registered this job")


def _check_schedule(promise: Promise, job: Job, report: Report) -> None:
    for name, wanted in promise.schedule.items():
        got = job.schedule.run_at_ms - job.created_ms if name == "delay_ms" else getattr(job.schedule, name)
        if got != wanted:
            report.add(Kind.PROMISE, job.job_id, f"its schedule has {name} {got}, and {wanted} was asked for")
