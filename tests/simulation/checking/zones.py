"""Time zone data that change: what is to come goes by the newest, wherever it was planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from projections.checker.oracle import Oracle
from schemas.entities import Cursor, Job, JobStatus, ScheduleKind
from schemas.events import JobEvent
from tests.simulation.history import Happened


def check_zones(part: Sequence[Happened], oracle: Oracle, version: str, now_ms: int) -> Iterator[str]:
    """One partition, when its owner has had these data for a while. What is due by now stands."""
    jobs: dict[str, Job] = {}
    cursors: dict[str, Cursor | None] = {}
    for happened in part:
        kind, _, name = happened.key.partition(":")
        if isinstance(happened.event, JobEvent):
            jobs[name] = happened.event.job
        elif kind == "cursor":
            cursors[name] = getattr(happened.event, "cursor", None)
    for name, cursor in cursors.items():
        job = jobs.get(name)
        if cursor is None or job is None or job.schedule.kind is not ScheduleKind.CRON:
            continue
        next_ms = cursor.next_ms
        if cursor.status is not JobStatus.ACTIVE or next_ms <= now_ms:
            continue
        if not oracle.between(job.schedule, next_ms - 1, next_ms, version):
            yield f"cursor:{name}: next at {next_ms}, which is no occurrence by zone data {version}"
