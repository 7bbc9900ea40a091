"""Index entries and counters of executions and jobs: functions of the entities alone, also after compaction.

`State` calls `move` for every execution that changes, `move_job` for what tells whether a job lives, so
counters are exact across crashes and owners: what runs holds a slot until its worker was told or its lease
ended. Owns the reads that order grants, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import chain, islice

import msgspec

from schemas import ids
from schemas.entities import Cursor, Execution, ExecutionKind, ExecutionStatus, Job, WaitingFor
from streams.core import keys
from streams.core.counters import Counters
from streams.core.lifecycle import FINAL, JOB_FINAL
from streams.store.overlay import Overlay


class Standing(msgspec.Struct, frozen=True, gc=False):
    """What tells whether a job lives. `first`: a one-off's scheduled execution of this making of the job."""

    job: Job | None
    cursor: Cursor | None
    first: Execution | None


NO_JOB = Standing(None, None, None)


class Indexes:
    """Of one partition."""

    def __init__(self, kv: Overlay) -> None:
        self._kv = kv
        self.counters = Counters(kv)

    # -- reading

    def number(self, key: bytes) -> int:
        """What a counter says."""
        return self.counters.get(key)

    def runnable(
        self, pool_key: str, priority: str, tenant: str, limit: int, behind: bytes = b""
    ) -> list[tuple[bytes, str]]:
        """Keys and ids of pending executions that may be granted, by due time; only those `behind` a key."""
        prefix = keys.queue_prefix(pool_key, priority, tenant)
        found = self._kv.scan(behind + b"\x00" if behind else prefix, keys.after(prefix))
        return [(key, keys.queued_id(key, prefix)) for key, _ in islice(found, limit)]

    def waiting(self, pool_key: str, priority: str, behind: str = "") -> Iterator[tuple[str, int]]:
        """(tenant, how many are runnable) of a pool and priority: those behind a tenant by name, then the
        first ones. Nothing may be written before it is read."""
        owner = pool_key.partition("/")[0]
        if owner != ids.SHARED:  # of one tenant alone, and a scan costs ten times as much as a look
            count = self.number(keys.backlog(pool_key, priority, owner))
            if count:
                yield owner, count
            return
        first = keys.backlog(pool_key, priority, "")
        end = keys.after(first)
        middle = keys.backlog(pool_key, priority, behind) + b"\x00" if behind else end
        self.counters.show(keys.LINES)
        entries = self._kv.scan(first, middle)
        if behind:
            entries = chain(self._kv.scan(middle, end), entries)
        for key, waiting in entries:
            yield key[len(first) :].decode(), int.from_bytes(waiting, "big")

    def lines(self, behind: bytes, limit: int) -> list[tuple[bytes, str, str, str]]:
        """Key, pool, priority and tenant of what is runnable, behind a key; of all pools."""
        self.counters.show(keys.LINES)
        start = behind + b"\x00" if behind else keys.LINES
        found = islice(self._kv.scan(start, keys.after(keys.LINES)), limit)
        return [(key, *keys.split_line(key)) for key, _ in found]

    def waits_in(self, pool_key: str, tenant: str) -> bool:
        """Whether the tenant has runnable executions in the pool."""
        return any(self.number(keys.backlog(pool_key, p, tenant)) for p in keys.PRIORITIES)

    def running_of(self, tenant: str) -> int:
        """Running executions of a tenant in all pools."""
        return self.number(keys.running_of_tenant(tenant))

    def running_in(self, pool_key: str) -> int:
        """Running executions of a pool."""
        return self.number(keys.running_in_pool(pool_key))

    def running_of_in(self, tenant: str, pool_key: str) -> int:
        """Running executions of a tenant in a pool."""
        if not ids.is_shared(pool_key):
            return self.running_in(pool_key)
        return self.number(keys.running_in_shared(pool_key, tenant))

    def holds_group(self, group_key: str, besides: str) -> bool:
        """Whether an execution other than `besides` runs in an exclusion group (`<tenant>/<group>`)."""
        prefix = keys.group_prefix(group_key, keys.HOLDS)
        return any(
            key[len(prefix) :].decode() != besides for key, _ in self._kv.scan(prefix, keys.after(prefix))
        )

    def first_of_group(self, group_key: str, standing: bytes, pool: str) -> tuple[int, str] | None:
        """Due time and id of the earliest pending member in a pool: one that is called, or one that waits."""
        prefix = keys.group_pool_prefix(group_key, standing, pool)
        found = next(self._kv.scan(prefix, keys.after(prefix)), None)
        return None if found is None else keys.due_and_id(found[0], prefix)

    def pools_of_group(self, group_key: str) -> list[str]:
        """Pools in which members of an exclusion group wait for its slot."""
        prefix = keys.group_prefix(group_key, keys.WAITS)
        found: list[str] = []
        at = prefix
        while (entry := next(self._kv.scan(at, keys.after(prefix)), None)) is not None:
            found.append(keys.group_pool(entry[0], prefix))
            at = keys.after(keys.group_pool_prefix(group_key, keys.WAITS, found[-1]))
        return found

    def held_back(self, tenant: str, target: str, limit: int) -> list[str]:
        """Ids of executions that a breaker holds back, by due time."""
        prefix = keys.held_back_prefix(tenant, target)
        found = islice(self._kv.scan(prefix, keys.after(prefix)), limit)
        return [keys.queued_id(key, prefix) for key, _ in found]

    def jobs_of(self, tenant: str) -> int:
        """Jobs of a tenant that are ACTIVE or PAUSED."""
        return self.number(keys.jobs_of_tenant(tenant))

    def jobs_in(self, tenant: str, pool: str) -> int:
        """Those that have a pool as target."""
        return self.number(keys.jobs_in_pool(tenant, pool))

    # -- writing

    def move(self, old: Execution | None, new: Execution | None) -> None:
        """The execution changed, came, or is forgotten."""
        either = new or old
        if either is None:
            return
        if old is not None and old.status not in FINAL:
            self._place(old, None)
        if new is not None and new.status not in FINAL:
            self._place(new, b"")
        if either.kind is ExecutionKind.MANUAL and (old is None or new is None):
            kind = either.execution_id.rpartition(".")[2]
            entry = keys.manual(f"{either.tenant}/{either.job_id}", kind, either.execution_id)
            self._kv.put(entry, b"" if new is not None else None)

    def stand(self, execution: Execution, before: bytes | None, now: bytes | None) -> None:
        """It comes from one standing in its job to another; None: to where nothing counts it."""
        if before is now:
            return
        job_key = f"{execution.tenant}/{execution.job_id}"
        if before is not None:
            self._kv.put(keys.open_execution(job_key, before, execution.execution_id), None)
            self.counters.add(keys.unfinished(job_key), -_weight(before))
        if now is not None:
            self._kv.put(keys.open_execution(job_key, now, execution.execution_id), b"")
            self.counters.add(keys.unfinished(job_key), _weight(now))
        if before is None or now is None:
            self.counters.add(keys.unfinished_of_tenant(execution.tenant), 1 if before is None else -1)

    def _place(self, execution: Execution, value: bytes | None) -> None:
        """Puts or deletes what follows from what it does or waits for while it is not final."""
        tenant, counters = execution.tenant, self.counters
        change = -1 if value is None else 1
        if execution.waiting_for is WaitingFor.WORKER:
            prefix, backlog = _line(tenant, execution.pool, execution.priority)
            counters.add(backlog, change)
            entry: bytes | None = keys.queued(prefix, execution.due_ms, execution.execution_id)
        elif execution.status is ExecutionStatus.RUNNING:
            for counter in _running(tenant, execution.pool):
                counters.add(counter, change)
            entry = _claim(execution)
        else:
            entry = _set_aside(execution)
        if entry is not None:
            self._kv.put(entry, value)
        if execution.exclusion_group:
            member = _group_entry(execution)
            if member is not None:
                self._kv.put(member, value)

    def move_job(self, old: Standing, new: Standing) -> None:
        """What tells whether a job lives changed, came, or is forgotten; in any order, as compaction may
        leave it."""
        if old.first is not new.first:  # an active one is counted unless its job names it
            if old.first is not None and is_active(old.first):
                self.stand(old.first, None, keys.BUSY)
            if new.first is not None and is_active(new.first):
                self.stand(new.first, keys.BUSY, None)
        before, now = _living(old), _living(new)
        if before is not None and now is not None and before.pool == now.pool:
            return
        if before is not None:
            self.count_job(before, -1)
        if now is not None:
            self.count_job(now, 1)

    def count_job(self, job: Job, change: int) -> None:
        """The job lives from now on (1), or no longer (-1)."""
        self.counters.add(keys.jobs_of_tenant(job.tenant), change)
        self.counters.add(keys.jobs_in_pool(job.tenant, job.pool), change)


