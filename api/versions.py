"""Owns `ETag` and `If-Match`: a job's version is its entity tag, and a change may be bound to one."""

from __future__ import annotations

import re

from starlette.requests import Request

from api.problems import Problem, wrong

MATCH_HEADER = "If-Match"
_TAG = re.compile(r'\s*(?:W/)?"?([0-9]{1,15})"?\s*')


def etag(version: int) -> dict[str, str]:
    """The header of an answer that shows a job."""
    return {"ETag": f'"{version}"'}


def matched(request: Request) -> int | None:
    """The version that the caller saw; None if the request is not bound to one."""
    sent = request.headers.getlist(MATCH_HEADER)
    if not sent:
        return None
    match = _TAG.fullmatch(sent[0]) if len(sent) == 1 else None
    if match is None:
        raise wrong(MATCH_HEADER, 'is one ETag of the job, such as "3"')
    return int(match[1])


def needed(request: Request) -> int:
    """The version that the caller saw; 428 without one."""
    version = matched(request)
    if version is None:
        raise Problem(
            428, "precondition_required", f"send {MATCH_HEADER} with the ETag of the job as you saw it"
        )
    return version
