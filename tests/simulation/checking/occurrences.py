"""Nothing is lost: every occurrence of every job is an execution or skipped with a right reason.

By job and incarnation, from the events alone: which schedule was in force when (registration, updates,
cancel, end), the oracle's instants of that time, the executions, and the skip records of the cursors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from schemas.entities import (
    CatchUp,
    Cursor,
    ExecutionKind,
    Job,
    JobStatus,
    MisfirePolicy,
    OverlapPolicy,
    Schedule,
    ScheduleKind,
    Skip,
    SkipReason,
)
from schemas.events import (
    CursorEvent,
    ExecutionCancelled,
    ExecutionEvent,
    ExecutionFired,
    JobCancelled,
    JobCompleted,
    JobEvent,
    JobPaused,
    JobResumed,
    JobUpdated,
)
from schemas.ids import base36
from streams.core.limits import MISFIRE_THRESHOLD_MS
from tests.simulation.history import Happened
from tests.simulation.oracle import instants

END_SLACK_MS = 10_000
"""Around the end of the run: what is due then may or may not be decided."""
FAR_MS = 86_400_000


@dataclass(slots=True)
class Story:
    """One incarnation of a job, as far as its events told it."""

    job: Job
    stretches: list[tuple[Schedule, int, int, int]] = field(default_factory=list)
    """Schedules that are over, each with the time it was in force, (from, to], and the latest that it may
    have been."""
    since_ms: int = 0
    ended_ms: int | None = None
    completed: bool = False
    paused_ms: int | None = None
    executed: set[int] = field(default_factory=set)
    cancelled: set[int] = field(default_factory=set)
    skips: list[Skip] = field(default_factory=list)
    kept: tuple[CatchUp, ...] = ()
    """Misfires still to be made."""
    open: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)


def check_occurrences(part: Sequence[Happened], end_ms: int) -> Iterator[str]:
    """One partition's events in their order; `end_ms`: the partition decided everything up to then."""
    stories: dict[tuple[str, str, str], Story] = {}
    for happened in part:
        event = happened.event
        match event:
            case JobEvent():
                _take_job(stories, event)
            case CursorEvent():
                cursor = event.cursor
                story = stories[cursor.tenant, cursor.job_id, base36(cursor.incarnation)]
                _take_cursor(story, event)
            case ExecutionEvent():
                execution = event.execution
                incarnation = execution.execution_id.split(".")[-3]
                story = stories[execution.tenant, execution.job_id, incarnation]
                _take_execution(story, event)
            case _:
                pass
    for (tenant, job_id, _), story in stories.items():
        for wrong in (*story.wrong, *_account(story, end_ms)):
            yield f"{tenant}/{job_id}: {wrong}"


def _take_job(stories: dict[tuple[str, str, str], Story], event: JobEvent) -> None:
    job = event.job
    key = (job.tenant, job.job_id, base36(job.incarnation))
    story = stories.get(key)
    if story is None:
        stories[key] = Story(job, since_ms=job.created_ms)
        return
    if isinstance(event, JobUpdated) and job.schedule != story.job.schedule:
        story.stretches.append(_stretch(story, event.at_ms, event.at_ms))
        story.since_ms = event.at_ms
    story.job = job


def _take_execution(story: Story, event: ExecutionEvent) -> None:
    execution = event.execution
    name = execution.execution_id
    if execution.kind is ExecutionKind.SCHEDULE:
        if isinstance(event, ExecutionFired):
            story.executed.add(execution.scheduled_ms)
        elif isinstance(event, ExecutionCancelled) and name not in story.open:
            story.cancelled.add(execution.scheduled_ms)
    (story.open.discard if execution.finished_ms else story.open.add)(name)
    in_line = execution.waiting_for == "OVERLAP" and not execution.replays and not execution.backfill
    (story.waiting.add if in_line and not execution.finished_ms else story.waiting.discard)(name)


def _take_cursor(story: Story, event: CursorEvent) -> None:
    cursor = event.cursor
    story.kept = cursor.catch_up
    for skip in cursor.skips:
        story.skips.append(skip)
        story.wrong += _doubts(story, event, cursor, skip)
    match event:
        case JobPaused():
            story.paused_ms = event.at_ms
        case JobResumed():
            story.paused_ms = None
        case JobCancelled():
            story.ended_ms = event.at_ms
        case JobCompleted():
            story.ended_ms, story.completed = event.at_ms, True
        case _:
            pass


