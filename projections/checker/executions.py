"""Owns the life of one execution: every change follows from the one before, in time, and as its job wants it.

Each event is held against the newest one of the same execution. The tables are written from semantics,
section 4, apart from `streams.core.lifecycle`, so that the one can judge the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from projections.checker.report import Kind, Report
from projections.checker.retries import is_backoff, redelivery_wait_ms
from schemas.entities import (
    Execution,
    ExecutionKind,
    LeaseEnd,
    Policies,
    WaitingFor,
)
from schemas.entities import ExecutionStatus as E
from schemas.events import (
    AttemptFailed,
    CancelRequested,
    DeadLetterDiscarded,
    DeadLetterReplayed,
    ExecutionBlocked,
    ExecutionCancelled,
    ExecutionClaimed,
    ExecutionCompleted,
    ExecutionDeadLettered,
    ExecutionEvent,
    ExecutionFired,
    ExecutionReady,
    ExecutionReleased,
    ExecutionSkipped,
    LeaseExpired,
)

FINAL = frozenset({E.COMPLETED, E.FAILED, E.CANCELLED, E.SKIPPED})
OUTCOMES = (ExecutionCompleted, ExecutionDeadLettered, AttemptFailed, ExecutionReleased)

# What an execution was before an event, and is after it; None: it was not there.
LIFE: dict[type[ExecutionEvent], tuple[frozenset[E | None], frozenset[E]]] = {
    ExecutionFired: (frozenset({None}), frozenset({E.PENDING})),
    ExecutionReady: (frozenset({E.PENDING, E.SCHEDULED}), frozenset({E.PENDING})),
    ExecutionBlocked: (frozenset({E.PENDING, E.SCHEDULED}), frozenset({E.PENDING})),
    ExecutionClaimed: (frozenset({E.PENDING}), frozenset({E.RUNNING})),
    ExecutionReleased: (frozenset({E.RUNNING}), frozenset({E.PENDING, E.SCHEDULED})),
    LeaseExpired: (frozenset({E.RUNNING}), frozenset({E.PENDING})),
    AttemptFailed: (frozenset({E.RUNNING}), frozenset({E.SCHEDULED})),
    ExecutionCompleted: (frozenset({E.RUNNING}), frozenset({E.COMPLETED})),
    ExecutionDeadLettered: (frozenset({E.RUNNING}), frozenset({E.FAILED})),
    CancelRequested: (frozenset({E.RUNNING}), frozenset({E.RUNNING})),
    ExecutionCancelled: (
        frozenset({None, E.PENDING, E.SCHEDULED, E.RUNNING}),
        frozenset({E.CANCELLED}),
    ),
    ExecutionSkipped: (frozenset({None, E.PENDING}), frozenset({E.SKIPPED})),
    DeadLetterReplayed: (frozenset({E.FAILED}), frozenset({E.PENDING})),
    DeadLetterDiscarded: (frozenset({E.FAILED}), frozenset({E.FAILED})),
}
SLOWED_BY_ITS_OWN = frozenset(set(WaitingFor) - {WaitingFor.NOTHING, WaitingFor.WORKER})
"""Waits that are the tenant's own doing: what had one is not late (semantics, section 1)."""


@dataclass(slots=True)
class Life:
    """The newest state of an execution. `policies`: as it was fired with, None if that is not known."""

    last: Execution
    policies: Policies | None
    lease_until_ms: int
    slowed: bool

    def is_overdue(self, settled_ms: int) -> bool:
        """Whether its lease, backoff, wait or last time to start had to have ended by then."""
        last = self.last
        if last.status is E.RUNNING:
            return self.lease_until_ms < settled_ms
        if last.status is E.SCHEDULED or last.waiting_for is WaitingFor.REDELIVERY:
            return last.due_ms < settled_ms
        unstarted = last.status is E.PENDING and not last.first_started_ms
        return unstarted and 0 < last.start_deadline_ms < settled_ms