def _claim(running: Execution) -> bytes | None:
    """The entry by which it is found for the claim that it runs for."""
    if not running.claim_id:
        return None
    tenant = running.tenant
    owner = ids.pool_key(tenant, running.pool).partition("/")[0]
    return keys.claim(owner, running.worker_id, running.claim_id, tenant, running.execution_id)


def _set_aside(execution: Execution) -> bytes | None:
    """The entry of one that waits for something of its own."""
    tenant, execution_id = execution.tenant, execution.execution_id
    if execution.waiting_for is WaitingFor.OVERLAP:
        return keys.blocked(f"{tenant}/{execution.job_id}", execution.scheduled_ms, execution_id)
    if execution.waiting_for is WaitingFor.BREAKER:
        return keys.held_back(tenant, ids.target_of(execution), execution.due_ms, execution_id)
    return None


def _group_entry(execution: Execution) -> bytes | None:
    group_key = f"{execution.tenant}/{execution.exclusion_group}"
    if execution.status is ExecutionStatus.RUNNING:
        return keys.group_holder(group_key, execution.execution_id)
    standing = {WaitingFor.WORKER: keys.CALLED, WaitingFor.EXCLUSION: keys.WAITS}.get(execution.waiting_for)
    if standing is None:
        return None
    return keys.group_member(group_key, standing, execution.pool, execution.due_ms, execution.execution_id)


