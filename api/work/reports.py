"""Owns heartbeats and outcomes: one at a time or up to 1,000 a call, decided by the executions' partitions.

A batch becomes one command for each kind and partition; the results come back in the order of the items.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
from fastapi import APIRouter, Request
from msgspec import UNSET, UnsetType
from starlette.responses import Response

from api import bodies, positions, unsupported
from api.answers import HeartbeatAnswer, ReportAnswer, ReportResult, ReportResults
from api.auth import Caller
from api.bodies import BATCH_BYTES_MAX, Items
from api.changes import encoded, envelope
from api.models import (
    CompleteBody,
    FailBody,
    HeartbeatBody,
    HeartbeatsBody,
    LeaseItem,
    OutcomeItem,
    OutcomesBody,
    ReleaseBody,
)
from api.openapi import described
from api.problems import Problem, not_found, outcome_unknown, refused, wrong
from api.services import Services, services
from api.work.claims import Worker
from schemas.commands import (
    Beat,
    Complete,
    Completion,
    ExtendLease,
    Fail,
    Failure,
    Handback,
    LeaseRef,
    Release,
    WorkCommand,
)
from schemas.ids import TENANT, job_id_of
from schemas.replies import ItemResult
from streams.core import refusals
from streams.core.instants import format_instant
from streams.core.limits import ERROR_CHARS_MAX
from streams.core.refusals import OTHER_POOL, invalid
from streams.core.validation import check_item

router = APIRouter(prefix="/v1/executions", tags=["workers"])

T = TypeVar("T")
Place = tuple[int, str, LeaseRef]
"""Index of an item in its call, whose execution it is about, and the item."""

_COMMANDS: dict[type[LeaseRef], Callable[..., WorkCommand]] = {
    Beat: ExtendLease,
    Completion: Complete,
    Failure: Fail,
    Handback: Release,
}


@router.post(
    "/heartbeats",
    **described(gives={200: ReportResults}, takes=HeartbeatsBody, problems=(413,), changes=True),
)
async def heartbeats(request: Request, caller: Worker) -> Response:
    """Extends up to 1,000 leases of a worker."""
    body, document = await bodies.read(request, BATCH_BYTES_MAX)
    items = Items(body, document, "leases", beside=("workerId",))
    worker_id = document.value.get("workerId")
    if not isinstance(worker_id, str):
        raise wrong("workerId", "is needed")

    def beat(index: int) -> tuple[str, LeaseRef]:
        lease = items.typed(index, LeaseItem)
        return _owner(caller, lease.tenant), Beat(
            execution_id=lease.execution_id,
            worker_id=worker_id,
            lease_epoch=lease.lease_epoch,
            progress=_json(lease.progress),
        )

    return await _answer_all(request, caller, items, beat)


@router.post(
    "/outcomes",
    **described(gives={200: ReportResults}, takes=OutcomesBody, problems=(413,), changes=True),
)
async def outcomes(request: Request, caller: Worker) -> Response:
    """Up to 1,000 successes and failures."""
    body, document = await bodies.read(request, BATCH_BYTES_MAX)
    items = Items(body, document, "outcomes", beside=("workerId",))
    default = document.value.get("workerId")
    if default is not None and not isinstance(default, str):
        raise wrong("workerId", "is a string")

    def outcome(index: int) -> tuple[str, LeaseRef]:
        tree = items.trees[index]
        if isinstance(tree, dict):
            unsupported.check_members(tree, "lines")
        item = items.typed(index, OutcomeItem)
        return _owner(caller, item.tenant), _outcome(item, default)

    return await _answer_all(request, caller, items, outcome)


@router.post(
    "/{execution_id}/heartbeat",
    **described(gives={200: HeartbeatAnswer}, takes=HeartbeatBody, problems=(404, 409), changes=True),
)
async def heartbeat(request: Request, caller: Worker, execution_id: str) -> Response:
    """Extends a lease; the answer says until when, or that the worker must stop."""
    body = await bodies.decoded(request, HeartbeatBody)
    beat = Beat(
        execution_id=execution_id,
        worker_id=body.worker_id,
        lease_epoch=body.lease_epoch,
        progress=_json(body.progress),
    )
    result, headers = await _one(request, caller, body.tenant, beat)
    return encoded(HeartbeatAnswer(extend_until=format_instant(result.extend_until_ms)), headers=headers)


@router.post(
    "/{execution_id}/complete",
    **described(gives={200: ReportAnswer}, takes=CompleteBody, problems=(404, 409), changes=True),
)
async def complete(request: Request, caller: Worker, execution_id: str) -> Response:
    """The execution succeeded."""
    body = await bodies.decoded(request, CompleteBody, _without_lines)
    completion = Completion(
        execution_id=execution_id,
        worker_id=body.worker_id,
        lease_epoch=body.lease_epoch,
        result=_json(body.result) or b"",
    )
    _, headers = await _one(request, caller, body.tenant, completion)
    return encoded(ReportAnswer(execution_id=execution_id), headers=headers)


@router.post(
    "/{execution_id}/fail",
    **described(gives={200: ReportAnswer}, takes=FailBody, problems=(404, 409), changes=True),
)
async def fail(request: Request, caller: Worker, execution_id: str) -> Response:
    """The attempt failed; it is retried by the job's policy unless it says otherwise."""
    body = await bodies.decoded(request, FailBody, _without_lines)
    failure = _failure(
        execution_id, body.worker_id, body.lease_epoch, body.error, body.retryable, body.retry_after_sec
    )
    _, headers = await _one(request, caller, body.tenant, failure)
    return encoded(ReportAnswer(execution_id=execution_id), headers=headers)


