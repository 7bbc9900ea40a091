"""What compiled code remembers of attributes and globals (dev/native/inline_caches.h) is asked anew when it
changed: each case looks twice before the change, so that the second look is from memory."""

import shutil
import sys
from pathlib import Path

import pytest

from dev import compiled
from tests.python import run_python

_LONG = "x" * 101
"""The interpreter gives no version to a type for the sake of such a name."""

_SHAPES = f"""\
import msgspec

LONG = "{_LONG}"

class Point(msgspec.Struct, frozen=True, gc=False):
    x: object = 0

class Other(msgspec.Struct, frozen=True):
    first: object = "first"
    x: object = "other"

class Plain:
    def __init__(self) -> None:
        self.x = "plain"

class Slotted:
    __slots__ = ("x",)

class Computed:
    @property
    def x(self) -> str:
        return "computed"

LIMIT = "limit"
"""

_PROBE = f"""\
from typing import Any
from shapes import LIMIT, Point

def x_of(thing: Any) -> Any:
    return thing.x

def x_of_another(thing: Any) -> Any:
    return thing.x

def x_of_a_third(thing: Any) -> Any:
    return thing.x

def long_of(thing: Any) -> Any:
    return thing.{_LONG}

def of_name(thing: Any, name: str) -> Any:
    return getattr(thing, name)

def real_of(thing: Any) -> Any:
    return thing.real

def limit() -> Any:
    return LIMIT

def made(x: Any) -> Any:
    return Point(x)

def found(table: dict[str, Any], key: str) -> Any:
    return table[key]
"""

_CASES = """\
import sys
import probe
import shapes
from shapes import LONG, Computed, Other, Plain, Point, Slotted

def raised(call, *given):
    try:
        return call(*given)
    except Exception as error:
        return type(error).__name__

def twice(call, *given):
    first = raised(call, *given)
    assert raised(call, *given) == first, first
    return first

def a_slot_is_read_of_the_object_asked():
    points = [Point(str(number)) for number in range(100)]
    assert [probe.x_of(point) for point in points] == [point.x for point in points]

def types_take_turns_at_one_place():
    things = {Point(1): 1, Other(): "other", Plain(): "plain", Computed(): "computed"}
    for _ in range(3):
        for thing, expected in things.items():
            assert twice(probe.x_of, thing) == expected

def a_field_is_released_as_often_as_it_is_taken():
    value = object()
    before, point = sys.getrefcount(value), Point(value)
    for _ in range(100):
        probe.x_of(point)
    assert sys.getrefcount(value) == before + 1

def an_empty_slot_has_no_value():
    slotted = Slotted()
    slotted.x = 1
    assert twice(probe.x_of, slotted) == 1
    del slotted.x
    assert twice(probe.x_of, slotted) == "AttributeError"

def an_attribute_that_is_not_there_is_an_error():
    assert twice(probe.x_of, object()) == "AttributeError"

def a_member_that_is_no_object_is_made_one():
    assert twice(probe.real_of, complex(1.5, 2)) == 1.5

def a_class_that_changed_is_asked_again():
    point = Point(1)
    assert twice(probe.x_of_another, point) == 1
    slot = Point.x
    Point.x = property(lambda self: "changed")
    assert twice(probe.x_of_another, point) == "changed"
    del Point.x
    assert twice(probe.x_of_another, point) == "AttributeError"
    Point.x = slot
    assert twice(probe.x_of_another, point) == 1

def an_attribute_is_the_one_that_is_named():
    other = Other(x="x")
    for name in ("first", "x", "first"):
        assert twice(probe.of_name, other, name) == getattr(other, name)
    for number in range(300):
        cls = type("Made", (), {"__slots__": [f"y{number}", f"z{number}"]})
        made = cls()
        setattr(made, f"y{number}", "y")
        setattr(made, f"z{number}", "z")
        for letter in "yz":
            assert twice(probe.of_name, made, letter + str(number)) == letter

def a_class_without_a_version_is_not_remembered():
    things = []
    for fields in ([LONG], [LONG], ["before", LONG]):
        cls = type("Made", (), {"__slots__": fields})
        things.append(cls())
        for field in fields:
            setattr(things[-1], field, field)
        cls.changed = "and has no version until something else is asked for"
    assert type(things[0]).changed
    for thing in things:
        assert twice(probe.long_of, thing) == LONG

def a_slot_of_another_class_is_not_read():
    class Far:
        __slots__ = ("a", "x")
    class Turning:
        __slots__ = ("a", "b")
        @property
        def x(self):
            Turning.x = Far.x
            return "computed"
    turning = Turning()
    turning.a, turning.b = "a", "b"
    assert probe.x_of_a_third(turning) == "computed"
    assert twice(probe.x_of_a_third, turning) == "TypeError"

def a_class_with_the_place_of_one_that_is_gone_is_another():
    for number in range(300):
        fields = [f"y{field}" for field in range(number % 3)] + ["x"]
        cls = type("Made", (), {"__slots__": fields})
        made = cls()
        made.x = number
        assert twice(probe.x_of, made) == number
        del made, cls

def a_global_that_changed_is_read_again():
    assert twice(probe.limit) == "limit"
    probe.LIMIT = "changed"
    assert twice(probe.limit) == "changed"
    del probe.LIMIT
    assert twice(probe.limit) in ("NameError", "KeyError")
    probe.LIMIT = "again"
    assert twice(probe.limit) == "again"

def a_class_is_made_by_its_newest_name():
    assert twice(lambda: type(probe.made(1)).__name__) == "Point"
    probe.Point = Other
    assert type(probe.made(1)).__name__ == "Other"

def a_dict_is_no_memory_of_another():
    key = sys.intern("some key")
    for value in ("a", "b"):
        assert twice(probe.found, {key: value}, key) == value
    table = {key: "a", sys.intern("another"): "b"}
    assert twice(probe.found, table, key) == "a"
    assert twice(probe.found, table, sys.intern("another")) == "b"
    table[key] = "changed"
    assert twice(probe.found, table, key) == "changed"
    del table[key]
    assert twice(probe.found, table, key) == "KeyError"

def a_key_with_the_place_of_one_that_is_gone_is_another():
    table = {f"made {number}": number for number in range(300)}
    for number in range(300):
        key = sys.intern("made " + str(number))
        assert twice(probe.found, table, key) == number
        del key

for name, case in list(vars().items()):
    if name.startswith(("a_", "an_", "types_")):
        case()
        print(name)
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_changed_is_looked_up_again(tmp_path: Path) -> None:
    if not compiled.can_compile():
        pytest.skip("no C compiler")
    (tmp_path / "shapes.py").write_text(_SHAPES)
    (tmp_path / "probe.py").write_text(_PROBE)
    header = tmp_path / compiled.HEADER
    header.parent.mkdir()
    shutil.copyfile(compiled.ROOT / compiled.HEADER_SOURCE, header)
    run_python(tmp_path, "-m", "mypyc", "probe.py", **compiled.SETTINGS)
    (extension,) = tmp_path.glob("probe.*.so")
    said = run_python(tmp_path, "-c", _CASES, PYTHONPATH=str(tmp_path))
    assert len(said) == _CASES.count("\ndef a_") + _CASES.count("\ndef an_") + _CASES.count("\ndef types_")
    remembers = sys.version_info[:2] == (3, 11)
    assert (b"slot_missed" in extension.read_bytes()) is remembers
    assert (b"global_missed" in extension.read_bytes()) is remembers
