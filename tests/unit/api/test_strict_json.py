"""How deep a body may be nested, whatever stands beside what is deep."""

import json

import pytest

from api.strict_json import NESTING_MAX, read


def _nested(levels: int, kinds: str) -> object:
    """So many levels of objects and lists, in turns."""
    value: object = "}]{["
    for level in range(levels):
        value = {"a": value} if kinds[level % len(kinds)] == "{" else [value]
    return value


@pytest.mark.parametrize("kinds", ["{", "[", "{[", "{{["])
@pytest.mark.parametrize("beside", [0, 300])
def test_the_deepest_that_is_taken(kinds: str, beside: int) -> None:
    many = [{"text": "{[" * 200, "more": [{}, []]}] * beside
    deepest = json.dumps([*many, _nested(NESTING_MAX - 1, kinds)]).encode()
    too_deep = json.dumps([*many, _nested(NESTING_MAX, kinds)]).encode()
    assert read(deepest).faults == []
    assert [fault.detail for fault in read(too_deep).faults] == [
        f"is nested deeper than {NESTING_MAX} levels"
    ]
