"""What a handler works with: the state, now, chance, and a place for events and effects.

`emit` applies an event at once, so that what is decided next sees it. Nothing leaves the partition before
the runtime has committed; a handler that raises is undone to the savepoint before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from schemas.entities import (
    Alert,
    Breaker,
    BreakerStatus,
    Cursor,
    Entity,
    Execution,
    ExecutionStatus,
    Job,
    Tenant,
    WaitingFor,
)
from schemas.events import (
    AlertRaised,
    BreakerEvent,
    ContentKept,
    CursorEvent,
    Event,
    ExecutionEvent,
    JobEvent,
    LeaseExtended,
    PartitionOpened,
    TenantConfigured,
    entity_of,
)
from schemas.ids import alert_id, execution_key, job_key, key_of, lease_key, pool_key
from streams.core.effects import Effect
from streams.core.guards import Guards
from streams.core.invariants import InvariantError
from streams.core.lifecycle import BREAKER, EXECUTION, JOB
from streams.core.limits import REASON_CHARS_MAX
from streams.core.state import State

TOMBSTONE = "Forgotten"


class Router(Protocol):
    """What the tenants topic says today; its changes never touch what the log holds already."""

    def partition_of(self, tenant: str, job_id: str) -> int: ...

    def partitions_of(self, tenant: str) -> list[int]:
        """All partitions that can hold the tenant, its home partition first."""
        ...

    def settings_of(self, tenant: str) -> Tenant:
        """Weight, limits, pools; the defaults for a tenant that nobody has configured."""
        ...


class Source(msgspec.Struct, frozen=True, gc=False):
    """Where a command came from. `timestamp_ms` is the broker's."""

    topic: str
    offset: int
    timestamp_ms: int


class Logged(msgspec.Struct, frozen=True, gc=False):
    """One record for the events topic; a tombstone has no value."""

    key: str
    value: bytes | None
    type: str


Savepoint = tuple[int, ...]
"""How long each list was that a rollback cuts. Made for each timer, so no more than that."""


