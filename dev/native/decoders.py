"""Reads records, compiled; stands in for `schemas.decoders`, which makes the text of a function instead.

A tree of one reader a field walks the bytes, and never beyond their end. A record is made by position; only
one with fields for keywords alone, or of another version's fields, by a function whose text is made.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from mypy_extensions import i64

from schemas.source import (
    DOUBLE,
    REPEATED,
    Classes,
    Function,
    Names,
    Schema,
    attributes,
    full_name,
    kind_of,
    nullable,
)

Decoder = Callable[[bytes, int], tuple[Any, int]]
# Member by symbol, by full name of the enum; "": what an unknown symbol is read as.
Enums = dict[str, dict[str, Any]]

_NO_MEMBER = object()


class _Bytes:
    """Bytes, and how far they were read. Reading raises as `schemas.codec.decode` expects of a decoder."""

    def __init__(self, data: bytes, position: i64) -> None:
        self.data = data
        self.position = position

    def byte(self) -> i64:
        byte: i64 = self.data[self.position]
        self.position += 1
        return byte

    def long(self) -> i64:
        """Avro's zig-zag variable-length integer."""
        data = self.data
        position = self.position
        number: i64 = data[position]
        position += 1
        if number > 127:
            number &= 127
            shift: i64 = 7
            while True:
                byte: i64 = data[position]
                position += 1
                if shift == 63 and byte > 1:
                    raise ValueError(
                        "a number of more than 64 bits" if byte < 128 else "a number of more than 10 bytes"
                    )
                number |= (byte & 127) << shift
                if byte < 128:
                    break
                shift += 7
        self.position = position
        return ((number >> 1) & 0x7FFF_FFFF_FFFF_FFFF) ^ -(number & 1)

    def taken(self, length: i64) -> bytes:
        """The next bytes. Raises IndexError at the end of the data, before the position could overflow."""
        start = self.position
        if length > len(self.data) - start:
            raise IndexError(length)
        self.position = start + length
        return self.data[start : start + length]

    def sized(self) -> bytes:
        length = self.long()
        if length < 0:
            raise ValueError("a negative length")
        return self.taken(length)


class _Reader:
    """Reads values of one type."""

    def read(self, data: _Bytes) -> Any:
        raise NotImplementedError


class _Long(_Reader):
    def read(self, data: _Bytes) -> Any:
        return data.long()


class _String(_Reader):
    def read(self, data: _Bytes) -> Any:
        return data.sized().decode()


class _Data(_Reader):
    def read(self, data: _Bytes) -> Any:
        return data.sized()


class _Boolean(_Reader):
    def read(self, data: _Bytes) -> Any:
        byte = data.byte()
        if byte > 1:
            raise KeyError(byte)
        return byte == 1


class _Double(_Reader):
    def read(self, data: _Bytes) -> Any:
        return DOUBLE.unpack(data.taken(8))[0]


class _Enum(_Reader):
    """Without a default, a symbol of a newer version is no member; of an enum that is gone any will do."""

    def __init__(self, symbols: list[str], members: dict[str, Any] | None) -> None:
        found = [None if members is None else members.get(s, members.get("", _NO_MEMBER)) for s in symbols]
        self._members: list[Any] = found

    def read(self, data: _Bytes) -> Any:
        byte = data.byte()  # no enum has more than 64 symbols
        if byte & 1 or byte >> 1 >= len(self._members):
            raise KeyError(byte)
        member = self._members[byte >> 1]
        if member is _NO_MEMBER:
            raise KeyError(byte)
        return member


class _Blocks(_Reader):
    """An array or a map: blocks of items, each with their number before them; 0 ends it."""

    def __init__(self, item: _Reader) -> None:
        self._item = item

    def items(self, data: _Bytes) -> list[Any]:
        found: list[Any] = []
        while True:
            count = data.long()
            if count == 0:
                return found
            if count < 0:
                # Other writers may add the block's size in bytes and say so by a negative count.
                count = -count
                if count < 0 or data.long() < 0:  # the least number has no opposite
                    raise ValueError("a negative length")
            while count > 0:
                found.append(self._item.read(data))
                count -= 1


class _Array(_Blocks):
    def read(self, data: _Bytes) -> Any:
        return tuple(self.items(data))


