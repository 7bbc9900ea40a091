"""The verdict, from the events of the log alone: was anything lost, early, or accepted twice?

When each job had to run is reckoned by `reckoning`; the log says what ran. No counter of the server is asked.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dev.demo.mix import Planned
from schemas.entities import Execution, ExecutionKind, Skip, WaitingFor
from schemas.events import (
    AttemptFailed,
    CursorEvent,
    EngineEvent,
    ExecutionCancelled,
    ExecutionClaimed,
    ExecutionCompleted,
    ExecutionDeadLettered,
    ExecutionEvent,
    ExecutionFired,
    ExecutionReleased,
    ExecutionSkipped,
    JobCancelled,
    JobRegistered,
    LeaseExpired,
)
from streams.core.lifecycle import FINAL

FINAL_EVENTS = (ExecutionCompleted, ExecutionDeadLettered, ExecutionCancelled, ExecutionSkipped)
# How a lease can end. Each grant has one end: the outcome of a worker that was replaced never counts as well.
LEASE_ENDS = (ExecutionCompleted, ExecutionDeadLettered, AttemptFailed, ExecutionReleased, LeaseExpired)


@dataclass(slots=True)
class Verdict:
    """The summary, and a line for each thing that is wrong."""

    registered: int = 0
    executed: int = 0
    retried: int = 0
    dead_lettered: int = 0
    redelivered: int = 0
    cancelled: int = 0
    skipped: int = 0
    lost: int = 0
    early: int = 0
    duplicates: int = 0
    unexpected: int = 0
    lateness_ms: list[int] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not (self.lost or self.early or self.duplicates or self.unexpected)

    def summary(self) -> dict[str, Any]:
        """As it is printed: one JSON object."""
        return {
            "registered": self.registered,
            "executed": self.executed,
            "retried": self.retried,
            "deadLettered": self.dead_lettered,
            "redelivered": self.redelivered,
            "cancelled": self.cancelled,
            "skipped": self.skipped,
            "lost": self.lost,
            "early": self.early,
            "duplicatesAccepted": self.duplicates,
            "unexpected": self.unexpected,
            "latenessMs": {"p50": percentile(self.lateness_ms, 50), "p99": percentile(self.lateness_ms, 99)},
        }


def judge(plans: Sequence[Planned], events: Sequence[EngineEvent], end_ms: int) -> Verdict:
    """Events in the order of each partition; `end_ms`: what was due by then must be accounted for."""
    verdict = Verdict()
    of_job: dict[str, list[EngineEvent]] = defaultdict(list)
    for event in events:
        if (job_id := _job_of(event)) is not None:
            of_job[job_id].append(event)
    for plan in plans:
        _account(verdict, plan, of_job.get(plan.job_id, []), end_ms)
    of_execution: dict[str, list[ExecutionEvent]] = defaultdict(list)
    for event in events:
        if isinstance(event, ExecutionEvent):
            of_execution[event.execution.execution_id].append(event)
    for history in of_execution.values():
        _check_execution(verdict, history)
    planned = {plan.job_id for plan in plans}
    for job_id in of_job.keys() - planned:
        verdict.unexpected += 1
        verdict.complaints.append(f"{job_id}: nobody registered this job")
    return verdict


def _job_of(event: EngineEvent) -> str | None:
    if isinstance(event, JobRegistered):
        return event.job.job_id
    if isinstance(event, CursorEvent):
        return event.cursor.job_id
    if isinstance(event, ExecutionEvent):
        return event.execution.job_id
    return None


def _account(verdict: Verdict, plan: Planned, events: Sequence[EngineEvent], end_ms: int) -> None:
    """Every occurrence that was due is executed to an end, or skipped with a reason; and nothing else is."""
    born = [event for event in events if isinstance(event, JobRegistered)]
    if not born:
        verdict.lost += 1
        verdict.complaints.append(f"{plan.job_id}: acknowledged, but the log has no registration")
        return
    verdict.registered += 1
    cancelled_ms = [event.at_ms for event in events if isinstance(event, JobCancelled)]
    until_ms = min([end_ms, *cancelled_ms])
    due = set(plan.rule.instants(born[0].job.created_ms, until_ms))
    newest: dict[int, Execution] = {
        event.execution.scheduled_ms: event.execution
        for event in events
        if isinstance(event, ExecutionEvent) and event.execution.kind is ExecutionKind.SCHEDULE
    }
    for instant in sorted(due & newest.keys()):
        execution = newest[instant]
        if execution.status not in FINAL:
            verdict.lost += 1
            verdict.complaints.append(f"{execution.execution_id}: still {execution.status} at the end")
        elif execution.status not in plan.ends | {"SKIPPED", "CANCELLED" if cancelled_ms else ""}:
            verdict.unexpected += 1
            verdict.complaints.append(
                f"{execution.execution_id}: ended {execution.status}, {execution.error}"
            )
    # The next occurrence of a cancelled job may have an execution, too: it was cancelled with it.
    for instant in newest.keys() - due:
        if not (cancelled_ms and newest[instant].status == "CANCELLED"):
            verdict.unexpected += 1
            verdict.complaints.append(f"{plan.job_id}: ran at {instant}, when it was not due")
    skips = [skip for event in events if isinstance(event, CursorEvent) for skip in event.cursor.skips]
    _account_skips(verdict, plan, sorted(due - newest.keys()), skips)


def _account_skips(verdict: Verdict, plan: Planned, missing: Iterable[int], skips: Sequence[Skip]) -> None:
    left = [skip.count for skip in skips]
    for instant in missing:
        for at, skip in enumerate(skips):
            if left[at] and skip.from_ms <= instant <= skip.to_ms:
                left[at] -= 1
                verdict.skipped += 1
                break
        else:
            verdict.lost += 1
            verdict.complaints.append(f"{plan.job_id}: due at {instant}, neither executed nor skipped")


def _check_execution(verdict: Verdict, history: Sequence[ExecutionEvent]) -> None:
    ends = sum(isinstance(event, FINAL_EVENTS) for event in history)
    _no_more_than_one(verdict, history[0], "final outcomes", {0: ends})
    for what, kinds in (("grants", (ExecutionClaimed,)), ("ends of its lease", LEASE_ENDS)):
        found = Counter(event.execution.lease_epoch for event in history if isinstance(event, kinds))
        _no_more_than_one(verdict, history[0], what, found)
    verdict.executed += sum(isinstance(event, ExecutionCompleted) for event in history)
    verdict.retried += sum(isinstance(event, AttemptFailed) for event in history)
    verdict.dead_lettered += sum(isinstance(event, ExecutionDeadLettered) for event in history)
    verdict.cancelled += sum(isinstance(event, ExecutionCancelled) for event in history)
    verdict.skipped += sum(isinstance(event, ExecutionSkipped) for event in history)
    own_overlap = any(
        isinstance(event, ExecutionFired) and event.execution.waiting_for is WaitingFor.OVERLAP
        for event in history
    )
    retry_ms = 0
    for event in history:
        execution = event.execution
        if isinstance(event, AttemptFailed):
            retry_ms = execution.due_ms
        if not isinstance(event, ExecutionClaimed):
            continue
        verdict.redelivered += execution.delivery_count > 1
        due_ms = max(execution.scheduled_ms, retry_ms)
        if execution.started_ms < due_ms:
            verdict.early += 1
            verdict.complaints.append(
                f"{execution.execution_id}: started {due_ms - execution.started_ms} ms early"
            )
        # What waited for the job's own earlier run is not late by the scheduler's doing (semantics §1).
        if execution.attempt == execution.delivery_count == 1 and not own_overlap:
            verdict.lateness_ms.append(execution.started_ms - due_ms)


def _no_more_than_one(
    verdict: Verdict, event: ExecutionEvent, what: str, found: Counter[int] | dict[int, int]
) -> None:
    for epoch, count in found.items():
        if count > 1:
            verdict.duplicates += count - 1
            verdict.complaints.append(f"{event.execution.execution_id}: {count} {what} (epoch {epoch})")


def percentile(values: Sequence[int], percent: int) -> int:
    """The value that so many percent do not exceed; 0 of nothing."""
    if not values:
        return 0
    return sorted(values)[max(0, -(-len(values) * percent // 100) - 1)]
