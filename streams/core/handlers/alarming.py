"""Alerts that time brings, and that are not told where something happens."""

from __future__ import annotations

from schemas.entities import Execution
from streams.core.instants import format_instant
from streams.core.limits import DEAD_LETTER_FORGET_AFTER_MS
from streams.core.transaction import Transaction


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
