"""State of one partition: typed entities over the store, and `evolve`, the only writer of both.

`evolve` is the same live and in replay: it replaces an entity by the one that an event carries and moves the
index entries that follow from it. Every index is a function of the entities alone, so the newest event of
each key is enough, in log order or after compaction. The bytes of the event are the stored value.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from typing import Protocol

from msgspec.structs import replace

from schemas import ids
from schemas.entities import (
    Alert,
    Breaker,
    BreakerStatus,
    Cursor,
    Entity,
    Execution,
    ExecutionKind,
    ExecutionStatus,
    Job,
    JobStatus,
    KeptContent,
    Lease,
    LeaseEnd,
    PartitionMeta,
    Priority,
    Record,
    ScheduleKind,
    Tenant,
    WaitingFor,
)
from schemas.events import Event, entity_of
from schemas.ids import scheduled_execution_id
from streams.core import keys
from streams.core.decoded import Decoded
from streams.core.indexes import NO_JOB, Indexes, Standing, is_active, standing_of
from streams.core.invariants import InvariantError
from streams.core.kept import Sized
from streams.core.lifecycle import DISCARDED, FINAL, JOB_FINAL
from streams.core.limits import (
    ALERT_FORGET_AFTER_MS,
    DEAD_LETTER_FORGET_AFTER_MS,
    DEAD_LETTER_WARN_MS,
    ENTITIES_PER_COMMAND_MAX,
    FORGET_AFTER_MS,
)
from streams.core.room import Room
from streams.core.timebuckets import TimeBuckets
from streams.store.kv import Batch
from streams.store.overlay import Overlay


class Codec(Protocol):
    """What the core needs of `schemas.codec`."""

    def encode(self, record: Record, /) -> bytes: ...

    def decode(self, data: bytes, /) -> Record: ...


class State:
    """Reads by type; writes by `evolve` and `forget` only."""

    def __init__(self, kv: Overlay, codec: Codec, room: Room) -> None:
        self.kv = kv
        self.timers = TimeBuckets(kv, b"g")
        self.leases = TimeBuckets(kv, b"l")
        self.indexes = Indexes(kv)
        self._codec = codec
        self.encode = codec.encode
        self._decoded = Decoded(room, self._read)

    # -- reading

    def entity(self, key: str) -> Entity | None:
        """What stands under a log key."""
        return self._decoded.get(key)

    def _read(self, key: str) -> Sized:
        return self._sized(self.kv.get(keys.entity(key)))

    def _sized(self, value: bytes | None) -> Sized:
        return (None, 0) if value is None else (self.decode(value), len(value))

    def read_ahead(self, log_keys: list[str]) -> None:
        """These are about to be looked at, and of jobs their cursors. What is not in memory is read at once,
        which costs the store half of what one by one costs (measured)."""
        missing = self._decoded.missing(log_keys)
        if not missing:
            return
        jobs = {cursor: key for key in missing if (cursor := ids.cursor_key_of(key)) is not None}
        wanted = [*missing, *jobs]
        values = self.kv.get_many([keys.entity(key) for key in wanted])
        for key, value in zip(wanted, values, strict=True):
            if value is None and key in jobs:
                self._decoded.mark(jobs[key], bare=True)
                continue
            try:
                found = self._sized(value)
            except Exception:
                continue  # it is for whoever looks at it, and stops no others
            self._decoded.keep(key, *found)

    def decode(self, value: bytes) -> Entity:
        """The entity in an event's bytes. Raises what the codec raises."""
        event = self._codec.decode(value)
        if not isinstance(event, Event):
            raise InvariantError(f"a {type(event).__name__} is no event")
        return entity_of(event)

    def forget_decoded(self) -> None:
        """After the store's overlay went back to an earlier state."""
        self._decoded.clear()

    def knows(self, key: str) -> bool:
        """Whether an entity stands under a log key."""
        return self.entity(key) is not None

    def job(self, tenant: str, job_id: str) -> Job | None:
        found = self.entity(ids.job_key(tenant, job_id))
        return found if isinstance(found, Job) else None

    def job_of(self, execution: Execution) -> Job | None:
        """The job of an execution, of whatever making."""
        return self.job(execution.tenant, ids.job_part(execution.execution_id))

    def meta(self) -> PartitionMeta | None:
        """What the partition was made with."""
        found = self.entity(ids.META_KEY)
        return found if isinstance(found, PartitionMeta) else None

    def tenant(self, tenant: str) -> Tenant | None:
        """The settings that this partition, as the tenant's home, decided last."""
        found = self.entity(ids.tenant_key(tenant))
        return found if isinstance(found, Tenant) else None

    def knows_any_of(self, tenant: str) -> bool:
        """Whether a job or an execution of the tenant is known here, finished ones too; dead letters that
        were discarded count only if they are too many to be looked at."""
        jobs, executions = keys.entity(ids.job_key(tenant, "")), keys.entity(ids.execution_key(tenant, ""))
        if next(self.kv.scan(jobs, keys.after(jobs)), None) is not None:
            return True
        some = list(islice(self.kv.scan(executions, keys.after(executions)), ENTITIES_PER_COMMAND_MAX))
        found = [self.execution(tenant, key[len(executions) :].decode()) for key, _ in some]
        return len(found) == ENTITIES_PER_COMMAND_MAX or any(
            execution is not None and execution.reason != DISCARDED for execution in found
        )

    def execution(self, tenant: str, execution_id: str) -> Execution | None:
        found = self.entity(ids.execution_key(tenant, execution_id))
        return found if isinstance(found, Execution) else None

    def lease(self, execution: Execution) -> Lease | None:
        """The newest heartbeat's record, of any epoch."""
        if not self.indexes.number(keys.LEASES):
            return None
        found = self.entity(ids.lease_key(execution.tenant, execution.execution_id))
        return found if isinstance(found, Lease) else None

    def expect_new(self, job: Job) -> None:
        """It takes an id that no job has: nobody need look for a cursor, which goes with its job, nor for an
        execution of this making."""
        self._decoded.mark(ids.job_key(job.tenant, job.job_id), bare=True)
        if job.schedule.kind is ScheduleKind.ONCE:
            self._decoded.keep(ids.execution_key(job.tenant, first_execution_id(job)), None, 0)

    def breaker(self, tenant: str, target: str) -> Breaker | None:
        """The circuit breaker of a target; None: it was never open, or long ago."""
        found = self.entity(ids.breaker_key(tenant, target))
        return found if isinstance(found, Breaker) else None

    def breaker_of(self, execution: Execution) -> Breaker | None:
        """That of the target to which an execution is sent."""
        if not self.indexes.number(keys.BREAKERS):
            return None
        found = self.entity(_breaker_key(execution.tenant, execution.pool))
        return found if isinstance(found, Breaker) else None

    def is_probe(self, execution: Execution) -> bool:
        """Whether a breaker tries its target by this execution."""
        breaker = self.breaker_of(execution)
        if breaker is None or breaker.status is not BreakerStatus.PROBING:
            return False
        return execution.execution_id in breaker.probes

    def kept_content(self, execution: Execution) -> KeptContent | None:
        """Its own payload, or a dead letter's copy. Others have none, and so it need not be looked for."""
        is_triggered = execution.kind is ExecutionKind.MANUAL
        if not is_triggered and not execution.replays and execution.status is not ExecutionStatus.FAILED:
            return None
        found = self.entity(ids.content_key(execution.tenant, execution.execution_id))
        return found if isinstance(found, KeptContent) else None

    def superseded(self, execution: Execution) -> KeptContent | None:
        """What the job version gave with which the execution was fired, if that is not the current one."""
        version_id = ids.version_id(execution.job_id, execution.job_version)
        found = self.entity(ids.content_key(execution.tenant, version_id))
        return found if isinstance(found, KeptContent) else None

    def cursor(self, job: Job) -> Cursor:
        """Where the job stands. One without a stored cursor stands at its beginning; a one-off stands behind
        it once its execution exists, and may be completed by that one's end."""
        moved = self.moved(job)
        return moved if moved is not None else self.unmoved(job)

    def unmoved(self, job: Job) -> Cursor:
        """Where a job stands that has no cursor of its own."""
        first = beginning(job)
        execution = self.first_execution(job)
        if execution is None:
            return first
        fired = behind(first)
        if not execution.closes_job:
            return fired
        return replace(fired, status=JobStatus.COMPLETED, finished_ms=execution.finished_ms)

    def first_execution(self, job: Job) -> Execution | None:
        """A one-off's only scheduled execution, while it is known; None for other jobs."""
        if job.schedule.kind is not ScheduleKind.ONCE:
            return None
        return self.execution(job.tenant, first_execution_id(job))

    def moved(self, job: Job) -> Cursor | None:
        """The job's own cursor; None as long as it stands at its beginning, or a one-off has only fired."""
        if self._decoded.is_bare(job):
            return None
        found = self.entity(ids.cursor_key(job.tenant, job.job_id))
        if found is None:
            self._decoded.mark(ids.job_key(job.tenant, job.job_id), bare=True)
            return None
        return found if isinstance(found, Cursor) and found.incarnation == job.incarnation else None

    def _unfinished(self, tenant: str, job_id: str) -> int:
        """How many executions of a job are among the open ones (`keys.unfinished`)."""
        if not self.indexes.number(keys.unfinished_of_tenant(tenant)):
            return 0
        return self.indexes.number(keys.unfinished(f"{tenant}/{job_id}"))

    def active(self, tenant: str, job_id: str) -> int:
        """Executions of a job that are neither final nor waiting for another one of it."""
        counted = self._unfinished(tenant, job_id) % keys.WAITING
        return counted if self.active_first(tenant, job_id) is None else counted + 1

    def active_first(self, tenant: str, job_id: str) -> Execution | None:
        """A one-off's only scheduled execution while it is active. The job says what its id is, so it has no
        entry among the open ones, and no counter counts it: that would be four writes more an execution."""
        job = self.job(tenant, job_id)
        first = self.first_execution(job) if job is not None else None
        return first if first is not None and is_active(first) else None

    def lease_until_ms(self, execution: Execution) -> int:
        """End of the current lease: by the grant or the newest heartbeat of its epoch."""
        lease = self.lease(execution)
        if lease is None or lease.lease_epoch != execution.lease_epoch:
            return execution.lease_until_ms
        return lease.until_ms

    def open_executions(self, tenant: str, job_id: str, limit: int) -> list[Execution]:
        """Executions of a job that are not final, at most `limit`."""
        prefix = keys.open_prefix(f"{tenant}/{job_id}")
        first = self.active_first(tenant, job_id)
        found = [first] if first is not None else []
        for key, _ in self.kv.scan(prefix, keys.after(prefix)):
            if len(found) == limit:
                break
            execution = self.execution(tenant, key[len(prefix) + 1 :].decode())
            if execution is not None:
                found.append(execution)
        return found

    def triggered(self, job: Job, kind: str) -> Execution | None:
        """The execution that a request triggered, in this making of the job or an earlier one, while it is
        known."""
        prefix = keys.manual_prefix(f"{job.tenant}/{job.job_id}", kind)
        found = next(self.kv.scan(prefix, keys.after(prefix)), None)
        return found and self.execution(job.tenant, found[0][len(prefix) :].decode())

    def has_open(self, tenant: str, job_id: str) -> bool:
        """Whether the job has an unfinished execution."""
        return self._unfinished(tenant, job_id) > 0 or self.active_first(tenant, job_id) is not None

    def is_alone(self, job: Job) -> bool:
        """Whether a one-off has no unfinished execution but its own while that is active."""
        return not self._unfinished(job.tenant, job.job_id)

    def in_line(self, tenant: str, job_id: str, limit: int) -> int:
        """How many executions wait for overlap within the queue limit, counted to `limit`."""
        prefix = keys.open_prefix(f"{tenant}/{job_id}", keys.IN_LINE)
        return sum(1 for _ in islice(self.kv.scan(prefix, keys.after(prefix)), limit))

    def blocked(self, tenant: str, job_id: str, limit: int) -> list[str]:
        """Ids of executions that wait for an earlier one of the job, by scheduled time."""
        found: list[str] = []
        if self._unfinished(tenant, job_id) < keys.WAITING:
            return found  # nearly always, and a scan costs ten times as much
        prefix = keys.blocked_prefix(f"{tenant}/{job_id}")
        for key, _ in self.kv.scan(prefix, keys.after(prefix)):
            if len(found) == limit:
                break
            found.append(keys.queued_id(key, prefix))
        return found

    def held_by_claim(self, pool_key: str, worker_id: str, claim_id: str) -> list[Execution]:
        """Running executions that a claim got from a pool and still holds. What a worker of that name has
        from another one is not for whoever may ask for this one."""
        prefix = keys.claim_prefix(pool_key.partition("/")[0], worker_id, claim_id)
        held = (
            key[len(prefix) :].decode().partition("/") for key, _ in self.kv.scan(prefix, keys.after(prefix))
        )
        found = [self.execution(tenant, execution_id) for tenant, _, execution_id in held]
        pool = ids.pool_of(pool_key)
        return [execution for execution in found if execution is not None and execution.pool == pool]

    def last_token(self) -> int:
        """The highest fencing token granted by this partition."""
        return self.indexes.number(keys.LAST_TOKEN)

    # -- writing

    def apply(self, key: str, value: bytes | None) -> None:
        """Replay: the same change from the log's record. None is a tombstone."""
        if value is None:
            self.forget(key)
            return
        entity = self.decode(value)
        held = ids.key_of(entity)
        if held != key:
            raise InvariantError(f"the record under {key!r} holds {held!r}")
        self.evolve(key, value, entity, self.entity(key))

    def forget(self, key: str) -> None:
        """Removes an entity and its index entries."""
        old = self.entity(key)
        if old is None:
            return
        self._decoded.keep(key, None, 0)
        self.kv.put(keys.entity(key), None)
        match old:
            case Execution():
                self._move_execution(old, None)
            case Job():
                self._move_job(old, None)
            case Cursor() if old.status in JOB_FINAL:
                self._move_job(old, None)
            case Lease():
                self.indexes.counters.add(keys.LEASES, -1)
            case Breaker():
                self.indexes.counters.add(keys.BREAKERS, -1)

    def evolve(self, key: str, value: bytes, entity: Entity, old: Entity | None) -> None:
        """An event happened: `value` are its bytes, `entity` what it carries, and `old` what stands under the
        key."""
        self.kv.put(keys.entity(key), value)
        self._decoded.keep(key, entity, len(value))
        if isinstance(entity, Execution):
            former = old if isinstance(old, Execution) else None
            self._move_execution(former, entity)
            if entity.fencing_token > (former.fencing_token if former is not None else 0):
                self.indexes.counters.raise_to(keys.LAST_TOKEN, entity.fencing_token)
            self._file_execution(key, entity, former)
            return
        match entity:
            case Job():
                self._move_job(old if isinstance(old, Job) else None, entity)
            case Cursor():
                was = old if isinstance(old, Cursor) else None
                if was is None:
                    self._decoded.mark(ids.job_key(entity.tenant, entity.job_id), bare=False)
                # Most only move, and then the job need not be read.
                if entity.status in JOB_FINAL or (was is not None and was.status in JOB_FINAL):
                    self._move_job(was, entity)
            case Lease() if old is None:
                self.indexes.counters.add(keys.LEASES, 1)
            case Breaker() if old is None:
                self.indexes.counters.add(keys.BREAKERS, 1)
        self._file_timer(key, entity, old)

    def take(self) -> Batch:
        """The end of a transaction: its changes, for one write to the store beneath."""
        self.indexes.counters.write()
        self.timers.write()
        self.leases.write()
        return self.kv.take()

    def abort(self) -> None:
        """As if the transaction had changed nothing."""
        self.kv.clear()
        self.indexes.counters.clear()
        self.forget_decoded()
        self.timers.reload()
        self.leases.reload()

    def _standing(self, job: Job | None) -> Standing:
        return Standing(job, self.moved(job), self.first_execution(job)) if job is not None else NO_JOB

    def _move_job(self, old: Job | Cursor | None, new: Job | Cursor | None) -> None:
        """Counts living jobs: `old` became `new`, and what else tells of the job is as it was."""
        told = new or old
        if told is None:
            return
        now = self._standing(new if isinstance(new, Job) else self.job(told.tenant, told.job_id))
        if isinstance(told, Job):
            before = self._standing(old if isinstance(old, Job) else None)
        else:
            before = replace(now, cursor=old if isinstance(old, Cursor) else None)
        self.indexes.move_job(before, now)

    def _move_execution(self, old: Execution | None, new: Execution | None) -> None:
        """It changed, came, or is forgotten, and its job is as it was: what follows from both."""
        self.indexes.move(old, new)
        told = new or old
        if told is None:
            return
        before, now = standing_of(old), standing_of(new)
        closed, closes = old is not None and old.closes_job, new is not None and new.closes_job
        if before is now and closed is closes:
            return
        job = self.job_of(told)
        if job is None or not is_first(job, told):
            self.indexes.stand(told, before, now)
            return
        self.indexes.stand(told, _counted(before), _counted(now))
        if closed is not closes:
            cursor = self.moved(job)
            if cursor is None or cursor.status not in JOB_FINAL:
                self.indexes.count_job(job, -1 if closes else 1)

    def _file_execution(self, key: str, entity: Execution, old: Execution | None) -> None:
        runs = entity.status is ExecutionStatus.RUNNING
        due = due_of_execution(entity)
        if due is not None and (
            old is None or runs is not (old.status is ExecutionStatus.RUNNING) or due_of_execution(old) != due
        ):
            stream = self.leases if runs else self.timers
            stream.add(due, _lane_of_execution(entity), key)
        alarm = alarm_of_execution(entity)
        if alarm is not None and (old is None or alarm_of_execution(old) != alarm):
            self.timers.add(alarm, keys.lane(Priority.LOW, entity.tenant), key)

    def _file_timer(self, key: str, entity: Entity, old: Entity | None) -> None:
        """Lease ends go by tenant alone: a heartbeat does not know a priority."""
        match entity:
            case Breaker():
                due, lane = due_of_breaker(entity), keys.lane(Priority.NORMAL, entity.tenant)
                # Its status alone does not say it: what lay between may have been compacted away.
                if not isinstance(old, Breaker) or (old.status, due_of_breaker(old)) != (entity.status, due):
                    self.timers.add(due, lane, key)
                if entity.status is not BreakerStatus.OPEN:
                    self.timers.add(due_of_breaker_end(entity), lane, key)
            case Alert():
                forget_ms = entity.at_ms + ALERT_FORGET_AFTER_MS
                self.timers.add(forget_ms, keys.lane(Priority.LOW, entity.tenant), key)
            case Lease():
                execution_key = ids.execution_key(entity.tenant, entity.execution_id)
                self.leases.add(entity.until_ms, keys.lane(Priority.NORMAL, entity.tenant), execution_key)
            case Job():
                # An update says by its cursor when the job is due next.
                if not isinstance(old, Job) or old.incarnation != entity.incarnation:
                    lane = keys.lane(entity.policies.priority, entity.tenant)
                    self.timers.add(first_due_ms(entity), lane, key)
            case Cursor():
                job_key = ids.job_key(entity.tenant, entity.job_id)
                next_due = due_of_cursor(entity)
                lane = keys.lane(Priority.LOW if entity.finished_ms else entity.priority, entity.tenant)
                if next_due is not None and (not isinstance(old, Cursor) or due_of_cursor(old) != next_due):
                    self.timers.add(next_due, lane, job_key)
                if entity.status is JobStatus.CANCELLED:  # what is too much for the cancel itself
                    self.timers.add(entity.finished_ms, lane, job_key)


