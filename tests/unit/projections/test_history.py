"""What happened, event by event, and what each event changed."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection, select

from projections.history_tables import history
from projections.queries import execution_events, job_events
from projections.store import Store
from projections.views import EventView, PageRequest
from schemas import codec
from schemas.entities import Content
from schemas.events import JobRegistered
from tests.unit.projections.story import MINUTE, T0, TENANT, Story, cursor_of, fold, job


def test_events_of_an_execution(store: Store, db: Connection) -> None:
    story = Story(partition=3, first_offset=100)
    execution = story.claim(story.fire(story.register(job("a")), T0 + MINUTE), "w7")
    story.beat(execution, T0 + 3 * MINUTE)
    story.beat(execution, T0 + 4 * MINUTE)
    story.complete(execution)
    fold(store, story.records)

    events = execution_events(db, TENANT, execution.execution_id).items
    # Every second offset is a transaction's marker.
    assert [(each.type, each.entity, each.partition, each.offset) for each in events] == [
        ("ExecutionCompleted", "Execution", 3, 110),
        ("LeaseExtended", "Lease", 3, 108),
        ("LeaseExtended", "Lease", 3, 106),
        ("ExecutionClaimed", "Execution", 3, 104),
        ("ExecutionFired", "Execution", 3, 102),
    ]
    completed, beat, _, claimed, fired = events
    assert completed.changes["status"] == ("RUNNING", "COMPLETED")
    assert "workerId" not in completed.changes
    assert beat.changes == {"untilMs": (T0 + 3 * MINUTE, T0 + 4 * MINUTE)}
    assert claimed.changes["workerId"] == ("", "w7")
    assert fired.changes["status"] == (None, "PENDING")
    assert "workerId" not in fired.changes
    assert (completed.at_ms, completed.actor, completed.cause) == (story.now_ms, "ann", "commands@7#c")


@pytest.mark.parametrize("size", [1, 2, 5])
def test_what_changed_does_not_depend_on_the_page(store: Store, db: Connection, size: int) -> None:
    story = Story()
    execution = story.claim(story.fire(story.register(job("a")), T0 + MINUTE))
    story.beat(execution, T0 + 3 * MINUTE)
    execution = story.claim(story.expire(execution))
    story.beat(execution, T0 + 4 * MINUTE)
    story.complete(execution)
    fold(store, story.records)

    paged: list[EventView] = []
    request = PageRequest(size)
    while True:
        page = execution_events(db, TENANT, execution.execution_id, request)
        paged += page.items
        if not page.next_token:
            break
        request = PageRequest(size, page.next_token)
    assert tuple(paged) == execution_events(db, TENANT, execution.execution_id).items


def test_events_of_a_job_are_its_definition_and_cursor(store: Store, db: Connection) -> None:
    story = Story()
    made = story.register(job("a"))
    story.move(cursor_of(made, next_ms=T0 + MINUTE))
    story.fire(made, T0 + MINUTE)
    story.move(cursor_of(made, next_ms=T0 + 2 * MINUTE))
    story.register(job("a", version=2, task="other"))
    fold(store, story.records)

    events = job_events(db, TENANT, "a").items
    assert [each.type for each in events] == ["JobRegistered", "CursorMoved", "CursorMoved", "JobRegistered"]
    assert set(events[0].changes) == {"version", "content"}
    assert events[1].changes == {"nextMs": (T0 + MINUTE, T0 + 2 * MINUTE)}


def test_a_job_named_like_an_execution(store: Store, db: Connection) -> None:
    story = Story()
    execution = story.fire(job("a"), T0)
    story.register(job(execution.execution_id))
    fold(store, story.records)
    assert [each.type for each in execution_events(db, TENANT, execution.execution_id).items] == [
        "ExecutionFired"
    ]
    assert [each.type for each in job_events(db, TENANT, execution.execution_id).items] == ["JobRegistered"]


def test_history_keeps_no_payload(store: Store, db: Connection) -> None:
    story = Story()
    made = story.register(job("a", payload=b"confidential"))
    execution = story.fire(made, T0, key="k")
    story.keep(execution, Content(name="a", task="work", payload=b"confidential"))
    fold(store, story.records)

    values = db.execute(select(history.c.value)).scalars().all()
    assert len(values) == 3
    assert not any(b"confidential" in value for value in values)
    registered = codec.decode(values[0])
    assert isinstance(registered, JobRegistered)
    assert registered.job.job_id == "a"


def test_another_tenants_events_are_not_there(store: Store, db: Connection) -> None:
    story = Story()
    execution = story.fire(story.register(job("a", tenant="other")), T0)
    fold(store, story.records)
    assert job_events(db, TENANT, "a").items == ()
    assert execution_events(db, TENANT, execution.execution_id).items == ()
