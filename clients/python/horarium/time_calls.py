"""Previews, updates, pauses, backfills and what became of occurrences, each as a pure function."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from horarium.exchange import Call
from horarium.forms import given, match_of, one, params_of, path_of, window_of
from horarium.models import Backfill, Job, Occurrences, Preview, TzShifts
from horarium.schedules import Schedule, format_time, schedule_json


def preview_schedule(
    schedule: Schedule,
    *,
    job_id: str | None = None,
    after: datetime | str | None = None,
    count: int | None = None,
) -> Call[Preview]:
    """The next occurrences of a schedule, local and in UTC, without registering it. `job_id` is needed for
    `H`, and shows jitter; `after`: as if registered then."""
    members: dict[str, Any] = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in schedule_json(schedule).items()
    }
    return Call(
        method="GET",
        path=path_of("schedules", "preview"),
        params=params_of(None, **members, jobId=job_id, after=after, count=count),
        parse=one(Preview),
        reads=True,
    )


def update_job(
    job_id: str,
    changes: Mapping[str, Any],
    *,
    version: int,
    reason: str | None = None,
    idempotency_key: str | None = None,
) -> Call[Job]:
    """Changes members of a job by their JSON names (RFC 7396: None takes one away, others stay). `version` is
    the one you saw; PreconditionFailed if the job has another."""
    body = dict(changes)
    if body.get("schedule") is not None:
        body["schedule"] = schedule_json(body["schedule"])
    return Call(
        method="PATCH",
        path=path_of("jobs", job_id),
        body=body | given(reason=reason),
        headers=match_of(version),
        parse=one(Job),
        makes=True,
        key=idempotency_key,
    )


def pause_job(job_id: str, *, reason: str | None = None, idempotency_key: str | None = None) -> Call[Job]:
    """Nothing fires until the job is resumed; unfinished executions go on."""
    return Call(
        method="POST",
        path=path_of("jobs", job_id, "pause"),
        body=given(reason=reason),
        parse=one(Job),
        makes=True,
        key=idempotency_key,
    )


def resume_job(
    job_id: str, *, missed: str | None = None, reason: str | None = None, idempotency_key: str | None = None
) -> Call[Job]:
    """Lets a paused job fire again. What fell into the pause is skipped, unless `missed` is `fire_once` (the
    newest) or `fire_all`."""
    return Call(
        method="POST",
        path=path_of("jobs", job_id, "resume"),
        body=given(missed=missed, reason=reason),
        parse=one(Job),
        makes=True,
        key=idempotency_key,
    )


def backfill_job(
    job_id: str,
    since: datetime | str,
    until: datetime | str,
    *,
    dry_run: bool = True,
    overlap_policy: str | None = None,
    rerun: bool = False,
    priority: str | None = None,
    reason: str | None = None,
    idempotency_key: str | None = None,
) -> Call[Backfill]:
    """Executes what the schedule yields in [since, until). A dry run unless told otherwise: look at it, then
    ask again with `dry_run=False`. What ran is left out unless `rerun`."""
    body = given(overlapPolicy=overlap_policy, priority=priority, reason=reason)
    return Call(
        method="POST",
        path=path_of("jobs", job_id, "backfill"),
        body=body | {"from": format_time(since), "to": format_time(until), "dryRun": dry_run, "rerun": rerun},
        parse=one(Backfill),
        makes=True,
        key=idempotency_key,
    )


def job_occurrences(
    job_id: str, since: datetime | str | None = None, until: datetime | str | None = None
) -> Call[Occurrences]:
    """What became of each occurrence in [since, until), and what will; yesterday to tomorrow if left out."""
    return Call(
        method="GET",
        path=path_of("jobs", job_id, "occurrences"),
        params=window_of(since, until),
        parse=one(Occurrences),
        reads=True,
    )


def bulk_jobs(
    action: str,
    *,
    pool: str | None = None,
    name: str | None = None,
    labels: Mapping[str, str] | None = None,
    dry_run: bool = True,
    reason: str | None = None,
    idempotency_key: str | None = None,
) -> Call[int]:
    """`pause`, `resume` or `cancel` for every job that the filter finds; how many it was done to. A dry run
    unless told otherwise."""
    found = given(pool=pool, name=name, labels=None if labels is None else dict(labels))
    return Call(
        method="POST",
        path=path_of("jobs", "bulk"),
        body={"filter": found, "action": action, "dryRun": dry_run} | given(reason=reason),
        parse=lambda answer: int(answer.json()["count"]),
        makes=True,
        key=idempotency_key,
    )


def tz_shifts(version: str | None = None) -> Call[TzShifts]:
    """The jobs whose next occurrence one version of the zone data moved (operators)."""
    return Call(
        method="GET",
        path=path_of("tz-shifts"),
        params=params_of(version=version),
        parse=one(TzShifts),
        reads=True,
    )
