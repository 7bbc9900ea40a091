"""Owns the shape of the read model: every table and index, once for SQLite and PostgreSQL.

Columns that mirror an entity carry the names of its attributes; `tests/unit/projections/test_tables.py` fails
when an entity grows an attribute that no column keeps. "Not yet" is 0 or "", as in the entities.

Current rows (equal for a log and its compacted form): `jobs`, `definitions`, `labels`, `executions`,
`leases`, `contents`. History (what happened, as far back as log and retention go): `attempts`, `history`,
`skips`, `tz_shifts`, `stats`. `offsets` says how far each partition is folded; `meta` names this generation
of the tables.
"""

from __future__ import annotations

import hashlib

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.types import TypeEngine

from schemas.topics import HOUR_MS

# Byte order on both databases: pages are merged in Python and must agree with what SQL sorted.
TEXT: TypeEngine[str] = Text().with_variant(Text(collation="C"), "postgresql")

# Partial indexes serve a query only if it repeats the very condition.
NOT_COMPLETED = text("status <> 'COMPLETED'")
OPEN = text("status IN ('SCHEDULED', 'PENDING', 'RUNNING')")
DEAD_LETTER = text("status = 'FAILED' AND forgotten_ms = 0")
# A dead letter stays as long as the engine can replay it, whatever the retention.
PURGEABLE = text("finished_ms > 0 AND (status <> 'FAILED' OR forgotten_ms > 0)")
WILL_RUN = text("status = 'ACTIVE' AND next_execution_id <> ''")
FINISHED_JOB = text("finished_ms > 0")
OF_JOB = text("scope = 'job'")
BACKFILLED = text("backfill <> ''")
HOURLY = text(f"span_ms = {HOUR_MS}")

# Upper bounds of the lateness histogram; one more bucket holds what is later than the last.
LATENESS_BOUNDS_MS = (
    5,
    10,
    25,
    50,
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    30_000,
    60_000,
    300_000,
)
OUTCOMES = (
    "fired",
    "completed",
    "failed",
    "cancelled",
    "skipped",
    "failed_attempts",
    "expired",
    "missed",
    "replayed",
)
LATENESS_BUCKETS = tuple(f"late_{number}" for number in range(len(LATENESS_BOUNDS_MS) + 1))

metadata = MetaData()


def _key(name: str) -> Column[str]:
    return Column(name, TEXT, primary_key=True)


def _number_key(name: str) -> Column[int]:
    return Column(name, BigInteger, primary_key=True, autoincrement=False)


def _word(name: str) -> Column[str]:
    return Column(name, TEXT, nullable=False)


def _number(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False)


def _bytes(name: str) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=False)


# One row a job, of its newest incarnation: what lists filter on, and the cursor. `version` 0: only the cursor
# was seen so far (in a compacted log it may come first). `cursor_incarnation` 0: no cursor, the job stands at
# its beginning. `next_execution_id`: the id that the next occurrence will be fired with. `catch_up` is JSON.
jobs = Table(
    "jobs",
    metadata,
    _key("tenant"),
    _key("job_id"),
    _number("incarnation"),
    _number("version"),
    _word("name"),
    _word("pool"),
    _number("created_ms"),
    _number("cursor_incarnation"),
    _word("status"),
    _number("next_ms"),
    _word("next_local"),
    _word("next_execution_id"),
    _number("last_ms"),
    _word("last_local"),
    _word("catch_up"),
    _word("tz_version"),
    _number("finished_ms"),
    _number("paused_ms"),
    _word("paused_by"),
    _word("paused_reason"),
    _number("next_due_ms"),
    _number("runs"),
    sqlite_with_rowid=False,
)
Index("jobs_by_creation", jobs.c.tenant, jobs.c.created_ms, jobs.c.job_id)
Index(
    "jobs_by_next",
    jobs.c.tenant,
    jobs.c.next_ms,
    jobs.c.next_execution_id,
    sqlite_where=WILL_RUN,
    postgresql_where=WILL_RUN,
)
Index(
    "jobs_finished",
    jobs.c.finished_ms,
    sqlite_where=FINISHED_JOB,
    postgresql_where=FINISHED_JOB,
)

