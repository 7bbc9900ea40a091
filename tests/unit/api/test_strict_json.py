"""How deep a body may be nested and how many values it may have, whatever its texts look like."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api import strict_json
from api.strict_json import FAULTS_MAX, NESTING_MAX, VALUES_MAX, TooManyValuesError, name_of, read

MARKS = '[{,:"\\]} \n\t0é'
texts = st.text(MARKS)
documents = st.recursive(
    st.none() | st.integers() | st.booleans() | texts,
    lambda within: st.lists(within) | st.dictionaries(texts, within),
)


def _nested(levels: int, kinds: str) -> object:
    """So many levels of objects and lists, in turns."""
    value: object = "}]{["
    for level in range(levels):
        value = {"a": value} if kinds[level % len(kinds)] == "{" else [value]
    return value


def _values(document: Any) -> int:
    children = document.values() if isinstance(document, dict) else document
    return 1 + (sum(map(_values, children)) if isinstance(document, dict | list) else 0)


@pytest.mark.parametrize("kinds", ["{", "[", "{[", "{{["])
@pytest.mark.parametrize("beside", [0, 300])
@pytest.mark.parametrize("escape", ["", "\n"])
def test_the_deepest_that_is_taken(kinds: str, beside: int, escape: str) -> None:
    many = [{"payload": "{[" * 200 + escape, "more": [{}, []]}] * beside + [{"payload": escape}]
    deepest = json.dumps([*many, _nested(NESTING_MAX - 1, kinds)]).encode()
    too_deep = json.dumps([*many, _nested(NESTING_MAX, kinds)]).encode()
    assert read(deepest).faults == []
    assert [fault.detail for fault in read(too_deep).faults] == [
        f"is nested deeper than {NESTING_MAX} levels"
    ]


@pytest.mark.parametrize("bottom", ["[]", "{}", '"\\n"'])
def test_what_is_empty_is_a_level_too(bottom: str) -> None:
    deepest = "[" * (NESTING_MAX - 1) + bottom + "]" * (NESTING_MAX - 1)
    details = [fault.detail for fault in read(b'{"payload":["\\n"],"a":' + deepest.encode() + b"}").faults]
    assert details == (
        ["has control characters"] if "n" in bottom else [f"is nested deeper than {NESTING_MAX} levels"]
    )


@given(documents, st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t: ")]), st.booleans())
def test_values_are_counted_to_the_last(document: Any, separators: tuple[str, str], ascii_only: bool) -> None:
    body = json.dumps(document, separators=separators, ensure_ascii=ascii_only).encode()
    values = _values(document)
    assert strict_json.values_at_most(body) >= values
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strict_json, "VALUES_MAX", values)
        read(body)
        patch.setattr(strict_json, "VALUES_MAX", values - 1)
        with pytest.raises(TooManyValuesError):
            read(body)


@pytest.mark.parametrize("unit", ["1", '"[\\\\\\","'])
def test_the_most_that_is_taken(unit: str) -> None:
    def body(units: int) -> bytes:
        return f'{{"payload": [{",".join([unit] * units)}]}}'.encode()

    assert read(body(VALUES_MAX - 2)).faults == []
    with pytest.raises(TooManyValuesError):
        read(body(VALUES_MAX - 1))


@pytest.mark.parametrize("text", [",", "[", "{", "},{", '\\",', "\\\\,", "[]", '\\"\\\\\\",', "é,"])
def test_a_long_text_is_one_value(text: str) -> None:
    size = 8 * 1024 * 1024
    body = b'{"payload": "' + text.encode() * (size // len(text.encode())) + b'"}'
    assert read(body).faults == []


@pytest.mark.parametrize("unit", [b"[],", b"{},", b"1,", b'"",', b'{"":""},', b'"\\n",', b"[", b'{"":', b","])
def test_of_too_many_nothing_is_made(unit: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def loads(*_: Any, **__: Any) -> None:
        pytest.fail("it was decoded")

    monkeypatch.setattr(json, "loads", loads)
    monkeypatch.setattr(strict_json, "VALUES_MAX", 1_000)
    with pytest.raises(TooManyValuesError):
        read(b'{"payload": [' + unit * 8_000)


@pytest.mark.parametrize("unit", ['"\\n"', '{"\\n": 1}', '{"": 1, "": 1}', "NaN", '"\\ud800"'])
def test_a_document_of_faults_is_refused_as_a_whole(unit: str) -> None:
    most = read(f"[{','.join([unit] * FAULTS_MAX)}]".encode())
    assert [fault.path[0] for fault in most.faults[:2]] == (
        [0, 1] if unit[0] == '"' else [FAULTS_MAX - 1, FAULTS_MAX - 2]
    )
    assert len(most.faults) == FAULTS_MAX
    [fault] = read(f"[{','.join([unit] * (FAULTS_MAX + 1))}]".encode()).faults
    assert fault == ((), f"has more than {FAULTS_MAX} faults")


def test_control_characters_are_judged_by_the_member_they_stand_in() -> None:
    text = "a\\n\\u0001"
    for member, expected in {
        "name": ["name"],
        "payload": [],
        "error": ["error"],
        "x": ["x"],
    }.items():
        faults = read(f'{{"{member}": "{text}"}}'.encode()).faults
        assert [name_of(fault.path) for fault in faults] == expected
    assert (
        read(b'{"error": "a\\n\\t", "x": {"lines": [["\\n"]], "payload": {"error": ["\\u0001"]}}}').faults
        == []
    )
    [fault] = read(b'{"error": {"payload": {"\\u0001": 1}, "x": "\\u0001"}}').faults
    assert fault.path == ("error", "x")


def test_names_are_cut() -> None:
    path = ("k" * 1_000_000, 3, "x" * 1_000_000)
    assert name_of(path) == "k" * 200
    assert name_of(("jobs", 3, "x" * 1_000_000)) == "jobs[3]." + "x" * 192
