"""New time zone data: jobs whose next occurrence it moves are recomputed, a few at a time (semantics §3).

From older data to newer only. The pass remembers where it is, so a restart goes on there, unless the
partition was elsewhere meanwhile. The meta takes the new version when it is through. Jobs that the data do
not move are not touched.
"""

from __future__ import annotations

from itertools import islice

from schemas.entities import Job, JobStatus, ScheduleKind
from streams.core import keys
from streams.core.handlers.scheduling import shift
from streams.core.lifecycle import JOB_FINAL
from streams.core.transaction import Transaction
from streams.core.zones import TZ_VERSION

JOBS_PER_PASS = 100
"""Low priority: some milliseconds of a pass that had time to spare."""

_JOBS = (keys.entity("job:"), keys.after(keys.entity("job:")))


def recompute_some(tx: Transaction) -> bool:
    """One part of the pass; True if there are jobs left. Each tenant is told once, when it is through."""
    start, end = _JOBS
    tenant, count = "", 0
    position = tx.state.kv.get(keys.REZONED_TO)
    if position is not None:
        last, _, shifts = position.partition(b"\x00")
        start, tenant, count = last + b"\x00", _job_of(last)[0], int(shifts)
    found = [key for key, _ in islice(tx.state.kv.scan(start, end), JOBS_PER_PASS)]
    for key in found:
        owner, job_id = _job_of(key)
        if owner != tenant:
            _tell(tx, tenant, count)
            tenant, count = owner, 0
        job = tx.state.job(owner, job_id)
        if job is not None and job.schedule.kind is ScheduleKind.CRON:
            count += _recompute(tx, job)
    if len(found) == JOBS_PER_PASS:
        tx.state.kv.put(keys.REZONED_TO, found[-1] + b"\x00" + str(count).encode())
        return True
    _tell(tx, tenant, count)
    tx.state.kv.put(keys.REZONED_TO, None)
    return False


def start_over(tx: Transaction) -> None:
    """An owner with older data may have planned jobs that the pass had been at already."""
    tx.state.kv.put(keys.REZONED_TO, None)


def _job_of(key: bytes) -> tuple[str, str]:
    tenant, _, job_id = key[len(_JOBS[0]) :].decode().partition("/")
    return tenant, job_id


def _tell(tx: Transaction, tenant: str, count: int) -> None:
    if count:
        detail = f"time zone data {TZ_VERSION} moved the next occurrence of {count} jobs"
        tx.alert("tz_shift", tenant, detail, count=count)


def _recompute(tx: Transaction, job: Job) -> bool:
    """Whether its next occurrence moved."""
    cursor = tx.state.cursor(job)
    if cursor.status in JOB_FINAL or cursor.tz_version >= TZ_VERSION:
        return False
    if cursor.status is JobStatus.ACTIVE and (cursor.next_due_ms or cursor.next_ms) <= tx.now_ms:
        return False  # promised and due: it is settled as it stands, and the next one follows the new data
    return shift(tx, job, cursor) is not cursor