class Lives:
    """All executions that the engine remembers, as far as they have been read."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._lives: dict[str, Life] = {}
        self._tokens: dict[int, int] = {}

    def unfinished(self) -> Iterator[Execution]:
        """What is not final."""
        return (life.last for life in self._lives.values() if life.last.status not in FINAL)

    def remembered(self) -> Iterator[Execution]:
        """All that the engine has not forgotten."""
        return (life.last for life in self._lives.values())

    def get(self, name: str) -> Life | None:
        """What is known of `<tenant>/<execution id>`."""
        return self._lives.get(name)

    def forget(self, name: str) -> None:
        """The engine forgot it; nothing of it can come up again."""
        life = self._lives.pop(name, None)
        if life is not None and life.last.status not in FINAL:
            self._report.add(Kind.LIFE, name, f"forgotten while {life.last.status}")
        if life is not None:
            self._count(life.last)

    def finish(self, settled_ms: int) -> None:
        """Counts what is still remembered. `settled_ms`: what had to happen by then has happened."""
        for name, life in self._lives.items():
            self._count(life.last)
            if life.is_overdue(settled_ms):
                detail = f"{life.last.status}, {life.last.waiting_for}, and its time was up long ago"
                self._report.add(Kind.UNFINISHED, name, detail)

    def extended(self, name: str, epoch: int, until_ms: int) -> None:
        """A heartbeat was accepted."""
        life = self._lives.get(name)
        if life is None:
            return
        if life.last.status is not E.RUNNING or life.last.lease_epoch != epoch:
            detail = f"epoch {epoch} was extended; it is {life.last.status}, {life.last.lease_epoch}"
            self._report.add(Kind.ACCEPTED_TWICE, name, detail)
        elif until_ms > life.last.deadline_ms:
            self._report.add(Kind.LEASE, name, f"extended to {until_ms}, past {life.last.deadline_ms}")
        else:
            life.lease_until_ms = until_ms

    def changed(
        self, partition: int, event: ExecutionEvent, policies: Policies | None, *, judged: bool
    ) -> Execution | None:
        """Takes the next event of an execution; returns its state before. `policies`: those of its job."""
        execution = event.execution
        name = f"{execution.tenant}/{execution.execution_id}"
        life = self._lives.get(name)
        if life is None:
            self._report.executions += 1
            life = Life(execution, policies, execution.lease_until_ms, False)
            self._lives[name] = life
            before = None
        else:
            before = life.last
        if judged:
            _Change(self._report, name, event, before, life).judge()
        if isinstance(event, ExecutionClaimed):
            self._check_token(partition, name, execution, judged=judged)
            life.lease_until_ms = execution.lease_until_ms
        life.slowed = life.slowed or execution.waiting_for in SLOWED_BY_ITS_OWN
        life.last = execution
        return before

    def _check_token(self, partition: int, name: str, execution: Execution, *, judged: bool) -> None:
        """Tokens grow over all grants of a partition, whatever they are for."""
        newest = self._tokens.get(partition, 0)
        if judged and execution.fencing_token <= newest:
            self._report.add(Kind.EPOCH, name, f"token {execution.fencing_token} after {newest}")
        self._tokens[partition] = max(newest, execution.fencing_token)

    def _count(self, execution: Execution) -> None:
        status = execution.status
        self._report.statuses[f"{status}:{execution.reason}" if status is E.SKIPPED else str(status)] += 1


@dataclass(slots=True)
class _Change:
    """One event and the state before it."""

    report: Report
    name: str
    event: ExecutionEvent
    before: Execution | None
    life: Life

    def judge(self) -> None:
        if not self._is_possible():
            return
        self._check_identity()
        match self.event:
            case ExecutionFired():
                self._fired()
            case ExecutionClaimed():
                self._claimed()
            case ExecutionReady() | ExecutionBlocked():
                self._ready()
            case ExecutionReleased():
                self.report.released += 1
                self._same_but(delivery_count=-1)
            case LeaseExpired():
                self._expired()
            case AttemptFailed():
                self._failed()
            case ExecutionDeadLettered():
                self._given_up()
            case ExecutionSkipped():
                self._skipped()
            case ExecutionCancelled():
                self._cancelled()
            case DeadLetterReplayed():
                self.report.replayed += 1
                self._must(
                    self.event.execution.attempt == 1 and self.event.execution.delivery_count == 0,
                    Kind.RETRY,
                    "a replay does not begin at attempt 1",
                )
            case _:
                pass

    def _must(self, held: bool, kind: Kind, detail: str) -> None:
        if not held:
            self.report.add(kind, self.name, f"{detail} ({type(self.event).__name__} at {self.event.at_ms})")

    def _is_possible(self) -> bool:
        life = LIFE.get(type(self.event))
        if life is None:
            return True
        before = self.before.status if self.before is not None else None
        after = self.event.execution.status
        if before in life[0] and after in life[1]:
            return True
        again = isinstance(self.event, OUTCOMES) and before is not None
        self._must(False, Kind.ACCEPTED_TWICE if again else Kind.LIFE, f"{before} became {after}")
        return False

    def _check_identity(self) -> None:
        now, before = self.event.execution, self.before
        if before is None:
            self._must(now.lease_epoch == 0, Kind.EPOCH, f"born with epoch {now.lease_epoch}")
            return
        same, was = _identity(now), _identity(before)
        self._must(same == was, Kind.LIFE, f"it became another one: {was} to {same}")
        if isinstance(self.event, ExecutionClaimed):
            held = now.lease_epoch == before.lease_epoch + 1
            self._must(held, Kind.EPOCH, f"epoch {before.lease_epoch} to {now.lease_epoch}")
            return
        held = (now.lease_epoch, now.fencing_token) == (before.lease_epoch, before.fencing_token)
        self._must(held, Kind.EPOCH, f"epoch {before.lease_epoch} to {now.lease_epoch} without a grant")
        if before.status is E.RUNNING:
            self._must(now.worker_id == before.worker_id, Kind.ACCEPTED_TWICE, "another worker's word")

    def _fired(self) -> None:
        now = self.event.execution
        due_ms = max(now.due_ms, now.scheduled_ms)
        self._must(self.event.at_ms >= due_ms, Kind.EARLY, f"fired {due_ms - self.event.at_ms} ms early")
        if self.life.policies is not None:
            sec = self.life.policies.start_deadline_sec
            deadline_ms = max(now.due_ms, self.event.at_ms) + sec * 1000 if sec else 0
            wrong = f"its last time to start is {now.start_deadline_ms}, not {deadline_ms}"
            self._must(now.start_deadline_ms == deadline_ms, Kind.LIFE, wrong)

    def _claimed(self) -> None:
        now, before = self.event.execution, self.before
        if before is None:
            return
        due_ms = max(before.due_ms, before.scheduled_ms)
        self._must(now.started_ms >= due_ms, Kind.EARLY, f"started {due_ms - now.started_ms} ms early")
        self._must(before.waiting_for is WaitingFor.WORKER, Kind.LIFE, f"it waited for {before.waiting_for}")
        late = before.start_deadline_ms and not before.first_started_ms
        in_time = not late or now.started_ms < before.start_deadline_ms
        self._must(in_time, Kind.LIFE, f"granted after {before.start_deadline_ms}, its last time to start")
        self._must(not before.cancel_requested_ms, Kind.LIFE, "granted although cancelled")
        self._same_but(delivery_count=1)
        self._check_grant(now)
        self.report.redelivered += now.delivery_count > 1
        first = now.attempt == now.delivery_count == 1 and not before.replays
        if first and not self.life.slowed and now.kind is not ExecutionKind.BACKFILL:
            self.report.lateness.add(now.started_ms - due_ms)

    def _check_grant(self, now: Execution) -> None:
        policies = self.life.policies
        lease_ms = now.lease_until_ms - now.started_ms
        self._must(0 < lease_ms <= now.lease_sec * 1000, Kind.LEASE, f"a lease of {lease_ms} ms")
        if policies is None:
            return
        timeout_ms = now.deadline_ms - now.started_ms
        self._must(timeout_ms == policies.timeout_sec * 1000, Kind.LEASE, f"a time-out of {timeout_ms} ms")
        held = now.delivery_count <= policies.max_deliveries
        self._must(held, Kind.RETRY, f"delivery {now.delivery_count} of {policies.max_deliveries}")
        held = now.attempt <= policies.retry.max_attempts
        self._must(held, Kind.RETRY, f"attempt {now.attempt} of {policies.retry.max_attempts}")

    def _ready(self) -> None:
        before = self.before
        if before is not None and (
            before.status is E.SCHEDULED or before.waiting_for is WaitingFor.REDELIVERY
        ):
            early_ms = before.due_ms - self.event.at_ms
            self._must(early_ms <= 0, Kind.EARLY, f"ready {early_ms} ms before its wait was over")

    def _expired(self) -> None:
        now = self.event.execution
        self._lease_ran_out(self.life.lease_until_ms)
        self._same_but(delivery_count=0)
        wait_ms = redelivery_wait_ms(now.delivery_count)
        if wait_ms:
            got_ms = now.due_ms - self.event.at_ms
            self._must(got_ms == wait_ms, Kind.RETRY, f"{got_ms} ms after delivery {now.delivery_count}")

    def _lease_ran_out(self, until_ms: int) -> None:
        early_ms = until_ms - self.event.at_ms
        self._must(early_ms <= 0, Kind.LEASE, f"the lease was ended {early_ms} ms before its end")

    def _failed(self) -> None:
        now, before, policies = self.event.execution, self.before, self.life.policies
        self.report.attempts_failed += 1
        if before is None:
            return
        self._must(now.attempt == before.attempt + 1, Kind.RETRY, f"{before.attempt} to {now.attempt}")
        if now.lease_end is LeaseEnd.TIMEOUT:
            self._lease_ran_out(before.deadline_ms)
        if policies is None:
            return
        most = policies.retry.max_attempts
        self._must(now.attempt <= most, Kind.RETRY, f"attempt {now.attempt} of {most}")
        wait_ms = now.due_ms - self.event.at_ms
        # A worker may say when to try again; nobody does at a time-out.
        timeout = now.lease_end is LeaseEnd.TIMEOUT
        held = is_backoff(policies.retry, before.attempt, wait_ms) if timeout else wait_ms >= 0
        self._must(held, Kind.RETRY, f"a backoff of {wait_ms} ms after attempt {before.attempt}")

    def _given_up(self) -> None:
        now, policies = self.event.execution, self.life.policies
        if now.lease_end is LeaseEnd.EXPIRED:
            self._lease_ran_out(self.life.lease_until_ms)
        if now.lease_end is LeaseEnd.TIMEOUT and self.before is not None:
            self._lease_ran_out(self.before.deadline_ms)
        if policies is None:
            return
        spent = {
            "reaped": now.delivery_count >= policies.max_deliveries,
            "attempts": now.attempt >= policies.retry.max_attempts,
        }
        held = spent.get(now.reason, True)
        self._must(held, Kind.RETRY, f"given up ({now.reason}): {now.attempt}, {now.delivery_count}")

    def _skipped(self) -> None:
        now, before = self.event.execution, self.before
        if now.reason == "deadline":
            held = before is not None and 0 < before.start_deadline_ms <= self.event.at_ms
            self._must(held, Kind.SKIP, "its last time to start was not over")
        else:
            self._must(before is None and now.reason == "overlap", Kind.SKIP, f"skipped for {now.reason!r}")

    def _cancelled(self) -> None:
        before = self.before
        if before is not None and before.status is E.RUNNING:
            self._must(bool(before.cancel_requested_ms), Kind.LIFE, "nobody had asked for it to be cancelled")

    def _same_but(self, delivery_count: int) -> None:
        """Attempt and deliveries are as before, but for the given change."""
        now, before = self.event.execution, self.before
        if before is not None:
            held = (now.attempt, now.delivery_count) == (
                before.attempt,
                before.delivery_count + delivery_count,
            )
            what = f"attempt {before.attempt}, delivery {before.delivery_count} became"
            self._must(held, Kind.RETRY, f"{what} {now.attempt}, {now.delivery_count}")


def _identity(execution: Execution) -> tuple[object, ...]:
    """What never changes."""
    return (
        execution.kind,
        execution.scheduled_ms,
        execution.fired_ms,
        execution.job_version,
        execution.pool,
        execution.exclusion_group,
    )