def _counted(standing: bytes | None) -> bytes | None:
    """Of a one-off's own execution: see `State.active_first`."""
    return None if standing is keys.BUSY else standing


def _lane_of_execution(execution: Execution) -> keys.Lane:
    """What is only to be forgotten holds up nobody."""
    if execution.status is ExecutionStatus.RUNNING:
        return keys.lane(Priority.NORMAL, execution.tenant)
    return keys.lane(Priority.LOW if execution.status in FINAL else execution.priority, execution.tenant)


@lru_cache(maxsize=4_096)  # asked at each step of an execution, and few pools are busy at a time
def _breaker_key(tenant: str, pool: str) -> str:
    return ids.breaker_key(tenant, ids.target_pool(pool))


def beginning(job: Job) -> Cursor:
    """The cursor that a job begins with; also the first answer to its registration."""
    return Cursor(
        tenant=job.tenant,
        job_id=job.job_id,
        incarnation=job.incarnation,
        status=JobStatus.ACTIVE,
        next_ms=job.first_next_ms,
        next_local=job.first_next_local,
        next_due_ms=first_due_ms(job),
        tz_version=job.tz_version,
        priority=job.policies.priority,
    )


def first_due_ms(job: Job) -> int:
    """When its first occurrence is due; a one-off in the past from its registration on."""
    return max(job.first_due_ms or job.first_next_ms, job.created_ms)


