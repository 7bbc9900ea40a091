"""Jobs as the workload makes them up: any kind of schedule, any policy, drawn from the seed. No I/O."""

from __future__ import annotations

from typing import Any

from schemas.commands import ScheduleSpec
from schemas.entities import (
    Content,
    MisfirePolicy,
    OverlapPolicy,
    Policies,
    Priority,
    RetryJitter,
    RetryPolicy,
)
from streams.ambient import Chance
from streams.core.instants import format_instant

OVERRIDDEN = "free-"
"""Begins the ids of jobs whose executions may be asked for under another overlap policy: the checker of
overlap leaves those aside."""
SHARED_POOL = "shared/all"
POOLS = ("default", "extra", SHARED_POOL)
ZONES = ("UTC", "UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata")
_CRONS = (
    "*/10 * * * * *",
    "*/30 * * * * *",
    "7,41 * * * * *",
    "15 */2 * * * *",
    "* * * * *",
    "*/2 * * * *",
    "H/3 * * * *",
    "*/7 1-4 * * *",
    "H/4 2 * * *",
)


def schedule(chance: Chance, now_ms: int) -> ScheduleSpec:
    """Of a new job."""
    drawn = chance.random()
    if drawn < 0.35:
        return _one_off(chance, now_ms)
    bounds: dict[str, Any] = {}
    if chance.random() < 0.15:
        bounds["end_at"] = format_instant(now_ms // 1000 * 1000 + chance.randint(60, 400) * 1000)
    if chance.random() < 0.15:
        bounds["start_at"] = format_instant(now_ms // 1000 * 1000 + chance.randint(5, 60) * 1000)
    max_runs = chance.randint(1, 6) if chance.random() < 0.15 else None
    jitter_sec = chance.choice((1, 3, 20)) if chance.random() < 0.15 else None
    if drawn < 0.7:
        every_sec = chance.choice((3, 5, 8, 15, 30, 60))
        return ScheduleSpec(every_sec=every_sec, max_runs=max_runs, jitter_sec=jitter_sec, **bounds)
    return ScheduleSpec(
        cron=chance.choice(_CRONS),
        time_zone=chance.choice(ZONES),
        max_runs=max_runs,
        jitter_sec=jitter_sec,
        **bounds,
    )


def _one_off(chance: Chance, now_ms: int) -> ScheduleSpec:
    if chance.random() < 0.8:
        return ScheduleSpec(delay_sec=chance.choice((0, 0, 1, 2, 5, 20, 60)))
    return ScheduleSpec(run_at=format_instant(now_ms + chance.randint(-60_000, 60_000)))


def policies(chance: Chance) -> Policies:
    """Small numbers, so that retries, expiries and deadlines are reached within a run."""
    return Policies(
        priority=chance.choice(list(Priority)),
        retry=RetryPolicy(
            max_attempts=chance.randint(1, 4),
            backoff_base_sec=1,
            backoff_factor=chance.choice((1.0, 2.0, 3.0)),
            backoff_max_sec=chance.choice((1, 4, 10)),
            jitter=chance.choice(list(RetryJitter)),
        ),
        timeout_sec=chance.choice((2, 8, 20, 60)),
        lease_sec=chance.choice((1, 2, 4, 8)),
        max_deliveries=chance.randint(1, 4),
        misfire_window_sec=chance.choice((0, 20, 60, 86_400)),
        misfire=chance.choice(list(MisfirePolicy)),
        overlap=chance.choice(list(OverlapPolicy)),
        queue_limit=chance.randint(1, 3),
        max_concurrent=chance.choice((0, 1, 2, 3)),
        start_deadline_sec=chance.choice((0, 0, 0, 3, 15)),
        exclusion_group=chance.choice(("", "", "", "", "g1", "g2")),
        idempotency_key_template=chance.choice(("", "", "{jobId}:{scheduledTime:%H%M%S}")),
    )


def content(chance: Chance, name: str) -> Content:
    """A small payload."""
    return Content(name=name, task="task", payload=b'{"n":%d}' % chance.randint(0, 999))
