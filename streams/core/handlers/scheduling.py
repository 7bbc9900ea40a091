"""A due occurrence becomes an execution, is kept for later, or is skipped with a reason (semantics §5).

The cursor moves over occurrences one by one while they are on time, and in one step over all that were
missed, however many: kept ones become ranges in the cursor (`following` makes them), the rest exact counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from schemas.entities import (
    CatchUp,
    Cursor,
    Job,
    JobStatus,
    MisfirePolicy,
    ScheduleKind,
    Skip,
    SkipReason,
    WaitingFor,
)
from schemas.events import CursorMoved, ScheduleShifted
from streams.core import schedule as occurrences
from streams.core.handlers.ahead import open_spans
from streams.core.handlers.firing import fire, scheduled
from streams.core.handlers.following import follow_up, overlap
from streams.core.limits import MISFIRE_KEPT_MAX, MISFIRE_THRESHOLD_MS
from streams.core.planning import due_ms, plan_of
from streams.core.schedule import Occurrence
from streams.core.state import behind, first_due_ms
from streams.core.transaction import Transaction
from streams.core.zones import TZ_VERSION

FIRED_PER_PASS_MAX = 100
"""Occurrences of one job settled at once; a job with more waits for the next pass."""

_ALARMING = (SkipReason.MISFIRE_POLICY, SkipReason.MISFIRE_WINDOW, SkipReason.MISFIRE_LIMIT)


@dataclass(slots=True)
class Moving:
    """A cursor as it moves, and the skips of the event that will record it."""

    cursor: Cursor
    skips: list[Skip]

    def skip(self, skip: Skip) -> None:
        """One record a reason."""
        for at, other in enumerate(self.skips):
            if other.reason is skip.reason:
                self.skips[at] = replace(
                    other,
                    from_ms=min(other.from_ms, skip.from_ms),
                    to_ms=max(other.to_ms, skip.to_ms),
                    count=other.count + skip.count,
                )
                return
        self.skips.append(skip)

    def result(self) -> Cursor:
        return replace(self.cursor, skips=tuple(self.skips))


def settle(tx: Transaction, job: Job) -> Cursor:
    """Fires, keeps or skips what is due by now: before any command on the job, and when its time comes."""
    moved = tx.state.moved(job)
    cursor = moved if moved is not None else tx.state.unmoved(job)
    if cursor.status is JobStatus.PAUSED and cursor.next_ms <= tx.now_ms:
        return shift(tx, job, cursor)
    if cursor.status is not JobStatus.ACTIVE or not cursor.next_ms or _due(cursor) > tx.now_ms:
        return cursor
    if job.schedule.kind is ScheduleKind.ONCE:
        return _settle_one_off(tx, job, cursor, has_moved=moved is not None)
    if _is_late(tx, cursor) and shift(tx, job, cursor) is not cursor:
        return settle(tx, job)
    moving = Moving(cursor, [])
    for _ in range(FIRED_PER_PASS_MAX):
        if not moving.cursor.next_ms or _due(moving.cursor) > tx.now_ms:
            break
        if moving.cursor.tz_version != cursor.tz_version:
            break  # the rest is another event's, so that each goes by one version of the zone data
        if not (_is_late(tx, moving.cursor) and _keep_missed(tx, job, moving)):
            _occur(tx, job, moving)
    alert_skips(tx, job, moving.skips)
    moved = tx.emit_cursor(CursorMoved, cursor, moving.result())
    followed = follow_up(tx, job, moved)
    return followed if moved.tz_version == cursor.tz_version else settle(tx, job)


def fire_first(tx: Transaction, job: Job) -> bool:
    """Fires a one-off as nearly all are fired: on time, for the first time, and with nothing else of it
    unfinished. False: it is for `settle` to see what it is, and the job's cursor has to be looked at."""
    if job.schedule.kind is not ScheduleKind.ONCE or tx.state.moved(job) is not None:
        return False
    due_at_ms = first_due_ms(job)
    if not 0 <= tx.now_ms - due_at_ms <= MISFIRE_THRESHOLD_MS:
        return False
    if tx.state.first_execution(job) is not None or not tx.state.is_alone(job):
        return False
    fire(tx, job, scheduled(job, job.first_next_ms), job.first_next_ms, WaitingFor.WORKER, due_at_ms)
    return True


def _due(cursor: Cursor) -> int:
    return cursor.next_due_ms or cursor.next_ms


def _is_late(tx: Transaction, cursor: Cursor) -> bool:
    return tx.now_ms - _due(cursor) > MISFIRE_THRESHOLD_MS


