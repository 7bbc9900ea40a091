"""Pages: no row lost or repeated at a border, and tokens that open nothing else."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
from sqlalchemy import Connection

from projections.paging import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE, PageSizeError, StaleTokenError
from projections.queries import (
    ExecutionFilter,
    JobFilter,
    execution_events,
    list_dead_letters,
    list_executions,
    list_jobs,
)
from projections.store import Store
from projections.views import Page, PageRequest
from tests.unit.projections.story import MINUTE, T0, TENANT, Story, cursor_of, fold, job


def walk(ask: Callable[[PageRequest], Page[str]], size: int) -> list[list[str]]:
    pages, token = [], ""
    while True:
        page = ask(PageRequest(size, token))
        pages.append(list(page.items))
        token = page.next_token
        if not token:
            return pages


def jobs_of(db: Connection) -> Callable[[PageRequest], Page[str]]:
    def ask(request: PageRequest) -> Page[str]:
        page = list_jobs(db, TENANT, page=request)
        return Page(tuple(view.job.job_id for view in page.items), page.next_token)

    return ask


def executions_of(db: Connection) -> Callable[[PageRequest], Page[str]]:
    def ask(request: PageRequest) -> Page[str]:
        page = list_executions(db, TENANT, page=request)
        return Page(tuple(view.execution.execution_id for view in page.items), page.next_token)

    return ask


def test_jobs_of_one_millisecond(store: Store, db: Connection) -> None:
    """API-013."""
    story = Story()
    for number in range(15):
        story.register(job(f"j{number}"))
    fold(store, story.records)
    pages = walk(jobs_of(db), 10)
    assert [len(page) for page in pages] == [10, 5]
    assert len({each for page in pages for each in page}) == 15


def test_executions_of_one_instant_while_new_ones_arrive(store: Store, db: Connection) -> None:
    """API-014."""
    story = Story()
    made = [story.register(job(f"j{number}", first_next_ms=0)) for number in range(4)]
    old = {story.claim(story.fire(each, T0 + MINUTE)).execution_id for each in made}
    fold(store, story.records)
    first = executions_of(db)(PageRequest(2))
    db.rollback()

    for number in range(3):
        story.claim(story.fire(made[number], T0 + (2 + number) * MINUTE))
    fold(store, story.records)
    rest = executions_of(db)(PageRequest(2, first.next_token))
    assert sorted(first.items + rest.items) == sorted(old)
    assert rest.next_token == ""


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_fired_and_next_occurrences_are_one_order(store: Store, db: Connection, size: int) -> None:
    story = Story()
    for number in range(6):
        made = story.register(job(f"j{number}"))
        story.fire(made, T0 + MINUTE)
        story.fire(made, T0 + 2 * MINUTE)
        story.move(cursor_of(made, next_ms=T0 + (2 + number % 3) * MINUTE))
    fold(store, story.records)
    pages = walk(executions_of(db), size)
    everything = [each for page in pages for each in page]
    (whole,) = walk(executions_of(db), 1_000)
    assert everything == whole
    # Two of the next occurrences are those that were fired for T0 + 2 minutes.
    assert len(set(whole)) == len(whole) == 6 * 3 - 2


def test_an_occurrence_that_is_fired_during_a_walk_keeps_its_place(store: Store, db: Connection) -> None:
    story = Story()
    made = [story.register(job(f"j{number}")) for number in range(4)]
    fold(store, story.records)
    first = executions_of(db)(PageRequest(2))
    db.rollback()
    for each in made:
        story.fire(each, T0 + MINUTE)
        story.move(cursor_of(each, next_ms=T0 + 2 * MINUTE))
    fold(store, story.records)
    rest = executions_of(db)(PageRequest(2, first.next_token))
    assert len({*first.items, *rest.items}) == 4


def test_events_and_dead_letters_page_too(store: Store, db: Connection) -> None:
    story = Story()
    made = story.register(job("a"))
    dead = [story.bury(story.claim(story.fire(made, T0 + n * MINUTE))).execution_id for n in range(3)]
    fold(store, story.records)

    def letters(request: PageRequest) -> Page[str]:
        page = list_dead_letters(db, TENANT, page=request)
        return Page(tuple(view.execution.execution_id for view in page.items), page.next_token)

    def events(request: PageRequest) -> Page[str]:
        page = execution_events(db, TENANT, dead[0], request)
        return Page(tuple(event.type for event in page.items), page.next_token)

    assert walk(letters, 2) == [[dead[2], dead[1]], [dead[0]]]
    assert walk(events, 3) == [
        ["ExecutionDeadLettered", "ContentKept", "ExecutionClaimed"],
        ["ExecutionFired"],
    ]


def test_sizes(store: Store, db: Connection) -> None:
    story = Story()
    for number in range(MAX_PAGE_SIZE + 1):
        story.register(job(f"j{number}"))
    fold(store, story.records)
    assert len(list_jobs(db, TENANT).items) == DEFAULT_PAGE_SIZE
    assert len(list_jobs(db, TENANT, page=PageRequest(MAX_PAGE_SIZE + 1)).items) == MAX_PAGE_SIZE
    with pytest.raises(PageSizeError):
        list_jobs(db, TENANT, page=PageRequest(-1))


def test_an_exact_last_page_has_no_token(store: Store, db: Connection) -> None:
    story = Story()
    for number in range(4):
        story.register(job(f"j{number}"))
    fold(store, story.records)
    assert [len(page) for page in walk(jobs_of(db), 2)] == [2, 2]


@pytest.fixture
def token(store: Store, db: Connection) -> str:
    story = Story()
    for number in range(3):
        story.register(job(f"secret-{number}", labels={"team": "x"}))
    fold(store, story.records)
    return list_jobs(db, TENANT, JobFilter(labels={"team": "x"}), PageRequest(1)).next_token


def test_a_token_goes_on_with_another_size(db: Connection, token: str) -> None:
    page = list_jobs(db, TENANT, JobFilter(labels={"team": "x"}), PageRequest(9, token))
    assert [view.job.job_id for view in page.items] == ["secret-1", "secret-0"]


def test_a_token_cannot_be_read(token: str) -> None:
    assert b"secret" not in base64.urlsafe_b64decode(token + "==")


def test_a_token_opens_no_other_list(db: Connection, token: str) -> None:
    labelled = JobFilter(labels={"team": "x"})
    with pytest.raises(StaleTokenError):
        list_jobs(db, TENANT, JobFilter(), PageRequest(1, token))
    with pytest.raises(StaleTokenError):
        list_jobs(db, "other", labelled, PageRequest(1, token))
    with pytest.raises(StaleTokenError):
        list_executions(db, TENANT, ExecutionFilter(labels={"team": "x"}), PageRequest(1, token))


@pytest.mark.parametrize(
    "damage",
    [str.swapcase, lambda token: token[:-2], lambda token: token + "AA", lambda _: "x", lambda _: "ä!"],
    ids=["changed", "cut", "longer", "short", "no base64"],
)
def test_a_damaged_token(db: Connection, token: str, damage: Callable[[str], str]) -> None:
    with pytest.raises(StaleTokenError):
        list_jobs(db, TENANT, JobFilter(labels={"team": "x"}), PageRequest(1, damage(token)))


def test_a_token_ends_with_a_rebuild(store: Store, db: Connection, token: str) -> None:
    db.rollback()
    store.recreate()
    with pytest.raises(StaleTokenError):
        list_jobs(db, TENANT, JobFilter(labels={"team": "x"}), PageRequest(1, token))
