"""The schema files say what the classes say, and the written docs what both say."""

from __future__ import annotations

import enum
from typing import Any

import msgspec
import pytest

from schemas import avsc, commands, docs, entities, events, replies
from schemas.entities import Record
from schemas.source import full_name

MODULES = (commands, entities, events, replies)


def defined(base: type[Any]) -> dict[str, type[Any]]:
    return {
        f"horarium.{module.__name__.rpartition('.')[2]}.{name}": thing
        for module in MODULES
        for name, thing in vars(module).items()
        if isinstance(thing, type) and issubclass(thing, base) and thing.__module__ == module.__name__
    }


def avro(info: msgspec.inspect.Type) -> Any:
    match info:
        case msgspec.inspect.IntType():
            return "long"
        case msgspec.inspect.StrType():
            return "string"
        case msgspec.inspect.BytesType():
            return "bytes"
        case msgspec.inspect.BoolType():
            return "boolean"
        case msgspec.inspect.FloatType():
            return "double"
        case msgspec.inspect.EnumType(cls=cls) | msgspec.inspect.StructType(cls=cls):
            return next(
                name for name, known in {**defined(Record), **defined(enum.Enum)}.items() if known is cls
            )
        case msgspec.inspect.UnionType(types=types):
            (some,) = (one for one in types if not isinstance(one, msgspec.inspect.NoneType))
            return ["null", avro(some)]
        case msgspec.inspect.VarTupleType(item_type=item):
            return {"type": "array", "items": avro(item)}
        case msgspec.inspect.DictType(value_type=value):
            return {"type": "map", "values": avro(value)}
        case _:
            raise AssertionError(f"no Avro type for {info}")


def default(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("latin1")
    if isinstance(value, tuple):
        return [default(one) for one in value]
    if isinstance(value, Record):
        return {
            field.encode_name: default(getattr(value, field.name)) for field in msgspec.structs.fields(value)
        }
    return value


def field_of(field: msgspec.structs.FieldInfo) -> dict[str, Any]:
    found = {"name": field.encode_name, "type": avro(msgspec.inspect.type_info(field.type))}
    if field.default is not msgspec.NODEFAULT:
        found["default"] = default(field.default)
    elif field.default_factory is not msgspec.NODEFAULT:
        found["default"] = default(field.default_factory())
    return found


def test_every_record_and_enum_has_its_file() -> None:
    # A class that others derive from is no record by itself.
    leaves = {name for name, cls in defined(Record).items() if not cls.__subclasses__()}
    assert set(avsc.record_classes()) == leaves
    assert set(avsc.files()) == leaves | set(defined(enum.Enum))


@pytest.mark.parametrize("name", sorted(avsc.record_classes()))
def test_a_file_has_the_fields_of_its_class(name: str) -> None:
    schema = avsc.files()[name]
    written = [{key: part for key, part in field.items() if key != "doc"} for field in schema["fields"]]
    assert written == [field_of(field) for field in msgspec.structs.fields(avsc.record_classes()[name])]
    assert all(field["doc"].endswith(".") for field in schema["fields"])
    assert schema["doc"].endswith(".")
    assert full_name(schema) == name


def test_a_field_of_a_base_class_means_the_same_in_every_record() -> None:
    meanings: dict[tuple[str, str], set[str]] = {}
    for name, cls in avsc.record_classes().items():
        docs_of = {field["name"]: field["doc"] for field in avsc.files()[name]["fields"]}
        for field in msgspec.structs.fields(cls):
            owner = next(
                base for base in reversed(cls.__mro__) if field.name in vars(base).get("__annotations__", ())
            )
            meanings.setdefault((owner.__name__, field.name), set()).add(docs_of[field.encode_name])
    assert {field: found for field, found in meanings.items() if len(found) > 1} == {}


@pytest.mark.parametrize("name", sorted(defined(enum.Enum)))
def test_an_enum_has_the_symbols_of_its_class(name: str) -> None:
    schema, members = avsc.files()[name], defined(enum.Enum)[name].__members__
    assert schema["symbols"] == [member.value for member in members.values()] == list(members)
    assert schema["doc"].endswith(".")


def test_a_complete_schema_spells_every_type_out_once() -> None:
    text = repr(avsc.complete("horarium.replies.Granted"))
    assert text.count("'name': 'Execution'") == 1
    assert text.count("'name': 'Priority'") == 1


def test_the_docs_are_current() -> None:
    assert docs.PATH.read_text(encoding="utf-8") == docs.render(), "run python -m schemas.docs"
