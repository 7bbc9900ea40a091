"""Tells what an engine would have logged: events of jobs and executions as records of a partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from projections.batch import Batch
from projections.store import Store
from projections.tables import offsets
from schemas import codec, ids
from schemas.entities import (
    Content,
    Cursor,
    Execution,
    ExecutionKind,
    ExecutionStatus,
    Job,
    JobStatus,
    KeptContent,
    Lease,
    LeaseEnd,
    Policies,
    Priority,
    Schedule,
    ScheduleKind,
    Skip,
    WaitingFor,
)
from schemas.events import (
    AttemptFailed,
    CancelRequested,
    ContentKept,
    CursorEvent,
    CursorMoved,
    DeadLetterReplayed,
    EngineEvent,
    ExecutionCancelled,
    ExecutionClaimed,
    ExecutionCompleted,
    ExecutionDeadLettered,
    ExecutionEvent,
    ExecutionFired,
    ExecutionReady,
    ExecutionReleased,
    JobRegistered,
    LeaseExpired,
    LeaseExtended,
    entity_of,
)
from streams.transport.log import Record

TOPIC = "test.events"
TENANT = "acme"
# 2026-11-01T00:00:00Z, a whole day.
T0 = 1_793_491_200_000
MINUTE = 60_000

CRON = Schedule(kind=ScheduleKind.CRON, cron="* * * * *", cron_expanded="* * * * *")
ONCE = Schedule(kind=ScheduleKind.ONCE, run_at_ms=T0 + MINUTE)


def job(
    job_id: str,
    *,
    tenant: str = TENANT,
    incarnation: int = T0,
    version: int = 1,
    pool: str = "default",
    name: str = "",
    task: str = "work",
    labels: dict[str, str] | None = None,
    payload: bytes = b'{"of": "job"}',
    schedule: Schedule = CRON,
    first_next_ms: int = T0 + MINUTE,
    created_ms: int = T0,
) -> Job:
    content = Content(
        name=name or job_id,
        task=task,
        payload=payload,
        content_type="application/json",
        labels=labels or {},
    )
    return Job(
        tenant=tenant,
        job_id=job_id,
        incarnation=incarnation,
        version=version,
        pool=pool,
        schedule=schedule,
        content=content,
        policies=Policies(priority=Priority.HIGH),
        created_ms=created_ms,
        created_by="ann",
        request_key="key",
        body_hash="hash",
        first_next_ms=first_next_ms,
    )


def cursor_of(made: Job, status: JobStatus = JobStatus.ACTIVE, next_ms: int = 0, **more: Any) -> Cursor:
    return Cursor(
        tenant=made.tenant,
        job_id=made.job_id,
        incarnation=made.incarnation,
        status=status,
        next_ms=next_ms,
        **more,
    )


class Story:
    """Records in the order they were told; time moves on by a second an event unless `at` sets it."""

    def __init__(self, partition: int = 0, first_offset: int = 0) -> None:
        self.records: list[Record] = []
        self.now_ms = T0
        self._partition = partition
        self._next_offset = first_offset

    @property
    def last_offset(self) -> int:
        return self.records[-1].offset

    def at(self, now_ms: int) -> Story:
        self.now_ms = now_ms
        return self

    def tell(self, event: type[Any], **entity: Any) -> None:
        self.now_ms += 1_000
        told: EngineEvent = event(at_ms=self.now_ms, actor="ann", cause="commands@7#c", **entity)
        self._append(ids.key_of(entity_of(told)), codec.encode(told))

    def forget(self, key: str) -> None:
        """The engine's tombstone."""
        self._append(key, None)

    def register(self, made: Job) -> Job:
        self.tell(JobRegistered, job=made)
        return made

    def move(
        self, cursor: Cursor, event: type[CursorEvent] = CursorMoved, skips: Sequence[Skip] = ()
    ) -> None:
        self.tell(event, cursor=replace(cursor, skips=tuple(skips)))

    def fire(
        self,
        made: Job,
        scheduled_ms: int,
        *,
        key: str = "",
        waiting_for: WaitingFor = WaitingFor.WORKER,
        **more: Any,
    ) -> Execution:
        execution = Execution(
            tenant=made.tenant,
            execution_id=ids.manual_execution_id(made.job_id, made.incarnation, made.incarnation, key)
            if key
            else ids.scheduled_execution_id(made.job_id, made.incarnation, scheduled_ms),
            job_version=made.version,
            kind=ExecutionKind.MANUAL if key else ExecutionKind.SCHEDULE,
            pool=made.pool,
            priority=made.policies.priority,
            scheduled_ms=scheduled_ms,
            due_ms=scheduled_ms,
            fired_ms=self.now_ms,
            status=ExecutionStatus.PENDING,
            waiting_for=waiting_for,
        )
        return self.change(ExecutionFired, replace(execution, **more))

    def change(self, event: type[ExecutionEvent], execution: Execution, **changes: Any) -> Execution:
        changed = replace(execution, **changes)
        self.tell(event, execution=changed)
        return changed

    def claim(self, execution: Execution, worker_id: str = "w1", late_ms: int | None = None) -> Execution:
        """As the engine does: how an earlier lease ended stays in the entity."""
        started_ms = self.now_ms + 1_000 if late_ms is None else execution.due_ms + late_ms
        return self.change(
            ExecutionClaimed,
            execution,
            status=ExecutionStatus.RUNNING,
            waiting_for=WaitingFor.NOTHING,
            delivery_count=execution.delivery_count + 1,
            lease_epoch=execution.lease_epoch + 1,
            fencing_token=self.now_ms * 1024,
            worker_id=worker_id,
            first_started_ms=execution.first_started_ms or started_ms,
            started_ms=started_ms,
            lease_until_ms=started_ms + MINUTE,
        )

    def beat(self, execution: Execution, until_ms: int, progress: bytes = b"") -> None:
        lease = Lease(
            tenant=execution.tenant,
            execution_id=execution.execution_id,
            lease_epoch=execution.lease_epoch,
            until_ms=until_ms,
            progress=progress,
        )
        self.tell(LeaseExtended, lease=lease)

    def complete(self, execution: Execution, result: bytes = b'"ok"') -> Execution:
        return self._end(ExecutionCompleted, execution, LeaseEnd.COMPLETED, result=result)

    def fail(self, execution: Execution, error: str = "boom", due_ms: int = 0) -> Execution:
        return self.change(
            AttemptFailed,
            execution,
            status=ExecutionStatus.SCHEDULED,
            due_ms=due_ms or self.now_ms + MINUTE,
            attempt=execution.attempt + 1,
            delivery_count=0,
            lease_end=LeaseEnd.FAILED,
            error=error,
        )

    def ready(self, execution: Execution) -> Execution:
        return self.change(
            ExecutionReady, execution, status=ExecutionStatus.PENDING, waiting_for=WaitingFor.WORKER
        )

    def expire(self, execution: Execution) -> Execution:
        return self.change(
            LeaseExpired,
            execution,
            status=ExecutionStatus.PENDING,
            waiting_for=WaitingFor.WORKER,
            lease_end=LeaseEnd.EXPIRED,
        )

    def release(self, execution: Execution) -> Execution:
        return self.change(
            ExecutionReleased,
            execution,
            status=ExecutionStatus.PENDING,
            waiting_for=WaitingFor.WORKER,
            lease_end=LeaseEnd.RELEASED,
        )

    def bury(self, execution: Execution, error: str = "boom", reason: str = "attempts") -> Execution:
        content = Content(name="n", task="work", payload=b'{"kept": true}', content_type="application/json")
        self.keep(execution, content)
        return self._end(ExecutionDeadLettered, execution, LeaseEnd.FAILED, error=error, reason=reason)

    def keep(self, execution: Execution, content: Content) -> None:
        kept = KeptContent(
            tenant=execution.tenant,
            execution_id=execution.execution_id,
            content=content,
            policies=Policies(),
        )
        self.tell(ContentKept, kept=kept)

    def replay(self, execution: Execution) -> Execution:
        return self.change(
            DeadLetterReplayed,
            execution,
            status=ExecutionStatus.PENDING,
            waiting_for=WaitingFor.WORKER,
            attempt=1,
            delivery_count=0,
            lease_end=LeaseEnd.NONE,
            finished_ms=0,
            reason="",
            replays=execution.replays + 1,
        )

    def ask_to_cancel(self, execution: Execution) -> Execution:
        return self.change(CancelRequested, execution, cancel_requested_ms=self.now_ms)

    def cancel(self, execution: Execution, reported: str = "") -> Execution:
        running = execution.status is ExecutionStatus.RUNNING
        end = LeaseEnd.CANCELLED if running else execution.lease_end
        return self._end(ExecutionCancelled, execution, end, reported=reported)

    def _end(
        self, event: type[ExecutionEvent], execution: Execution, lease_end: LeaseEnd, **more: Any
    ) -> Execution:
        status = {
            ExecutionCompleted: ExecutionStatus.COMPLETED,
            ExecutionDeadLettered: ExecutionStatus.FAILED,
            ExecutionCancelled: ExecutionStatus.CANCELLED,
        }[event]
        return self.change(
            event,
            execution,
            status=status,
            waiting_for=WaitingFor.NOTHING,
            lease_end=lease_end,
            finished_ms=self.now_ms + 1_000,
            **more,
        )

    def _append(self, key: str, value: bytes | None) -> None:
        self.records.append(
            Record(TOPIC, self._partition, self._next_offset, self.now_ms, key.encode(), value, {})
        )
        # Transaction markers take offsets, too.
        self._next_offset += 2


def fold(store: Store, records: Sequence[Record], size: int = 1_000) -> None:
    """Folds records from where the store is, in batches of this size."""
    for start in range(0, len(records), size):
        batch = Batch(positions_of(store, records))
        batch.fold(records[start : start + size])
        batch.write(store)


def positions_of(store: Store, records: Sequence[Record]) -> dict[int, int]:
    with store.writing() as writer:
        known = {row.partition: row.next_offset for row in writer.connection.execute(offsets.select())}
        new = {record.partition: 0 for record in records if record.partition not in known}
        writer.insert(
            offsets, [{"partition": number, "next_offset": 0, "at_ms": 0} for number in sorted(new)]
        )
    return known | new
