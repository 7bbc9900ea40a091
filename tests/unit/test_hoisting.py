"""Constants of the compiled copy (dev/hoisting.py): read once, where they were read again and again."""

import ast
from typing import Any

import pytest

from dev import compiled
from dev.hoisting import hoisted

_SOURCE = '''\
"""Über alles."""

from http import HTTPStatus
from zipfile import (
    ZIP_STORED,
)

import string as text

OK = HTTPStatus.OK


class Odd:
    LIMIT = 3


def said(status, letter, odd=Odd):
    """Says."""
    match status:
        case HTTPStatus.GONE:
            return "gone"
    known = {"ä": HTTPStatus.OK, "b": [HTTPStatus.CREATED for _ in (1, 2)]}
    return known.get(letter, [HTTPStatus.OK.name, odd.LIMIT, Odd.LIMIT, ZIP_STORED])
'''


def test_what_functions_read_of_imported_names_is_a_constant() -> None:
    pairs = zip(_SOURCE.split("\n"), hoisted(_SOURCE).split("\n"), strict=True)
    changed = [(was, now) for was, now in pairs if now != was]
    assert changed[0] == (
        "import string as text",
        "import string as text; from typing import Final as _Final"
        "; _hoisted_HTTPStatus_CREATED: _Final = HTTPStatus.CREATED"
        "; _hoisted_HTTPStatus_OK: _Final = HTTPStatus.OK",
    )
    assert [now.strip() for _, now in changed[1:]] == [
        'known = {"ä": _hoisted_HTTPStatus_OK, "b": [_hoisted_HTTPStatus_CREATED for _ in (1, 2)]}',
        "return known.get(letter, [_hoisted_HTTPStatus_OK.name, odd.LIMIT, Odd.LIMIT, ZIP_STORED])",
    ]


def test_it_does_what_it_did() -> None:
    before: dict[str, object] = {}
    after: dict[str, object] = {}
    exec(_SOURCE, before)
    exec(hoisted(_SOURCE), after)
    for status in (200, 410):
        for letter in "äbc":
            results = [module["said"](status, letter) for module in (before, after)]  # type: ignore[operator]
            assert str(results[0]) == str(results[1])


_ODD = """\
from argparse import Namespace
from http import HTTPStatus  # the last one


def of_a_parameter(HTTPStatus):
    return HTTPStatus.OK


def of_a_loop():
    return [(lambda: HTTPStatus.OK)() for HTTPStatus in (Namespace(OK=1), Namespace(OK=2))]


def sets():
    Namespace.LIMIT = 3
    Namespace.LIMIT += 1
    found = vars(Namespace)["LIMIT"]
    del Namespace.LIMIT
    return found


def matches():
    match {200: 1}, 404:
        case {HTTPStatus.OK: number}, (HTTPStatus.GONE | HTTPStatus.NOT_FOUND):
            return number


def run():
    return of_a_parameter(Namespace(OK=5)), of_a_loop(), sets(), matches()
"""


def test_what_only_looks_like_a_constant_is_left() -> None:
    """Names that a function has for itself, what is set, and keys in patterns; a comment ends no import."""
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    exec(_ODD, before)
    exec(hoisted(_ODD), after)
    assert after["run"]() == before["run"]() == (5, [1, 2], 4, 1)


def test_a_module_without_any_is_left_as_it_is() -> None:
    source = "from http import HTTPStatus\n\nOK = HTTPStatus.OK\n"
    assert hoisted(source) == source


@pytest.mark.parametrize("module", compiled.MODULES)
def test_what_is_compiled_keeps_its_lines(module: str) -> None:
    source = (compiled.ROOT / compiled.STAND_INS.get(module, module)).read_text()
    found = hoisted(source)
    assert found.count("\n") == source.count("\n")
    assert [node.lineno for node in ast.parse(found).body if isinstance(node, ast.FunctionDef)] == [
        node.lineno for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)
    ]