# Every definition a job ever had: an execution is shown with the name, task, labels and payload it fired
# with. `labels`, `schedule` and `policies` are JSON.
definitions = Table(
    "definitions",
    metadata,
    _key("tenant"),
    _key("job_id"),
    _number_key("incarnation"),
    _number_key("version"),
    _word("pool"),
    _word("name"),
    _word("task"),
    _word("content_type"),
    _word("labels"),
    _word("schedule"),
    _word("policies"),
    _number("created_ms"),
    _word("created_by"),
    _word("request_key"),
    _word("body_hash"),
    _number("first_next_ms"),
    _word("first_next_local"),
    _number("first_due_ms"),
    _number("first_version"),
    _word("definition_hash"),
    _number("updated_ms"),
    _word("updated_by"),
    _bytes("payload"),
)

# `definitions.labels` once more, to filter by.
labels = Table(
    "labels",
    metadata,
    _key("tenant"),
    _key("key"),
    _key("value"),
    _key("job_id"),
    _number_key("incarnation"),
    _number_key("version"),
    sqlite_with_rowid=False,
)

# One row an execution. `forgotten_ms`: when the engine let go of it; a dead letter cannot be replayed then.
executions = Table(
    "executions",
    metadata,
    _key("tenant"),
    _key("execution_id"),
    _word("job_id"),
    _number("incarnation"),
    _number("job_version"),
    _word("kind"),
    _word("pool"),
    _word("priority"),
    _number("scheduled_ms"),
    _number("due_ms"),
    _number("fired_ms"),
    _word("status"),
    _word("waiting_for"),
    _number("attempt"),
    _number("delivery_count"),
    _number("lease_epoch"),
    _number("fencing_token"),
    _word("worker_id"),
    _word("claim_id"),
    _number("first_started_ms"),
    _number("started_ms"),
    _number("lease_until_ms"),
    _number("lease_sec"),
    _number("deadline_ms"),
    _word("lease_end"),
    _number("cancel_requested_ms"),
    _number("finished_ms"),
    _word("error"),
    _word("reason"),
    _word("reported"),
    _bytes("result"),
    _word("idempotency_key"),
    _number("replays"),
    _word("replay_key"),
    _number("start_deadline_ms"),
    _word("backfill"),
    _word("exclusion_group"),
    _number("lateness_alert_sec"),
    _number("forgotten_ms"),
)
Index(
    "executions_by_time",
    executions.c.tenant,
    executions.c.scheduled_ms,
    executions.c.execution_id,
)
Index(
    "executions_of_job",
    executions.c.tenant,
    executions.c.job_id,
    executions.c.scheduled_ms,
    executions.c.execution_id,
)
# COMPLETED is nearly all of them: there the order by time serves; every other status is rare.
Index(
    "executions_by_status",
    executions.c.tenant,
    executions.c.status,
    executions.c.scheduled_ms,
    executions.c.execution_id,
    sqlite_where=NOT_COMPLETED,
    postgresql_where=NOT_COMPLETED,
)
Index(
    "executions_open_of_job",
    executions.c.tenant,
    executions.c.job_id,
    executions.c.status,
    sqlite_where=OPEN,
    postgresql_where=OPEN,
)
Index(
    "executions_dead",
    executions.c.tenant,
    executions.c.finished_ms,
    executions.c.execution_id,
    sqlite_where=DEAD_LETTER,
    postgresql_where=DEAD_LETTER,
)
Index(
    "executions_purgeable",
    executions.c.finished_ms,
    sqlite_where=PURGEABLE,
    postgresql_where=PURGEABLE,
)

Index(
    "executions_of_backfill",
    executions.c.tenant,
    executions.c.backfill,
    executions.c.scheduled_ms,
    executions.c.execution_id,
    sqlite_where=BACKFILLED,
    postgresql_where=BACKFILLED,
)

# The newest heartbeat. Void unless its epoch is the execution's: it may come before it in a compacted log.
leases = Table(
    "leases",
    metadata,
    _key("tenant"),
    _key("execution_id"),
    _number("lease_epoch"),
    _number("until_ms"),
    _bytes("progress"),
)

