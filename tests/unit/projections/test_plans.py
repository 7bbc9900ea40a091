"""SQLite answers each question by an index: a wrong word in a condition would walk over everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event

from projections.alerts import list_alerts
from projections.breakers import list_breakers
from projections.occurrences import job_occurrences, job_skips, times_that_ran
from projections.pools import pool_names, pool_view, tenant_names, usage
from projections.queries import (
    DeadLetterFilter,
    ExecutionFilter,
    JobFilter,
    get_definition,
    get_execution,
    get_job,
    job_events,
    list_dead_letters,
    list_executions,
    list_jobs,
    tenant_stats,
)
from projections.retention import Retention
from projections.shifts import list_tz_shifts
from projections.store import Store
from projections.tables import offsets
from schemas.entities import ExecutionStatus
from tests.unit.projections.story import T0, TENANT, job


@contextmanager
def plans(engine: Engine) -> Iterator[list[str]]:
    """The query plans of all SELECTs on the engine's connections."""
    found: list[str] = []

    def explain(connection: Connection, cursor: Any, sql: str, values: Any, *_: object) -> None:
        if sql.startswith("SELECT"):
            raw: Any = connection.connection.dbapi_connection
            found.extend(row[3] for row in raw.execute(f"EXPLAIN QUERY PLAN {sql}", values))

    event.listen(engine, "before_cursor_execute", explain)
    yield found
    event.remove(engine, "before_cursor_execute", explain)


def of(**filters: Any) -> Callable[[Connection], object]:
    return lambda connection: list_executions(connection, TENANT, ExecutionFilter(**filters))


RUNNING, PENDING = ExecutionStatus.RUNNING, ExecutionStatus.PENDING


@pytest.mark.parametrize(
    ("ask", "indexes"),
    [
        (of(), {"executions_by_time", "jobs_by_next"}),
        (of(job_id="a"), {"executions_of_job"}),
        (of(statuses=(RUNNING,)), {"executions_by_status"}),
        (of(statuses=(RUNNING, PENDING)), {"executions_by_status"}),
        (of(scheduled_from_ms=T0), {"executions_by_time", "jobs_by_next"}),
        (lambda db: list_jobs(db, TENANT), {"jobs_by_creation"}),
        (lambda db: list_jobs(db, TENANT, JobFilter(labels={"a": "b"})), {"jobs_by_creation"}),
        (lambda db: list_dead_letters(db, TENANT, DeadLetterFilter()), {"executions_dead"}),
        (lambda db: get_job(db, TENANT, "a"), set()),
        (lambda db: get_execution(db, TENANT, "a.1.2.s"), set()),
        (lambda db: job_events(db, TENANT, "a"), set()),
        (of(backfill="b"), {"executions_of_backfill"}),
        (lambda db: job_skips(db, TENANT, "a", 0, 1), {"skips_of_job"}),
        (lambda db: job_occurrences(db, job("a"), 0, 1, 1), {"executions_of_job"}),
        (lambda db: times_that_ran(db, job("a"), 0, 1, "b"), {"executions_of_job"}),
        (lambda db: get_definition(db, TENANT, "a", 1), set()),
        (lambda db: list_tz_shifts(db), {"tz_shifts_by_version"}),
        (lambda db: list_tz_shifts(db, "2026.1"), {"tz_shifts_by_version"}),
        (lambda db: tenant_stats(db, TENANT, 0, 1), {"executions_by_status", "executions_dead"}),
        (lambda db: tenant_stats(db, TENANT, 0, 1, "a"), {"executions_open_of_job"}),
        (lambda db: list_alerts(db, TENANT), {"alerts_of_tenant"}),
        (lambda db: list_breakers(db, TENANT), set()),
        (lambda db: pool_view(db, "p", TENANT), {"executions_unfinished"}),
        (lambda db: pool_view(db, "shared/p"), {"executions_unfinished_shared"}),
        (lambda db: pool_names(db, TENANT, "", 1), {"executions_unfinished", "jobs_living"}),
        (lambda db: pool_names(db, "", "", 1), {"executions_unfinished_shared"}),
        (lambda db: tenant_names(db, "", 1), set()),
        (lambda db: usage(db, TENANT), {"executions_unfinished", "jobs_living"}),
    ],
    ids=[str(number) for number in range(28)],
)
def test_a_question_has_its_index(
    tmp_path: Path, ask: Callable[[Connection], object], indexes: set[str]
) -> None:
    store = Store(f"sqlite:///{tmp_path / 'read.db'}")
    store.recreate()
    with store.reading() as connection, plans(connection.engine) as found:
        ask(connection)
    store.close()
    assert found
    assert not [line for line in found if line.startswith("SCAN") or "ORDER BY" in line]
    assert not [name for name in indexes if not any(name in line for line in found)]


def test_forgetting_has_its_indexes(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'read.db'}")
    store.recreate()
    with store.writing() as writer:
        writer.insert(offsets, [{"partition": 0, "next_offset": 1, "at_ms": T0}])
        engine = writer.connection.engine
    with plans(engine) as found:
        Retention().purge(store)
    store.close()
    for name in (
        "executions_purgeable",
        "history_by_time",
        "alerts_by_time",
        "skips_by_time",
        "jobs_finished",
        "stats_hourly",
    ):
        assert any(name in line for line in found), name
    assert not [line for line in found if line.startswith("SCAN")]
