"""What can go wrong, as exceptions: the server's problems by status, and no answer at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class FieldError:
    """One field of a request and what is wrong with it, e.g. `schedule.cron`."""

    field: str
    detail: str


class HorariumError(Exception):
    """Base of everything this library raises on its own."""


class ConnectionFailed(HorariumError):
    """No answer came, and the time for retries is over. Whether a change was made is not known.

    `idempotency_key` repeats the request safely; empty for requests that are safe anyway.
    """

    def __init__(self, message: str, idempotency_key: str = "") -> None:
        super().__init__(message)
        self.idempotency_key = idempotency_key


class InvalidAnswer(HorariumError):
    """The answer is not what this API sends; the address may lead to something else."""


class ApiError(HorariumError):
    """The server answered with a problem (RFC 9457). `code` is stable and meant for programs."""

    def __init__(
        self,
        *,
        status: int,
        code: str,
        detail: str = "",
        title: str = "",
        errors: tuple[FieldError, ...] = (),
        retry_after_sec: float | None = None,
        idempotency_key: str = "",
        problem: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(f"{status} {code}: {detail or title}")
        self.status = status
        self.code = code
        self.detail = detail
        self.title = title
        self.errors = errors
        self.retry_after_sec = retry_after_sec
        self.idempotency_key = idempotency_key
        self.problem = dict(problem or {})


class BadRequest(ApiError):
    """400: `errors` name the fields."""


class Unauthorized(ApiError):
    """401: the key is missing or unknown."""


class Forbidden(ApiError):
    """403: the key's role does not allow this."""


class NotFound(ApiError):
    """404: there is none, or it is another tenant's."""


class Conflict(ApiError):
    """409: the state does not allow it (also `lease_lost`, `cancelled`, `timeout`, `already_finished`)."""


class PreconditionFailed(ApiError):
    """412 or 428: `If-Match` differs or is missing."""


class TooLarge(ApiError):
    """413: a size limit."""


class IdempotencyKeyReused(ApiError):
    """422: this Idempotency-Key was used for another request."""


class RateLimited(ApiError):
    """429: a limit of the tenant, still so after all retries (`rate_limited`), or not worth any
    (`too_many_jobs`). `retry_after_sec` says when there may be room."""


class Unavailable(ApiError):
    """503: `outcome_unknown`, `projection_behind` … still so after all retries."""


_BY_STATUS: Mapping[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    412: PreconditionFailed,
    413: TooLarge,
    422: IdempotencyKeyReused,
    428: PreconditionFailed,
    429: RateLimited,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def from_problem(
    status: int,
    problem: Mapping[str, Any],
    *,
    retry_after_sec: float | None = None,
    idempotency_key: str = "",
) -> ApiError:
    """The exception for a problem; a proxy's error page counts as a problem without a code."""
    errors = problem.get("errors")
    if retry_after_sec is None:
        # An item of a batch has no headers of its own.
        retry_after_sec = problem.get("retryAfterSec")
    fields = tuple(
        FieldError(str(each.get("field", "")), str(each.get("detail", "")))
        for each in (errors if isinstance(errors, list) else ())
        if isinstance(each, Mapping)
    )
    return _BY_STATUS.get(status, ApiError)(
        status=status,
        code=str(problem.get("code") or "unknown"),
        detail=str(problem.get("detail") or ""),
        title=str(problem.get("title") or ""),
        errors=fields,
        retry_after_sec=retry_after_sec,
        idempotency_key=str(problem.get("idempotencyKey") or idempotency_key),
        problem=problem,
    )
