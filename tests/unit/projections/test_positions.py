"""Reads that wait for their writes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from projections.positions import PositionWatch
from projections.store import Store
from tests.unit.projections.story import Story, fold, job
from tests.waiting import wait_until

LONG_SEC = 20
SHORT_SEC = 0.05


@pytest.fixture
def watch(store: Store) -> Iterator[PositionWatch]:
    made = PositionWatch(store)
    yield made
    made.close()


def test_what_is_folded_is_seen_at_once(store: Store, watch: PositionWatch) -> None:
    story = Story(partition=1)
    story.register(job("a"))
    fold(store, story.records)
    assert watch.wait_for({1: 0}, LONG_SEC)
    assert watch.wait_for({}, LONG_SEC)


@pytest.mark.parametrize("wanted", [{1: 1}, {0: 0}, {0: 0, 1: 0}], ids=str)
def test_what_is_not_is_waited_for_in_vain(
    store: Store, watch: PositionWatch, wanted: dict[int, int]
) -> None:
    story = Story(partition=1)
    story.register(job("a"))
    fold(store, story.records)
    assert not watch.wait_for(wanted, SHORT_SEC)


def test_many_wait_for_several_partitions(store: Store, watch: PositionWatch) -> None:
    stories = [Story(partition=number) for number in range(2)]
    for number, story in enumerate(stories):
        story.register(job(f"j{number}"))
    both, first = watch.when({0: 0, 1: 0}), [watch.when({0: 0}) for _ in range(100)]
    fold(store, stories[0].records)
    for each in first:
        each.result(LONG_SEC)
    assert not both.done()
    fold(store, stories[1].records)
    both.result(LONG_SEC)


def test_a_rebuild_takes_positions_back(store: Store, watch: PositionWatch) -> None:
    story = Story()
    story.register(job("a"))
    fold(store, story.records)
    assert watch.wait_for({0: 0}, LONG_SEC)
    store.recreate()
    assert not watch.wait_for({0: 0}, SHORT_SEC)


async def test_asyncio_waits_too(store: Store, watch: PositionWatch) -> None:
    seen = asyncio.wrap_future(watch.when({0: 0}))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(seen), SHORT_SEC)
    story = Story()
    story.register(job("a"))
    fold(store, story.records)
    await asyncio.wait_for(seen, LONG_SEC)


def test_the_end_of_the_watch_ends_all_waits(store: Store, watch: PositionWatch) -> None:
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(watch.wait_for({0: 0}, LONG_SEC)))
    before = threading.active_count()
    thread.start()
    wait_until(lambda: threading.active_count() > before + 1)
    watch.close()
    thread.join()
    assert answers == [False]
    assert not watch.wait_for({}, LONG_SEC)


def test_a_database_that_cannot_be_read_is_waited_for(
    store: Store, watch: PositionWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("projections.positions.LOOK_AGAIN_AFTER_ERROR_SEC", 0)
    with store.writing() as writer:
        writer.connection.exec_driver_sql("ALTER TABLE offsets RENAME TO hidden")
    assert not watch.wait_for({}, SHORT_SEC)
    with store.writing() as writer:
        writer.connection.exec_driver_sql("ALTER TABLE hidden RENAME TO offsets")
    assert watch.wait_for({}, LONG_SEC)
