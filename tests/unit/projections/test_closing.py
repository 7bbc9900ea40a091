"""The read model shows a job that its execution's end completed as an event of its own would have it."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest
from sqlalchemy import Connection

from projections.queries import JobFilter, get_job, job_events, list_executions, list_jobs
from projections.store import Store
from projections.views import EventView, JobView, PageRequest
from schemas.commands import RegisterMode
from schemas.entities import JobStatus
from streams.core.handlers import ending
from streams.transport.log import Record
from tests.unit.core.world import TENANT, World
from tests.unit.projections.story import TOPIC, fold

NEVER = patch.object(ending, "closes_job", lambda tx, job, execution: False)


def story(makings: int) -> list[Record]:
    """Jobs that ran, one made anew as often as told, and one whose payload stays out of the history."""
    world = World()
    for _ in range(makings):
        world.register(mode=RegisterMode.PUT, delay_sec=10, jitter_sec=2)
        world.register("other", mode=RegisterMode.PUT, run_at="2026-05-01T02:00:10", time_zone="Europe/Paris")
        world.until(world.now_ms + 20_000)
        for grant in world.claim("A", 2):
            world.complete(grant)
        world.until(world.now_ms + 5_000)
    return [
        Record(TOPIC, 0, offset, world.start_ms, key.encode(), value, {})
        for offset, (key, value) in enumerate(world.log)
    ]


def shown(tmp_path: Path, records: list[Record], size: int, job_id: str) -> tuple[JobView, list[EventView]]:
    store = Store(f"sqlite:///{tmp_path / 'read.db'}")
    store.recreate()
    fold(store, records, size)
    with store.reading() as db:
        view = get_job(db, TENANT, job_id)
        events: list[EventView] = []
        page = job_events(db, TENANT, job_id, PageRequest(1))
        events += page.items
        while page.next_token:
            page = job_events(db, TENANT, job_id, PageRequest(1, page.next_token))
            events += page.items
        assert tuple(events) == job_events(db, TENANT, job_id).items
    store.close()
    assert view is not None
    return view.view, events


@pytest.mark.parametrize("size", [1, 3, 1_000])
@pytest.mark.parametrize("makings", [1, 2])
@pytest.mark.parametrize("job_id", ["job-1", "other"])
def test_it_shows_what_an_event_of_the_job_would(
    tmp_path: Path, size: int, makings: int, job_id: str
) -> None:
    records = story(makings)
    with NEVER:
        longer = story(makings)
    assert len(records) < len(longer)
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    derived, events = shown(tmp_path / "one", records, size, job_id)
    stored, others = shown(tmp_path / "two", longer, size, job_id)
    assert derived == stored
    assert [(each.type, each.at_ms, each.actor, each.cause, each.changes) for each in events] == [
        (each.type, each.at_ms, each.actor, each.cause, each.changes) for each in others
    ]


def test_job_and_execution_on_either_database(store: Store, db: Connection) -> None:
    fold(store, story(1))
    assert {view.execution.closes_job for view in list_executions(db, TENANT).items} == {True}
    assert {view.status for view in list_jobs(db, TENANT).items} == {JobStatus.COMPLETED}
    assert list_jobs(db, TENANT, JobFilter(statuses=(JobStatus.ACTIVE,))).items == ()


def test_a_completion_whose_definition_is_not_kept_any_more(tmp_path: Path) -> None:
    """It was registered long before it ran."""
    records = [each for each in story(1) if not (each.key or b"").startswith(b"job:")]
    store = Store(f"sqlite:///{tmp_path / 'read.db'}")
    store.recreate()
    fold(store, records)
    with store.reading() as db:
        (event,) = job_events(db, TENANT, "job-1").items
    store.close()
    assert (event.type, event.entity, event.changes["status"]) == (
        "JobCompleted",
        "Cursor",
        (None, "COMPLETED"),
    )
