"""Overlap policies at every instant: no job has more executions running than its policy allows.

A job that was updated may have older executions under their own version's policy, so the loosest of the
versions in question counts. Jobs whose executions are asked for under another policy are left aside by name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from schemas.entities import ExecutionStatus, OverlapPolicy, Policies
from schemas.events import ExecutionEvent, JobEvent
from tests.simulation.history import Happened

UNBOUNDED = 1_000_000


def places(policies: Policies) -> int:
    """How many executions of a job may run at a time."""
    if policies.overlap is not OverlapPolicy.ALLOW:
        return 1
    return policies.max_concurrent or UNBOUNDED


def check_overlap(parts: Sequence[Sequence[Happened]], is_exempt: Callable[[str], bool]) -> Iterator[str]:
    """`is_exempt` of a job id: other policies were asked for with its triggers or backfills."""
    for part in parts:
        versions: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
        running: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
        for happened in part:
            event = happened.event
            if isinstance(event, JobEvent):
                job = event.job
                versions[job.tenant, job.job_id][job.version] = places(job.policies)
            if not isinstance(event, ExecutionEvent):
                continue
            execution = event.execution
            job_of = (execution.tenant, execution.job_id)
            now = running[job_of]
            if execution.status is not ExecutionStatus.RUNNING:
                now.pop(execution.execution_id, None)
                continue
            now[execution.execution_id] = execution.job_version
            oldest = min(now.values())
            most = max(many for version, many in versions[job_of].items() if version >= oldest)
            if len(now) > most and not is_exempt(execution.job_id):
                yield f"{happened.key}: runs beside {len(now) - 1} of its job, where {most} may at a time"
