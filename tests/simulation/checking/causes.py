"""Every record of `commands` and `work` is decided once and in order, and what a worker's word changes is its
own. None is passed over: behind the outcome that its holder reported no execution runs on. Log lag is not
death: a lease ends only after every word of its holder that came in time was decided.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from schemas.commands import (
    Beat,
    Complete,
    Completion,
    ExtendLease,
    Fail,
    Failure,
    Handback,
    LeaseRef,
    Release,
    WorkCommand,
)
from schemas.entities import Execution, ExecutionStatus
from schemas.events import (
    AttemptFailed,
    Event,
    ExecutionClaimed,
    ExecutionCompleted,
    ExecutionDeadLettered,
    ExecutionEvent,
    ExecutionReleased,
    LeaseExpired,
    LeaseExtended,
)
from tests.simulation.history import Happened

_CAUSE = re.compile(r"(commands|work)@(\d+)#.*")
_WORDS: dict[type[Event], type[LeaseRef]] = {
    ExecutionCompleted: Completion,
    AttemptFailed: Failure,
    ExecutionDeadLettered: Failure,
    ExecutionReleased: Handback,
    LeaseExtended: Beat,
}
Reports = ExtendLease | Complete | Fail | Release
Holder = tuple[str, str, str, int]
"""Tenant, execution, worker and epoch."""


class Said(NamedTuple):
    """One record of `work`. `stamped_ms`: the brokers' clock."""

    offset: int
    stamped_ms: int
    command: WorkCommand


class Words:
    """What workers said in one partition, by offset and by whom it concerns."""

    def __init__(self, work: Sequence[Said]) -> None:
        self.at: dict[int, Reports] = {}
        self.of: dict[Holder, list[tuple[int, int]]] = defaultdict(list)
        """Stamp and offset of each word."""
        self.outcomes: list[tuple[int, Holder]] = []
        """Offset and holder of each word that ends a lease, in order."""
        for offset, stamped_ms, command in work:
            if not isinstance(command, Reports):
                continue
            self.at[offset] = command
            for item in command.items:
                holder = (command.tenant, item.execution_id, item.worker_id, item.lease_epoch)
                self.of[holder].append((stamped_ms, offset))
                if not isinstance(item, Beat):
                    self.outcomes.append((offset, holder))

    def ended(self, first: int, end: int) -> Iterator[tuple[int, Holder]]:
        """The outcomes among first <= offset < end."""
        at = bisect_left(self.outcomes, first, key=_offset)
        while at < len(self.outcomes) and self.outcomes[at][0] < end:
            yield self.outcomes[at]
            at += 1


def _offset(outcome: tuple[int, Holder]) -> int:
    return outcome[0]


def check_causes(part: Sequence[Happened], words: Words, clock_slack_ms: int) -> Iterator[str]:
    """One partition's events in their order."""
    decided: dict[str, int] = {"commands": 0, "work": 0}
    newest: dict[str, Execution] = {}
    pending: list[Happened] = []
    ends = _Ends(words, clock_slack_ms)
    for happened in part:
        pending.append(happened)
        if happened.event is not None:
            yield from _check_word(happened.key, happened.event, newest, words)
            yield from ends.check(happened.key, happened.event, newest.get(happened.key))
            if isinstance(happened.event, ExecutionEvent):
                newest[happened.key] = happened.event.execution
        if happened.positions is not None:
            carried = dict(zip(("commands", "work"), happened.positions, strict=True))
            for name, position in carried.items():
                if position < decided[name]:
                    yield f"partition {happened.partition}: {name} go back from {decided[name]} to {position}"
            for each in pending:
                yield from _check_order(each, decided, carried)
            for offset, holder in words.ended(decided["work"], carried["work"]):
                yield from _check_ended(offset, holder, newest)
            decided, pending = carried, []
    if pending:
        yield f"partition {pending[0].partition}: a transaction without positions"


def _check_order(happened: Happened, before: dict[str, int], after: dict[str, int]) -> Iterator[str]:
    cause = _CAUSE.fullmatch(happened.event.cause) if happened.event is not None else None
    if cause is not None and not before[cause[1]] <= int(cause[2]) < after[cause[1]]:
        name = cause[1]
        yield (
            f"{happened.key}: caused by {cause[0]}, in a transaction that decided {name} "
            f"from {before[name]} to {after[name]}"
        )


def _check_word(key: str, event: Event, newest: dict[str, Execution], words: Words) -> Iterator[str]:
    """An outcome comes from the holder of the newest grant."""
    cause = _CAUSE.fullmatch(event.cause)
    kind = _WORDS.get(type(event))
    if cause is None or kind is None or cause[1] != "work":
        return
    if isinstance(event, LeaseExtended):
        key = f"exec:{event.lease.tenant}/{event.lease.execution_id}"
    held, command = newest.get(key), words.at.get(int(cause[2]))
    if held is None or command is None:
        yield f"{key}: {type(event).__name__} of nobody's word"
        return
    said = [(item.worker_id, item.lease_epoch) for item in command.items if isinstance(item, kind)]
    if (held.worker_id, held.lease_epoch) not in said:
        yield f"{key}: {type(event).__name__} for {said}, held by {held.worker_id} at {held.lease_epoch}"


def _check_ended(offset: int, holder: Holder, newest: dict[str, Execution]) -> Iterator[str]:
    """The transaction that decided an outcome, or one before it, ended the lease."""
    tenant, execution_id, worker_id, epoch = holder
    held = newest.get(f"exec:{tenant}/{execution_id}")
    if held is None or held.status is not ExecutionStatus.RUNNING:
        return
    if (held.worker_id, held.lease_epoch) == (worker_id, epoch):
        yield f"{tenant}/{execution_id}: runs on at {epoch} behind work@{offset}, its holder's outcome"


class _Ends:
    """When each lease ends, by its grant and the beats that were decided."""

    def __init__(self, words: Words, slack_ms: int) -> None:
        self._words = words
        self._slack_ms = slack_ms
        self._until_ms: dict[str, int] = {}
        self._heard: dict[str, set[int]] = defaultdict(set)

    def check(self, key: str, event: Event, held: Execution | None) -> Iterator[str]:
        if isinstance(event, ExecutionClaimed):
            self._until_ms[key] = event.execution.lease_until_ms
        elif isinstance(event, LeaseExtended):
            of = f"exec:{event.lease.tenant}/{event.lease.execution_id}"
            self._until_ms[of] = event.lease.until_ms
            cause = _CAUSE.fullmatch(event.cause)
            if cause is not None:
                self._heard[of].add(int(cause[2]))
        by_time = isinstance(event, LeaseExpired | AttemptFailed | ExecutionDeadLettered)
        if by_time and event.cause == "time" and held is not None:
            end_ms = self._until_ms.get(key, 0)
            holder = (held.tenant, held.execution_id, held.worker_id, held.lease_epoch)
            for stamped_ms, offset in self._words.of[holder]:
                if stamped_ms < end_ms - self._slack_ms and offset not in self._heard[key]:
                    yield (
                        f"{key}: its lease is ended by time although work@{offset}, its holder's word, "
                        f"came {end_ms - stamped_ms} ms before its end"
                    )
