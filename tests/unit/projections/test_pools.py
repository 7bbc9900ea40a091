"""What pools have to do and who works there, of a tenant and of all."""

from __future__ import annotations

from sqlalchemy import Connection

from projections.pools import (
    Running,
    page_of_names,
    pool_names,
    pool_view,
    running_of,
    tenant_names,
    usage,
)
from projections.store import Store
from projections.views import PageRequest
from schemas.entities import Priority
from tests.unit.projections.story import MINUTE, T0, TENANT, Story, fold, job


def _story() -> Story:
    """Of acme two pending and two running in `mail`, one running in a shared pool; of other two there."""
    story = Story()
    mail = story.register(job("mail", pool="mail"))
    for number, (priority, worker) in enumerate(
        [(Priority.HIGH, ""), (Priority.LOW, ""), (Priority.LOW, "w1"), (Priority.LOW, "w2")]
    ):
        execution = story.fire(mail, T0 + number * MINUTE, priority=priority)
        if worker:
            story.claim(execution, worker)
    for tenant, worker in (("acme", "w9"), ("other", "w9"), ("other", "")):
        made = story.register(job(f"gpu-{tenant}{worker}", tenant=tenant, pool="shared/gpu"))
        execution = story.fire(made, T0)
        if worker:
            story.claim(execution, worker)
    return story


def test_a_pool_of_a_tenant(store: Store, db: Connection) -> None:
    fold(store, _story().records)
    view = pool_view(db, "mail", TENANT)
    assert view.pending == {Priority.HIGH: 1, Priority.LOW: 1}
    assert (view.oldest_due_ms, view.running, view.workers) == (T0, 2, 2)
    nothing = pool_view(db, "mail", "other")
    assert (nothing.pending, nothing.oldest_due_ms, nothing.running, nothing.workers) == ({}, 0, 0, 0)


def test_a_shared_pool_of_one_and_of_all(store: Store, db: Connection) -> None:
    fold(store, _story().records)
    mine, all_of_it = pool_view(db, "shared/gpu", TENANT), pool_view(db, "shared/gpu")
    assert (mine.running, sum(mine.pending.values())) == (1, 0)
    assert (all_of_it.running, sum(all_of_it.pending.values()), all_of_it.workers) == (2, 1, 1)


def test_names(store: Store, db: Connection) -> None:
    story = _story()
    story.register(job("idle", pool="idle"))
    fold(store, story.records)
    assert pool_names(db, TENANT, "", 10) == ["idle", "mail", "shared/gpu"]
    assert pool_names(db, TENANT, "idle", 1) == ["mail"]
    assert pool_names(db, "", "", 10) == ["shared/gpu"]
    assert pool_names(db, "nobody", "", 10) == []
    assert tenant_names(db, "", 10) == ["acme", "other"]
    assert tenant_names(db, "acme", 10) == ["other"]


def test_usage(store: Store, db: Connection) -> None:
    fold(store, _story().records)
    found = usage(db, "other")
    assert (found.jobs, found.pending) == (2, {"shared/gpu": 1})
    assert found.running == Running(mine={"shared/gpu": 1}, shared={"shared/gpu": {"acme": 1, "other": 1}})
    assert usage(db, TENANT).running.mine == {"mail": 2, "shared/gpu": 1}
    assert running_of(db, "nobody", ["shared/gpu", "mail"]).shared == found.running.shared


def test_pages_of_names(store: Store, db: Connection) -> None:
    fold(store, _story().records)
    found: list[str] = []
    token = ""
    while True:
        page = page_of_names(
            db,
            {"list": "pools"},
            PageRequest(size=1, token=token),
            lambda after, count: pool_names(db, TENANT, after, count),
            also=["configured", "mail", "zoo"],
        )
        found += page.items
        token = page.next_token
        if not token:
            break
    assert found == ["configured", "mail", "shared/gpu", "zoo"]