@router.post(
    "/{execution_id}/release",
    **described(gives={200: ReportAnswer}, takes=ReleaseBody, problems=(404, 409), changes=True),
)
async def release(request: Request, caller: Worker, execution_id: str) -> Response:
    """Hands the execution back, at once or after a while."""
    body = await bodies.decoded(request, ReleaseBody)
    handback = Handback(
        execution_id=execution_id,
        worker_id=body.worker_id,
        lease_epoch=body.lease_epoch,
        delay_sec=body.delay_sec,
    )
    _, headers = await _one(request, caller, body.tenant, handback)
    return encoded(ReportAnswer(execution_id=execution_id), headers=headers)


async def _one(
    request: Request, caller: Caller, tenant: str | None, item: LeaseRef
) -> tuple[ItemResult, dict[str, str]]:
    place = (0, _owner(caller, tenant), _checked(item))
    [result], headers = await _report(services(request), caller, [place], 1)
    if result is None:
        raise outcome_unknown()
    if result.code:
        raise Problem(result.status, result.code, result.detail)
    return result, headers


def _owner(caller: Caller, tenant: str | None) -> str:
    """Whose execution a call is about: the caller's own; a worker of shared pools says whose."""
    if caller.serves_all:
        if tenant is None:
            raise wrong("tenant", "is needed with a key of shared pools, as the claim gave it")
        if not TENANT.fullmatch(tenant):
            raise not_found("execution")
        return tenant
    if tenant not in (None, caller.tenant):
        raise not_found("execution")
    return caller.tenant


async def _answer_all(
    request: Request, caller: Caller, items: Items, make: Callable[[int], tuple[str, LeaseRef]]
) -> Response:
    """The batch's results; an item that cannot be taken is a problem at its place."""
    count = len(items.trees)
    results: list[ReportResult | None] = [None] * count
    places: list[Place] = []
    for index in range(count):
        try:
            tenant, item = make(index)
            places.append((index, tenant, _checked(item)))
        except Problem as problem:
            results[index] = _problem(_named(items.trees[index]), problem)
    answered, headers = await _report(services(request), caller, places, count)
    for index, _, item in places:
        results[index] = _result(item.execution_id, answered[index])
    return encoded(ReportResults(results=[each for each in results if each is not None]), headers=headers)