@lru_cache(maxsize=4_096)  # asked twice a run, and few pools are busy at a time
def _line(tenant: str, pool: str, priority: str) -> tuple[bytes, bytes]:
    """Where runnable executions stand: the prefix of their queue, and the counter of its entries."""
    pool_key = ids.pool_key(tenant, pool)
    return keys.queue_prefix(pool_key, priority, tenant), keys.backlog(pool_key, priority, tenant)


@lru_cache(maxsize=4_096)  # the same
def _running(tenant: str, pool: str) -> tuple[bytes, ...]:
    pool_key = ids.pool_key(tenant, pool)
    running = (keys.running_of_tenant(tenant), keys.running_in_pool(pool_key))
    return (*running, keys.running_in_shared(pool_key, tenant)) if pool_key == pool else running


def _living(standing: Standing) -> Job | None:
    """The job while it lives: until its own cursor or its first execution says that it is over."""
    job, cursor, first = standing.job, standing.cursor, standing.first
    if job is None or (first is not None and first.closes_job):
        return None
    if cursor is not None and cursor.incarnation == job.incarnation and cursor.status in JOB_FINAL:
        return None
    return job


def _weight(standing: bytes) -> int:
    return keys.ACTIVE if standing is keys.BUSY else keys.WAITING


def is_active(execution: Execution) -> bool:
    """Neither final nor waiting for another one of its job."""
    return standing_of(execution) is keys.BUSY


def standing_of(execution: Execution | None) -> bytes | None:
    """Where an unfinished execution stands in its job; None: it is final, or not there."""
    if execution is None or execution.status in FINAL:
        return None
    if execution.waiting_for is not WaitingFor.OVERLAP:
        return keys.BUSY
    outside = execution.replays or execution.backfill
    return keys.OUTSIDE if outside else keys.IN_LINE