def shift(tx: Transaction, job: Job, cursor: Cursor) -> Cursor:
    """The next occurrence is where this process' zone data have it, if the cursor's had it elsewhere.

    It may be in the past, even before a pause: it has neither run nor been skipped, so it is still to come.
    """
    if job.schedule.kind is not ScheduleKind.CRON or not cursor.next_ms or cursor.tz_version == TZ_VERSION:
        return cursor
    shifted = point(job, cursor, cursor.last_ms or job.created_ms, cursor.last_local)
    if (shifted.next_ms, shifted.next_local) == (cursor.next_ms, cursor.next_local):
        return cursor
    return follow_up(tx, job, tx.emit_cursor(ScheduleShifted, cursor, replace(shifted, skips=())))


def _settle_one_off(tx: Transaction, job: Job, cursor: Cursor, *, has_moved: bool) -> Cursor:
    """A one-off is its own catch-up: late is late, but what the misfire policy does not want is skipped. It
    needs no cursor event when it fires: its execution says so (`State.cursor`)."""
    due_at_ms = _due(cursor)
    late_ms = tx.now_ms - due_at_ms
    reason = None
    if late_ms > MISFIRE_THRESHOLD_MS:
        if job.policies.misfire is MisfirePolicy.SKIP:
            reason = SkipReason.MISFIRE_POLICY
        elif late_ms > job.policies.misfire_window_sec * 1000:
            reason = SkipReason.MISFIRE_WINDOW
    origin = scheduled(job, cursor.next_ms)
    # It may have been updated back to an old instant.
    ran = has_moved and tx.state.execution(job.tenant, origin.execution_id) is not None
    waiting = overlap(tx, job) if reason is None and not ran else None
    if waiting is not None:
        fire(tx, job, origin, cursor.next_ms, waiting, due_at_ms)
        if not has_moved:
            return behind(cursor)
        cursor = replace(cursor, runs=cursor.runs + 1)
    moving = Moving(cursor, [])
    if waiting is None and not ran:
        moving.skip(_one(cursor.next_ms, reason or SkipReason.OVERLAP))
    move(job, moving, Occurrence(cursor.next_ms, cursor.next_local))
    alert_skips(tx, job, moving.skips)
    return follow_up(tx, job, tx.emit_cursor(CursorMoved, cursor, moving.result()))


def alert_skips(tx: Transaction, job: Job, skips: list[Skip]) -> None:
    """Skipped misfires are something that a person should see."""
    count = sum(skip.count for skip in skips if skip.reason in _ALARMING)
    if count:
        detail = f"job {job.job_id}: {count} misfires skipped"
        tx.alert("missed_window", job.tenant, detail, job_id=job.job_id, count=count)


def _one(scheduled_ms: int, reason: SkipReason) -> Skip:
    return Skip(from_ms=scheduled_ms, to_ms=scheduled_ms, count=1, reason=reason)


def _occur(tx: Transaction, job: Job, moving: Moving) -> None:
    """One occurrence that is on time: it runs, waits, or is skipped for overlap."""
    cursor = moving.cursor
    origin = scheduled(job, cursor.next_ms)
    if tx.state.execution(job.tenant, origin.execution_id) is None:
        waiting = overlap(tx, job)
        if waiting is None:
            moving.skip(_one(cursor.next_ms, SkipReason.OVERLAP))
        else:
            fire(tx, job, origin, cursor.next_ms, waiting, _due(cursor))
            moving.cursor = replace(cursor, runs=cursor.runs + 1)
    move(job, moving, Occurrence(cursor.next_ms, cursor.next_local))


def _keep_missed(tx: Transaction, job: Job, moving: Moving) -> bool:
    """What fell due too long ago, in one step; False if that is nothing after all."""
    jitter_ms = _due(moving.cursor) - moving.cursor.next_ms
    upto_ms = tx.now_ms - MISFIRE_THRESHOLD_MS - 1 - jitter_ms
    return keep(tx, job, moving, job.policies.misfire, upto_ms, tx.now_ms - jitter_ms)