async def _report(
    served: Services, caller: Caller, places: Sequence[Place], count: int
) -> tuple[list[ItemResult | None], dict[str, str]]:
    """The results by index (None: no answer), and the answer's headers."""
    grouped: dict[tuple[type[LeaseRef], str, int], list[tuple[int, LeaseRef]]] = {}
    job_ids: dict[int, str] = {}
    client, pools = served.client, tuple(sorted(caller.pools))
    for index, tenant, item in places:
        job_ids[index] = job_id_of(item.execution_id) or ""
        partition = client.partition_of(tenant, job_ids[index])
        grouped.setdefault((type(item), tenant, partition), []).append((index, item))
    commands = [
        (
            partition,
            _COMMANDS[kind](
                **envelope(served, caller, tenant=tenant),
                items=tuple(item for _, item in group),
                pools=pools,
            ),
        )
        for (kind, tenant, partition), group in grouped.items()
    ]
    done = await client.work(commands) if commands else []
    results: list[ItemResult | None] = [None] * count
    written = []
    for ((kind, tenant, _), group), outcome in zip(grouped.items(), done, strict=True):
        served.metrics.outcomes.labels(kind.__name__.lower()).inc(len(group))
        if outcome is None:
            served.metrics.unknown.inc()
            continue
        written.append((outcome.partition, outcome.offset))
        served.own_writes.note(tenant, *written[-1], {job_ids[index] for index, _ in group})
        # A command refused as a whole has one result for all its items.
        answers = outcome.results if len(outcome.results) == len(group) else outcome.results[:1] * len(group)
        for (index, _), result in zip(group, answers, strict=True):
            results[index] = _seen_by(caller, result)
    return results, positions.header(written)


def _seen_by(caller: Caller, result: ItemResult) -> ItemResult:
    """What other tenants have in other pools is not there for a worker of shared ones."""
    if caller.serves_all and result.code == OTHER_POOL.code:
        missing = refusals.not_found("execution")
        return ItemResult(status=missing.status, code=missing.code, detail=missing.detail)
    return result


def _checked(item: LeaseRef) -> LeaseRef:
    if job_id_of(item.execution_id) is None:
        raise not_found("execution")
    problems = check_item(item, known=False)
    if problems:
        raise refused(invalid(*problems))
    return item


def _result(execution_id: str, result: ItemResult | None) -> ReportResult:
    if result is None:
        return _problem(execution_id, outcome_unknown())
    if result.code:
        return _problem(execution_id, Problem(result.status, result.code, result.detail))
    until = format_instant(result.extend_until_ms) if result.extend_until_ms else None
    return ReportResult(execution_id=execution_id, status=result.status, extend_until=until)


def _problem(execution_id: str, problem: Problem) -> ReportResult:
    return ReportResult(execution_id=execution_id, status=problem.status, problem=problem.body)


def _named(tree: Any) -> str:
    """The id that an unusable item names, as far as it can be shown."""
    named = tree.get("executionId") if isinstance(tree, dict) else None
    return named[:200].encode("utf-8", "replace").decode() if isinstance(named, str) else ""


def _outcome(item: OutcomeItem, default_worker: str | None) -> LeaseRef:
    worker_id = item.worker_id if item.worker_id is not None else default_worker
    if worker_id is None:
        raise wrong("workerId", "is needed")
    if item.status == "COMPLETED":
        for name, given in (
            ("error", item.error),
            ("retryable", item.retryable),
            ("retryAfterSec", item.retry_after_sec),
        ):
            if given is not None:
                raise wrong(name, "belongs to FAILED")
        return Completion(
            execution_id=item.execution_id,
            worker_id=worker_id,
            lease_epoch=item.lease_epoch,
            result=_json(item.result) or b"",
        )
    if item.result is not UNSET:
        raise wrong("result", "belongs to COMPLETED")
    if item.error is None:
        raise wrong("error", "is needed with FAILED")
    retryable = item.retryable if item.retryable is not None else True
    return _failure(
        item.execution_id, worker_id, item.lease_epoch, item.error, retryable, item.retry_after_sec
    )


def _failure(
    execution_id: str,
    worker_id: str,
    lease_epoch: int,
    error: str,
    retryable: bool,
    retry_after_sec: int | None,
) -> Failure:
    if retry_after_sec is not None and retry_after_sec < 0:
        raise wrong("retryAfterSec", "is not negative")  # -1 means "by the policy" in a command
    return Failure(
        execution_id=execution_id,
        worker_id=worker_id,
        lease_epoch=lease_epoch,
        error=error[:ERROR_CHARS_MAX],
        retryable=retryable,
        retry_after_sec=-1 if retry_after_sec is None else retry_after_sec,
    )


def _json(value: msgspec.Raw | UnsetType) -> bytes | None:
    return None if value is UNSET else bytes(value)


def _without_lines(tree: dict[str, Any]) -> None:
    unsupported.check_members(tree, "lines")
