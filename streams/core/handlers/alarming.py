"""Alerts that time brings, and that are not told where something happens."""

from __future__ import annotations

from schemas import ids
from schemas.entities import Execution, LeaseEnd
from streams.core.caps import PoolCaps
from streams.core.instants import format_instant
from streams.core.late import Subject
from streams.core.limits import DEAD_LETTER_FORGET_AFTER_MS
from streams.core.state import late_from_ms
from streams.core.transaction import Transaction

LINES_PER_PASS = 100
"""Tenants and priorities of pools that one pass over what is pending looks at."""
COUNTED_MAX = 100
"""Late ones of a line that are counted: that there are many is all that a person needs to know."""
LEAST_MS = 1_000
"""The least that anybody can ask to be told of."""


def warn_of_expiry(tx: Transaction, execution: Execution, alarm_ms: int) -> None:
    """A dead letter that nobody dealt with is forgotten in a week."""
    ends = format_instant(execution.finished_ms + DEAD_LETTER_FORGET_AFTER_MS)
    tx.alert(
        "dead_letter",
        execution.tenant,
        f"{execution.execution_id} is still in the dead letters, and will be forgotten at {ends}",
        job_id=execution.job_id,
        execution_id=execution.execution_id,
        target=f"pool:{execution.pool}",
        about_ms=alarm_ms,
    )


def note_start(tx: Transaction, execution: Execution) -> None:
    """It is about to be granted for the first time in this attempt, perhaps too late. `execution`: before."""
    late_ms = tx.now_ms - late_from_ms(execution)
    if execution.delivery_count or execution.lease_end is LeaseEnd.RELEASED or late_ms <= LEAST_MS:
        return
    sec = execution.lateness_alert_sec or tx.router.settings_of(execution.tenant).lateness_alert_sec
    if late_ms > sec * 1_000:
        _tell(tx, _subject(execution), tx.guards.late.add(_subject(execution), tx.now_ms), late_ms)


def tell_of_pending(tx: Transaction, execution: Execution) -> None:
    """A job wants to be told as soon as an execution is late; it still waits, for whatever it may be."""
    subject = _subject(execution)
    count = tx.guards.late.add(subject, tx.now_ms)
    _tell(tx, subject, count, tx.now_ms - late_from_ms(execution))


def sweep(tx: Transaction, position: bytes) -> bytes:
    """One part of a pass over the heads of all queues; where the next goes on, empty when it is through.

    Pools and tenants that someone paused are late on purpose.
    """
    lines = tx.state.indexes.lines(position, LINES_PER_PASS)
    for _, pool_key, priority, tenant in lines:
        _look_at_line(tx, pool_key, priority, tenant)
    if len(lines) == LINES_PER_PASS:
        return lines[-1][0]
    for subject, count in tx.guards.late.overdue(tx.now_ms):
        _tell(tx, subject, count, 0)
    return b""


def _look_at_line(tx: Transaction, pool_key: str, priority: str, tenant: str) -> None:
    settings = tx.router.settings_of(tenant)
    late_before_ms = tx.now_ms - settings.lateness_alert_sec * 1_000
    subject = Subject(tenant, "", f"pool:{ids.pool_of(pool_key)}")
    if not tx.guards.late.may_tell(subject, tx.now_ms):
        return
    if settings.paused or PoolCaps(tx.router, pool_key, tx.partition).paused:
        return
    late = []
    for _, execution_id in tx.state.indexes.runnable(pool_key, priority, tenant, COUNTED_MAX):
        execution = tx.state.execution(tenant, execution_id)
        if execution is None or execution.due_ms >= late_before_ms:
            break  # the others are due later
        if not execution.lateness_alert_sec and not execution.delivery_count:
            late.append(late_from_ms(execution))
    late = [from_ms for from_ms in late if from_ms < late_before_ms]
    if late:
        count = tx.guards.late.add(subject, tx.now_ms, len(late))
        _tell(tx, subject, count, tx.now_ms - min(late))


def _subject(execution: Execution) -> Subject:
    job_id = execution.job_id if execution.lateness_alert_sec else ""
    return Subject(execution.tenant, job_id, ids.target_of(execution))


def _tell(tx: Transaction, subject: Subject, count: int, late_ms: int) -> None:
    if not count:
        return
    whose = f"job {subject.job_id}" if subject.job_id else subject.target
    how_much = f", one by {late_ms // 1_000} s" if late_ms else ""
    tx.alert(
        "lateness",
        subject.tenant,
        f"{whose}: {count} executions are late{how_much}",
        job_id=subject.job_id,
        target=subject.target,
        count=count,
    )