def keep(tx: Transaction, job: Job, moving: Moving, policy: MisfirePolicy, upto_ms: int, now_ms: int) -> bool:
    """Moves over all occurrences up to `upto_ms`: the policy's are kept for catch-up, the rest is counted."""
    cursor, plan = moving.cursor, plan_of(job)
    after_ms, after_local = cursor.next_ms - 1, cursor.last_local or None
    newest = occurrences.nth_newest(plan, after_ms, upto_ms, 1, after_local)
    if newest is None:
        return False
    left = 1 if policy is MisfirePolicy.FIRE_ONCE else _runs_left(job, cursor)
    kept: list[CatchUp] = []
    for span in open_spans(tx, job, after_ms, upto_ms):
        missed = occurrences.missed(
            plan,
            span[0],
            after_local,
            span[1],
            now_ms=now_ms,
            policy=occurrences.MisfirePolicy(policy.lower()),
            window_ms=job.policies.misfire_window_sec * 1000,
            limit=left,
        )
        for skipped in missed.skipped:
            moving.skip(recorded(skipped))
        if missed.kept is not None:
            kept.insert(0, _range(missed.kept))
            left -= missed.kept.count
    if kept:
        runs = cursor.runs + sum(one.count for one in kept)
        moving.cursor = replace(cursor, catch_up=(*cursor.catch_up, *kept), runs=runs)
        _drop_excess(job, moving)
    move(job, moving, newest)
    return True


def recorded(skipped: occurrences.Skipped) -> Skip:
    """As events have it."""
    reason = SkipReason(skipped.reason.upper())
    return Skip(from_ms=skipped.from_ms, to_ms=skipped.to_ms, count=skipped.count, reason=reason)


def _range(kept: occurrences.Kept) -> CatchUp:
    """It is read again from just before its first occurrence."""
    first_ms, last_ms = kept.first.utc_ms, kept.last.utc_ms
    return CatchUp(after_ms=first_ms - 1, after_local="", from_ms=first_ms, to_ms=last_ms, count=kept.count)


def _runs_left(job: Job, cursor: Cursor) -> int:
    if not job.schedule.max_runs:
        return MISFIRE_KEPT_MAX
    return min(MISFIRE_KEPT_MAX, job.schedule.max_runs - cursor.runs)


def _drop_excess(job: Job, moving: Moving) -> None:
    """Of several outages together, too, only the newest are kept."""
    ranges = list(moving.cursor.catch_up)
    excess = sum(one.count for one in ranges) - MISFIRE_KEPT_MAX
    while excess > 0:
        oldest = ranges.pop(0)
        dropped = min(excess, oldest.count)
        excess -= dropped
        last_dropped_ms = oldest.to_ms
        if dropped < oldest.count:
            last_dropped_ms, rest = _without(job, oldest, dropped)
            ranges.insert(0, rest)
        reason = SkipReason.MISFIRE_LIMIT
        moving.skip(Skip(from_ms=oldest.from_ms, to_ms=last_dropped_ms, count=dropped, reason=reason))
        moving.cursor = replace(moving.cursor, runs=moving.cursor.runs - dropped)
    moving.cursor = replace(moving.cursor, catch_up=tuple(ranges))


def _without(job: Job, kept: CatchUp, dropped: int) -> tuple[int, CatchUp]:
    """The range without its `dropped` oldest occurrences, and the newest of those. Other zone data than those
    that kept it may find fewer in it: then the dropped ones are those that are gone."""
    plan, left = plan_of(job), kept.count - dropped
    first = occurrences.nth_newest(plan, kept.after_ms, kept.to_ms, left, kept.after_local or None)
    last_dropped = occurrences.nth_newest(plan, kept.after_ms, kept.to_ms, left + 1, kept.after_local or None)
    if first is None or last_dropped is None:
        return kept.from_ms, replace(kept, count=left)
    rest = replace(
        kept,
        after_ms=last_dropped.utc_ms,
        after_local=last_dropped.local,
        from_ms=first.utc_ms,
        count=left,
    )
    return last_dropped.utc_ms, rest


def move(job: Job, moving: Moving, last: Occurrence) -> None:
    """The cursor goes behind `last`; the next occurrence depends on nothing else."""
    cursor = replace(moving.cursor, last_ms=last.utc_ms, last_local=last.local)
    moving.cursor = point(job, cursor, last.utc_ms, last.local)


def point(job: Job, cursor: Cursor, after_ms: int, after_local: str) -> Cursor:
    """The cursor with its next occurrence after the given instant, if the schedule has runs left; with the
    version of the zone data that say so."""
    cursor = replace(cursor, tz_version=TZ_VERSION)
    spent = bool(job.schedule.max_runs) and cursor.runs >= job.schedule.max_runs
    following = None if spent else occurrences.next_occurrence(plan_of(job), after_ms, after_local or None)
    if following is None:
        return replace(cursor, next_ms=0, next_local="", next_due_ms=0)
    return replace(
        cursor,
        next_ms=following.utc_ms,
        next_local=following.local,
        next_due_ms=due_ms(job, following),
    )