class _Map(_Blocks):
    def read(self, data: _Bytes) -> Any:
        return dict(self.items(data))


class _Pair(_Reader):
    def __init__(self, value: _Reader) -> None:
        self._value = value

    def read(self, data: _Bytes) -> Any:
        key = data.sized().decode()
        return (key, self._value.read(data))


class _Nullable(_Reader):
    def __init__(self, some: _Reader) -> None:
        self._some = some

    def read(self, data: _Bytes) -> Any:
        branch = data.byte()
        if branch == 0:
            return None
        if branch != 2:
            raise KeyError(branch)
        return self._some.read(data)


class _Record(_Reader):
    def __init__(self, fields: list[_Reader], make: Callable[..., Any]) -> None:
        self._fields = fields
        self._make = make

    def read(self, data: _Bytes) -> Any:
        return self._make(*[field.read(data) for field in self._fields])


class _Repeated(_Reader):
    """Remembers the newest: equal bytes are an equal value, and no encoding begins with another one."""

    def __init__(self, record: _Record) -> None:
        self._record = record
        self._data: bytes | None = None
        self._newest: object = None

    def read(self, data: _Bytes) -> Any:
        known, newest = self._data, self._newest  # both now: another thread may read the next one meanwhile
        start = data.position
        if known is not None and data.data.startswith(known, start):
            data.position = start + len(known)
            return newest
        record = self._record.read(data)
        self._data = data.data[start : data.position]
        self._newest = record
        return record


def _read(data: bytes, position: int, reader: _Reader) -> tuple[Any, int]:
    rest = _Bytes(data, position)
    return reader.read(rest), rest.position


class DecoderCompiler:
    """Makes decoders for one version of the schemas; a nested record's reader is made once and shared."""

    def __init__(self, classes: Classes, enums: Enums) -> None:
        self._classes = classes
        self._enums = enums
        self._done: dict[str, _Reader] = {}

    def compile(self, schema: Schema) -> Decoder:
        """The decoder of a record schema that is complete in itself."""
        reader = self._record(schema, Names())
        return lambda data, position: _read(data, position, reader)

    def _record(self, schema: Schema, names: Names) -> _Reader:
        name = full_name(schema)
        # Walked even if it is done: types may be spelled out in here and only named further on.
        fields = [self._reader(field["type"], names) for field in schema["fields"]]
        if name not in self._done:
            record = _Record(fields, _construction(self._classes.get(name), schema))
            self._done[name] = _Repeated(record) if name in REPEATED else record
        return self._done[name]

    def _reader(self, schema: Schema, names: Names) -> _Reader:
        schema = names.resolve(schema)
        match kind_of(schema):
            case "long":
                return _Long()
            case "string":
                return _String()
            case "bytes":
                return _Data()
            case "enum":
                return _Enum(schema["symbols"], self._enums.get(full_name(schema)))
            case "boolean":
                return _Boolean()
            case "double":
                return _Double()
            case "record":
                return self._record(schema, names)
            case "array":
                return _Array(self._reader(schema["items"], names))
            case "map":
                return _Map(_Pair(self._reader(schema["values"], names)))
            case "union":
                return _Nullable(self._reader(nullable(schema), names))
            case kind:
                raise ValueError(f"no decoding for {kind}")


def _construction(cls: type[Any] | None, schema: Schema) -> Callable[..., Any]:
    """Makes the record of the writer's values, in their order; None for a type that is gone and only read
    over. What the class lacks is dropped, and what the writer lacked takes its default."""
    fields = [field["name"] for field in schema["fields"]]
    if cls is not None and fields == list(attributes(cls)) and _takes_positions(cls):
        return cls
    function = Function()
    values = {field: function.variable() for field in fields}
    if cls is None:
        function.lines.append("return None")
    else:
        given = [f"{name}={values[field]}" for field, name in attributes(cls).items() if field in values]
        function.lines.append(f"return {function.bind(cls)}({', '.join(given)})")
    made: Callable[..., Any] = function.make(", ".join(values.values()), full_name(schema))
    return made


def _takes_positions(cls: type[Any]) -> bool:
    """Whether no field is for keywords alone: by position a record is made in a fifth of the time."""
    parameters = inspect.signature(cls).parameters.values()
    return all(parameter.kind is not inspect.Parameter.KEYWORD_ONLY for parameter in parameters)
