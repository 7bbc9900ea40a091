"""Owns what JSON the edge accepts: one strict reading of a request's bytes, before any typed decoding.

Parsers disagree about duplicate keys, NaN, numbers beyond a double, lone surrogates and depth, so whatever
they disagree about is refused here and never reaches the log. Knows nothing of the members' meaning, except
which ones hold a caller's own data (`OPAQUE`) or text of several lines (`LINES`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

NESTING_MAX = 100
"""Deeper than any real document, and far from the recursion limits of every parser behind us."""

# A caller's own data: delivered as sent, so escaped control characters are its business.
OPAQUE = frozenset({"payload", "result", "progress"})
# Text that people paste: line breaks and tabs belong to it.
LINES = frozenset({"error", "lines"})

Path = tuple[str | int, ...]
Trail = tuple["Trail", str | int] | None
"""The way to a value; it shares its beginning with its neighbours' ways."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_CONTROL_IN_LINES = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"{}[]"))
_DIGITS_MAX = 309  # the largest double has as many


class Fault(NamedTuple):
    """One thing that makes a document unacceptable, and where it stands."""

    path: Path
    detail: str


class Document(NamedTuple):
    """A parsed body and everything wrong with it; `value` may be used member by member where nothing is."""

    value: Any
    faults: list[Fault]


class NotJsonError(ValueError):
    """The bytes are no JSON document at all; the message says why."""


class _Marked:
    """Stands in the tree where a value was read that is not acceptable."""

    def __init__(self, detail: str) -> None:
        self.detail = detail


class _Duplicated(dict[str, Any]):
    """An object with a key twice."""

    repeated: str


def read(body: bytes) -> Document:
    """The document in the bytes. NotJsonError if there is none."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotJsonError(f"not UTF-8 at byte {error.start}") from None
    marks: list[object] = []

    def mark(what: Any) -> Any:
        marks.append(what)
        return what

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(found)
        if len(made) == len(found):
            return made
        seen: set[str] = set()
        repeated = _Duplicated(made)
        repeated.repeated = next(key for key, _ in found if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        return mark(repeated)  # type: ignore[no-any-return]

    def real(digits: str) -> Any:
        number = float(digits)
        return number if math.isfinite(number) else mark(_Marked("is beyond the range of a double"))

    def whole(digits: str) -> Any:
        return int(digits) if len(digits) <= _DIGITS_MAX else mark(_Marked("has too many digits"))

    def constant(word: str) -> Any:
        return mark(_Marked(f"{word} is not JSON"))

    try:
        value = json.loads(
            text, object_pairs_hook=pairs, parse_float=real, parse_int=whole, parse_constant=constant
        )
    except json.JSONDecodeError as error:
        raise NotJsonError(f"not JSON: {error.msg} at line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise NotJsonError(f"nested deeper than {NESTING_MAX} levels") from None
    return Document(value, list(_faults(value)) if marks or _needs_a_walk(body) else [])


def name_of(path: Path) -> str:
    """The path as problems name it: `schedule.cron`, `jobs[3].labels`; "" for the document itself."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return _CONTROL.sub("?", text).encode("utf-8", "replace").decode()[:200]


def _needs_a_walk(body: bytes) -> bool:
    # What is cheap to rule out on the bytes: nearly every body is small, and free of escapes.
    return b"\\" in body or b"\x7f" in body or b"\xc2" in body or not _is_shallow(body)


def _is_shallow(body: bytes) -> bool:
    """False if a document without escapes may be nested too deep."""
    if body.count(b"{") + body.count(b"[") <= NESTING_MAX:
        return True
    outside_of_strings = b"".join(body.split(b'"')[::2])
    brackets = outside_of_strings.translate(None, _NO_BRACKETS)
    # Each round takes away one level or two.
    for _ in range(NESTING_MAX // 2):
        brackets = brackets.replace(b"{}", b"").replace(b"[]", b"")
        if not brackets:
            return True
    return False


def _faults(value: Any) -> Iterator[Fault]:
    waiting: list[tuple[int, Trail, Any]] = [(0, None, value)]
    while waiting:
        depth, trail, node = waiting.pop()
        if isinstance(node, _Marked):
            yield Fault(_path(trail), node.detail)
        elif isinstance(node, str):
            if not _is_plain(node):
                yield from _text_faults(_path(trail), node)
        elif depth >= NESTING_MAX:
            yield Fault(_path(trail)[:8], f"is nested deeper than {NESTING_MAX} levels")
        elif isinstance(node, dict):
            if isinstance(node, _Duplicated):
                yield Fault((*_path(trail), node.repeated), "is given twice")
            for key, child in node.items():
                if not _is_plain(key):
                    yield from _text_faults((*_path(trail), key), key)
                if isinstance(child, _COMPOUND):
                    waiting.append((depth + 1, (trail, key), child))
        elif isinstance(node, list):
            for index, child in enumerate(node):
                if isinstance(child, _COMPOUND):
                    waiting.append((depth + 1, (trail, index), child))


def _path(trail: Trail) -> Path:
    path: list[str | int] = []
    while trail is not None:
        trail, part = trail
        path.append(part)
    return tuple(reversed(path))


_COMPOUND = (str, dict, list, _Marked)


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _text_faults(path: Path, text: str) -> Iterator[Fault]:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        yield Fault(path, "has a lone surrogate")
        return
    if any(part in OPAQUE for part in path):
        return
    forbidden = _CONTROL_IN_LINES if any(part in LINES for part in path) else _CONTROL
    if forbidden.search(text):
        yield Fault(path, "has control characters")
