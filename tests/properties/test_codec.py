"""The codec against fastavro and against hostile bytes, for every record type."""

from __future__ import annotations

import io
from typing import Any, cast

import fastavro
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import avsc
from schemas.codec import MARKER, UndecodableError, decode, encode, fingerprint_of
from schemas.entities import Record

HEADER = 10
INT64 = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-70, 70), st.integers(0, 2**42))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
PARSED = {name: fastavro.parse_schema(avsc.complete(name)) for name in avsc.record_classes()}


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of an attribute's type that Avro can hold."""
    info = msgspec.inspect.type_info(hint)
    return of_info(info)


def of_info(info: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    match info:
        case msgspec.inspect.IntType():
            return INT64
        case msgspec.inspect.StrType():
            return TEXT
        case msgspec.inspect.BytesType():
            return st.binary(max_size=200)
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.FloatType():
            return st.floats(allow_nan=False)
        case msgspec.inspect.NoneType():
            return st.none()
        case msgspec.inspect.EnumType(cls=cls):
            return st.sampled_from(list(cls))
        case msgspec.inspect.UnionType(types=types):
            return st.one_of(*map(of_info, types))
        case msgspec.inspect.VarTupleType(item_type=item):
            return st.lists(of_info(item), max_size=3).map(tuple)
        case msgspec.inspect.DictType(value_type=value):
            return st.dictionaries(TEXT, of_info(value), max_size=3)
        case msgspec.inspect.StructType(cls=cls):
            return records(cast("type[Record]", cls))
        case _:
            raise AssertionError(f"no values for {info}")


def records(cls: type[Record]) -> st.SearchStrategy[Record]:
    """Fields stand at their defaults half of the time: neighbours that do are written together."""
    required: dict[str, st.SearchStrategy[Any]] = {}
    optional: dict[str, st.SearchStrategy[Any]] = {}
    for field in msgspec.structs.fields(cls):
        (required if field.required else optional)[field.name] = values(field.type)
    return st.fixed_dictionaries(required, optional=optional).map(lambda given: cls(**given))


ANY_RECORD = st.sampled_from(sorted(avsc.record_classes())).flatmap(
    lambda name: records(avsc.record_classes()[name])
)


def name_of(record: Record) -> str:
    return next(name for name, cls in avsc.record_classes().items() if cls is type(record))


@pytest.mark.parametrize("name", sorted(avsc.record_classes()))
def test_every_type_round_trips(name: str) -> None:
    @given(records(avsc.record_classes()[name]))
    @settings(max_examples=25, deadline=None)  # the first call of a type makes its functions
    def round_trips(record: Record) -> None:
        again = decode(encode(record))
        assert again == record
        assert type(again) is type(record)

    round_trips()


@given(ANY_RECORD)
@settings(deadline=None)
def test_the_bytes_and_values_are_those_of_fastavro(record: Record) -> None:
    name, ours = name_of(record), encode(record)
    buffer = io.BytesIO()
    fastavro.schemaless_writer(
        buffer, PARSED[name], msgspec.to_builtins(record, builtin_types=(bytes,)), strict=True
    )
    assert ours[HEADER:] == buffer.getvalue()
    buffer.seek(0)
    read = fastavro.schemaless_reader(buffer, PARSED[name], None)
    assert msgspec.convert(read, type(record)) == record


@given(st.binary(max_size=300))
def test_random_bytes_are_undecodable(data: bytes) -> None:
    with pytest.raises(UndecodableError):
        decode(data)


@given(st.sampled_from(sorted(avsc.record_classes())), st.binary(max_size=300))
def test_random_bodies_decode_or_are_undecodable(name: str, body: bytes) -> None:
    header = encode_header(name)
    try:
        record = decode(header + body)
    except UndecodableError:
        return
    assert encode(decode(encode(record))) == encode(record)


@given(ANY_RECORD, st.data())
@settings(deadline=None)
def test_mutated_bytes_decode_or_are_undecodable(record: Record, data: st.DataObject) -> None:
    mutated = bytearray(encode(record))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(mutated) - 1))
        mutated[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
        if not mutated:
            break
    try:
        again = decode(bytes(mutated))
    except UndecodableError:
        return
    # By their bytes: a double that is no number equals nothing.
    assert encode(decode(encode(again))) == encode(again)


@given(ANY_RECORD, st.data())
@settings(deadline=None)
def test_a_part_is_never_a_record(record: Record, data: st.DataObject) -> None:
    whole = encode(record)
    with pytest.raises(UndecodableError):
        decode(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(UndecodableError, match="left over"):
        decode(whole + b"\x00")


def encode_header(name: str) -> bytes:
    return MARKER + fingerprint_of(avsc.complete(name))