@dataclass(slots=True)
class Transaction:
    """One transaction of one partition; `actor` and `cause` are set for each command in turn."""

    state: State
    router: Router
    guards: Guards
    partition: int
    now_ms: int
    chance: Callable[[], float]
    actor: str = "system"
    cause: str = "time"
    events: list[Logged] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    pools: list[str] = field(default_factory=list)
    """Pools (`<owner>/<pool>`) that got runnable executions or credit and want matching."""
    freed: list[tuple[str, str]] = field(default_factory=list)
    """Tenant and pool of what runs no longer."""
    left: list[Execution] = field(default_factory=list)
    """Executions, as they were, that ceased to run or to be runnable: others may take their place
    (`handlers.vacating`)."""

    def settings_of(self, tenant: str) -> Tenant:
        """The newest settings known: a change decided here a moment ago stands in the state before the
        tenants topic brings it back. A development server writes to that topic alone."""
        stored, told = self.state.tenant(tenant), self.router.settings_of(tenant)
        return stored if stored is not None and stored.version >= told.version else told

    def emit_execution(self, event: type[ExecutionEvent], execution: Execution) -> Execution:
        """The execution changed; checks the transition."""
        key = execution_key(execution.tenant, execution.execution_id)
        old = self.state.entity(key)
        if not isinstance(old, Execution):
            old = None
        before = old.status if old is not None else None
        if execution.status not in EXECUTION[before]:
            raise InvariantError(f"{key}: {before} to {execution.status} is no transition")
        if old is not None and execution.lease_epoch < old.lease_epoch:
            raise InvariantError(f"{key}: the lease epoch fell")
        record = event(execution=execution, at_ms=self.now_ms, actor=self.actor, cause=self.cause)
        self._log(record, key, execution, old)
        if old is not None and execution.status is not ExecutionStatus.RUNNING:
            self._note_places(old)
        return execution

    def _note_places(self, old: Execution) -> None:
        """Whether it gave up a lease, or its place in the queue other than for a lease."""
        ran = old.status is ExecutionStatus.RUNNING
        if ran:
            self.freed.append((old.tenant, pool_key(old.tenant, old.pool)))
        left = ran or old.waiting_for is WaitingFor.WORKER
        if left and (old.exclusion_group or self.state.is_probe(old)):
            self.left.append(old)

    def emit_job(self, event: type[JobEvent], job: Job, old: Job | None) -> None:
        """The definition is new, or changed from what it was."""
        record = event(job=job, at_ms=self.now_ms, actor=self.actor, cause=self.cause)
        self._log(record, job_key(job.tenant, job.job_id), job, old)

    def emit_cursor(self, event: type[CursorEvent], old: Cursor, cursor: Cursor) -> Cursor:
        """The job's progress or status changed; checks the transition."""
        if cursor.status not in JOB[old.status]:
            raise InvariantError(f"{cursor.job_id}: {old.status} to {cursor.status} is no transition")
        self._emit(event(cursor=cursor, **self._meta()), cursor)
        return cursor

    def emit_breaker(self, event: type[BreakerEvent], breaker: Breaker) -> Breaker:
        """A circuit breaker changed; checks the transition."""
        old = self.state.breaker(breaker.tenant, breaker.target)
        before = old.status if old is not None else BreakerStatus.CLOSED
        if breaker.status not in BREAKER[before]:
            what = f"breaker of {breaker.tenant} {breaker.target}"
            raise InvariantError(f"{what}: {before} to {breaker.status} is no transition")
        self._emit(event(breaker=breaker, **self._meta()), breaker)
        return breaker

    def emit(
        self,
        event: type[LeaseExtended | ContentKept | PartitionOpened | TenantConfigured],
        **what: Any,
    ) -> None:
        """Any other event."""
        record = event(**what, **self._meta())
        self._emit(record, entity_of(record))

    def alert(
        self,
        kind: str,
        tenant: str,
        detail: str,
        *,
        job_id: str = "",
        execution_id: str = "",
        target: str = "",
        count: int = 1,
        about_ms: int = 0,
        told: bool = False,
    ) -> None:
        """Something a person should see (kinds: semantics §6): an event, and a metric and log line after the
        commit. Tenant "": operators. Told once for an instant, as long as it is known; `about_ms` 0: now.
        `told`: by metric and log line already."""
        detail = detail[:REASON_CHARS_MAX].encode(errors="replace").decode()
        alert = Alert(
            tenant=tenant,
            alert_id=alert_id(about_ms or self.now_ms, kind, job_id, execution_id, target, detail),
            kind=kind,
            at_ms=self.now_ms,
            detail=detail,
            job_id=job_id,
            execution_id=execution_id,
            target=target,
            count=count,
        )
        if not self.state.knows(key_of(alert)):
            self._emit(AlertRaised(alert=alert, **self._meta()), alert)
            if not told:
                self.effects.append(alert)

    def forget(self, key: str) -> None:
        """A tombstone, if there is anything to forget."""
        if self.state.entity(key) is not None:
            self.state.forget(key)
            self.events.append(Logged(key, None, TOMBSTONE))

    def forget_lease(self, execution: Execution) -> None:
        """The record of its heartbeats, if there is one."""
        if self.state.lease(execution) is not None:
            self.forget(lease_key(execution.tenant, execution.execution_id))

    def want_work(self, execution: Execution) -> None:
        """If the execution became runnable, its pool is matched at the end of the batch."""
        if execution.waiting_for is WaitingFor.WORKER:
            self.pools.append(pool_key(execution.tenant, execution.pool))

    def savepoint(self) -> Savepoint:
        s = self.state
        return (
            s.kv.savepoint(),
            s.indexes.counters.savepoint(),
            s.timers.savepoint(),
            s.leases.savepoint(),
            len(self.events),
            len(self.effects),
            len(self.pools),
            len(self.freed),
            len(self.left),
        )

    def rollback(self, to: Savepoint) -> None:
        """As if nothing had been decided since the savepoint."""
        kv, counters, timers, leases, *lengths = to
        self.state.kv.rollback(kv)
        self.state.indexes.counters.rollback(counters)
        self.state.forget_decoded()
        self.state.timers.rollback(timers)
        self.state.leases.rollback(leases)
        lists: tuple[list[Any], ...] = (self.events, self.effects, self.pools, self.freed, self.left)
        for each, length in zip(lists, lengths, strict=True):
            del each[length:]

    def _meta(self) -> dict[str, Any]:
        return {"at_ms": self.now_ms, "actor": self.actor, "cause": self.cause}

    def _emit(self, event: Event, entity: Entity) -> None:
        key = key_of(entity)
        self._log(event, key, entity, self.state.entity(key))

    def _log(self, event: Event, key: str, entity: Entity, old: Entity | None) -> None:
        value = self.state.encode(event)
        self.state.evolve(key, value, entity, old)
        self.events.append(Logged(key, value, type(event).__name__))
