"""Index entries and counters of executions and jobs: functions of the entities alone, also after compaction.

`State` calls `move` for every execution that changes, `move_job` for every job, so counters are exact across
crashes and owners: what runs holds a slot until its worker was told or its lease ended. Owns the reads that
order grants, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import chain, islice

from schemas import ids
from schemas.entities import Cursor, Execution, ExecutionKind, ExecutionStatus, Job, WaitingFor
from streams.core import keys
from streams.core.invariants import invariant
from streams.core.lifecycle import FINAL, JOB_FINAL
from streams.store.overlay import Overlay


class Indexes:
    """Of one partition."""

    def __init__(self, kv: Overlay) -> None:
        self._kv = kv

    # -- reading

    def number(self, key: bytes) -> int:
        """A counter."""
        stored = self._kv.get(key)
        return int.from_bytes(stored, "big") if stored else 0

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
            return iter([(owner, count)] if count else [])
        first = keys.backlog(pool_key, priority, "")
        end = keys.after(first)
        middle = keys.backlog(pool_key, priority, behind) + b"\x00" if behind else end
        entries = self._kv.scan(first, middle)
        if behind:
            entries = chain(self._kv.scan(middle, end), entries)
        return ((key[len(first) :].decode(), int.from_bytes(count, "big")) for key, count in entries)

    def lines(self, behind: bytes, limit: int) -> list[tuple[bytes, str, str, str]]:
        """Key, pool, priority and tenant of what is runnable, behind a key; of all pools."""
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
        put = self._kv.put
        before = _entries(old) if old is not None else ()
        now = _entries(new) if new is not None else ()
        for key in before:
            if key not in now:
                put(key, None)
        for key in now:
            if key not in before:
                put(key, b"")
        counted_before = _counters(old) if old is not None else ()
        counted_now = _counters(new) if new is not None else ()
        for key in counted_before:
            if key not in counted_now:
                self._count(key, -1)
        for key in counted_now:
            if key not in counted_before:
                self._count(key, 1)

    def move_job(self, old: tuple[Job | None, Cursor | None], new: tuple[Job | None, Cursor | None]) -> None:
        """A job or its cursor changed, came, or is forgotten; in any order, as compaction may leave them."""
        before, now = _job_counters(*old), _job_counters(*new)
        if before != now:
            for key in before:
                self._count(key, -1)
            for key in now:
                self._count(key, 1)

    def _count(self, key: bytes, change: int) -> None:
        count = self.number(key) + change
        invariant(count >= 0, f"the counter {key!r} is negative")
        self._kv.put(key, count.to_bytes(8, "big") if count else None)


def _entries(execution: Execution) -> tuple[bytes, ...]:
    """The index entries that follow from an execution."""
    found = _open_entries(execution)
    if execution.exclusion_group:
        found = (*found, *_group_entries(execution))
    if execution.kind is ExecutionKind.MANUAL:
        job_key = f"{execution.tenant}/{execution.job_id}"
        kind = execution.execution_id.rpartition(".")[2]
        found = (*found, keys.manual(job_key, kind, execution.execution_id))
    return found


def _group_entries(execution: Execution) -> tuple[bytes, ...]:
    group_key = f"{execution.tenant}/{execution.exclusion_group}"
    if execution.status is ExecutionStatus.RUNNING:
        return (keys.group_holder(group_key, execution.execution_id),)
    standing = {WaitingFor.WORKER: keys.CALLED, WaitingFor.EXCLUSION: keys.WAITS}.get(execution.waiting_for)
    if standing is None:
        return ()
    member = keys.group_member(group_key, standing, execution.pool, execution.due_ms, execution.execution_id)
    return (member,)


def _open_entries(execution: Execution) -> tuple[bytes, ...]:
    if execution.status in FINAL:
        return ()
    tenant, execution_id = execution.tenant, execution.execution_id
    job_key = f"{tenant}/{execution.job_id}"
    is_open = keys.open_execution(job_key, _standing(execution), execution_id)
    if execution.status is ExecutionStatus.RUNNING:
        if not execution.claim_id:
            return (is_open,)
        owner = ids.pool_key(tenant, execution.pool).partition("/")[0]
        return (is_open, keys.claim(owner, execution.worker_id, execution.claim_id, tenant, execution_id))
    if execution.waiting_for is WaitingFor.WORKER:
        pool_key = ids.pool_key(tenant, execution.pool)
        return (is_open, keys.queue(pool_key, execution.priority, tenant, execution.due_ms, execution_id))
    if execution.waiting_for is WaitingFor.OVERLAP:
        return (is_open, keys.blocked(job_key, execution.scheduled_ms, execution_id))
    if execution.waiting_for is WaitingFor.BREAKER:
        target = ids.target_of(execution)
        return (is_open, keys.held_back(tenant, target, execution.due_ms, execution_id))
    return (is_open,)


def _counters(execution: Execution) -> tuple[bytes, ...]:
    """The counters that an execution is part of."""
    if execution.status in FINAL:
        return ()
    tenant = execution.tenant
    job_key = f"{tenant}/{execution.job_id}"
    if execution.waiting_for is WaitingFor.OVERLAP:
        return (keys.waiting(job_key),)
    active = keys.active(job_key)
    if execution.waiting_for is WaitingFor.WORKER:
        return (active, keys.backlog(ids.pool_key(tenant, execution.pool), execution.priority, tenant))
    if execution.status is ExecutionStatus.RUNNING:
        return (active, *_running(tenant, execution.pool))
    return (active,)


@lru_cache(maxsize=4_096)  # asked twice a run, and few pools are busy at a time
def _running(tenant: str, pool: str) -> tuple[bytes, ...]:
    pool_key = ids.pool_key(tenant, pool)
    running = (keys.running_of_tenant(tenant), keys.running_in_pool(pool_key))
    return (*running, keys.running_in_shared(pool_key, tenant)) if pool_key == pool else running


def _job_counters(job: Job | None, cursor: Cursor | None) -> tuple[bytes, ...]:
    """The counters that a job is part of while it lives; one without a cursor of its own stands at its
    beginning."""
    if job is None:
        return ()
    if cursor is not None and cursor.incarnation == job.incarnation and cursor.status in JOB_FINAL:
        return ()
    return (keys.jobs_of_tenant(job.tenant), keys.jobs_in_pool(job.tenant, job.pool))


def _standing(execution: Execution) -> bytes:
    if execution.waiting_for is not WaitingFor.OVERLAP:
        return keys.BUSY
    outside = execution.replays or execution.backfill
    return keys.OUTSIDE if outside else keys.IN_LINE
