"""A due occurrence becomes an execution, is kept for later, or is skipped with a reason.

Policies here are the defaults of semantics §5, whole: `queue` with a limit of one waiting execution, and
`fire_all` with window and limit, whose kept misfires are ranges in the cursor, made one at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from schemas import ids
from schemas.entities import (
    CatchUp,
    Cursor,
    Execution,
    ExecutionKind,
    ExecutionStatus,
    Job,
    JobStatus,
    ScheduleKind,
    Skip,
    SkipReason,
    WaitingFor,
)
from schemas.events import CursorMoved, ExecutionFired, ExecutionReady, JobCompleted
from streams.core import keys
from streams.core import schedule as occurrences
from streams.core.effects import Alert
from streams.core.limits import MISFIRE_KEPT_MAX, MISFIRE_THRESHOLD_MS, QUEUE_LIMIT
from streams.core.planning import plan_of
from streams.core.schedule import MisfirePolicy, Occurrence
from streams.core.state import first_due_ms
from streams.core.transaction import Transaction
from streams.core.zones import TZ_VERSION

FIRED_PER_PASS_MAX = 100
"""Occurrences of one job settled at once; a job with more waits for the next pass."""


@dataclass(slots=True)
class _Settling:
    """The cursor as it moves, and the skips of the event that will record it."""

    cursor: Cursor
    skips: list[Skip]


def settle(tx: Transaction, job: Job) -> Cursor:
    """Fires, keeps or skips what is due by now: before any command on the job, and when its time comes."""
    cursor = tx.state.cursor(job)
    if cursor.status is not JobStatus.ACTIVE or not cursor.next_ms or _due_ms(job, cursor) > tx.now_ms:
        return cursor
    if job.schedule.kind is ScheduleKind.ONCE:
        return _settle_one_off(tx, job, cursor)
    moving = _Settling(cursor, [])
    for _ in range(FIRED_PER_PASS_MAX):
        due_ms = moving.cursor.next_ms
        if not due_ms or due_ms > tx.now_ms:
            break
        if tx.now_ms - due_ms > MISFIRE_THRESHOLD_MS:
            _keep_missed(tx, job, moving)
        else:
            _occur(tx, job, moving)
    moved = _record(tx, cursor, moving)
    return follow_up(tx, job, moved)


def _due_ms(job: Job, cursor: Cursor) -> int:
    return first_due_ms(job) if job.schedule.kind is ScheduleKind.ONCE else cursor.next_ms


def _settle_one_off(tx: Transaction, job: Job, cursor: Cursor) -> Cursor:
    """A one-off is its own catch-up: late is late, but older than the window is skipped. It needs no cursor
    event when it fires: its execution says so (`State.cursor`)."""
    late_ms = tx.now_ms - first_due_ms(job)
    if late_ms > MISFIRE_THRESHOLD_MS and late_ms > job.policies.misfire_window_sec * 1000:
        skip = Skip(from_ms=cursor.next_ms, to_ms=cursor.next_ms, count=1, reason=SkipReason.MISFIRE_WINDOW)
        moving = _Settling(replace(cursor, next_ms=0, last_ms=cursor.next_ms), [skip])
        return follow_up(tx, job, _record(tx, cursor, moving))
    waiting = WaitingFor.OVERLAP if tx.state.has_open(job.tenant, job.job_id) else WaitingFor.WORKER
    fire(tx, job, cursor.next_ms, waiting, due_ms=first_due_ms(job))
    return tx.state.cursor(job)


def _record(tx: Transaction, old: Cursor, moving: _Settling) -> Cursor:
    missed = [s for s in moving.skips if s.reason in (SkipReason.MISFIRE_WINDOW, SkipReason.MISFIRE_LIMIT)]
    if missed:
        count = sum(skip.count for skip in missed)
        tx.effects.append(Alert("missed_window", old.tenant, f"job {old.job_id}: {count} misfires skipped"))
    return tx.emit_cursor(
        CursorMoved, old, replace(moving.cursor, skips=tuple(moving.skips), tz_version=TZ_VERSION)
    )


def _occur(tx: Transaction, job: Job, moving: _Settling) -> None:
    """One occurrence that is on time: it runs, waits, or is skipped for overlap."""
    scheduled_ms, local = moving.cursor.next_ms, moving.cursor.next_local
    waiting = overlap(tx, job)
    if waiting is None:
        _add_skip(
            moving.skips, Skip(from_ms=scheduled_ms, to_ms=scheduled_ms, count=1, reason=SkipReason.OVERLAP)
        )
    elif tx.state.execution(job.tenant, _scheduled_id(job, scheduled_ms)) is None:
        fire(tx, job, scheduled_ms, waiting)
    _move(job, moving, occurrences.Occurrence(scheduled_ms, local))


def _keep_missed(tx: Transaction, job: Job, moving: _Settling) -> None:
    """What fell due too long ago is kept for catch-up, the newest first in right; the rest is counted."""
    cursor = moving.cursor
    missed = occurrences.missed(
        plan_of(job),
        cursor.last_ms or job.created_ms,
        cursor.last_local or None,
        tx.now_ms - MISFIRE_THRESHOLD_MS - 1,
        now_ms=tx.now_ms,
        policy=MisfirePolicy.FIRE_ALL,
        window_ms=job.policies.misfire_window_sec * 1000,
        limit=MISFIRE_KEPT_MAX,
    )
    for skipped in missed.skipped:
        reason = SkipReason(skipped.reason.upper())
        skip = Skip(from_ms=skipped.from_ms, to_ms=skipped.to_ms, count=skipped.count, reason=reason)
        _add_skip(moving.skips, skip)
    if missed.kept is not None:
        first, last = missed.kept.first, missed.kept.last
        # The range is read again from just before its first occurrence.
        kept = CatchUp(
            after_ms=first.utc_ms - 1,
            after_local="",
            from_ms=first.utc_ms,
            to_ms=last.utc_ms,
            count=missed.kept.count,
        )
        moving.cursor = replace(cursor, catch_up=_within_limit(job, moving, (*cursor.catch_up, kept)))
    if missed.last is not None:
        _move(job, moving, missed.last)
    else:  # new zone data moved it from under the cursor: it was promised, so it runs, and the job goes on
        _occur(tx, job, moving)


def _within_limit(job: Job, moving: _Settling, ranges: tuple[CatchUp, ...]) -> tuple[CatchUp, ...]:
    """Of several outages together, too, only the newest are kept."""
    excess = sum(one.count for one in ranges) - MISFIRE_KEPT_MAX
    kept = list(ranges)
    while excess > 0:
        oldest = kept.pop(0)
        dropped = min(excess, oldest.count)
        excess -= dropped
        last_dropped_ms = oldest.to_ms
        if dropped < oldest.count:
            newest_dropped = occurrences.nth_newest(
                plan_of(job),
                oldest.after_ms,
                oldest.to_ms,
                oldest.count - dropped + 1,
                oldest.after_local or None,
            )
            rest = _next(job, newest_dropped)
            if newest_dropped is None or rest is None:
                break
            last_dropped_ms = newest_dropped.utc_ms
            kept.insert(
                0,
                replace(
                    oldest,
                    after_ms=newest_dropped.utc_ms,
                    after_local=newest_dropped.local,
                    from_ms=rest.utc_ms,
                    count=oldest.count - dropped,
                ),
            )
        skip = Skip(
            from_ms=oldest.from_ms, to_ms=last_dropped_ms, count=dropped, reason=SkipReason.MISFIRE_LIMIT
        )
        _add_skip(moving.skips, skip)
    return tuple(kept)


def _next(job: Job, last: Occurrence | None) -> Occurrence | None:
    return occurrences.next_occurrence(plan_of(job), last.utc_ms, last.local) if last is not None else None


def _move(job: Job, moving: _Settling, last: Occurrence) -> None:
    """The cursor goes behind `last`; the next occurrence depends on nothing else."""
    following = _next(job, last)
    moving.cursor = replace(
        moving.cursor,
        last_ms=last.utc_ms,
        last_local=last.local,
        next_ms=following.utc_ms if following is not None else 0,
        next_local=following.local if following is not None else "",
    )


def _add_skip(skips: list[Skip], skip: Skip) -> None:
    """One record a reason."""
    for at, other in enumerate(skips):
        if other.reason is skip.reason:
            skips[at] = replace(
                other,
                from_ms=min(other.from_ms, skip.from_ms),
                to_ms=max(other.to_ms, skip.to_ms),
                count=other.count + skip.count,
            )
            return
    skips.append(skip)


def overlap(tx: Transaction, job: Job) -> WaitingFor | None:
    """What a new execution of the job would wait for under `queue`; None: it would be skipped."""
    if not tx.state.has_open(job.tenant, job.job_id):
        return WaitingFor.WORKER
    waiting = tx.state.in_line(job.tenant, job.job_id, QUEUE_LIMIT)
    return WaitingFor.OVERLAP if waiting < QUEUE_LIMIT else None


def _scheduled_id(job: Job, scheduled_ms: int) -> str:
    return ids.scheduled_execution_id(job.job_id, job.incarnation, scheduled_ms)


def fire(
    tx: Transaction,
    job: Job,
    scheduled_ms: int,
    waiting: WaitingFor,
    *,
    due_ms: int | None = None,
    execution_id: str | None = None,
    kind: ExecutionKind = ExecutionKind.SCHEDULE,
) -> Execution:
    """Makes an execution. `due_ms` None: due when scheduled."""
    execution = new_execution(
        job,
        execution_id or _scheduled_id(job, scheduled_ms),
        kind,
        scheduled_ms,
        scheduled_ms if due_ms is None else due_ms,
        tx.now_ms,
    )
    fired = tx.emit_execution(
        ExecutionFired, replace(execution, status=ExecutionStatus.PENDING, waiting_for=waiting)
    )
    if waiting is WaitingFor.WORKER:
        tx.want_work(fired)
    return fired


def new_execution(
    job: Job, execution_id: str, kind: ExecutionKind, scheduled_ms: int, due_ms: int, now_ms: int
) -> Execution:
    """An execution before its first event."""
    return Execution(
        tenant=job.tenant,
        execution_id=execution_id,
        job_version=job.version,
        kind=kind,
        pool=job.pool,
        priority=job.policies.priority,
        scheduled_ms=scheduled_ms,
        due_ms=due_ms,
        fired_ms=now_ms,
        status=ExecutionStatus.SCHEDULED,
    )


def follow_up(tx: Transaction, job: Job, cursor: Cursor) -> Cursor:
    """After an execution ended, or the cursor moved: the next in line runs, or the job is completed.

    Kept misfires and the one that waits for overlap go by scheduled time.
    """
    if cursor.status is not JobStatus.ACTIVE:
        unblock(tx, job.tenant, job.job_id)
        return cursor
    waiting = tx.state.blocked(job.tenant, job.job_id, 1)
    if waiting or cursor.catch_up:
        if tx.state.has_open(job.tenant, job.job_id, keys.BUSY):
            return cursor
        oldest = tx.state.execution(job.tenant, waiting[0]) if waiting else None
        if cursor.catch_up and (oldest is None or cursor.catch_up[0].from_ms < oldest.scheduled_ms):
            return _make_kept(tx, job, cursor)
        unblock(tx, job.tenant, job.job_id)
        return cursor
    if cursor.next_ms or tx.state.has_open(job.tenant, job.job_id):
        return cursor
    completed = replace(cursor, status=JobStatus.COMPLETED, finished_ms=tx.now_ms, skips=())
    return tx.emit_cursor(JobCompleted, cursor, completed)


def unblock(tx: Transaction, tenant: str, job_id: str) -> None:
    """The oldest execution that waits for overlap may run, if nothing else of the job is open."""
    waiting = tx.state.blocked(tenant, job_id, 1)
    if not waiting or tx.state.has_open(tenant, job_id, keys.BUSY):
        return
    execution = tx.state.execution(tenant, waiting[0])
    if execution is not None:
        make_ready(tx, execution)


def make_ready(tx: Transaction, execution: Execution) -> None:
    """A wait ended: the execution may be granted."""
    ready = replace(execution, status=ExecutionStatus.PENDING, waiting_for=WaitingFor.WORKER)
    tx.want_work(tx.emit_execution(ExecutionReady, ready))


def _make_kept(tx: Transaction, job: Job, cursor: Cursor) -> Cursor:
    """The oldest kept misfire becomes an execution."""
    head, *rest = cursor.catch_up
    made = occurrences.next_occurrence(plan_of(job), head.after_ms, head.after_local or None)
    if made is None or made.utc_ms > head.to_ms:
        moved = tx.emit_cursor(CursorMoved, cursor, replace(cursor, catch_up=tuple(rest), skips=()))
        return follow_up(tx, job, moved)
    if head.count > 1:
        following = _next(job, made)
        left = replace(
            head,
            after_ms=made.utc_ms,
            after_local=made.local,
            from_ms=following.utc_ms if following is not None else head.to_ms,
            count=head.count - 1,
        )
        rest = [left, *rest]
    moved = tx.emit_cursor(CursorMoved, cursor, replace(cursor, catch_up=tuple(rest), skips=()))
    if tx.state.execution(job.tenant, _scheduled_id(job, made.utc_ms)) is not None:
        return follow_up(tx, job, moved)  # new zone data brought an instant back
    fire(tx, job, made.utc_ms, WaitingFor.WORKER)
    return moved
