"""What processors answer: records on `replies` (to one asker), `dead-letters` and `status`.

Replies go out after the commit and may be repeated after a crash; askers drop repeats. An asker owns one
partition of `replies` together with others and takes what carries its `session`.
"""

from __future__ import annotations

from schemas.entities import Content, Cursor, Execution, Job, Policies, Priority, Record, Tenant


class FieldProblem(Record):
    """One thing wrong with one field, named as the HTTP API spells it (`schedule.cron`)."""

    field: str
    detail: str


class CommandDone(Record, kw_only=True):
    """Answer to a command of `commands`. `code` "": done; else the refusal (`streams.core.refusals`).

    `status` is the HTTP status that the API gives. `job` comes without its payload. `offset` is the position
    in the partition's events that a read must have seen to include this change. `limit` and
    `retry_after_ms` belong to a refusal by a rate (registrations a second) or a number.
    """

    session: str
    command_id: str
    status: int
    code: str = ""
    detail: str = ""
    errors: tuple[FieldProblem, ...] = ()
    replayed: bool = False
    job: Job | None = None
    cursor: Cursor | None = None
    execution: Execution | None = None
    partition: int
    offset: int = -1
    count: int = 0
    configured: Tenant | None = None
    retry_after_ms: int = 0
    limit: int = 0


class ItemResult(Record):
    """Answer to one item of ExtendLease, Complete, Fail or Release. `code` "": accepted."""

    status: int
    code: str = ""
    detail: str = ""
    extend_until_ms: int = 0


class WorkDone(Record, kw_only=True):
    """Answers to the items of one work command, in their order."""

    session: str
    command_id: str
    results: tuple[ItemResult, ...]
    partition: int
    offset: int = -1


class Grant(Record):
    """An execution under a lease, with all that its worker needs."""

    execution: Execution
    content: Content
    policies: Policies
    progress: bytes = b""


class Waiting(Record):
    """Pending executions of one tenant and priority in a pool at one partition, as far as they may run now.

    `running` counts the tenant's in the pool and partition. Least `running / weight` is next.
    """

    priority: Priority
    tenant: str
    weight: int
    backlog: int
    running: int


class Granted(Record):
    """Leases for one session. `number`: this partition's grants so far to the session and pool, these too.

    `backlog`: pending executions of the pool that stay behind and may run now; `waiting` says whose they are
    (not more tenants than a reply can hold, the next ones first), `running` how many of the pool run here.
    `seq`: the request they were granted under. `more`: further ones of the same pass
    follow; at its end, what is left of its workers' credit has lapsed.
    """

    session: str
    pool: str
    partition: int
    number: int
    grants: tuple[Grant, ...]
    backlog: int = 0
    seq: int = 0
    more: bool = False
    waiting: tuple[Waiting, ...] = ()
    running: int = 0


class WorkHinted(Record):
    """This partition has work of the pool, the session's interest, and no credit."""

    session: str
    pool: str
    partition: int
    backlog: int
    waiting: tuple[Waiting, ...] = ()
    running: int = 0


class WorkSeen(Record):
    """Answer to a RequestWork that asked for it: all grants up to `number` were sent before this.

    `held` are the executions that repeated claims still hold.
    """

    session: str
    pool: str
    partition: int
    seq: int
    number: int
    held: tuple[Grant, ...] = ()
    backlog: int = 0
    waiting: tuple[Waiting, ...] = ()
    running: int = 0


class DeadLetter(Record):
    """A given-up execution with payload and reason, for outside consumers."""

    at_ms: int
    execution: Execution
    content: Content


class PartitionStatus(Record):
    """Key `<partition>` on the compacted topic `status`: who runs a partition and how far it is."""

    partition: int
    owner: str
    state: str
    reason: str = ""
    position: int = 0
    lag: int = 0
    restore_remaining: int = 0
    tz_version: str = ""
    at_ms: int = 0


Reply = CommandDone | WorkDone | Granted | WorkHinted | WorkSeen
