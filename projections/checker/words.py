"""Owns what workers said: an accepted word must have shown the lease that was current.

An event says what became of an execution, and which record caused it; only that record (topic `work`) says
which lease the worker showed. So whoever has both can tell whether the word of a replaced worker counted.
"""

from __future__ import annotations

import re
from itertools import islice

from projections.checker.report import Kind, Report
from projections.checker.retries import is_backoff
from schemas.commands import (
    Complete,
    ExtendLease,
    Fail,
    Failure,
    LeaseRef,
    Release,
    WorkCommand,
)
from schemas.entities import Execution, Policies
from schemas.events import (
    AttemptFailed,
    Event,
    ExecutionCompleted,
    ExecutionDeadLettered,
    ExecutionReleased,
    LeaseExtended,
)

_CAUSE = re.compile(r"work@(\d+)#")
_SAID_BY: dict[type[Event], type[WorkCommand]] = {
    ExecutionCompleted: Complete,
    AttemptFailed: Fail,
    ExecutionDeadLettered: Fail,
    ExecutionReleased: Release,
    LeaseExtended: ExtendLease,
}


class Words:
    """The records of `work` that events may still refer to, by partition and offset."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._said: dict[int, dict[int, WorkCommand]] = {}

    def said(self, partition: int, offset: int, command: WorkCommand) -> None:
        """One record. Events refer to those of a partition in their order, so what is passed is dropped."""
        self._said.setdefault(partition, {})[offset] = command

    def check(
        self, partition: int, event: Event, before: Execution | None, policies: Policies | None
    ) -> None:
        """Holds an event that a worker's word caused against that word; `before`: the execution then."""
        said = self._said.get(partition)
        cause = _CAUSE.match(event.cause)
        kind = _SAID_BY.get(type(event))
        if said is None or cause is None or kind is None or before is None:
            return
        offset = int(cause[1])
        for passed in [one for one in islice(said, 64) if one < offset]:
            del said[passed]
        command = said.get(offset)
        name = f"{before.tenant}/{before.execution_id}"
        what = type(event).__name__
        if command is None:
            self._report.unjudged["words that are gone"] += 1
        elif not isinstance(command, kind):
            self._report.add(Kind.ACCEPTED_TWICE, name, f"{what} by a {type(command).__name__}")
        elif (item := _current_item(command, before)) is None:
            detail = f"{what} by a word under another lease than {before.worker_id!r}, {before.lease_epoch}"
            self._report.add(Kind.ACCEPTED_TWICE, name, detail)
        elif isinstance(item, Failure):
            self._check_failure(name, event, item, before, policies)

    def _check_failure(
        self, name: str, event: Event, item: Failure, before: Execution, policies: Policies | None
    ) -> None:
        """What may be tried again is, and nothing else."""
        reason = event.execution.reason if isinstance(event, ExecutionDeadLettered) else ""
        if item.retryable == (reason == "not_retryable"):
            detail = f"{type(event).__name__} {reason} of a failure with retryable={item.retryable}"
            self._report.add(Kind.RETRY, name, detail)
        elif isinstance(event, AttemptFailed) and policies is not None:
            self._check_backoff(name, event, item, before, policies)

    def _check_backoff(
        self, name: str, event: AttemptFailed, item: Failure, before: Execution, policies: Policies
    ) -> None:
        wait_ms = event.execution.due_ms - event.at_ms
        asked_ms = item.retry_after_sec * 1000
        held = wait_ms == asked_ms if asked_ms >= 0 else is_backoff(policies.retry, before.attempt, wait_ms)
        if not held:
            self._report.add(Kind.RETRY, name, f"a backoff of {wait_ms} ms after attempt {before.attempt}")


def _current_item(command: WorkCommand, before: Execution) -> LeaseRef | None:
    """The item that shows the lease which was current."""
    items = command.items if isinstance(command, Complete | Fail | Release | ExtendLease) else ()
    shown = (before.execution_id, before.worker_id, before.lease_epoch)
    return next((one for one in items if (one.execution_id, one.worker_id, one.lease_epoch) == shown), None)
