"""Owns the account of one job: each of its occurrences is executed, kept to be made later, or skipped.

The account goes by the cursor's events. Everything up to the *frontier* is accounted for; when the cursor
moves on, the oracle says what was due in between, and what no execution was made of must be among the kept
ones or in a skip record. Memory: the kept ones (at most 1,000) and the executions that the engine remembers.
"""

from __future__ import annotations

from projections.checker.oracle import Oracle
from projections.checker.report import Kind, Report
from projections.checker.skips import Circumstances, assign, why_wrong
from schemas.entities import CatchUp, Cursor, Execution, ExecutionKind, Job, JobStatus, ScheduleKind
from schemas.events import (
    CursorEvent,
    CursorMoved,
    ExecutionCancelled,
    ExecutionCompleted,
    ExecutionEvent,
    JobCancelled,
    JobCompleted,
    JobPaused,
    ScheduleShifted,
)

# Behind everything that can be due.
_NEVER_MS = 1 << 60
# A completed job is looked at so far ahead for occurrences that it should not have; a one-off has no other.
_AHEAD_MS = 32 * 86_400_000


class Account:
    """One incarnation of a job, as far as its events have been read.

    `begun`: its registration is known, so it stands at its beginning; else it waits for a cursor to adopt.
    """

    def __init__(self, job: Job, oracle: Oracle, report: Report, *, begun: bool, kept_max: int) -> None:
        self.job = job
        self.status = JobStatus.ACTIVE
        self._oracle = oracle
        self._report = report
        self._kept_max = kept_max
        self._begun = begun
        self._successor: Job | None = None
        self._frontier_ms = _before(job, job.created_ms)
        self._tz_version = job.tz_version
        self._shifted = False
        self._catch_up: tuple[CatchUp, ...] = ()
        self._owed: list[int] = []
        self._leaving: set[int] = set()
        self._fired: set[int] = set()
        self._ahead: set[int] = set()
        self._made = 0
        self._paused_ms = 0
        self._moved = False

    @property
    def name(self) -> str:
        return f"{self.job.tenant}/{self.job.job_id}"

    # -- what happens

    def updated(self, job: Job, at_ms: int, *, judged: bool) -> None:
        """A new definition; the cursor's event that follows closes the account of the old one."""
        if judged and self._is_judgeable() and self.status is JobStatus.ACTIVE:
            self._check_overdue(at_ms, "the update")
        self._successor = job

    def born(self, event: ExecutionEvent, *, judged: bool) -> None:
        """The first event of an execution of the schedule."""
        instant = event.execution.scheduled_ms
        self._fired.add(instant)
        if not judged or not self._is_judgeable():
            return
        self._report.fired += 1
        self._made += 1
        self._check_delay(event.execution)
        if instant in self._leaving:
            self._leaving.discard(instant)
        elif instant in self._owed:
            self._owed.remove(instant)
        else:
            self._born_ahead(event, instant)

    def _check_delay(self, execution: Execution) -> None:
        """It is due when scheduled, or later by the jitter at most, and never behind the next occurrence. A
        one-off in the past is due from when it was asked for."""
        scheduled_ms, due_ms = execution.scheduled_ms, execution.due_ms
        latest_ms = scheduled_ms + self.job.schedule.jitter_ms
        if self.job.schedule.kind is ScheduleKind.ONCE:
            latest_ms = max(latest_ms, self.job.created_ms, self.job.updated_ms)
        passed = due_ms > scheduled_ms and self._between(scheduled_ms, due_ms - 1)
        if not scheduled_ms <= due_ms <= latest_ms or passed:
            self._add(Kind.JITTER, f"{execution.execution_id}, of {scheduled_ms}, was due at {due_ms}")

    def _born_ahead(self, event: ExecutionEvent, instant: int) -> None:
        wrong = ""
        if instant <= self._frontier_ms:
            wrong = "it was accounted for already"
        elif not self._between(instant - 1, instant):
            wrong = "that is no occurrence of the schedule"
        elif self.status is not JobStatus.ACTIVE and not isinstance(event, ExecutionCancelled):
            wrong = f"the job is {self.status}"
        elif self._is_spent(self._made - 1):
            wrong = f"the schedule allows {self.job.schedule.max_runs} runs"
        if wrong:
            self._add(Kind.NOT_DUE, f"{event.execution.execution_id} was made for {instant}: {wrong}")
        self._report.due += 1
        self._ahead.add(instant)

    def forgot(self, execution: Execution) -> None:
        """The engine has forgotten the execution of an occurrence."""
        if execution.closes_job:
            self._add(Kind.LIFE, f"still known, and {execution.execution_id}, which closed it, forgotten")
        self._fired.discard(execution.scheduled_ms)

    def closed(self, event: ExecutionEvent, open_now: int, *, judged: bool) -> None:
        """The end of a one-off's execution completed the job, as an event of its own would have."""
        execution, job = event.execution, self.job
        is_first = execution.kind is ExecutionKind.SCHEDULE and execution.scheduled_ms == job.first_next_ms
        if judged and not (is_first and job.schedule.kind is ScheduleKind.ONCE):
            self._add(Kind.LIFE, f"closed by {execution.execution_id}, which is not its only occurrence")
        if judged and not isinstance(event, ExecutionCompleted):
            self._add(Kind.LIFE, f"closed by {type(event).__name__}")
        if judged and self._moved:
            self._add(Kind.LIFE, f"closed by {execution.execution_id}, and it has a cursor of its own")
        cursor = Cursor(
            tenant=job.tenant,
            job_id=job.job_id,
            incarnation=job.incarnation,
            status=JobStatus.COMPLETED,
            last_ms=execution.scheduled_ms,
            last_local=job.first_next_local,
            tz_version=job.tz_version,
            finished_ms=execution.finished_ms,
            runs=1,
            priority=job.policies.priority,
        )
        completed = JobCompleted(at_ms=event.at_ms, actor=event.actor, cause=event.cause, cursor=cursor)
        self.moved(completed, open_now, judged=judged)

    def moved(self, event: CursorEvent, open_now: int, *, judged: bool) -> None:
        """The job's progress or status changed. `open_now`: its unfinished executions."""
        cursor = event.cursor
        self._moved = True
        self._shifted = self._shifted or cursor.tz_version != self._tz_version
        if not judged or not self._begun or not self._is_judgeable():
            self._adopt(cursor)
        elif cursor.tz_version != self._tz_version and not self._same_in_both(event):
            self._report.unjudged["occurrences while zone data changed"] += 1
            self._adopt(cursor)
        else:
            self._judge(event, open_now)
        if isinstance(event, ScheduleShifted):
            self._paused_ms = 0  # what is next may have moved to before the pause, in which that was learnt
        elif cursor.status is not self.status:
            self._paused_ms = 0 if cursor.paused_by == "system" else cursor.paused_ms
        self.status = cursor.status
        self._tz_version = cursor.tz_version

    def end(self, end_ms: int, grace_ms: int, *, drained: bool) -> None:
        """Nothing more is read. What was due `grace_ms` before the end must have been decided."""
        if not self._begun or not self._is_judgeable():
            self._report.unjudged["jobs"] += 1
            return
        self._no_longer_leaving()
        self._report.kept += len(self._owed)
        if self.status is not JobStatus.ACTIVE:
            return
        if drained and self._owed:
            self._add(Kind.UNFINISHED, f"{len(self._owed)} missed occurrences are still to be made")
        if drained and self.job.schedule.kind is ScheduleKind.ONCE and not self._moved and self._made:
            self._add(Kind.UNFINISHED, "its only occurrence was executed, and it is not completed")
        self._check_overdue(end_ms - grace_ms - 1, "the end")
        if not self._is_spent(self._made):
            undecided = len(self._expected(end_ms - self.job.schedule.jitter_ms))
            self._report.undecided += undecided
            self._report.due += undecided

    # -- the account

    def _judge(self, event: CursorEvent, open_now: int) -> None:
        cursor = event.cursor
        self._no_longer_leaving()
        upto_ms = self._upto_ms(event)
        due = [] if self._is_spent(self._made - len(self._ahead)) else self._expected(upto_ms)
        self._report.due += len(due)
        kept = self._kept(cursor)
        still_owed = set(kept)
        was_owed = set(self._owed)
        missing = (was_owed | set(due)) - still_owed - self._fired
        room = [skip.count for skip in cursor.skips]
        left = assign(missing, cursor.skips, room)
        for skip, beyond in zip(cursor.skips, room, strict=True):
            self._report.skipped[skip.reason.value] += skip.count - beyond
        self._frontier_ms = upto_ms
        self._ahead = {instant for instant in self._ahead if instant > upto_ms}
        for instant in left:
            # Kept misfires leave the cursor just before their execution is made.
            if instant in was_owed and isinstance(event, CursorMoved):
                self._leaving.add(instant)
            else:
                self._add(Kind.UNEXPLAINED, f"due at {instant}, neither executed nor skipped")
        self._judge_skips(event, room, len(kept), open_now)
        stopped = isinstance(event, JobCancelled | JobPaused) and self.status is JobStatus.ACTIVE
        if stopped and cursor.paused_by != "system":
            self._check_overdue(event.at_ms, "the cancel or pause")
        self._owed = kept
        if isinstance(event, JobCompleted):
            self._check_completed(event, open_now)
        self._follow_successor(cursor)

    def _upto_ms(self, event: CursorEvent) -> int:
        """How far this event accounts for what was due."""
        upto_ms = max(self._frontier_ms, self._last_ms(event.cursor))
        replaced = self._successor is not None and self._successor.schedule != self.job.schedule
        if (replaced or isinstance(event, JobCancelled)) and self.status is JobStatus.PAUSED:
            return max(upto_ms, event.at_ms)
        # The last one is the new schedule's; what the old one had not got to for its jitter goes.
        return self._frontier_ms if replaced else upto_ms

    def _judge_skips(self, event: CursorEvent, room: list[int], kept: int, open_now: int) -> None:
        then = Circumstances(
            event=event,
            job=self.job,
            status=self.status,
            paused_ms=self._paused_ms,
            kept=kept,
            open_now=open_now,
            kept_max=self._kept_max,
        )
        for skip, beyond in zip(event.cursor.skips, room, strict=True):
            told = f"{skip.count} skipped as {skip.reason} from {skip.from_ms} to {skip.to_ms}"
            if beyond:
                self._add(Kind.SKIP, f"{told}: {beyond} of them were not due, or did run")
            if wrong := why_wrong(skip, then):
                self._add(Kind.SKIP, f"{told}: {wrong}")

    def _kept(self, cursor: Cursor) -> list[int]:
        """The occurrences that the cursor keeps to be made."""
        if cursor.catch_up == self._catch_up:
            return [instant for instant in self._owed if instant not in self._leaving]
        found: list[int] = []
        for kept in cursor.catch_up:
            instants = self._between(kept.from_ms - 1, kept.to_ms)
            if len(instants) != kept.count and not self._shifted:
                self._add(Kind.SKIP, f"keeps {kept.count} from {kept.from_ms}, there are {len(instants)}")
            found += instants
        for instant in self._fired.intersection(found) if not self._shifted else ():
            self._add(Kind.NOT_DUE, f"keeps {instant}, which has an execution")
        self._catch_up = cursor.catch_up
        return found

    def _check_overdue(self, now_ms: int, what: str) -> None:
        """What was due by now, jitter and all, had to be decided first."""
        if self._is_spent(self._made):
            return
        for instant in self._expected(now_ms - self.job.schedule.jitter_ms):
            self._report.due += 1
            self._add(Kind.UNEXPLAINED, f"due at {instant}, before {what}, and not decided")
            self._frontier_ms = instant

    def _check_completed(self, event: JobCompleted, open_now: int) -> None:
        if open_now or self._owed:
            self._add(Kind.LIFE, f"completed with {open_now} unfinished, {len(self._owed)} kept")
        schedule = self.job.schedule
        endless = schedule.kind is not ScheduleKind.ONCE and not schedule.end_at_ms
        upto_ms = min(schedule.end_at_ms or _NEVER_MS, self._frontier_ms + _AHEAD_MS)
        if not self._is_spent(self._made) and (endless or self._expected(upto_ms)):
            self._add(Kind.LIFE, f"completed at {event.at_ms} with occurrences to come")

    def _follow_successor(self, cursor: Cursor) -> None:
        if self._successor is None:
            return
        job, former = self._successor, self.job
        self.job, self._successor = job, None
        if job.schedule != former.schedule:
            self._ahead.clear()
            self._made = cursor.runs  # not always counted of one-offs; how many there were is the log's word
            ran = job.schedule.kind is ScheduleKind.ONCE and job.schedule.run_at_ms == cursor.last_ms
            self._frontier_ms = cursor.last_ms if ran else _before(job, cursor.last_ms)

    def _adopt(self, cursor: Cursor) -> None:
        """Takes the cursor's word for what came before it."""
        if self._successor is not None:
            self.job, self._successor = self._successor, None
        self._begun = True
        self._leaving.clear()
        self._ahead.clear()
        self._frontier_ms = cursor.next_ms - 1 if cursor.next_ms else _NEVER_MS
        self._tz_version = cursor.tz_version
        self._owed = self._kept(cursor) if self._is_judgeable() else []
        self._made = cursor.runs - len(self._owed)

    # -- small questions

    def _last_ms(self, cursor: Cursor) -> int:
        """The last occurrence of this schedule; a one-off's cursor may still name an earlier schedule's, or
        the end of the pause that its only one fell into."""
        schedule = self.job.schedule
        if schedule.kind is not ScheduleKind.ONCE or cursor.last_ms == schedule.run_at_ms:
            return cursor.last_ms
        passed = cursor.status is JobStatus.ACTIVE and not cursor.next_ms
        return schedule.run_at_ms if passed and cursor.last_ms > schedule.run_at_ms else 0

    def _no_longer_leaving(self) -> None:
        for instant in sorted(self._leaving):
            self._add(Kind.UNEXPLAINED, f"due at {instant}, kept to be made, and dropped")
        self._leaving.clear()

    def _expected(self, upto_ms: int) -> list[int]:
        """Occurrences behind the frontier that have no execution yet."""
        found = self._between(self._frontier_ms, upto_ms)
        return [one for one in found if one not in self._fired and one not in self._ahead]

    def _between(self, after_ms: int, upto_ms: int) -> list[int]:
        return self._oracle.between(self.job.schedule, after_ms, upto_ms, self._tz_version)

    def _is_judgeable(self) -> bool:
        return self._oracle.knows(self.job.schedule, self._tz_version)

    def _is_spent(self, made: int) -> bool:
        most = self.job.schedule.max_runs
        return bool(most) and made + len(self._owed) + len(self._leaving) >= most

    def _same_in_both(self, event: CursorEvent) -> bool:
        """Whether old and new zone data agree on what the event accounts for, and on what is next."""
        cursor = event.cursor
        if self.job.schedule.kind is not ScheduleKind.CRON:
            return True
        if not self._oracle.knows(self.job.schedule, cursor.tz_version) or cursor.catch_up != self._catch_up:
            return False
        # What is next may have moved back to before the frontier.
        after_ms = min(self._frontier_ms, cursor.next_ms - 1) if cursor.next_ms else self._frontier_ms
        span = (after_ms, max(self._upto_ms(event), cursor.last_ms, cursor.next_ms))
        old = self._oracle.between(self.job.schedule, *span, self._tz_version)
        return old == self._oracle.between(self.job.schedule, *span, cursor.tz_version)

    def _add(self, kind: Kind, detail: str) -> None:
        self._report.add(kind, self.name, detail)


def _before(job: Job, after_ms: int) -> int:
    """The frontier of a definition that counts from an instant on; a one-off runs even if that is past."""
    return job.schedule.run_at_ms - 1 if job.schedule.kind is ScheduleKind.ONCE else after_ms