# Payloads of executions that differ from, or outlive, their job's: triggers, replays, dead letters.
contents = Table(
    "contents",
    metadata,
    _key("tenant"),
    _key("execution_id"),
    _word("name"),
    _word("task"),
    _bytes("payload"),
    _word("content_type"),
    _word("labels"),
    _word("policies"),
)

# One row a grant. `attempt` is the one it was granted for; `ended_ms` 0: it still runs.
attempts = Table(
    "attempts",
    metadata,
    _key("tenant"),
    _key("execution_id"),
    _number_key("lease_epoch"),
    _number("attempt"),
    _number("delivery_count"),
    _number("fencing_token"),
    _word("worker_id"),
    _number("claimed_ms"),
    _number("ended_ms"),
    _word("lease_end"),
    _word("error"),
    _word("reported"),
    sqlite_with_rowid=False,
)

# One row an event. `scope` is job or execution and `subject` its id; `entity` is the event's entity type.
# `value` is the event as logged, without payload: what changed is the difference to the row before.
history = Table(
    "history",
    metadata,
    _key("tenant"),
    _key("scope"),
    _key("subject"),
    _number_key("log_offset"),
    Column("partition", Integer, nullable=False),
    _word("entity"),
    _number("at_ms"),
    _bytes("value"),
)
Index("history_of_jobs_by_time", history.c.at_ms, sqlite_where=OF_JOB, postgresql_where=OF_JOB)

# Occurrences that never became executions, by the cursor's event that says so.
skips = Table(
    "skips",
    metadata,
    _key("tenant"),
    _key("job_id"),
    _number_key("log_offset"),
    _number_key("number"),
    _number("incarnation"),
    _number("at_ms"),
    _number("from_ms"),
    _number("to_ms"),
    _number("count"),
    _word("reason"),
)
Index("skips_by_time", skips.c.at_ms)
Index("skips_of_job", skips.c.tenant, skips.c.job_id, skips.c.to_ms)

# Next occurrences that new zone data moved, from `before_ms` to `after_ms` (0: there is none any more).
tz_shifts = Table(
    "tz_shifts",
    metadata,
    _key("tenant"),
    _key("job_id"),
    _number_key("log_offset"),
    _word("tz_version"),
    _number("at_ms"),
    _number("before_ms"),
    _number("after_ms"),
)
Index(
    "tz_shifts_by_version", tz_shifts.c.tz_version, tz_shifts.c.at_ms, tz_shifts.c.tenant, tz_shifts.c.job_id
)
Index("tz_shifts_by_time", tz_shifts.c.at_ms)

# Counters by hour of the event, for each job and, under job "", for the whole tenant. Beyond the retention of
# details the hours of a day are added up in its first (`span_ms` tells).
stats = Table(
    "stats",
    metadata,
    _key("tenant"),
    _key("job_id"),
    _number_key("start_ms"),
    _number("span_ms"),
    *(_number(name) for name in OUTCOMES),
    _number("late_count"),
    _number("late_sum_ms"),
    _number("late_max_ms"),
    *(_number(name) for name in LATENESS_BUCKETS),
    sqlite_with_rowid=False,
)
Index("stats_hourly", stats.c.start_ms, sqlite_where=HOURLY, postgresql_where=HOURLY)

# `next_offset` is the next one to fold; `at_ms` the time of the newest event folded.
offsets = Table(
    "offsets",
    metadata,
    _number_key("partition"),
    _number("next_offset"),
    _number("at_ms"),
)

meta = Table("meta", metadata, _key("name"), _bytes("value"))


def fingerprint() -> bytes:
    """Changes whenever the tables do: a database of another shape is dropped and replayed."""
    dialect = sqlite.dialect()
    statements = [str(CreateTable(table).compile(dialect=dialect)) for table in metadata.sorted_tables]
    for table in metadata.sorted_tables:
        statements += sorted(str(CreateIndex(index).compile(dialect=dialect)) for index in table.indexes)
    return hashlib.sha256("\n".join(statements).encode()).digest()
