"""What the state derives from its entities, against a model that looks at all of them."""

from __future__ import annotations

import random  # noqa: TID251 seeded
from collections import defaultdict
from collections.abc import Iterable, Sequence

from schemas.entities import Execution, Job, ScheduleKind, WaitingFor
from streams.core import keys
from streams.core.lifecycle import FINAL
from streams.core.state import State, first_execution_id
from streams.store.kv import KeyValue
from tests.unit.core.world import TENANT, World, compacted

INDEXES = (b"a", b"b", b"c", b"h", b"j", b"k", b"n", b"o", b"q", b"r", b"x", b"y")
ALL = 1_000_000
Log = Sequence[tuple[str, bytes | None]]


def indexes(store: KeyValue) -> list[tuple[bytes, bytes]]:
    return [entry for family in INDEXES for entry in store.scan(family, bytes((family[0] + 1,)))]


def in_any_order(log: Log, seed: int) -> Log:
    """The newest record of each key, in whatever order."""
    left = compacted(log, len(log))
    random.Random(seed).shuffle(left)
    return left


def check_unfinished(world: World, job_ids: Iterable[str]) -> None:
    """All that handlers ask of the unfinished executions of a job, and the entries behind the answers."""
    of_job: dict[str, list[Execution]] = defaultdict(list)
    for execution in world.executions():
        if execution.status not in FINAL:
            of_job[execution.job_id].append(execution)
    state = world.engine.state
    entries = 0
    for job_id in job_ids:
        _check_reads(state, job_id, of_job[job_id])
        entries += _check_entries(state, job_id, of_job[job_id])
    assert state.indexes.number(keys.unfinished_of_tenant(TENANT)) == entries


def _check_reads(state: State, job_id: str, unfinished: list[Execution]) -> None:
    waiting = [e for e in unfinished if e.waiting_for is WaitingFor.OVERLAP]
    assert state.has_open(TENANT, job_id) is bool(unfinished)
    assert state.active(TENANT, job_id) == len(unfinished) - len(waiting)
    found = state.open_executions(TENANT, job_id, ALL)
    assert sorted(e.execution_id for e in found) == [e.execution_id for e in unfinished]
    assert len(state.open_executions(TENANT, job_id, 1)) == min(1, len(unfinished))
    assert state.in_line(TENANT, job_id, ALL) == sum(not e.replays and not e.backfill for e in waiting)
    waiting.sort(key=lambda e: (e.scheduled_ms, e.execution_id))
    assert state.blocked(TENANT, job_id, ALL) == [e.execution_id for e in waiting]


def _check_entries(state: State, job_id: str, unfinished: list[Execution]) -> int:
    """There is one for each, except for a one-off's own execution while it is active; how many there are."""
    job = state.job(TENANT, job_id)
    counted = [e for e in unfinished if not _stands_alone(job, e)]
    prefix = keys.open_prefix(f"{TENANT}/{job_id}")
    entries = [key[len(prefix) + 1 :].decode() for key, _ in state.kv.scan(prefix, keys.after(prefix))]
    assert sorted(entries) == [e.execution_id for e in counted]
    if job is not None and len(counted) < len(unfinished):
        assert state.is_alone(job) is (not counted)
    return len(entries)


def _stands_alone(job: Job | None, execution: Execution) -> bool:
    return (
        job is not None
        and job.schedule.kind is ScheduleKind.ONCE
        and execution.execution_id == first_execution_id(job)
        and execution.waiting_for is not WaitingFor.OVERLAP
    )
