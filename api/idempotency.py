"""Owns the `Idempotency-Key` of a request: how it is read, made, and extended to the items of a batch.

What a repeated key means is decided by the partition, not here.
"""

from __future__ import annotations

import re
import secrets
from typing import NamedTuple

from starlette.requests import Request

from api.problems import wrong
from streams.core.limits import KEY_CHARS_MAX

HEADER = "Idempotency-Key"
REPLAYED_HEADER = "Idempotent-Replayed"

_VISIBLE = re.compile(rf"[\x21-\x7e]{{1,{KEY_CHARS_MAX}}}")
_QUOTED = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
_ESCAPED = re.compile(r"\\(.)")


class RequestKey(NamedTuple):
    """The key of a request. `made`: by this server, since the caller sent none."""

    value: str
    made: bool


def key_of(request: Request) -> RequestKey:
    """The caller's key, or a fresh one, so that an unknown outcome can always be asked for again."""
    sent = request.headers.getlist(HEADER)
    if not sent:
        return RequestKey(secrets.token_urlsafe(18), made=True)
    if len(sent) > 1:
        raise wrong(HEADER, "is sent more than once")
    return RequestKey(normalised(sent[0]), made=False)


def normalised(text: str) -> str:
    """Quoted (a structured-field string) and bare are the same key."""
    quoted = _QUOTED.fullmatch(text.strip())
    key = _ESCAPED.sub(r"\1", quoted[1]) if quoted else text
    return checked(key, HEADER)


def checked(key: str, field: str) -> str:
    """The key if it is one."""
    if not _VISIBLE.fullmatch(key):
        raise wrong(field, f"is 1 to {KEY_CHARS_MAX} visible ASCII characters")
    return key


def item_key(key: RequestKey, index: int, own: str | None) -> str:
    """The key of one item of a batch: its own `requestKey`, or the request's with the index."""
    if own is not None:
        return checked(own, "requestKey")
    made = f"{key.value}#{index}"
    if len(made) > KEY_CHARS_MAX:
        raise wrong(HEADER, f"of a batch leaves room for '#{index}' within {KEY_CHARS_MAX} characters")
    return made
