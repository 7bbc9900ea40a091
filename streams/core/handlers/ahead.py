"""Occurrences that have an execution before their time: each was cancelled as the next one, and an update of
the schedule came to it again. It is done with, so it is neither made, nor skipped, nor a run.

One that is on time is found by its id (`scheduling`). Here are the spans between them, so that many missed
ones are still decided in one step.
"""

from __future__ import annotations

from schemas import ids
from schemas.entities import Job
from streams.core import keys
from streams.core.transaction import Transaction


def open_spans(tx: Transaction, job: Job, after_ms: int, upto_ms: int) -> list[tuple[int, int]]:
    """(after, upto] without the instants that have an execution, newest first."""
    spans: list[tuple[int, int]] = []
    for instant in reversed(_known(tx, job, after_ms + 1, upto_ms)):
        spans.append((instant, upto_ms))
        upto_ms = instant - 1
    spans.append((after_ms, upto_ms))
    return spans


def _known(tx: Transaction, job: Job, from_ms: int, to_ms: int) -> list[int]:
    """Instants with an execution of the schedule, ascending. Without an update there are none."""
    if job.version == job.first_version:
        return []
    prefix = keys.entity(ids.execution_key(job.tenant, ids.of_incarnation(job.job_id, job.incarnation)))
    begin, end = (prefix + ids.base36(instant).encode() for instant in (from_ms, to_ms))
    if len(begin) == len(end):
        found = tx.state.kv.scan(begin, keys.after(end))
    else:  # with more digits a later instant stands before an earlier one
        found = tx.state.kv.scan(prefix, keys.after(prefix))
    told = (ids.scheduled_instant(key[len(prefix) :].decode()) for key, _ in found)
    return sorted(instant for instant in told if instant is not None and from_ms <= instant <= to_ms)
