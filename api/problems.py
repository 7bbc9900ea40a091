"""Owns every error answer: RFC 9457 `application/problem+json`, made in this one place.

A problem is raised anywhere as `Problem`; the handlers here also turn the framework's own errors into one. No
answer has another form, and none is 422 except `idempotency_key_reused`. What went wrong inside is logged,
never shown.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from http import HTTPStatus

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from schemas.ids import JOB_ID
from schemas.replies import CommandDone, FieldProblem
from streams.core.refusals import Refusal

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:horarium:problem:"
RETRY_AFTER_SEC = 1
"""Long enough to calm a loop of retries, short enough to be gone before a person notices."""
FULL_RETRY_AFTER_SEC = 60
"""Jobs end in their own time, and their owner has to cancel some: not worth asking every second."""

_RETRIABLE = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})


class FieldError(msgspec.Struct, frozen=True, kw_only=True):
    """One field and what is wrong with it."""

    field: str
    detail: str


class ProblemBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The members of a problem. `idempotency_key` repeats the request safely after `outcome_unknown`;
    `retry_after_sec` says when an item of a batch may be sent again."""

    type: str
    title: str
    status: int
    code: str
    detail: str = ""
    errors: tuple[FieldError, ...] = ()
    idempotency_key: str = ""
    retry_after_sec: int = 0


class Problem(Exception):
    """An answer that is not a success."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        errors: Iterable[FieldProblem] = (),
        *,
        idempotency_key: str = "",
        headers: Mapping[str, str] | None = None,
        retry_after_sec: int = 0,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.headers = dict(headers or {})
        if status in _RETRIABLE:
            self.headers.setdefault("Retry-After", str(retry_after_sec or RETRY_AFTER_SEC))
        self.body = ProblemBody(
            type=TYPE_PREFIX + code,
            title=HTTPStatus(status).phrase,
            status=status,
            code=code,
            detail=detail,
            errors=tuple(FieldError(field=error.field, detail=error.detail) for error in errors),
            idempotency_key=idempotency_key,
            retry_after_sec=retry_after_sec,
        )

    @property
    def code(self) -> str:
        return self.body.code

    def response(self) -> Response:
        """The HTTP answer."""
        return Response(msgspec.json.encode(self.body), self.status, self.headers, MEDIA_TYPE)


def invalid(*errors: FieldProblem, code: str = "invalid") -> Problem:
    """400 naming every wrong field."""
    detail = "; ".join(f"{error.field}: {error.detail}" for error in errors[:5])
    return Problem(400, code, detail, errors)


def wrong(field: str, detail: str, code: str = "invalid") -> Problem:
    """400 for one field."""
    return invalid(FieldProblem(field=field, detail=detail), code=code)


def refused(refusal: Refusal) -> Problem:
    """What the check of a command's form, or a partition, said."""
    return Problem(refusal.status, refusal.code, refusal.detail, refusal.errors)


def too_many(outcome: CommandDone) -> Problem:
    """429: a rate says when there is room again and (draft-ietf-httpapi-ratelimit-headers) what it is; a
    number of things has room when one of them ends."""
    headers = {}
    retry_after_sec = math.ceil(outcome.retry_after_ms / 1000)
    if retry_after_sec and outcome.limit:
        headers["RateLimit-Policy"] = f'"registrations";q={outcome.limit};w=1'
        headers["RateLimit"] = f'"registrations";r=0;t={retry_after_sec}'
    return Problem(
        outcome.status,
        outcome.code,
        outcome.detail,
        outcome.errors,
        headers=headers,
        retry_after_sec=retry_after_sec or FULL_RETRY_AFTER_SEC,
    )


def not_found(what: str) -> Problem:
    """404; another tenant's thing looks the same."""
    return Problem(404, "not_found", f"no such {what}")


def of_job_id(job_id: str) -> None:
    """404 for what cannot be a job's id: nobody has it."""
    if not JOB_ID.fullmatch(job_id):
        raise not_found("job")


def too_large(what: str, limit: int, unit: str = "bytes") -> Problem:
    """413 before anything reaches the log."""
    detail = f"may be at most {limit} {unit}"
    return Problem(413, "too_large", f"{what} {detail}", (FieldProblem(field=what, detail=detail),))


def outcome_unknown(idempotency_key: str = "") -> Problem:
    """503: the command may have been done; the same request with the key finds out."""
    detail = "no answer in time; whether it was done is unknown, and repeating the request is safe"
    headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
    if idempotency_key:
        detail += " with this Idempotency-Key"
    return Problem(503, "outcome_unknown", detail, idempotency_key=idempotency_key, headers=headers)


def log_unavailable(reason: str) -> Problem:
    """503: nothing was written."""
    return Problem(503, "log_unavailable", f"the log cannot be written now ({reason}); nothing was done")


_CODES = {
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
}


def install(app: FastAPI) -> None:
    """Makes every error of the application a problem."""

    async def of_problem(request: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)
        return error.response()

    async def of_framework(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = _CODES.get(error.status_code, "invalid")
        return Problem(error.status_code, code, str(error.detail), headers=error.headers).response()

    async def of_parameters(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        faults = [
            FieldProblem(field=str(fault["loc"][-1]), detail=str(fault["msg"])) for fault in error.errors()
        ]
        return invalid(*faults).response()

    async def of_bug(request: Request, error: Exception) -> Response:
        log.error("request failed", exc_info=error, extra={"path": request.url.path})
        return Problem(500, "internal_error", "the server failed; the failure was logged").response()

    app.add_exception_handler(Problem, of_problem)
    app.add_exception_handler(HTTPException, of_framework)
    app.add_exception_handler(RequestValidationError, of_parameters)
    app.add_exception_handler(Exception, of_bug)
