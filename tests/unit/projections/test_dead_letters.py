"""Dead letters: listed with reason and payload as long as the engine can replay them."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection

from projections.queries import DeadLetterFilter, get_dead_letter, get_execution, list_dead_letters
from projections.store import Store
from schemas import ids
from schemas.entities import ExecutionStatus
from schemas.events import DeadLetterDiscarded
from tests.unit.projections.story import MINUTE, T0, TENANT, Story, fold, job


def test_a_dead_letter_keeps_payload_error_and_attempts(store: Store, db: Connection) -> None:
    story = Story()
    execution = story.ready(story.fail(story.claim(story.fire(story.register(job("a")), T0)), error="first"))
    dead = story.bury(story.claim(execution), error="last")
    fold(store, story.records)

    detail = get_dead_letter(db, TENANT, dead.execution_id)
    assert detail is not None
    assert detail.view.execution == dead
    assert detail.content.payload == b'{"kept": true}'
    assert [one.error for one in detail.attempts] == ["first", "last"]
    assert list_dead_letters(db, TENANT).items == (detail.view,)


@pytest.mark.parametrize("size", [1, 1_000])
@pytest.mark.parametrize("how", ["replayed", "forgotten"])
def test_a_handled_dead_letter_is_gone(store: Store, db: Connection, how: str, size: int) -> None:
    story = Story()
    dead = story.bury(story.claim(story.fire(story.register(job("a")), T0)))
    if how == "replayed":
        story.replay(dead)
    else:
        story.forget(ids.execution_key(TENANT, dead.execution_id))
    fold(store, story.records, size)
    assert get_dead_letter(db, TENANT, dead.execution_id) is None
    assert list_dead_letters(db, TENANT).items == ()


def test_a_replayed_one_can_die_again(store: Store, db: Connection) -> None:
    story = Story()
    dead = story.bury(story.claim(story.fire(story.register(job("a")), T0)))
    again = story.bury(story.claim(story.replay(dead)), error="again")
    fold(store, story.records)
    assert [view.execution for view in list_dead_letters(db, TENANT).items] == [again]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (DeadLetterFilter(), ["b", "a"]),
        (DeadLetterFilter(job_id="a"), ["a"]),
        (DeadLetterFilter(pool="slow"), ["b"]),
        (DeadLetterFilter(task="mail"), ["a"]),
        (DeadLetterFilter(reason="reaped"), ["b"]),
        (DeadLetterFilter(from_ms=T0 + MINUTE), ["b"]),
        (DeadLetterFilter(to_ms=T0 + MINUTE), ["a"]),
    ],
)
def test_dead_letters_are_filtered(
    store: Store, db: Connection, filters: DeadLetterFilter, expected: list[str]
) -> None:
    story = Story()
    story.bury(story.claim(story.fire(story.register(job("a", task="mail")), T0)))
    story.at(T0 + MINUTE)
    story.bury(story.claim(story.fire(story.register(job("b", pool="slow")), T0)), reason="reaped")
    story.bury(story.claim(story.fire(story.register(job("c", tenant="other")), T0)))
    fold(store, story.records)
    assert [view.execution.job_id for view in list_dead_letters(db, TENANT, filters).items] == expected


@pytest.mark.parametrize("size", [1, 1_000])
def test_a_discarded_one_is_gone_and_says_by_whom(store: Store, db: Connection, size: int) -> None:
    story = Story()
    dead = story.bury(story.claim(story.fire(story.register(job("a")), T0)))
    story.change(DeadLetterDiscarded, dead, reason="discarded")
    fold(store, story.records, size)
    assert get_dead_letter(db, TENANT, dead.execution_id) is None
    assert list_dead_letters(db, TENANT).items == ()
    detail = get_execution(db, TENANT, dead.execution_id)
    assert detail is not None
    assert (detail.view.execution.status, detail.view.discarded_by) == (ExecutionStatus.FAILED, "ann")
    assert b"kept" not in detail.content.payload
