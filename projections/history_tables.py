"""Owns the shape of history: what happened, as far back as log and retention go.

Current rows are in `projections.tables`.
"""

from __future__ import annotations

from sqlalchemy import Column, Index, Integer, Table, text

from projections.columns import bytes_, key, metadata, number, number_key, word
from schemas.topics import HOUR_MS

NOT_OF_EXECUTION = text("scope <> 'execution'")
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

# One row a grant. `attempt` is the one it was granted for; `ended_ms` 0: it still runs.
attempts = Table(
    "attempts",
    metadata,
    key("tenant"),
    key("execution_id"),
    number_key("lease_epoch"),
    number("attempt"),
    number("delivery_count"),
    number("fencing_token"),
    word("worker_id"),
    number("claimed_ms"),
    number("ended_ms"),
    word("lease_end"),
    word("error"),
    word("reported"),
    sqlite_with_rowid=False,
)

# One row an event. `scope` is job, execution or tenant and `subject` its id; `entity` is the event's entity
# type.
# `value` is the event as logged, without payload: what changed is the difference to the row before.
history = Table(
    "history",
    metadata,
    key("tenant"),
    key("scope"),
    key("subject"),
    number_key("log_offset"),
    Column("partition", Integer, nullable=False),
    word("entity"),
    number("at_ms"),
    bytes_("value"),
)
Index(
    "history_by_time",
    history.c.at_ms,
    sqlite_where=NOT_OF_EXECUTION,
    postgresql_where=NOT_OF_EXECUTION,
)

# Occurrences that never became executions, by the cursor's event that says so.
skips = Table(
    "skips",
    metadata,
    key("tenant"),
    key("job_id"),
    number_key("log_offset"),
    number_key("number"),
    number("incarnation"),
    number("at_ms"),
    number("from_ms"),
    number("to_ms"),
    number("count"),
    word("reason"),
)
Index("skips_by_time", skips.c.at_ms)
Index("skips_of_job", skips.c.tenant, skips.c.job_id, skips.c.to_ms)

# Next occurrences that new zone data moved, from `before_ms` to `after_ms` (0: there is none any more).
tz_shifts = Table(
    "tz_shifts",
    metadata,
    key("tenant"),
    key("job_id"),
    number_key("log_offset"),
    word("tz_version"),
    number("at_ms"),
    number("before_ms"),
    number("after_ms"),
)
Index(
    "tz_shifts_by_version", tz_shifts.c.tz_version, tz_shifts.c.at_ms, tz_shifts.c.tenant, tz_shifts.c.job_id
)
Index("tz_shifts_by_time", tz_shifts.c.at_ms)

# What a person should see; tenant "" is for operators.
alerts = Table(
    "alerts",
    metadata,
    key("tenant"),
    key("alert_id"),
    word("kind"),
    number("at_ms"),
    word("detail"),
    word("job_id"),
    word("execution_id"),
    word("target"),
    number("count"),
)
Index("alerts_of_tenant", alerts.c.tenant, alerts.c.at_ms, alerts.c.alert_id)
Index("alerts_by_time", alerts.c.at_ms)

# Counters by hour of the event, for each job and, under job "", for the whole tenant. Beyond the retention of
# details the hours of a day are added up in its first (`span_ms` tells).
stats = Table(
    "stats",
    metadata,
    key("tenant"),
    key("job_id"),
    number_key("start_ms"),
    number("span_ms"),
    *(number(name) for name in OUTCOMES),
    number("late_count"),
    number("late_sum_ms"),
    number("late_max_ms"),
    *(number(name) for name in LATENESS_BUCKETS),
    sqlite_with_rowid=False,
)
Index("stats_hourly", stats.c.start_ms, sqlite_where=HOURLY, postgresql_where=HOURLY)
