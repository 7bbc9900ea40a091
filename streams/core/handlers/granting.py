"""Parked requests meet pending executions: leases with a new epoch and fencing token."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec.structs import replace

from schemas import ids
from schemas.commands import RequestWork
from schemas.entities import Execution, ExecutionStatus, Job, LeaseEnd, WaitingFor
from schemas.events import ExecutionBlocked, ExecutionCancelled, ExecutionClaimed
from schemas.replies import Grant, WorkHinted, WorkSeen
from streams.core.caps import running_max
from streams.core.effects import Answer
from streams.core.fairness import Fairness
from streams.core.handlers.alarming import note_start
from streams.core.handlers.breaking import note_grant
from streams.core.handlers.cancelling import is_left_over
from streams.core.handlers.ending import content_of, end
from streams.core.handlers.gating import gate
from streams.core.handlers.ordering import PoolOrder
from streams.core.handlers.parcels import Outbox, parcels
from streams.core.handlers.timing import miss_deadline, must_have_started
from streams.core.handlers.vacating import vacate
from streams.core.parking import Credit, Parking
from streams.core.transaction import Source, Transaction

MATCHED_MAX = 1_000
"""Grants of one pool in one pass; a transaction stays short."""


def request_work(
    tx: Transaction,
    parking: Parking,
    fairness: Fairness,
    partition: int,
    command: RequestWork,
    source: Source,
) -> None:
    """Parks a request; it is matched with the rest of the batch. Answers at once if asked to."""
    pool_key = ids.pool_key(command.tenant, command.pool)
    held: dict[str, list[Grant]] = {}
    if command.ack:
        for slot in command.slots:
            if slot.claim_id and not slot.known and slot.claim_id not in held:
                found = tx.state.held_by_claim(pool_key, slot.worker_id, slot.claim_id)
                # A run that is to be cancelled is no work to begin, and its job may have been made anew.
                held[slot.claim_id] = [_grant(tx, one) for one in found if not one.cancel_requested_ms]
    held_claims = {claim_id for claim_id, grants in held.items() if grants}
    asker, is_newest = parking.request(pool_key, command, tx.now_ms, source.timestamp_ms, held_claims)
    if is_newest:
        tx.pools.append(pool_key)
    if command.ack:
        *parts, last = parcels([grant for grants in held.values() for grant in grants])
        order = PoolOrder(tx, fairness, pool_key, partition)
        backlog, waiting = order.waiting()
        seen = WorkSeen(
            session=command.session,
            pool=command.pool,
            partition=partition,
            seq=command.seq,
            number=asker.number,
            held=last,
            backlog=backlog,
            waiting=waiting,
            running=order.running,
        )
        # What one reply cannot hold goes before it, and only the last one answers the request.
        for part in parts:
            early = replace(seen, seq=command.seq - 1, held=part)
            tx.effects.append(Answer(command.reply_partition, early))
        tx.effects.append(Answer(command.reply_partition, seen))


def match(tx: Transaction, parking: Parking, fairness: Fairness, partition: int) -> list[str]:
    """Grants what the pools touched in this transaction can give; hints where there is no credit.

    Returns the pools that had more to give than one pass may, or got more meanwhile.
    """
    unfinished = []
    touched = len(tx.pools)
    for pool_key in dict.fromkeys((*tx.pools, *_freed(tx, parking, partition))):
        running = tx.state.indexes.running_in(pool_key)
        if not parking.is_asked(pool_key, running, tx.now_ms):
            continue
        credit = parking.credit(pool_key, running, tx.now_ms)
        order = PoolOrder(tx, fairness, pool_key, partition, credit)
        outbox = Outbox(tx, pool_key, partition)
        for _ in range(MATCHED_MAX):
            asker = parking.next_with_credit(pool_key, order.running, tx.now_ms)
            execution = order.next() if asker is not None else None
            if asker is None or execution is None:
                break
            job = tx.state.job_of(execution)
            if not _is_granted(tx, execution, job):
                continue
            order.granted(execution)
            outbox.add(asker, _claim(tx, execution, job, parking.spend(pool_key, asker)), order)
        else:
            unfinished.append(pool_key)
        for asker in outbox.flush(order):
            if order.shared:  # the reply showed it the shares
                parking.told(asker, tx.now_ms)
        parking.lapse()
        _hint(tx, parking, pool_key, order, partition)
    vacate(tx)
    return unfinished + tx.pools[touched:]


def _freed(tx: Transaction, parking: Parking, partition: int) -> Iterable[str]:
    """Pools in which places became free: those of what ended, and for a tenant that was at its cap all others
    that have its work."""
    yield from dict.fromkeys(pool_key for _, pool_key in tx.freed)
    for tenant, count in Counter(tenant for tenant, _ in tx.freed).items():
        most = running_max(tx.router, tx.router.settings_of(tenant), partition)
        running = tx.state.indexes.running_of(tenant)
        if running < most <= running + count:
            for pool_key in parking.pools():
                owner = pool_key.partition("/")[0]
                if owner == tenant or (owner == ids.SHARED and tx.state.indexes.waits_in(pool_key, tenant)):
                    yield pool_key


def _is_granted(tx: Transaction, execution: Execution, job: Job | None) -> bool:
    """An execution whose time to start has passed, or of a cancelled job that its cancel has not reached yet,
    is not handed out; nor is one that something holds back."""
    if must_have_started(execution, tx.now_ms):
        miss_deadline(tx, execution)
        return False
    if job is None or not is_left_over(job, tx.state.moved(job), execution):
        waiting = gate(tx, execution)
        if waiting is not WaitingFor.WORKER:
            tx.emit_execution(ExecutionBlocked, replace(execution, waiting_for=waiting))
        return waiting is WaitingFor.WORKER
    end(
        tx,
        ExecutionCancelled,
        execution,
        status=ExecutionStatus.CANCELLED,
        waiting_for=WaitingFor.NOTHING,
        cancel_requested_ms=tx.now_ms,
    )
    return False


def _claim(tx: Transaction, execution: Execution, job: Job | None, credit: Credit) -> Grant:
    content, policies = content_of(tx, execution, job)
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
    note_grant(tx, claimed)
    note_start(tx, execution)
    progress = _progress(tx, claimed) if execution.lease_epoch else b""
    return Grant(execution=claimed, content=content, policies=policies, progress=progress)


def _progress(tx: Transaction, execution: Execution) -> bytes:
    """What the newest heartbeat left, of whatever grant."""
    lease = tx.state.lease(execution)
    return lease.progress if lease is not None else b""


def _grant(tx: Transaction, execution: Execution) -> Grant:
    """A grant made earlier, as it stands now."""
    content, policies = content_of(tx, execution)
    now = replace(execution, lease_until_ms=tx.state.lease_until_ms(execution))
    return Grant(execution=now, content=content, policies=policies, progress=_progress(tx, execution))


def _hint(tx: Transaction, parking: Parking, pool_key: str, order: PoolOrder, partition: int) -> None:
    """Work, interest and no credit: each interested session is told once; of a shared pool again, as shares
    move, since it places its credit by them."""
    if parking.next_with_credit(pool_key, order.running, tx.now_ms) is not None:
        return
    backlog, waiting = order.waiting()
    if not backlog:
        return
    for asker in parking.to_hint(pool_key, tx.now_ms):
        parking.told(asker, tx.now_ms)
        hint = WorkHinted(
            session=asker.session,
            pool=ids.pool_of(pool_key),
            partition=partition,
            backlog=backlog,
            waiting=waiting,
            running=order.running,
        )
        tx.effects.append(Answer(asker.reply_partition, hint))