def behind(first: Cursor) -> Cursor:
    """Where a one-off stands once it has fired."""
    last = {"last_ms": first.next_ms, "last_local": first.next_local}
    return replace(first, next_ms=0, next_local="", next_due_ms=0, runs=1, **last)


def first_execution_id(job: Job) -> str:
    """The id of a one-off's only scheduled execution."""
    return scheduled_execution_id(job.job_id, job.incarnation, job.first_next_ms)


def is_first(job: Job, execution: Execution) -> bool:
    """Whether it is a one-off's only scheduled execution (`State.first_execution`)."""
    return job.schedule.kind is ScheduleKind.ONCE and execution.execution_id == first_execution_id(job)


def due_of_cursor(cursor: Cursor) -> int | None:
    """When the job must be looked at next."""
    if cursor.status in JOB_FINAL:
        return cursor.finished_ms + FORGET_AFTER_MS
    if cursor.status is JobStatus.ACTIVE and cursor.next_ms:
        return cursor.next_due_ms or cursor.next_ms
    return None


def due_of_breaker(breaker: Breaker) -> int:
    """When something is to be done about a breaker: to try a few, to find others to try, or to let go of what
    it held back."""
    match breaker.status:
        case BreakerStatus.OPEN:
            return breaker.until_ms
        case _:
            return breaker.changed_ms


