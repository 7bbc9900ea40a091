"""Jobs, executions, dead letters and partitions: each request of the API as a pure function.

Schedules, pauses and backfills are in `horarium.time_calls`, tenants, pools and alerts in
`horarium.tenant_calls`, what workers say in `horarium.work_calls`.
`horarium.client` turns each into a method of `Client` and of `AsyncClient`; the docstrings and parameters
here are those of the methods.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from horarium.convert import build, same
from horarium.errors import from_problem
from horarium.exchange import Answer, Call
from horarium.forms import given, listed, match_of, one, paged, params_of, path_of, window_of
from horarium.models import BatchItem, Event, Execution, Job, Page, Partition, ScheduledTask
from horarium.schedules import JobSpec, format_time, payload_json

T = TypeVar("T")

RATE_LIMITED = "rate_limited"


def create_job(spec: JobSpec, *, idempotency_key: str | None = None) -> Call[Job]:
    """Registers a job. Repeated with the same key and meaning it answers what it answered first."""
    return Call(
        method="POST",
        path=path_of("jobs"),
        body=spec.to_json(),
        parse=one(Job),
        makes=True,
        key=idempotency_key,
    )


def create_jobs(
    specs: Iterable[JobSpec], *, idempotency_key: str | None = None
) -> Call[tuple[BatchItem, ...]]:
    """Registers up to 1,000 jobs, each on its own: look at every answer, they come in order.

    Repeated while some are refused by the rate of registrations, as long as the client repeats calls."""
    return Call(
        method="POST",
        path=path_of("jobs", "batch"),
        body={"jobs": [spec.to_json() for spec in specs]},
        parse=lambda answer: tuple(_batch_item(each) for each in answer.json()["results"]),
        makes=True,
        key=idempotency_key,
        unfinished=_rate_limited,
    )


def _rate_limited(items: tuple[BatchItem, ...]) -> float | None:
    """What was taken is answered alike when the batch is repeated, and costs nothing."""
    waits = [
        item.error.retry_after_sec or 0.0
        for item in items
        if item.error is not None and item.error.code == RATE_LIMITED
    ]
    return min(waits, default=None)


def _batch_item(item: Mapping[str, Any]) -> BatchItem:
    status = int(item["status"])
    if status < 300:
        return BatchItem(status=status, job=build(Job, item["job"]))
    return BatchItem(status=status, error=from_problem(status, item.get("problem") or {}))


def put_job(job_id: str, spec: JobSpec, *, version: int | None = None) -> Call[Job]:
    """Registers a job under an id of one's own, or updates it; repeating it is harmless. With `version` it
    only updates, and only that version (PreconditionFailed if it has another)."""
    return Call(
        method="PUT",
        path=path_of("jobs", job_id),
        body=spec.to_json(),
        headers={} if version is None else match_of(version),
        parse=one(Job),
    )


def get_job(job_id: str) -> Call[Job]:
    """One job, with its last execution and counts."""
    return Call(method="GET", path=path_of("jobs", job_id), parse=one(Job), reads=True)


def list_jobs(
    *,
    status: str | None = None,
    pool: str | None = None,
    name: str | None = None,
    labels: Mapping[str, str] | None = None,
    exclusion_group: str | None = None,
    next_run_before: datetime | str | None = None,
    page_size: int | None = None,
    page_token: str | None = None,
) -> Call[Page[Job]]:
    """Jobs of the tenant, newest first."""
    params = params_of(
        labels,
        status=status,
        pool=pool,
        name=name,
        exclusionGroup=exclusion_group,
        nextRunBefore=next_run_before,
        pageSize=page_size,
        pageToken=page_token,
    )
    return Call(method="GET", path=path_of("jobs"), params=params, parse=paged(Job, "jobs"), reads=True)


def cancel_job(job_id: str) -> Call[Job]:
    """No further occurrences; what is pending ends, what runs is told."""
    return Call(method="DELETE", path=path_of("jobs", job_id), parse=one(Job))


def trigger_job(
    job_id: str,
    *,
    payload: Any = None,
    content_type: str | None = None,
    overlap_policy: str | None = None,
    reason: str | None = None,
    idempotency_key: str | None = None,
) -> Call[str]:
    """Runs a job now, paused or not, with a payload and an overlap policy of its own if given; the id of the
    execution."""
    return Call(
        method="POST",
        path=path_of("jobs", job_id, "trigger"),
        body=payload_json(payload, content_type) | given(overlapPolicy=overlap_policy, reason=reason),
        parse=_execution_id,
        makes=True,
        key=idempotency_key,
    )


def _execution_id(answer: Answer) -> str:
    return str(answer.json()["executionId"])


def schedule_task(
    name: str,
    execute_at: datetime | str,
    *,
    pool: str,
    payload: Any = None,
    idempotency_key: str | None = None,
) -> Call[ScheduledTask]:
    """The short form for one-off tasks: run `name` in `pool` at an instant."""
    body = {"name": name, "execute_at": format_time(execute_at), "target_topic": pool}
    return Call(
        method="POST",
        path="/api/v1/jobs/schedule",
        body=body | ({} if payload is None else {"payload": payload}),
        parse=lambda answer: build(ScheduledTask, answer.json(), rename=same),
        makes=True,
        key=idempotency_key,
    )


def job_executions(
    job_id: str, *, page_size: int | None = None, page_token: str | None = None
) -> Call[Page[Execution]]:
    """Executions of one job, newest first."""
    return Call(
        method="GET",
        path=path_of("jobs", job_id, "executions"),
        params=params_of(pageSize=page_size, pageToken=page_token),
        parse=paged(Execution, "executions"),
        reads=True,
    )


def list_executions(
    *,
    status: str | None = None,
    pool: str | None = None,
    task: str | None = None,
    job_id: str | None = None,
    kind: str | None = None,
    backfill_id: str | None = None,
    labels: Mapping[str, str] | None = None,
    scheduled_from: datetime | str | None = None,
    scheduled_to: datetime | str | None = None,
    page_size: int | None = None,
    page_token: str | None = None,
) -> Call[Page[Execution]]:
    """Executions of the tenant, newest first."""
    params = params_of(
        labels,
        status=status,
        pool=pool,
        task=task,
        jobId=job_id,
        kind=kind,
        backfillId=backfill_id,
        scheduledFrom=scheduled_from,
        scheduledTo=scheduled_to,
        pageSize=page_size,
        pageToken=page_token,
    )
    return Call(
        method="GET",
        path=path_of("executions"),
        params=params,
        parse=paged(Execution, "executions"),
        reads=True,
    )


def get_execution(execution_id: str) -> Call[Execution]:
    """One execution with every attempt."""
    return Call(method="GET", path=path_of("executions", execution_id), parse=one(Execution), reads=True)


def cancel_execution(execution_id: str, *, reason: str | None = None) -> Call[None]:
    """Ends an execution, also a scheduled one; a running one ends when its worker is told."""
    return Call(
        method="POST",
        path=path_of("executions", execution_id, "cancel"),
        body=given(reason=reason),
        parse=lambda answer: None,
        makes=True,
    )


def _events(
    resource: str, an_id: str, *, page_size: int | None = None, page_token: str | None = None
) -> Call[Page[Event]]:
    return Call(
        method="GET",
        path=path_of(resource, an_id, "events"),
        params=params_of(pageSize=page_size, pageToken=page_token),
        parse=paged(Event, "events"),
        reads=True,
    )


def job_events(
    job_id: str, *, page_size: int | None = None, page_token: str | None = None
) -> Call[Page[Event]]:
    """What happened to a job, from the log."""
    return _events("jobs", job_id, page_size=page_size, page_token=page_token)


def execution_events(
    execution_id: str, *, page_size: int | None = None, page_token: str | None = None
) -> Call[Page[Event]]:
    """What happened to an execution, from the log."""
    return _events("executions", execution_id, page_size=page_size, page_token=page_token)


def list_dead_letters(
    *,
    job_id: str | None = None,
    pool: str | None = None,
    task: str | None = None,
    reason: str | None = None,
    since: datetime | str | None = None,
    until: datetime | str | None = None,
    page_size: int | None = None,
    page_token: str | None = None,
) -> Call[Page[Execution]]:
    """Executions that were given up, newest first."""
    params = params_of(
        jobId=job_id, pool=pool, task=task, reason=reason, pageSize=page_size, pageToken=page_token
    )
    params |= window_of(since, until)
    return Call(
        method="GET",
        path=path_of("dead-letters"),
        params=params,
        parse=paged(Execution, "deadLetters"),
        reads=True,
    )


def get_dead_letter(execution_id: str) -> Call[Execution]:
    """One given-up execution with payload, error and attempts."""
    return Call(method="GET", path=path_of("dead-letters", execution_id), parse=one(Execution), reads=True)


def replay_dead_letter(
    execution_id: str,
    *,
    payload: Any = None,
    content_type: str | None = None,
    reason: str | None = None,
    idempotency_key: str | None = None,
) -> Call[str]:
    """Runs a given-up execution again, with a corrected payload if given; its id."""
    return Call(
        method="POST",
        path=path_of("dead-letters", execution_id, "replay"),
        body=payload_json(payload, content_type) | given(reason=reason),
        parse=_execution_id,
        makes=True,
        key=idempotency_key,
    )


def partitions() -> Call[tuple[Partition, ...]]:
    """Who runs which partition of the log (operators)."""
    return Call(method="GET", path=path_of("partitions"), parse=listed(Partition, "partitions"), reads=True)


def next_page(call: Call[Page[T]], page: Page[T]) -> Call[Page[T]] | None:
    """The call for the page after this one; None at the end."""
    if page.next_page_token is None:
        return None
    return dataclasses.replace(call, params={**call.params, "pageToken": page.next_page_token})
