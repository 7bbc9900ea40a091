"""Owns the way from a request's bytes to a typed body: limits on size first, then strict JSON, then types.

`payload` is a `msgspec.Raw`: the bytes exactly as sent, so integers beyond 2^53 and the sender's own spelling
reach the worker untouched. May not know what a member means; that is `api.models` and the command's check.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from api import strict_json
from api.problems import Problem, invalid, too_large, wrong
from schemas.replies import FieldProblem
from streams.core.limits import PAYLOAD_BYTES_MAX

T = TypeVar("T")

BATCH_BYTES_MAX = 8 * 1024 * 1024
BATCH_ITEMS_MAX = 1_000
# Room for a payload in base64 and all other members.
BODY_BYTES_MAX = PAYLOAD_BYTES_MAX * 2
IN_LINE_BYTES_MAX = 128 * 1024
IN_LINE_VALUES_MAX = 10_000
"""A body with more of either is parsed in a thread, so that it does not hold up everybody else's requests."""

_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)


async def receive(request: Request, limit: int = BODY_BYTES_MAX) -> bytes:
    """The body; 413 as soon as it is known to be too large, without keeping or awaiting the rest."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and (len(declared) > 18 or int(declared) > limit):
        raise too_large("body", limit)
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise too_large("body", limit)
        chunks.append(chunk)
    return b"".join(chunks)


async def read(request: Request, limit: int = BODY_BYTES_MAX) -> tuple[bytes, strict_json.Document]:
    """The body and its strict reading; 400 if it is no JSON object."""
    body = await receive(request, limit)
    return body, await _parsed(body)


async def _parsed(body: bytes) -> strict_json.Document:
    if len(body) <= IN_LINE_BYTES_MAX and strict_json.values_at_most(body) <= IN_LINE_VALUES_MAX:
        return parse(body)
    return await asyncio.to_thread(parse, body)


def parse(body: bytes) -> strict_json.Document:
    """The strict reading of a body; 400 if it is no JSON object, 413 if it is too much."""
    try:
        document = strict_json.read(body)
    except strict_json.TooManyValuesError:
        raise too_large("body", strict_json.VALUES_MAX, "JSON values") from None
    except strict_json.NotJsonError as error:
        raise wrong("body", str(error)) from None
    if not isinstance(document.value, dict):
        raise wrong("body", "is not a JSON object")
    return document


async def decoded(
    request: Request, kind: type[T], check: Callable[[dict[str, Any]], None] | None = None
) -> T:
    """The body of one thing, strict and typed. An empty body counts as `{}`. `check` looks at the plain tree
    first, for what is named but not built."""
    body = await receive(request)
    if not body.strip():
        body = b"{}"
    document = await _parsed(body)
    if document.faults:
        raise of_faults(document.faults)
    if check is not None:
        check(document.value)
    return typed(body, kind)


async def merge_patch(request: Request, check: Callable[[dict[str, Any]], None]) -> bytes:
    """A merge patch: the bytes of a strict JSON object, whose members the merged thing will judge."""
    body, document = await read(request)
    if document.faults:
        raise of_faults(document.faults)
    check(document.value)
    return body


def typed(body: bytes | msgspec.Raw, kind: type[T]) -> T:
    """The body as the type says; 400 naming the field that differs."""
    try:
        decoded: T = _decoder(kind).decode(body)  # type: ignore[arg-type]
    except msgspec.ValidationError as error:
        raise invalid(_problem_of(str(error))) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise wrong("body", f"not JSON: {error}") from None
    return decoded


def of_faults(faults: list[strict_json.Fault], skip: int = 0) -> Problem:
    """400 for what the strict reading found; `skip` leaves out the first parts of each path."""
    return invalid(
        *(
            FieldProblem(field=strict_json.name_of(fault.path[skip:]) or "body", detail=fault.detail)
            for fault in faults[:20]
        )
    )


class Items:
    """A batch: each item's bytes and tree, and what the strict reading found in it, by item. `beside` names
    what may stand beside the items."""

    def __init__(
        self, body: bytes, document: strict_json.Document, member: str, beside: tuple[str, ...] = ()
    ) -> None:
        for name in document.value.keys() - {member, *beside}:
            raise wrong(strict_json.name_of((name,)), "is not known here")
        tree = document.value.get(member)
        if not isinstance(tree, list):
            raise wrong(member, "is needed: a list of objects")
        if not 0 < len(tree) <= BATCH_ITEMS_MAX:
            raise wrong(member, f"are 1 to {BATCH_ITEMS_MAX} items")
        self.faults: dict[int, list[strict_json.Fault]] = {}
        whole: list[strict_json.Fault] = []
        for fault in document.faults:
            place = fault.path[1] if len(fault.path) > 1 and fault.path[0] == member else None
            if isinstance(place, int):
                self.faults.setdefault(place, []).append(fault)
            else:
                whole.append(fault)
        if whole:
            raise of_faults(whole)
        self.trees: list[Any] = tree
        members: dict[str, msgspec.Raw] = _decoder(dict[str, msgspec.Raw]).decode(body)
        self._bytes: list[msgspec.Raw] = _decoder(list[msgspec.Raw]).decode(members[member])

    def typed(self, index: int, kind: type[T]) -> T:
        """One item; a Problem that names the fields from the item on."""
        if self.faults and index in self.faults:
            raise of_faults(self.faults[index], skip=2)
        return typed(self._bytes[index], kind)


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def _problem_of(message: str) -> FieldProblem:
    what, at, where = message.rpartition(" - at `$")
    if at:
        where = where.removeprefix(".").removesuffix("`").replace("[...]", "")
    else:
        what, where = message, ""
    for pattern, detail in ((_UNKNOWN, "is not known here"), (_MISSING, "is needed")):
        if named := pattern.fullmatch(what):
            where, what = (f"{where}.{named[1]}" if where else named[1]), detail
    return FieldProblem(field=_printable(where) or "body", detail=_printable(what))


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text[:200])