def due_of_breaker_end(breaker: Breaker) -> int:
    """When a breaker that stays closed is forgotten, and one that found nothing to try is closed."""
    return breaker.changed_ms + FORGET_AFTER_MS


def alarm_of_execution(execution: Execution) -> int | None:
    """When a person should be told that the execution is still where it is."""
    if execution.status is ExecutionStatus.FAILED and execution.reason != DISCARDED:
        return execution.finished_ms + DEAD_LETTER_FORGET_AFTER_MS - DEAD_LETTER_WARN_MS
    is_new = execution.status is ExecutionStatus.PENDING and not execution.delivery_count
    if is_new and execution.lateness_alert_sec:
        return late_from_ms(execution) + execution.lateness_alert_sec * 1_000 + 1  # above it, not at it
    return None


def late_from_ms(execution: Execution) -> int:
    """The instant from which its lateness counts: a backfill of the past is not late when asked for, nor is
    what was handed back as long as its lease could have lasted."""
    if execution.lease_end is LeaseEnd.RELEASED:
        return max(execution.due_ms, execution.lease_until_ms)
    if execution.kind is ExecutionKind.BACKFILL:
        return max(execution.due_ms, execution.fired_ms)
    return execution.due_ms


def due_of_execution(execution: Execution) -> int | None:
    """When the execution must be looked at next, its newest heartbeat left aside."""
    if execution.status is ExecutionStatus.RUNNING:
        return execution.lease_until_ms
    if execution.status in FINAL:
        dead = execution.status is ExecutionStatus.FAILED
        return execution.finished_ms + (DEAD_LETTER_FORGET_AFTER_MS if dead else FORGET_AFTER_MS)
    if execution.status is ExecutionStatus.SCHEDULED or execution.waiting_for is WaitingFor.REDELIVERY:
        return execution.due_ms
    if execution.start_deadline_ms and not execution.first_started_ms:
        return execution.start_deadline_ms
    return None
