"""Owns who runs beside whom: overlap policies and exclusion groups, after every event in log order.

An execution is *active* if it is neither final nor waiting for another one of its job; a waiting retry is
active (semantics, section 5).
"""

from __future__ import annotations

from collections import Counter, defaultdict

from projections.checker.executions import FINAL
from projections.checker.report import Kind, Report
from schemas.entities import Execution, ExecutionKind, ExecutionStatus, Job, OverlapPolicy, WaitingFor
from schemas.events import DeadLetterReplayed, ExecutionEvent, ExecutionFired

# Kept misfires of a job that allows overlap without a bound of its own run so many at a time.
ALLOWED_CATCH_UP_MAX = 100


class Places:
    """Counts by job and exclusion group."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._active: Counter[str] = Counter()
        self._in_line: Counter[str] = Counter()
        self._in_group: dict[str, set[str]] = defaultdict(set)

    def open_of(self, tenant: str, job_id: str) -> int:
        """Unfinished executions of a job."""
        name = f"{tenant}/{job_id}"
        return self._active[name] + self._in_line[name]

    def changed(
        self, event: ExecutionEvent, before: Execution | None, job: Job | None, *, judged: bool
    ) -> None:
        """An execution is now what the event says; `job` as it stands in the log, None if not known."""
        now = event.execution
        name = f"{now.tenant}/{now.job_id}"
        was_active = before is not None and _is_active(before)
        if judged and not was_active and _is_active(now):
            self._may_begin(event, job, name)
        self._active[name] += _is_active(now) - was_active
        self._in_line[name] += _is_in_line(now) - (before is not None and _is_in_line(before))
        if not self._active[name] and not self._in_line[name]:
            del self._active[name], self._in_line[name]
        self._follow_group(now, judged=judged)

    def _may_begin(self, event: ExecutionEvent, job: Job | None, name: str) -> None:
        now, active = event.execution, self._active[name]
        if isinstance(event, DeadLetterReplayed):
            most = 0 if active or self._in_line[name] else 1
        elif job is None:
            return
        elif isinstance(event, ExecutionFired) and now.kind is not ExecutionKind.SCHEDULE:
            return  # the request may have named a policy of its own
        else:
            most = _places(job, made=isinstance(event, ExecutionFired))
        if active >= most:
            detail = f"{now.execution_id} may run beside {active} others at {event.at_ms}"
            self._report.add(Kind.OVERLAP, name, detail)

    def _follow_group(self, now: Execution, *, judged: bool) -> None:
        group = now.exclusion_group
        if not group:
            return
        running = self._in_group[f"{now.tenant}/{group}"]
        if now.status is not ExecutionStatus.RUNNING:
            running.discard(now.execution_id)
            return
        others = running - {now.execution_id}
        if judged and others:
            detail = f"{now.execution_id} runs beside {', '.join(sorted(others))}"
            self._report.add(Kind.EXCLUSION, f"{now.tenant}/{group}", detail)
        running.add(now.execution_id)


def _places(job: Job, *, made: bool) -> int:
    if job.policies.overlap is not OverlapPolicy.ALLOW:
        return 1
    return job.policies.max_concurrent or (1 << 60 if made else ALLOWED_CATCH_UP_MAX)


def _is_active(execution: Execution) -> bool:
    return execution.status not in FINAL and execution.waiting_for is not WaitingFor.OVERLAP


def _is_in_line(execution: Execution) -> bool:
    return execution.status not in FINAL and execution.waiting_for is WaitingFor.OVERLAP
