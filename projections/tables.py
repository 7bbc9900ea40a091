"""Owns the shape of the read model: every table and index, once for SQLite and PostgreSQL.

Columns that mirror an entity carry the names of its attributes; `tests/unit/projections/test_tables.py` fails
when an entity grows an attribute that no column keeps. "Not yet" is 0 or "", as in the entities.

Here stand the current rows, equal for a log and its compacted form; what happened is in
`projections.history_tables`. `offsets` says how far each partition is folded; `meta` names this generation of
the tables.
"""

from __future__ import annotations

from sqlalchemy import Index, Table, text

from projections.columns import bytes_, flag, key, metadata, number, number_key, word

# Partial indexes serve a query only if it repeats the very condition.
NOT_COMPLETED = text("status <> 'COMPLETED'")
OPEN = text("status IN ('SCHEDULED', 'PENDING', 'RUNNING')")
# Said by another column than those that the index is searched by: SQLite would search by this condition.
UNFINISHED = text("finished_ms = 0")
UNFINISHED_SHARED = text("finished_ms = 0 AND pool >= 'shared/' AND pool < 'shared0'")
DEAD_LETTER = text("status = 'FAILED' AND forgotten_ms = 0 AND discarded_by = ''")
# A dead letter stays as long as the engine can replay it, whatever the retention.
PURGEABLE = text("finished_ms > 0 AND (status <> 'FAILED' OR forgotten_ms > 0 OR discarded_by <> '')")
WILL_RUN = text("status = 'ACTIVE' AND next_execution_id <> ''")
LIVING_JOB = text("status IN ('ACTIVE', 'PAUSED')")
FINISHED_JOB = text("finished_ms > 0")
BACKFILLED = text("backfill <> ''")

# One row a job, of its newest incarnation: what lists filter on, and the cursor. `version` 0: only the cursor
# was seen so far (in a compacted log it may come first). `cursor_incarnation` 0: no cursor, the job stands at
# its beginning. `next_execution_id`: the id that the next occurrence will be fired with. `catch_up` is JSON.
jobs = Table(
    "jobs",
    metadata,
    key("tenant"),
    key("job_id"),
    number("incarnation"),
    number("version"),
    word("name"),
    word("pool"),
    number("created_ms"),
    number("cursor_incarnation"),
    word("status"),
    number("next_ms"),
    word("next_local"),
    word("next_execution_id"),
    number("last_ms"),
    word("last_local"),
    word("catch_up"),
    word("tz_version"),
    number("finished_ms"),
    number("paused_ms"),
    word("paused_by"),
    word("paused_reason"),
    number("next_due_ms"),
    number("runs"),
    word("exclusion_group"),
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
    "jobs_living",
    jobs.c.tenant,
    jobs.c.pool,
    sqlite_where=LIVING_JOB,
    postgresql_where=LIVING_JOB,
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
    key("tenant"),
    key("job_id"),
    number_key("incarnation"),
    number_key("version"),
    word("pool"),
    word("name"),
    word("task"),
    word("content_type"),
    word("labels"),
    word("schedule"),
    word("policies"),
    number("created_ms"),
    word("created_by"),
    word("request_key"),
    word("body_hash"),
    number("first_next_ms"),
    word("first_next_local"),
    number("first_due_ms"),
    number("first_version"),
    word("definition_hash"),
    number("updated_ms"),
    word("updated_by"),
    bytes_("payload"),
)

# `definitions.labels` once more, to filter by.
labels = Table(
    "labels",
    metadata,
    key("tenant"),
    key("key"),
    key("value"),
    key("job_id"),
    number_key("incarnation"),
    number_key("version"),
    sqlite_with_rowid=False,
)

# One row an execution. `forgotten_ms`: when the engine let go of it; a dead letter cannot be replayed then.
# `discarded_by`: who said that a dead letter is dealt with.
executions = Table(
    "executions",
    metadata,
    key("tenant"),
    key("execution_id"),
    word("job_id"),
    number("incarnation"),
    number("job_version"),
    word("kind"),
    word("pool"),
    word("priority"),
    number("scheduled_ms"),
    number("due_ms"),
    number("fired_ms"),
    word("status"),
    word("waiting_for"),
    number("attempt"),
    number("delivery_count"),
    number("lease_epoch"),
    number("fencing_token"),
    word("worker_id"),
    word("claim_id"),
    number("first_started_ms"),
    number("started_ms"),
    number("lease_until_ms"),
    number("lease_sec"),
    number("deadline_ms"),
    word("lease_end"),
    number("cancel_requested_ms"),
    number("finished_ms"),
    word("error"),
    word("reason"),
    word("reported"),
    bytes_("result"),
    word("idempotency_key"),
    number("replays"),
    word("replay_key"),
    number("start_deadline_ms"),
    word("backfill"),
    word("exclusion_group"),
    number("lateness_alert_sec"),
    flag("closes_job"),
    number("forgotten_ms"),
    word("discarded_by"),
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
# What pools have to do, and what runs there; those that serve all tenants once more for all of them together.
# The last column is the condition's: with it, the index alone answers.
Index(
    "executions_unfinished",
    executions.c.tenant,
    executions.c.status,
    executions.c.pool,
    executions.c.priority,
    executions.c.due_ms,
    executions.c.finished_ms,
    sqlite_where=UNFINISHED,
    postgresql_where=UNFINISHED,
)
Index(
    "executions_unfinished_shared",
    executions.c.pool,
    executions.c.status,
    executions.c.priority,
    executions.c.due_ms,
    executions.c.finished_ms,
    sqlite_where=UNFINISHED_SHARED,
    postgresql_where=UNFINISHED_SHARED,
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
    key("tenant"),
    key("execution_id"),
    number("lease_epoch"),
    number("until_ms"),
    bytes_("progress"),
)

# Payloads of executions that differ from, or outlive, their job's: triggers, replays, dead letters.
contents = Table(
    "contents",
    metadata,
    key("tenant"),
    key("execution_id"),
    word("name"),
    word("task"),
    bytes_("payload"),
    word("content_type"),
    word("labels"),
    word("policies"),
)

# Circuit breakers: each partition of a tenant has its own. `probes` is JSON.
breakers = Table(
    "breakers",
    metadata,
    key("tenant"),
    key("target"),
    number_key("partition"),
    word("status"),
    number("changed_ms"),
    number("until_ms"),
    number("openings"),
    word("probes"),
    number("outcomes"),
    number("failures"),
)

# `next_offset` is the next one to fold; `at_ms` the time of the newest event folded.
offsets = Table(
    "offsets",
    metadata,
    number_key("partition"),
    number("next_offset"),
    number("at_ms"),
)

meta = Table("meta", metadata, key("name"), bytes_("value"))
