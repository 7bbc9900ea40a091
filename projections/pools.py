"""Owns what worker pools have to do and who works there, right now: counts of unfinished executions.

A pool belongs to its tenant; `shared/<name>` serves all tenants and is asked for as that of one of them, or
(tenant "") as a whole. Names are walked by an index of their own, so a tenant with a million executions in
one pool costs one look.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from sqlalchemy import ColumnElement, Connection, and_, func, literal_column, select

from projections import paging
from projections.paging import SortKey
from projections.tables import executions, jobs
from projections.views import Page, PageRequest
from schemas.entities import Priority
from schemas.ids import SHARED, is_shared

# Literals, as the partial indexes have them.
UNFINISHED = executions.c.finished_ms == literal_column("0")
SHARED_POOL = and_(
    executions.c.pool >= literal_column(f"'{SHARED}/'"), executions.c.pool < literal_column(f"'{SHARED}0'")
)
LIVING = and_(
    jobs.c.status.in_([literal_column("'ACTIVE'"), literal_column("'PAUSED'")]),
    # All have one, unless their definition was not seen yet; saying so leads SQLite to the index.
    jobs.c.pool > literal_column("''"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """`oldest_due_ms` 0: nothing is pending. `workers`: distinct ids of those that hold something."""

    name: str
    pending: Mapping[Priority, int] = field(default_factory=dict)
    oldest_due_ms: int = 0
    running: int = 0
    workers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """How many executions run by pool: a tenant's, and in shared pools those of each tenant."""

    mine: Mapping[str, int] = field(default_factory=dict)
    shared: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a tenant has: living jobs, and unfinished executions by pool."""

    jobs: int
    pending: Mapping[str, int]
    running: Running


def pool_view(connection: Connection, name: str, tenant: str = "") -> PoolView:
    """One pool as the tenant has it; tenant "": a shared one with all its tenants."""
    mine = and_(UNFINISHED, executions.c.pool == name, _of(tenant))
    pending, oldest_due_ms = {}, 0
    for priority, count, due_ms in connection.execute(
        select(executions.c.priority, func.count(), func.min(executions.c.due_ms))
        .where(mine, executions.c.status == "PENDING")
        .group_by(executions.c.priority)
    ):
        pending[Priority(priority)] = count
        oldest_due_ms = min(oldest_due_ms or due_ms, due_ms)
    running, workers = connection.execute(
        select(func.count(), func.count(executions.c.worker_id.distinct())).where(
            mine, executions.c.status == "RUNNING"
        )
    ).one()
    return PoolView(name=name, pending=pending, oldest_due_ms=oldest_due_ms, running=running, workers=workers)


def pool_names(connection: Connection, tenant: str, after: str, count: int) -> list[str]:
    """The next names after `after` of pools that the tenant's living jobs or unfinished executions name;
    tenant "": of shared ones."""
    questions = [
        select(func.min(executions.c.pool)).where(UNFINISHED, executions.c.status == status, _of(tenant))
        for status in ("PENDING", "RUNNING")
    ]
    columns = [executions.c.pool] * len(questions)
    if tenant:
        questions.append(select(func.min(jobs.c.pool)).where(LIVING, jobs.c.tenant == tenant))
        columns.append(jobs.c.pool)
    names: list[str] = []
    while len(names) < count:
        found = [
            connection.execute(question.where(column > after)).scalar_one()
            for question, column in zip(questions, columns, strict=True)
        ]
        known = [name for name in found if name is not None]
        if not known:
            break
        after = min(known)
        names.append(after)
    return names


def page_of_names(
    connection: Connection,
    question: Mapping[str, object],
    page: PageRequest,
    following: Callable[[str, int], list[str]],
    also: Collection[str] = (),
) -> Page[str]:
    """A page of names in their order: the `following(after, count)` ones, and those known `also`."""
    walk = paging.begin(connection, question, page)
    after = "" if walk.after is None else walk.after.id
    names = {*following(after, walk.size + 1), *(name for name in also if name > after)}
    return walk.page([(SortKey(0, name), name) for name in sorted(names)[: walk.size + 1]])


def tenant_names(connection: Connection, after: str, count: int) -> list[str]:
    """The next tenants after `after` that ever had a job, by name."""
    names: list[str] = []
    while len(names) < count:
        found = connection.execute(select(func.min(jobs.c.tenant)).where(jobs.c.tenant > after)).scalar_one()
        if found is None:
            break
        after = found
        names.append(after)
    return names


def usage(connection: Connection, tenant: str) -> Usage:
    """What a tenant has right now."""
    living = connection.execute(
        select(func.count()).select_from(jobs).where(LIVING, jobs.c.tenant == tenant)
    ).scalar_one()
    pending = _by_pool(connection, tenant, "PENDING")
    running = running_of(connection, tenant, pending)
    return Usage(jobs=living, pending=pending, running=running)


def running_of(connection: Connection, tenant: str, pools: Collection[str] = ()) -> Running:
    """What runs of a tenant, and in the shared pools among its own and the given ones."""
    mine = _by_pool(connection, tenant, "RUNNING")
    shared = sorted(name for name in {*mine, *pools} if is_shared(name))
    return Running(mine=mine, shared={name: _running_in(connection, name) for name in shared})


def _by_pool(connection: Connection, tenant: str, status: str) -> dict[str, int]:
    found = connection.execute(
        select(executions.c.pool, func.count())
        .where(UNFINISHED, executions.c.tenant == tenant, executions.c.status == status)
        .group_by(executions.c.pool)
    )
    return {row.pool: row[1] for row in found}


def _running_in(connection: Connection, pool: str) -> dict[str, int]:
    found = connection.execute(
        select(executions.c.tenant, func.count())
        .where(UNFINISHED, SHARED_POOL, executions.c.pool == pool, executions.c.status == "RUNNING")
        .group_by(executions.c.tenant)
    )
    return {row.tenant: row[1] for row in found}


def _of(tenant: str) -> ColumnElement[bool]:
    return executions.c.tenant == tenant if tenant else SHARED_POOL
