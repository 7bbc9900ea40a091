"""Executions: the newest state, every grant, payloads, and the next occurrence that is not fired yet."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from sqlalchemy import Connection

from projections.executions import BORN_WITH
from projections.queries import ExecutionFilter, get_execution, list_executions
from projections.store import Store
from projections.views import Attempt, ExecutionDetail
from schemas import codec, ids
from schemas.entities import (
    Content,
    Execution,
    ExecutionKind,
    ExecutionStatus,
    Job,
    JobStatus,
    LeaseEnd,
)
from schemas.events import ExecutionEvent, JobCancelled, JobCompleted, JobPaused
from tests import golden_log
from tests.unit.projections.story import MINUTE, ONCE, T0, TENANT, Story, cursor_of, fold, job


def found(db: Connection, execution_id: str) -> ExecutionDetail:
    detail = get_execution(db, TENANT, execution_id)
    assert detail is not None
    return detail


def ended(detail: ExecutionDetail) -> list[tuple[int, int, LeaseEnd, str]]:
    return [(one.lease_epoch, one.attempt, one.lease_end, one.error) for one in detail.attempts]


def next_id(made: Job, scheduled_ms: int = T0 + MINUTE) -> str:
    return ids.scheduled_execution_id(made.job_id, made.incarnation, scheduled_ms)


@pytest.mark.parametrize("size", [1, 1_000])
def test_an_execution_from_due_to_done(store: Store, db: Connection, size: int) -> None:
    story = Story()
    made = story.register(job("a", labels={"team": "x"}))
    claimed = story.claim(story.fire(made, T0 + MINUTE), "w7")
    done = story.complete(claimed)
    fold(store, story.records, size)

    detail = found(db, done.execution_id)
    assert detail.view.execution == done
    assert (detail.view.name, detail.view.task, detail.view.labels) == ("a", "work", {"team": "x"})
    assert (detail.view.virtual, detail.content, detail.policies) == (False, made.content, made.policies)
    assert detail.attempts == (
        Attempt(
            lease_epoch=1,
            attempt=1,
            delivery_count=1,
            fencing_token=claimed.fencing_token,
            worker_id="w7",
            claimed_ms=claimed.started_ms,
            ended_ms=done.finished_ms,
            lease_end=LeaseEnd.COMPLETED,
            error="",
            reported="",
        ),
    )


@pytest.mark.parametrize("size", [1, 3, 1_000])
def test_every_grant_has_a_row(store: Store, db: Connection, size: int) -> None:
    """What ended a lease stays in the entity, also while the next one runs: each grant keeps its own."""
    story = Story()
    made = story.register(job("a"))
    execution = story.fire(made, T0 + MINUTE)
    execution = story.ready(story.fail(story.claim(execution), error="first"))
    execution = story.expire(story.claim(execution))
    execution = story.release(story.claim(execution))
    execution = story.bury(story.claim(execution), error="last")
    execution = story.claim(story.replay(execution))
    fold(store, story.records, size)

    assert ended(found(db, execution.execution_id)) == [
        (1, 1, LeaseEnd.FAILED, "first"),
        (2, 2, LeaseEnd.EXPIRED, ""),
        (3, 2, LeaseEnd.RELEASED, ""),
        (4, 2, LeaseEnd.FAILED, "last"),
        (5, 1, LeaseEnd.NONE, ""),
    ]


def test_a_cancelled_wait_leaves_the_ended_grant_alone(store: Store, db: Connection) -> None:
    story = Story()
    execution = story.fail(story.claim(story.fire(story.register(job("a")), T0 + MINUTE)))
    failed_ms = story.now_ms
    execution = story.cancel(execution)
    fold(store, story.records, 1)
    (grant,) = found(db, execution.execution_id).attempts
    assert (grant.lease_end, grant.ended_ms) == (LeaseEnd.FAILED, failed_ms)


def test_an_outcome_after_the_cancel_is_kept_in_the_attempt(store: Store, db: Connection) -> None:
    story = Story()
    execution = story.ask_to_cancel(story.claim(story.fire(story.register(job("a")), T0 + MINUTE)))
    fold(store, story.records, 1)
    assert ended(found(db, execution.execution_id)) == [(1, 1, LeaseEnd.NONE, "")]
    db.rollback()

    story.cancel(execution, reported="COMPLETED")
    fold(store, story.records, 1)
    (grant,) = found(db, execution.execution_id).attempts
    assert (grant.lease_end, grant.reported) == (LeaseEnd.CANCELLED, "COMPLETED")


def test_heartbeats_move_the_lease_of_their_epoch(store: Store, db: Connection) -> None:
    story = Story()
    execution = story.claim(story.fire(story.register(job("a")), T0 + MINUTE))
    story.beat(execution, T0 + 7 * MINUTE, b"50 %")
    fold(store, story.records)
    view = found(db, execution.execution_id).view
    assert (view.lease_until_ms, view.progress) == (T0 + 7 * MINUTE, b"50 %")
    db.rollback()

    again = story.claim(story.expire(execution))
    fold(store, story.records)
    view = found(db, execution.execution_id).view
    assert (view.lease_until_ms, view.progress) == (again.lease_until_ms, b"")


def test_a_payload_of_its_own(store: Store, db: Connection) -> None:
    story = Story()
    made = story.register(job("a"))
    execution = story.fire(made, T0, key="trigger")
    story.keep(execution, replace(made.content, payload=b'"mine"'))
    fold(store, story.records)
    assert found(db, execution.execution_id).content.payload == b'"mine"'


def test_an_execution_shows_the_definition_it_was_fired_with(store: Store, db: Connection) -> None:
    story = Story()
    old = story.register(job("a", task="old", labels={"v": "1"}))
    first = story.complete(story.claim(story.fire(old, T0 + MINUTE)))
    newer = story.register(job("a", version=2, task="newer", labels={"v": "2"}))
    second = story.fire(newer, T0 + 2 * MINUTE)
    anew = story.register(job("a", incarnation=T0 + 1, task="anew", labels={"v": "3"}))
    third = story.fire(anew, T0 + MINUTE)
    fold(store, story.records)

    fired = {execution.execution_id: task for execution, task in
             [(first, "old"), (second, "newer"), (third, "anew")]}  # fmt: skip
    assert {each: found(db, each).view.task for each in fired} == fired
    assert len(list_executions(db, TENANT, ExecutionFilter(job_id="a")).items) == 3
    one = list_executions(db, TENANT, ExecutionFilter(labels={"v": "1"})).items
    assert [view.execution.execution_id for view in one] == [first.execution_id]


def test_the_next_occurrence_is_an_execution_until_it_is_fired(store: Store, db: Connection) -> None:
    story = Story()
    made = story.register(job("a", labels={"team": "x"}))
    fold(store, story.records)

    detail = found(db, next_id(made))
    assert detail.view.virtual
    assert detail.view.execution == Execution(
        tenant=TENANT,
        execution_id=next_id(made),
        job_version=1,
        kind=ExecutionKind.SCHEDULE,
        pool="default",
        priority=made.policies.priority,
        scheduled_ms=T0 + MINUTE,
        due_ms=T0 + MINUTE,
        fired_ms=0,
        status=ExecutionStatus.SCHEDULED,
        lease_sec=60,
    )
    assert (detail.content, detail.attempts) == (made.content, ())
    assert list_executions(db, TENANT).items == (detail.view,)
    db.rollback()

    fired = story.fire(made, T0 + MINUTE)
    story.move(cursor_of(made, next_ms=T0 + 2 * MINUTE))
    fold(store, story.records)
    assert found(db, next_id(made)).view.execution == fired
    listed = list_executions(db, TENANT).items
    assert [(view.execution.scheduled_ms, view.virtual) for view in listed] == [
        (T0 + 2 * MINUTE, True),
        (T0 + MINUTE, False),
    ]


@pytest.mark.parametrize("size", [1, 1_000])
def test_fired_and_moved_in_either_order(store: Store, db: Connection, size: int) -> None:
    story = Story()
    made = story.register(job("a"))
    story.move(cursor_of(made, next_ms=T0 + 2 * MINUTE))
    story.fire(made, T0 + MINUTE)
    fold(store, story.records, size)
    times = [view.execution.scheduled_ms for view in list_executions(db, TENANT).items]
    assert times == [T0 + 2 * MINUTE, T0 + MINUTE]


@pytest.mark.parametrize(
    ("schedule", "event", "status", "next_ms", "expected"),
    [
        (None, JobPaused, JobStatus.PAUSED, T0 + MINUTE, ExecutionStatus.SCHEDULED),
        (ONCE, JobCancelled, JobStatus.CANCELLED, 0, ExecutionStatus.CANCELLED),
        (None, JobCancelled, JobStatus.CANCELLED, 0, None),
        (ONCE, JobCompleted, JobStatus.COMPLETED, 0, None),
    ],
    ids=["paused", "one-off cancelled", "cron cancelled", "completed"],
)
def test_the_next_occurrence_of_a_job_that_does_not_fire(
    store: Store,
    db: Connection,
    schedule: object,
    event: type,
    status: JobStatus,
    next_ms: int,
    expected: ExecutionStatus | None,
) -> None:
    story = Story()
    made = story.register(job("a", schedule=ONCE) if schedule is ONCE else job("a"))
    story.move(cursor_of(made, status, next_ms=next_ms, finished_ms=T0 + 1 - bool(next_ms)), event)
    fold(store, story.records)

    detail = get_execution(db, TENANT, next_id(made))
    assert (detail and detail.view.execution.status) == expected
    assert list_executions(db, TENANT).items == ()


def test_ids_that_are_no_execution(store: Store, db: Connection) -> None:
    story = Story()
    story.register(job("a"))
    story.register(job("b", tenant="other"))
    fold(store, story.records)
    for unknown in ("a", "a.1.2", next_id(job("a"), T0), next_id(job("b")), next_id(job("a", incarnation=5))):
        assert get_execution(db, TENANT, unknown) is None


def names(db: Connection, filters: ExecutionFilter) -> list[str]:
    return [view.execution.job_id for view in list_executions(db, TENANT, filters).items]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (ExecutionFilter(), ["next", "manual", "failed", "done"]),
        (ExecutionFilter(job_id="done"), ["done"]),
        (ExecutionFilter(job_id="next"), ["next"]),
        (ExecutionFilter(statuses=(ExecutionStatus.COMPLETED,)), ["done"]),
        (ExecutionFilter(statuses=(ExecutionStatus.SCHEDULED,)), ["next", "failed"]),
        (ExecutionFilter(statuses=(ExecutionStatus.PENDING, ExecutionStatus.COMPLETED)), ["manual", "done"]),
        (ExecutionFilter(pool="slow"), ["next", "failed"]),
        (ExecutionFilter(task="mail"), ["next", "done"]),
        (ExecutionFilter(kind=ExecutionKind.MANUAL), ["manual"]),
        (ExecutionFilter(kind=ExecutionKind.SCHEDULE), ["next", "failed", "done"]),
        (ExecutionFilter(labels={"team": "x"}), ["next", "done"]),
        (ExecutionFilter(scheduled_from_ms=T0 + 2 * MINUTE), ["next", "manual", "failed"]),
        (ExecutionFilter(scheduled_to_ms=T0 + 2 * MINUTE), ["done"]),
        (ExecutionFilter(scheduled_from_ms=T0 + 3 * MINUTE, scheduled_to_ms=T0 + 4 * MINUTE), ["manual"]),
    ],
)
def test_executions_are_filtered(
    store: Store, db: Connection, filters: ExecutionFilter, expected: list[str]
) -> None:
    story = Story()
    done = story.register(job("done", task="mail", labels={"team": "x"}, first_next_ms=0))
    story.complete(story.claim(story.fire(done, T0 + MINUTE)))
    failed = story.register(job("failed", pool="slow", first_next_ms=0))
    story.fail(story.claim(story.fire(failed, T0 + 2 * MINUTE)))
    manual = story.register(job("manual", labels={"team": "y"}, first_next_ms=0))
    story.fire(manual, T0 + 3 * MINUTE, key="k")
    story.register(job("next", task="mail", pool="slow", labels={"team": "x"}, first_next_ms=T0 + 4 * MINUTE))
    other = story.register(job("done", tenant="other", task="mail", labels={"team": "x"}))
    story.complete(story.claim(story.fire(other, T0 + MINUTE)))
    fold(store, story.records)
    assert names(db, filters) == expected


def test_another_tenants_execution_is_not_there(store: Store, db: Connection) -> None:
    story = Story()
    execution = story.fire(story.register(job("a", tenant="other")), T0 + MINUTE)
    fold(store, story.records)
    assert get_execution(db, TENANT, execution.execution_id) is None
    assert list_executions(db, TENANT).items == ()


def test_the_engines_tombstone_takes_nothing_away(store: Store, db: Connection) -> None:
    story = Story()
    done = story.complete(story.claim(story.fire(story.register(job("a")), T0 + MINUTE)))
    story.forget(ids.execution_key(TENANT, done.execution_id))
    story.forget(ids.content_key(TENANT, done.execution_id))
    story.forget(ids.job_key(TENANT, "a"))
    story.forget(ids.cursor_key(TENANT, "a"))
    fold(store, story.records)
    assert found(db, done.execution_id).view.execution == done


def test_a_definition_that_compaction_took(store: Store, db: Connection) -> None:
    story = Story()
    execution = story.fire(job("a"), T0 + MINUTE)
    fold(store, story.records)
    detail = found(db, execution.execution_id)
    assert (detail.view.execution, detail.content) == (execution, Content(name="", task=""))


def test_what_updates_leave_alone_is_the_same_in_all_events_of_an_execution() -> None:
    """Of an engine that tells a story with every type of event; `incarnation` and `job_id` are the id's."""
    born: dict[tuple[str, str], Execution] = {}
    later = 0
    for _, value in golden_log.story().log:
        event = None if value is None else codec.decode(value)
        if isinstance(event, ExecutionEvent):
            now = event.execution
            first = born.setdefault((now.tenant, now.execution_id), now)
            later += now is not first
            for name in BORN_WITH - {"incarnation"}:
                assert getattr(now, name) == getattr(first, name), (event, name)
    assert later > 100
