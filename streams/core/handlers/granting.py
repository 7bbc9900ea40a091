"""Parked requests meet pending executions: leases with a new epoch and fencing token.

In a pool by priority, 16 : 4 : 1, so that high hardly waits and low never starves; within a priority by due
time (semantics §6).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from msgspec.structs import replace

from schemas.commands import RequestWork
from schemas.entities import Execution, ExecutionStatus, LeaseEnd, WaitingFor
from schemas.events import ExecutionCancelled, ExecutionClaimed
from schemas.replies import Grant, Granted, WorkHinted, WorkSeen
from streams.core import keys
from streams.core.effects import Answer
from streams.core.handlers.cancelling import is_left_over
from streams.core.handlers.ending import content_of, end
from streams.core.handlers.timing import miss_deadline, must_have_started
from streams.core.limits import GRANT_REPLY_BYTES_MAX
from streams.core.parking import Asker, Credit, Parking
from streams.core.transaction import Source, Transaction

MATCHED_MAX = 1_000
"""Grants of one pool in one pass; a transaction stays short."""

_HIGH, _NORMAL, _LOW = keys.PRIORITIES
TURN = (*(_HIGH, _HIGH, _HIGH, _HIGH, _NORMAL) * 2, _LOW, *(_HIGH, _HIGH, _HIGH, _HIGH, _NORMAL) * 2)
"""One round of priorities: 16 high, 4 normal, 1 low, spread out."""


def request_work(
    tx: Transaction, parking: Parking, partition: int, command: RequestWork, source: Source
) -> None:
    """Parks a request; it is matched with the rest of the batch. Answers at once if asked to."""
    pool_key = f"{command.tenant}/{command.pool}"
    held: dict[str, list[Grant]] = {}
    if command.ack:
        for slot in command.slots:
            if slot.claim_id and not slot.known and slot.claim_id not in held:
                found = tx.state.held_by_claim(command.tenant, slot.worker_id, slot.claim_id)
                # A run that is to be cancelled is no work to begin, and its job may have been made anew.
                held[slot.claim_id] = [_grant(tx, one) for one in found if not one.cancel_requested_ms]
    held_claims = {claim_id for claim_id, grants in held.items() if grants}
    asker, is_newest = parking.request(pool_key, command, tx.now_ms, source.timestamp_ms, held_claims)
    if is_newest:
        tx.pools.append(pool_key)
    if command.ack:
        *parts, last = _parcels([grant for grants in held.values() for grant in grants])
        seen = WorkSeen(
            session=command.session,
            pool=command.pool,
            partition=partition,
            seq=command.seq,
            number=asker.number,
            held=last,
            backlog=tx.state.backlog(pool_key),
        )
        # What one reply cannot hold goes before it, and only the last one answers the request.
        for part in parts:
            early = replace(seen, seq=command.seq - 1, held=part)
            tx.effects.append(Answer(command.reply_partition, early))
        tx.effects.append(Answer(command.reply_partition, seen))


def match(tx: Transaction, parking: Parking, partition: int) -> list[str]:
    """Grants what the pools touched in this transaction can give; hints where there is no credit.

    Returns the pools that had more to give than one pass may, or got more meanwhile.
    """
    unfinished = []
    touched = len(tx.pools)
    for pool_key in dict.fromkeys(tx.pools):
        outbox = _Outbox(tx, pool_key, partition)
        queues = _Queues(tx, parking, pool_key)
        for _ in range(MATCHED_MAX):
            asker = parking.next_with_credit(pool_key, tx.now_ms)
            execution = queues.next() if asker is not None else None
            if asker is None or execution is None:
                break
            if not _is_granted(tx, execution):
                continue
            credit = parking.spend(pool_key, asker)
            outbox.add(asker, _claim(tx, execution, credit))
        else:
            unfinished.append(pool_key)
        outbox.flush()
        parking.lapse()
        _hint(tx, parking, pool_key, partition)
    return unfinished + tx.pools[touched:]


def _is_granted(tx: Transaction, execution: Execution) -> bool:
    """An execution whose time to start has passed, or of a cancelled job that its cancel has not reached yet,
    is not handed out."""
    if must_have_started(execution, tx.now_ms):
        miss_deadline(tx, execution)
        return False
    job = tx.state.job(execution.tenant, execution.job_id)
    if job is None or not is_left_over(job, tx.state.cursor(job), execution):
        return True
    end(
        tx,
        ExecutionCancelled,
        execution,
        status=ExecutionStatus.CANCELLED,
        waiting_for=WaitingFor.NOTHING,
        cancel_requested_ms=tx.now_ms,
    )
    return False


def _claim(tx: Transaction, execution: Execution, credit: Credit) -> Grant:
    content, policies = content_of(tx, execution)
    lease_sec = credit.lease_sec or policies.lease_sec
    deadline_ms = tx.now_ms + policies.timeout_sec * 1000
    claimed = tx.emit_execution(
        ExecutionClaimed,
        replace(
            execution,
            status=ExecutionStatus.RUNNING,
            waiting_for=WaitingFor.NOTHING,
            delivery_count=execution.delivery_count + 1,
            lease_epoch=execution.lease_epoch + 1,
            fencing_token=max(tx.state.last_token() + 1, tx.now_ms * 1024),
            worker_id=credit.worker_id,
            claim_id=credit.claim_id,
            first_started_ms=execution.first_started_ms or tx.now_ms,
            started_ms=tx.now_ms,
            lease_sec=lease_sec,
            lease_until_ms=min(tx.now_ms + lease_sec * 1000, deadline_ms),
            deadline_ms=deadline_ms,
            lease_end=LeaseEnd.NONE,
        ),
    )
    lease = tx.state.lease(claimed)
    return Grant(
        execution=claimed,
        content=content,
        policies=policies,
        progress=lease.progress if lease is not None else b"",
    )


def _grant(tx: Transaction, execution: Execution) -> Grant:
    """A grant made earlier, as it stands now."""
    content, policies = content_of(tx, execution)
    lease = tx.state.lease(execution)
    now = replace(execution, lease_until_ms=tx.state.lease_until_ms(execution))
    progress = lease.progress if lease is not None else b""
    return Grant(execution=now, content=content, policies=policies, progress=progress)


def _hint(tx: Transaction, parking: Parking, pool_key: str, partition: int) -> None:
    """Work, interest and no credit: each interested session is told once."""
    backlog = tx.state.backlog(pool_key)
    if not backlog or parking.next_with_credit(pool_key, tx.now_ms) is not None:
        return
    for asker in parking.to_hint(pool_key, tx.now_ms):
        parking.hint(asker)
        hint = WorkHinted(
            session=asker.session,
            pool=pool_key.partition("/")[2],
            partition=partition,
            backlog=backlog,
        )
        tx.effects.append(Answer(asker.reply_partition, hint))


class _Queues:
    """The runnable executions of a pool in the order in which they are granted."""

    def __init__(self, tx: Transaction, parking: Parking, pool_key: str) -> None:
        self._tx = tx
        self._parking = parking
        self._pool_key = pool_key
        self._heads: dict[str, deque[str]] = {}
        self._tenant = pool_key.partition("/")[0]

    def next(self) -> Execution | None:
        turn = TURN[self._parking.step(self._pool_key) % len(TURN)]
        for priority in (turn, *(p for p in keys.PRIORITIES if p != turn)):
            head = self._head(priority)
            if head:
                return self._tx.state.execution(self._tenant, head.popleft())
        return None

    def _head(self, priority: str) -> deque[str]:
        """Read in one scan a pass: what becomes runnable during the pass waits for the next one."""
        if priority not in self._heads:
            found = self._tx.state.runnable(self._pool_key, priority, MATCHED_MAX)
            self._heads[priority] = deque(found)
        return self._heads[priority]


def _size(grant: Grant) -> int:
    """Bytes of a grant in a reply, at most: a character takes up to four."""
    content, execution = grant.content, grant.execution
    texts = (content.name, content.task, content.content_type, execution.worker_id, execution.claim_id)
    chars = sum(map(len, texts)) + len(execution.error)
    chars += sum(len(name) + len(value) for name, value in content.labels.items())
    return 1_536 + len(content.payload) + len(grant.progress) + len(execution.result) + 4 * chars


def _parcels(grants: list[Grant]) -> list[tuple[Grant, ...]]:
    """The grants in parts that replies can hold; one part at least."""
    parts: list[list[Grant]] = [[]]
    size = 0
    for grant in grants:
        size += _size(grant)
        if parts[-1] and size > GRANT_REPLY_BYTES_MAX:
            parts.append([])
            size = _size(grant)
        parts[-1].append(grant)
    return [tuple(part) for part in parts]


@dataclass(slots=True)
class _Parcel:
    asker: Asker
    grants: list[Grant]
    size: int


class _Outbox:
    """Collects grants by session, and cuts them into replies that the broker takes."""

    def __init__(self, tx: Transaction, pool_key: str, partition: int) -> None:
        self._tx = tx
        self._pool_key = pool_key
        self._partition = partition
        self._parcels: dict[str, _Parcel] = {}

    def add(self, asker: Asker, grant: Grant) -> None:
        size = _size(grant)
        parcel = self._parcels.setdefault(asker.session, _Parcel(asker, [], 0))
        if parcel.grants and parcel.size + size > GRANT_REPLY_BYTES_MAX:
            self._send(parcel, asker.number - 1, more=True)
            parcel.grants, parcel.size = [], 0
        parcel.grants.append(grant)
        parcel.size += size

    def flush(self) -> None:
        for parcel in self._parcels.values():
            self._send(parcel, parcel.asker.number, more=False)

    def _send(self, parcel: _Parcel, number: int, *, more: bool) -> None:
        asker = parcel.asker
        granted = Granted(
            session=asker.session,
            pool=self._pool_key.partition("/")[2],
            partition=self._partition,
            number=number,
            grants=tuple(parcel.grants),
            backlog=self._tx.state.backlog(self._pool_key),
            seq=asker.seq,
            more=more,
        )
        self._tx.effects.append(Answer(asker.reply_partition, granted))
