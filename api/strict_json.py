"""Owns what JSON the edge accepts: one strict reading of a request's bytes, before any typed decoding.

Parsers disagree about duplicate keys, NaN, numbers beyond a double, lone surrogates and depth, so whatever
they disagree about is refused here and never reaches the log. What a value costs is bounded by their number,
which is counted on the bytes before anything is made of them. Knows nothing of the members' meaning, except
which ones hold a caller's own data (`OPAQUE`) or text of several lines (`LINES`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

NESTING_MAX = 100
"""Deeper than any real document, and far from the recursion limits of every parser behind us."""
VALUES_MAX = 1_000_000
"""Of one document, lists and objects included: more than fit into any request but a batch, and a thousand for
each item of the largest batch."""
FAULTS_MAX = 20_000
"""As many as are shown of the largest batch, 20 an item; a document with more is refused as a whole."""

# A caller's own data: delivered as sent, so escaped control characters are its business.
OPAQUE = frozenset({"payload", "result", "progress"})
# Text that people paste: line breaks and tabs belong to it.
LINES = frozenset({"error", "lines"})

Path = tuple[str | int, ...]
Trail = tuple["Trail", str | int] | None
"""The way to a value; it shares its beginning with its neighbours' ways."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_CONTROL_IN_LINES = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_SPACE = b" \t\r\n"
_NO_BRACKETS = bytes(set(range(256)) - set(b"{}[]"))
_DIGITS_MAX = 309  # the largest double has as many


class _Rule(NamedTuple):
    """Which characters a text may not have, and the members in which another rule holds."""

    forbidden: re.Pattern[str] | None
    members: Mapping[str | int, _Rule]


_IN_OPAQUE = _Rule(None, {})
_IN_LINES = _Rule(_CONTROL_IN_LINES, dict.fromkeys(OPAQUE, _IN_OPAQUE))
_HERE = _Rule(_CONTROL, {**_IN_LINES.members, **dict.fromkeys(LINES, _IN_LINES)})


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


class TooManyValuesError(ValueError):
    """There are more than `VALUES_MAX` values in the document."""


class _Marked:
    """Stands in the tree where a value was read that is not acceptable."""

    def __init__(self, detail: str) -> None:
        self.detail = detail


class _Duplicated(dict[str, Any]):
    """An object with a key twice."""

    repeated: str


_COMPOUND = frozenset({dict, list, _Duplicated, _Marked})
_TOO_MANY_FAULTS = Fault((), f"has more than {FAULTS_MAX} faults")


def read(body: bytes) -> Document:
    """The document in the bytes. NotJsonError if there is none, TooManyValuesError if it is too much."""
    if _has_too_many_values(body):
        raise TooManyValuesError(f"has more than {VALUES_MAX} values")
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
    if not marks and not _needs_a_walk(body):
        return Document(value, [])
    faults = list(islice(_faults(value), FAULTS_MAX + 1))
    return Document(value, faults if len(faults) <= FAULTS_MAX else [_TOO_MANY_FAULTS])


def values_at_most(body: bytes) -> int:
    """No fewer than the values in a document, at next to no cost: marks in its texts are counted, too."""
    # The first value of a list or object follows its bracket, any other one a comma.
    return 1 + sum(map(body.count, (b",", b"[", b"{")))


def _has_too_many_values(body: bytes) -> bool:
    if values_at_most(body) <= VALUES_MAX:
        return False
    without_escapes = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if without_escapes.count(b'"') > 4 * VALUES_MAX:
        return True  # A value has a key and a text at most; so many are not worth the memory to cut them out.
    texts_are_0 = b"0".join(without_escapes.translate(None, _SPACE).split(b'"')[::2])
    return values_at_most(texts_are_0) - texts_are_0.count(b"[]") - texts_are_0.count(b"{}") > VALUES_MAX


def name_of(path: Path) -> str:
    """The path as problems name it: `schedule.cron`, `jobs[3].labels`; "" for the document itself."""
    text = ""
    for part in path:
        # A key may be as long as a body, and stand in the names of many faults.
        text += f"[{part}]" if isinstance(part, int) else f".{part[:200]}" if text else part[:200]
    return _CONTROL.sub("?", text[:200]).encode("utf-8", "replace").decode()


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
    # The sender chooses how many values there are: only those that hold some cost more than a look.
    waiting: list[tuple[int, Trail, Any, _Rule]] = []
    if type(value) in _COMPOUND:
        waiting.append((0, None, value, _HERE))
    while waiting:
        depth, trail, node, rule = waiting.pop()
        if type(node) is _Marked:
            yield Fault(_path(trail), node.detail)
            continue
        if depth >= NESTING_MAX:
            yield Fault(_path(trail)[:8], f"is nested deeper than {NESTING_MAX} levels")
            continue
        if type(node) is not list and (type(node) is _Duplicated or not "".join(node).isprintable()):
            yield from _key_faults(trail, node, rule)
        depth += 1
        for part, child in enumerate(node) if type(node) is list else node.items():
            if type(child) is str:
                if not child.isprintable() and (detail := _text_fault(child, rule.members.get(part, rule))):
                    yield Fault((*_path(trail), part), detail)
            elif type(child) in _COMPOUND and (child or depth == NESTING_MAX):
                waiting.append((depth, (trail, part), child, rule.members.get(part, rule)))


def _key_faults(trail: Trail, node: dict[str, Any], rule: _Rule) -> Iterator[Fault]:
    if isinstance(node, _Duplicated):
        yield Fault((*_path(trail), node.repeated), "is given twice")
    for key in node:
        if detail := _text_fault(key, rule):
            yield Fault((*_path(trail), key), detail)


def _path(trail: Trail) -> Path:
    path: list[str | int] = []
    while trail is not None:
        trail, part = trail
        path.append(part)
    return tuple(reversed(path))


def _text_fault(text: str, rule: _Rule) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "has a lone surrogate"
    return "has control characters" if rule.forbidden is not None and rule.forbidden.search(text) else ""
