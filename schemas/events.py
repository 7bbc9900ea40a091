"""What happened: past-tense records on the topic `events`, the source of truth.

An event has its time, actor and cause, and one entity, whole, as it is after the change. The entity's
attribute name differs by event; `entity_of` finds it. A forgotten entity is a tombstone of its key.
"""

from __future__ import annotations

from schemas.entities import (
    Alert,
    Breaker,
    Cursor,
    Entity,
    Execution,
    Job,
    KeptContent,
    Lease,
    PartitionMeta,
    Record,
    Tenant,
)


class Event(Record):
    """Fields of every event. `cause`: `commands@<offset>#<commandId>`, `work@…` or `time`."""

    at_ms: int
    actor: str
    cause: str


class JobEvent(Event):
    """An event of a job's definition."""

    job: Job


class CursorEvent(Event):
    """An event of a job's progress or status."""

    cursor: Cursor


class ExecutionEvent(Event):
    """An event of an execution."""

    execution: Execution


class JobRegistered(JobEvent):
    """A job was made, or made anew under an old id."""


class JobUpdated(JobEvent):
    """The definition of a living job was replaced."""


class CursorMoved(CursorEvent):
    """Occurrences were fired, kept for catch-up, or skipped."""


class JobCancelled(CursorEvent):
    """The job has no further occurrences because someone cancelled it."""


class JobCompleted(CursorEvent):
    """The job has no further occurrence and its last execution is final."""


class JobPaused(CursorEvent):
    """The job does not fire until it is resumed or cancelled."""


class JobResumed(CursorEvent):
    """A paused job fires again."""


class ScheduleShifted(CursorEvent):
    """New time zone data moved the next occurrence."""


class ExecutionFired(ExecutionEvent):
    """An occurrence became due, or a trigger made an execution."""


class ExecutionReady(ExecutionEvent):
    """A wait ended (backoff, redelivery, overlap): it may be granted."""


class ExecutionBlocked(ExecutionEvent):
    """It was runnable, and has to wait for its exclusion group or a breaker."""


class ExecutionClaimed(ExecutionEvent):
    """A worker got it under a lease with a new epoch and fencing token."""


class ExecutionReleased(ExecutionEvent):
    """The worker handed it back."""


class LeaseExpired(ExecutionEvent):
    """The lease ended without a word; it will be delivered again."""


class AttemptFailed(ExecutionEvent):
    """An attempt failed or timed out; the next one is scheduled."""


class ExecutionCompleted(ExecutionEvent):
    """It succeeded."""


class ExecutionDeadLettered(ExecutionEvent):
    """It was given up."""


class CancelRequested(ExecutionEvent):
    """It runs, and its worker will be told to stop."""


class ExecutionCancelled(ExecutionEvent):
    """It ended by a cancel."""


class ExecutionSkipped(ExecutionEvent):
    """It had an id but was not run."""


class DeadLetterReplayed(ExecutionEvent):
    """It was put back from the dead letters."""


class DeadLetterDiscarded(ExecutionEvent):
    """Someone dealt with it otherwise: it is forgotten."""


class BreakerEvent(Event):
    """An event of a circuit breaker."""

    breaker: Breaker


class BreakerOpened(BreakerEvent):
    """Too many outcomes were failures, or a probe failed."""


class BreakerProbing(BreakerEvent):
    """The pause is over: a few are tried; also when others are tried in their place."""


class BreakerClosed(BreakerEvent):
    """A probe went well: what waited may run."""


class AlertRaised(Event):
    """Something a person should see."""

    alert: Alert


class LeaseExtended(Event):
    """A heartbeat."""

    lease: Lease


class ContentKept(Event):
    """An execution got a payload of its own."""

    kept: KeptContent


class PartitionOpened(Event):
    """The partition was made, or its meta changed."""

    meta: PartitionMeta


class TenantConfigured(Event):
    """A tenant's settings: in the events of its home partition and, for all processes, on `tenants`."""

    configured: Tenant


EngineEvent = (
    JobRegistered
    | JobUpdated
    | CursorMoved
    | JobCancelled
    | JobCompleted
    | JobPaused
    | JobResumed
    | ScheduleShifted
    | ExecutionFired
    | ExecutionReady
    | ExecutionBlocked
    | ExecutionClaimed
    | ExecutionReleased
    | LeaseExpired
    | AttemptFailed
    | ExecutionCompleted
    | ExecutionDeadLettered
    | CancelRequested
    | ExecutionCancelled
    | ExecutionSkipped
    | DeadLetterReplayed
    | DeadLetterDiscarded
    | BreakerOpened
    | BreakerProbing
    | BreakerClosed
    | AlertRaised
    | LeaseExtended
    | ContentKept
    | PartitionOpened
    | TenantConfigured
)


def entity_of(event: Event) -> Entity:
    """The entity that the event carries. TypeError if it carries none."""
    if isinstance(event, ExecutionEvent):
        return event.execution
    if isinstance(event, CursorEvent):
        return event.cursor
    if isinstance(event, JobEvent):
        return event.job
    if isinstance(event, LeaseExtended):
        return event.lease
    if isinstance(event, ContentKept):
        return event.kept
    if isinstance(event, PartitionOpened):
        return event.meta
    if isinstance(event, BreakerEvent):
        return event.breaker
    if isinstance(event, AlertRaised):
        return event.alert
    if isinstance(event, TenantConfigured):
        return event.configured
    raise TypeError(f"{type(event).__name__} carries no entity of an engine")
