"""Lives of executions, by the events alone: one step follows from the one before, and from nothing else.

Epochs and tokens only grow, a pair of execution and epoch is granted once, what ends a lease belongs to its
newest grant, there is one outcome, nothing is early, and attempts and deliveries stay within their bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from schemas.entities import Execution, Policies, WaitingFor
from schemas.entities import ExecutionStatus as Status
from schemas.events import (
    AttemptFailed,
    CancelRequested,
    DeadLetterReplayed,
    Event,
    ExecutionCancelled,
    ExecutionClaimed,
    ExecutionCompleted,
    ExecutionDeadLettered,
    ExecutionEvent,
    ExecutionFired,
    ExecutionReady,
    ExecutionReleased,
    ExecutionSkipped,
    JobEvent,
    LeaseExpired,
    LeaseExtended,
)
from streams.core.lifecycle import FINAL
from tests.simulation.history import Happened

_BIRTHS = (ExecutionFired, ExecutionSkipped, ExecutionCancelled)
_OF_A_HOLDER = (
    AttemptFailed,
    ExecutionCompleted,
    ExecutionDeadLettered,
    ExecutionReleased,
    LeaseExpired,
    CancelRequested,
)


class Lives:
    """Follows one partition's executions; `check` says what is wrong with each record."""

    def __init__(self, clock_slack_ms: int) -> None:
        self._slack_ms = clock_slack_ms
        self._newest: dict[str, Execution] = {}
        self._until_ms: dict[str, int] = {}
        self._policies: dict[tuple[str, str, int], Policies] = {}
        self._token = 0
        self._at_ms = 0

    def check(self, happened: Happened) -> Iterator[str]:
        event = happened.event
        if event is None:
            self._newest.pop(happened.key, None)
            return
        yield from self._check_time(happened, event)
        match event:
            case JobEvent():
                job = event.job
                self._policies[job.tenant, job.job_id, job.version] = job.policies
            case LeaseExtended():
                yield from self._check_beat(event)
            case ExecutionEvent():
                old = self._newest.get(happened.key)
                for wrong in self._check_execution(event, old, event.execution):
                    yield f"{happened.key}: {type(event).__name__}: {wrong}"
                self._newest[happened.key] = event.execution

    def _check_time(self, happened: Happened, event: Event) -> Iterator[str]:
        if event.at_ms < self._at_ms:
            yield f"{happened.key}: time goes back by {self._at_ms - event.at_ms} ms"
        self._at_ms = max(self._at_ms, event.at_ms)
        ahead_ms = event.at_ms - happened.stamped_ms
        if ahead_ms > self._slack_ms:
            yield f"{happened.key}: decided {ahead_ms} ms ahead of the brokers' time"

    def _check_beat(self, event: LeaseExtended) -> Iterator[str]:
        lease = event.lease
        key = f"exec:{lease.tenant}/{lease.execution_id}"
        held = self._newest.get(key)
        if held is None or held.status is not Status.RUNNING or held.lease_epoch != lease.lease_epoch:
            yield f"{key}: a beat of epoch {lease.lease_epoch} extends what it does not hold"
            return
        if lease.until_ms > min(event.at_ms + held.lease_sec * 1000, held.deadline_ms):
            yield f"{key}: extended beyond its lease or its deadline"
        self._until_ms[key] = lease.until_ms

    def _check_execution(self, event: ExecutionEvent, old: Execution | None, new: Execution) -> Iterator[str]:
        if old is None:
            if not isinstance(event, _BIRTHS):
                yield "the first that is heard of it"
            if isinstance(event, ExecutionFired) and event.at_ms < max(new.scheduled_ms, new.due_ms):
                yield f"fired {max(new.scheduled_ms, new.due_ms) - event.at_ms} ms early"
            return
        if isinstance(event, ExecutionFired):
            yield "fired a second time"
        if old.status in FINAL and not (
            isinstance(event, DeadLetterReplayed) and old.status is Status.FAILED
        ):
            yield f"it was {old.status} already"
        if isinstance(event, ExecutionClaimed):
            yield from self._check_claim(event, old, new)
        elif new.lease_epoch != old.lease_epoch or new.fencing_token != old.fencing_token:
            yield "epoch and token change by grants alone"
        if isinstance(event, _OF_A_HOLDER) and old.status is not Status.RUNNING:
            yield f"it was {old.status}"
        yield from self._check_end_of_lease(event, old, new)
        if isinstance(event, ExecutionReady):
            waits = old.status is Status.SCHEDULED or old.waiting_for is WaitingFor.REDELIVERY
            if waits and event.at_ms < old.due_ms:
                yield f"{old.due_ms - event.at_ms} ms early"

    def _check_claim(self, event: ExecutionClaimed, old: Execution, new: Execution) -> Iterator[str]:
        key = f"exec:{new.tenant}/{new.execution_id}"
        self._until_ms[key] = new.lease_until_ms
        if old.status is not Status.PENDING or old.waiting_for is not WaitingFor.WORKER:
            yield f"it was {old.status}, waiting for {old.waiting_for}"
        if new.lease_epoch != old.lease_epoch + 1:
            yield f"epoch {old.lease_epoch} became {new.lease_epoch}"
        if new.fencing_token <= self._token:
            yield "the fencing token did not grow"
        self._token = max(self._token, new.fencing_token)
        if event.at_ms < max(new.scheduled_ms, new.due_ms):
            yield f"{max(new.scheduled_ms, new.due_ms) - event.at_ms} ms early"
        if not old.first_started_ms and 0 < old.start_deadline_ms <= event.at_ms:
            yield "after its deadline to start"
        if new.delivery_count != old.delivery_count + 1:
            yield f"delivery {old.delivery_count} became {new.delivery_count}"
        policies = self._of(new)
        if new.attempt > policies.retry.max_attempts:
            yield f"attempt {new.attempt} of {policies.retry.max_attempts}"
        if new.delivery_count > policies.max_deliveries:
            yield f"delivery {new.delivery_count} of {policies.max_deliveries}"

    def _check_end_of_lease(self, event: ExecutionEvent, old: Execution, new: Execution) -> Iterator[str]:
        until_ms = self._until_ms.get(f"exec:{new.tenant}/{new.execution_id}", 0)
        policies = self._of(new)
        match event:
            case LeaseExpired():
                if event.at_ms < until_ms:
                    yield f"{until_ms - event.at_ms} ms before the lease's end"
                if old.delivery_count >= policies.max_deliveries:
                    yield "delivered again beyond its bound"
            case AttemptFailed():
                if new.error == "TIMEOUT" and event.at_ms < old.deadline_ms:
                    yield "timed out early"
                if new.attempt != old.attempt + 1 or old.attempt >= policies.retry.max_attempts:
                    yield f"attempt {new.attempt} follows {old.attempt}"
                if new.due_ms < event.at_ms:
                    yield "the next attempt is due in the past"
            case ExecutionDeadLettered():
                if new.reason == "attempts" and old.attempt < policies.retry.max_attempts:
                    yield f"given up after attempt {old.attempt} of {policies.retry.max_attempts}"
                if new.reason == "reaped" and old.delivery_count < policies.max_deliveries:
                    yield f"given up after delivery {old.delivery_count} of {policies.max_deliveries}"
            case ExecutionSkipped():
                if not 0 < old.start_deadline_ms <= event.at_ms or old.first_started_ms:
                    yield "its deadline to start was not missed"
            case ExecutionCancelled():
                if not new.cancel_requested_ms:
                    yield "nobody asked for it"

    def _of(self, execution: Execution) -> Policies:
        return self._policies[execution.tenant, execution.job_id, execution.job_version]


def check_executions(parts: Sequence[Sequence[Happened]], clock_slack_ms: int) -> Iterator[str]:
    """All partitions, each in its order."""
    for part in parts:
        lives = Lives(clock_slack_ms)
        for happened in part:
            yield from lives.check(happened)
