"""Properties of jobs whose owners have older and newer zone data by turns: a cursor's next occurrence is one
by the data that it names, all is accounted for, and what is to come goes by the newest in the end.

Kept misfires are made at once here: what other data than those that kept them find in a range is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from projections.checker.oracle import Oracle
from schemas import ids
from schemas.commands import MissedInPause
from schemas.entities import JobStatus, MisfirePolicy, OverlapPolicy
from tests.simulation import zone_data
from tests.simulation.zone_data import INSTALLED, NEWER
from tests.unit.core.test_mixed_zone_data import ZONE, judge, owned_by, world_at
from tests.unit.core.world import TENANT, World

ORACLE = Oracle(zone_data.info)
CRONS = ["0 9 * * *", "*/2 * * * *", "0 */2 * * *", "0-20,30 * * * *", "*/5 0-10,26-40 * * * *"]
MISSED = {"skip": MissedInPause.SKIP, "once": MissedInPause.FIRE_ONCE, "all": MissedInPause.FIRE_ALL}
ACTIONS = ["wait", "outage", "older", "newer", "pause", *MISSED, "update", "replace", "cancel next"]
STEPS_SEC = [1, 5, 30, 70, 150, 900, 3_600]
Action = tuple[str, int]


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    yield
    zone_data.use(INSTALLED)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@example(
    cron="*/2 * * * *",
    minute=1,
    jitter_sec=0,
    misfire=MisfirePolicy.FIRE_ONCE,
    actions=[("newer", 1), ("wait", 1), ("outage", 900), ("older", 1)],
    cancelled=True,
)
@given(
    cron=st.sampled_from(CRONS),
    minute=st.integers(0, 59),
    jitter_sec=st.sampled_from([0, 40]),
    misfire=st.sampled_from(MisfirePolicy),
    actions=st.lists(st.tuples(st.sampled_from(ACTIONS), st.sampled_from(STEPS_SEC)), max_size=12),
    cancelled=st.booleans(),
)
def test_owners_with_older_and_newer_zone_data_by_turns(
    cron: str,
    minute: int,
    jitter_sec: int,
    misfire: MisfirePolicy,
    actions: list[Action],
    cancelled: bool,
) -> None:
    definition: dict[str, Any] = {
        "cron": cron,
        "jitter_sec": jitter_sec,
        "misfire": misfire,
        "overlap": OverlapPolicy.ALLOW,
        "max_concurrent": 10_000,
    }
    world = world_at(f"2026-05-01T03:{minute:02}:10Z", **definition)
    for action, step_sec in actions:
        _act(world, action, step_sec, definition)
    if cancelled:
        world.cancel_job()
    owned_by(world, NEWER, run=True)
    world.until(world.now_ms + 1_000)
    judge(world)
    job, cursor = world.engine.state.job(TENANT, "job-1"), world.cursor()
    assert job is not None
    if cursor.status is JobStatus.ACTIVE:
        next_ms = cursor.next_ms
        assert ORACLE.between(job.schedule, next_ms - 1, next_ms, NEWER) == [next_ms]


def _act(world: World, action: str, step_sec: int, definition: dict[str, Any]) -> None:
    match action:
        case "wait":
            world.until(world.now_ms + step_sec * 1000)
        case "outage":
            world.now_ms += step_sec * 1000
        case "older" | "newer":
            owned_by(world, INSTALLED if action == "older" else NEWER, run=step_sec > 60)
        case "pause":
            world.pause()
        case "update" | "replace":
            job = world.engine.state.job(TENANT, "job-1")
            assert job is not None
            changed = (
                {**definition, "cron": CRONS[step_sec % len(CRONS)]} if action == "replace" else definition
            )
            payload = str(job.version).encode()
            world.update(job.version, time_zone=ZONE, payload=payload, **changed)
        case "cancel next":
            job = world.engine.state.job(TENANT, "job-1")
            assert job is not None
            next_ms = world.cursor().next_ms
            world.cancel(ids.scheduled_execution_id(job.job_id, job.incarnation, next_ms))
        case _:
            world.resume(missed=MISSED[action])