def _doubts(story: Story, event: CursorEvent, cursor: Cursor, skip: Skip) -> Iterator[str]:
    """Why the reason of a skip record cannot be right."""
    policies, at_ms = story.job.policies, event.at_ms
    resumed = isinstance(event, JobResumed)
    what = f"{skip.count} skipped as {skip.reason} from {skip.from_ms} to {skip.to_ms}, at {at_ms}"
    if skip.count < 1 or skip.from_ms > skip.to_ms or skip.to_ms > at_ms:
        yield f"{what}: no range of the past"
    match skip.reason:
        case SkipReason.PAUSED:
            if story.paused_ms is None or skip.to_ms > at_ms:
                yield f"{what}: it was not paused"
        case SkipReason.OVERLAP:
            full = len(story.waiting) >= policies.queue_limit
            stopped = policies.overlap is OverlapPolicy.SKIP or (
                policies.overlap is OverlapPolicy.QUEUE and full
            )
            if not story.open or not stopped:
                state = f"{len(story.open)} open, {len(story.waiting)} waiting"
                yield f"{what}: under {policies.overlap}, {state}"
        case SkipReason.CANCELLED:
            if cursor.status is not JobStatus.CANCELLED:
                yield f"{what}: it is {cursor.status}"
        case SkipReason.DEADLINE:
            yield f"{what}: what misses its deadline has an execution"
        case _:
            if not resumed and at_ms - skip.to_ms <= MISFIRE_THRESHOLD_MS:
                yield f"{what}: not late enough for a misfire"
            fires_all = policies.misfire is MisfirePolicy.FIRE_ALL and not resumed
            if skip.reason is SkipReason.MISFIRE_POLICY and fires_all:
                yield f"{what}: its policy is {policies.misfire}"
            window_ms = policies.misfire_window_sec * 1000 - story.job.schedule.jitter_ms
            if skip.reason is SkipReason.MISFIRE_WINDOW and at_ms - skip.to_ms < window_ms:
                yield f"{what}: its window is {policies.misfire_window_sec} s"


def _account(story: Story, end_ms: int) -> Iterator[str]:
    """The books of one incarnation."""
    schedule = story.job.schedule
    if story.ended_ms is not None:
        last = _stretch(story, story.ended_ms, story.ended_ms)
    else:
        last = _stretch(story, end_ms - END_SLACK_MS, end_ms + END_SLACK_MS)
    must: set[int] = set()
    may: set[int] = set()
    for stretch, from_ms, upto_ms, latest_ms in (*story.stretches, last):
        found = _of(stretch, from_ms, latest_ms)
        must |= {at for at in found if at + stretch.jitter_ms <= upto_ms}
        may |= set(found)
    if story.paused_ms is not None:
        must = {at for at in must if at + schedule.jitter_ms <= story.paused_ms}
    runs = story.executed | story.cancelled
    if story.completed and story.ended_ms is not None and _used_up_ms(story) is None:
        goes_on = set(instants(schedule, story.ended_ms, end_ms + FAR_MS)) - runs
        if goes_on:
            yield f"completed after {len(runs)} runs, its schedule goes on and maxRuns is {schedule.max_runs}"
    if 0 < schedule.max_runs < len(story.executed) and not story.stretches:
        yield f"{len(story.executed)} runs of {schedule.max_runs}"
    yield from _balance(story, must, may)


def _stretch(story: Story, upto_ms: int, latest_ms: int) -> tuple[Schedule, int, int, int]:
    """The schedule in force and its time, which ends with the last run it allows."""
    used_up_ms = _used_up_ms(story)
    if used_up_ms is not None:
        # Due by then, whatever its jitter: it was planned.
        upto_ms = min(upto_ms, used_up_ms + story.job.schedule.jitter_ms)
    return story.job.schedule, story.since_ms, upto_ms, latest_ms


def _used_up_ms(story: Story) -> int | None:
    """The last run, if the runs that were made or planned so far are all that the schedule allows."""
    schedule = story.job.schedule
    planned: list[Skip | CatchUp] = [one for one in story.skips if one.reason is SkipReason.CANCELLED]
    planned += story.kept
    runs = story.executed | story.cancelled
    if not 0 < schedule.max_runs <= len(runs) + sum(one.count for one in planned):
        return None
    return max((*runs, *(one.to_ms for one in planned)))


def _of(schedule: Schedule, from_ms: int, to_ms: int) -> list[int]:
    if schedule.kind is ScheduleKind.ONCE and from_ms >= schedule.run_at_ms:
        from_ms = schedule.run_at_ms - 1  # in the past: at once
    return instants(schedule, from_ms, to_ms)


def _balance(story: Story, must: set[int], may: set[int]) -> Iterator[str]:
    for at in sorted(story.executed - may):
        yield f"ran at {at}, when it was not due"
    missing = must - story.executed - story.cancelled
    explained: list[Skip | CatchUp] = [*story.skips, *story.kept]
    for at in sorted(missing):
        if not any(one.from_ms <= at <= one.to_ms for one in explained):
            yield f"due at {at}, neither executed nor skipped"
    counted = sum(one.count for one in explained)
    most = len(may - story.executed - story.cancelled)
    if not len(missing) <= counted <= most:
        yield f"{counted} are recorded as skipped, where {len(missing)} to {most} were"
