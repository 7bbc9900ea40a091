"""What workers say: claim, heartbeat, complete, fail, release, each as a pure function.

Repeating any of them is safe: a claim by its `claim_id`, an outcome because the accepted one answers again.
Keys of `shared/` pools send the `tenant` of the claim with every call and item.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from horarium.convert import build, parse_time
from horarium.exchange import Answer, Call, new_key
from horarium.models import Claimed, Grants, LeaseAnswer

# The server answers a claim within `wait_sec`; the rest is for a slow network and a busy server.
CLAIM_SLACK_SEC = 10.0

UNSET: Any = object()
"""Stands for "not given" where None is a JSON value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """One lease to extend; `progress` (any JSON) replaces the stored one, unless UNSET."""

    execution_id: str
    lease_epoch: int
    progress: Any = UNSET
    tenant: str | None = None

    def to_json(self) -> dict[str, Any]:
        return _lease(self.execution_id, self.lease_epoch, self.tenant) | _given(progress=self.progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an attempt ended. `error` None: it succeeded with `result`; else it failed."""

    execution_id: str
    lease_epoch: int
    worker_id: str
    result: Any = UNSET
    error: str | None = None
    retryable: bool = True
    retry_after_sec: int | None = None
    tenant: str | None = None

    def to_json(self) -> dict[str, Any]:
        item = _lease(self.execution_id, self.lease_epoch, self.tenant) | {"workerId": self.worker_id}
        if self.error is None:
            return item | {"status": "COMPLETED"} | _given(result=self.result)
        return item | {"status": "FAILED"} | failure_json(self.error, self.retryable, self.retry_after_sec)


def failure_json(error: str, retryable: bool, retry_after_sec: int | None) -> dict[str, Any]:
    """The members of a failed attempt."""
    members: dict[str, Any] = {"error": error, "retryable": retryable}
    return members if retry_after_sec is None else members | {"retryAfterSec": retry_after_sec}


def _given(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not UNSET}


def _lease(execution_id: str, lease_epoch: int, tenant: str | None) -> dict[str, Any]:
    item: dict[str, Any] = {"executionId": execution_id, "leaseEpoch": lease_epoch}
    return item if tenant is None else item | {"tenant": tenant}


def claim(
    pool: str,
    worker_id: str,
    *,
    max: int = 1,
    wait_sec: float = 20,
    lease_sec: int | None = None,
    claim_id: str | None = None,
) -> Call[Grants]:
    """Takes up to `max` due executions under a lease; waits up to `wait_sec` (at most 20) for the first."""
    body: dict[str, Any] = {"workerId": worker_id, "max": max, "waitSec": wait_sec}
    # Always with an id, so that a claim whose answer was lost can be repeated.
    body["claimId"] = claim_id or new_key()
    if lease_sec is not None:
        body["leaseSec"] = lease_sec
    return Call(
        method="POST",
        path=f"/v1/pools/{quote(pool, safe='')}/claim",
        body=body,
        parse=_grants,
        timeout_sec=wait_sec + CLAIM_SLACK_SEC,
    )


def _grants(answer: Answer) -> Grants:
    executions = tuple(build(Claimed, each) for each in answer.json()["executions"])
    return Grants(executions, answer.server_time)


def heartbeat(
    execution_id: str,
    worker_id: str,
    lease_epoch: int,
    *,
    progress: Any = UNSET,
    tenant: str | None = None,
) -> Call[LeaseAnswer]:
    """Extends one lease; Conflict if it is lost, cancelled, timed out or finished."""
    body = _holder(worker_id, lease_epoch, tenant) | _given(progress=progress)
    return _of_execution(execution_id, "heartbeat", body)


def heartbeats(
    worker_id: str, leases: Iterable[Beat], *, timeout_sec: float | None = None
) -> Call[tuple[LeaseAnswer, ...]]:
    """Extends up to 1,000 leases; one answer for each, in order."""
    body = {"workerId": worker_id, "leases": [beat.to_json() for beat in leases]}
    return _batch("heartbeats", body, timeout_sec)


def complete(
    execution_id: str, worker_id: str, lease_epoch: int, *, result: Any = UNSET, tenant: str | None = None
) -> Call[LeaseAnswer]:
    """Reports a success; Conflict if the lease is not held any more."""
    body = _holder(worker_id, lease_epoch, tenant) | _given(result=result)
    return _of_execution(execution_id, "complete", body)


def fail(
    execution_id: str,
    worker_id: str,
    lease_epoch: int,
    error: str,
    *,
    retryable: bool = True,
    retry_after_sec: int | None = None,
    tenant: str | None = None,
) -> Call[LeaseAnswer]:
    """Reports a failed attempt; it is retried by policy, unless not `retryable`."""
    body = _holder(worker_id, lease_epoch, tenant) | failure_json(error, retryable, retry_after_sec)
    return _of_execution(execution_id, "fail", body)


def release(
    execution_id: str, worker_id: str, lease_epoch: int, *, delay_sec: int = 0, tenant: str | None = None
) -> Call[LeaseAnswer]:
    """Hands an execution back, to be delivered again after a delay; spends no attempt."""
    body = _holder(worker_id, lease_epoch, tenant) | ({"delaySec": delay_sec} if delay_sec else {})
    return _of_execution(execution_id, "release", body)


def outcomes(items: Iterable[Outcome]) -> Call[tuple[LeaseAnswer, ...]]:
    """Reports up to 1,000 outcomes; one answer for each, in order."""
    return _batch("outcomes", {"outcomes": [item.to_json() for item in items]})


def _holder(worker_id: str, lease_epoch: int, tenant: str | None) -> dict[str, Any]:
    body: dict[str, Any] = {"workerId": worker_id, "leaseEpoch": lease_epoch}
    return body if tenant is None else body | {"tenant": tenant}


def _of_execution(execution_id: str, verb: str, body: Mapping[str, Any]) -> Call[LeaseAnswer]:
    return Call(
        method="POST",
        path=f"/v1/executions/{quote(execution_id, safe='')}/{verb}",
        body=body,
        parse=lambda answer: _lease_answer(answer, answer.json() if answer.body else {}),
    )


def _batch(
    what: str, body: Mapping[str, Any], timeout_sec: float | None = None
) -> Call[tuple[LeaseAnswer, ...]]:
    return Call(
        method="POST",
        path=f"/v1/executions/{what}",
        body=body,
        parse=lambda answer: tuple(_lease_answer(answer, each) for each in answer.json()["results"]),
        timeout_sec=timeout_sec,
    )


def _lease_answer(answer: Answer, item: Mapping[str, Any]) -> LeaseAnswer:
    problem = item.get("problem") or item
    until = item.get("extendUntil")
    return LeaseAnswer(
        status=int(item.get("status", answer.status)),
        code=str(problem.get("code") or ""),
        detail=str(problem.get("detail") or ""),
        extend_until=parse_time(until) if until else None,
        server_time=answer.server_time,
    )
