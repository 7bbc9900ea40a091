"""Owns records of skipped occurrences: whether count and range fit what is missing, and the reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from schemas.entities import Job, JobStatus, MisfirePolicy, OverlapPolicy, Skip, SkipReason
from schemas.events import CursorEvent, CursorMoved, JobCancelled, JobResumed

# What fell due longer ago than this before it could be decided was missed (semantics, section 5).
MISFIRE_THRESHOLD_MS = 10_000
# Of what was missed, so many of the newest are made up for.
KEPT_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What was true when a skip was recorded. `kept`: missed occurrences that are still to be made, then.
    `open_now`: unfinished executions of the job. `paused_ms` 0: it was not paused, not by a person,
    or new zone data moved its next occurrence meanwhile."""

    event: CursorEvent
    job: Job
    status: JobStatus
    paused_ms: int
    kept: int
    open_now: int
    kept_max: int = KEPT_MAX


def assign(instants: Iterable[int], skips: Sequence[Skip], room: list[int]) -> list[int]:
    """Gives each instant to a record that covers it and has room, and takes the room; those left over,
    ascending. Ranges may overlap; the one that ends first is filled first."""
    order = sorted(range(len(skips)), key=lambda at: skips[at].to_ms)
    left: list[int] = []
    for instant in sorted(instants):
        for at in order:
            if room[at] and skips[at].from_ms <= instant <= skips[at].to_ms:
                room[at] -= 1
                break
        else:
            left.append(instant)
    return left


def why_wrong(skip: Skip, then: Circumstances) -> str:
    """What is wrong with a record's reason; "" if nothing is."""
    at_ms, policies = then.event.at_ms, then.job.policies
    resumed = isinstance(then.event, JobResumed)
    match skip.reason:
        case SkipReason.PAUSED:
            if then.status is not JobStatus.PAUSED:
                return "the job was not paused"
            if then.paused_ms and skip.from_ms + then.job.schedule.jitter_ms < then.paused_ms:
                return f"it was due before the pause of {then.paused_ms}"
        case SkipReason.OVERLAP:
            if policies.overlap not in (OverlapPolicy.QUEUE, OverlapPolicy.SKIP):
                return f"the policy is {policies.overlap}"
            if not isinstance(then.event, CursorMoved):
                return "nothing became due"
            if not then.open_now:
                return "no execution of the job is unfinished"
        case SkipReason.CANCELLED:
            if not isinstance(then.event, JobCancelled):
                return "the job was not cancelled"
        case SkipReason.DEADLINE:
            return "only an execution can miss its deadline"
        case SkipReason.MISFIRE_POLICY:
            if policies.misfire is MisfirePolicy.FIRE_ALL and not resumed:
                return "the policy wants all of them"
        case SkipReason.MISFIRE_WINDOW:
            if at_ms - skip.to_ms <= policies.misfire_window_sec * 1000:
                return "it was still within the window"
        case SkipReason.MISFIRE_LIMIT:
            if then.kept < then.kept_max and not then.job.schedule.max_runs:
                return f"only {then.kept} are kept"
    misfire = skip.reason.startswith("MISFIRE")
    if misfire and not resumed and at_ms - skip.to_ms <= MISFIRE_THRESHOLD_MS:
        return "it was decided in time"
    return ""
