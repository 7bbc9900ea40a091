"""Writes records, compiled; stands in for `schemas.encoders`, which makes the text of a function instead.

A tree of one writer a field walks the record: a third of the time of a made function, if compiled, and three
times it if not (measured). mypyc takes a bool for an int, so types are checked here by hand as there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from librt.strings import BytesWriter, write_f64_le
from msgspec.structs import astuple
from mypy_extensions import i64, u8

from schemas.source import REPEATED, Classes, Names, Schema, attributes, full_name, kind_of, nullable

Encoder = Callable[[Any], bytes]


def _write_long(value: i64, out: BytesWriter) -> None:
    """Avro's zig-zag variable-length integer."""
    rest: i64 = (value << 1) ^ (value >> 63)
    while rest < 0 or rest > 127:
        out.append(u8(rest & 127 | 128))
        rest = (rest >> 7) & 0x1FF_FFFF_FFFF_FFFF  # without the sign
    out.append(u8(rest))


def _expected(name: str, value: object) -> TypeError:
    return TypeError(f"expected {name}, got {type(value).__name__}")


class _Writer:
    """Writes values of one type. Raises as `schemas.codec.encode` expects of an encoder."""

    def write(self, value: Any, out: BytesWriter) -> None:
        raise NotImplementedError


class _Long(_Writer):
    def write(self, value: Any, out: BytesWriter) -> None:
        if type(value) is not int:
            raise _expected("int", value)
        try:
            _write_long(value, out)
        except (OverflowError, ValueError):
            raise OverflowError(f"{value} does not fit in 64 bits") from None


class _String(_Writer):
    def write(self, value: Any, out: BytesWriter) -> None:
        if not isinstance(value, str):  # or a member of an enum of texts
            raise _expected("str", value)
        if not value:  # as most are
            out.append(0)
            return
        data = value.encode()
        _write_long(len(data), out)
        out.write(data)


class _Bytes(_Writer):
    def write(self, value: Any, out: BytesWriter) -> None:
        if type(value) is not bytes:
            raise _expected("bytes", value)
        _write_long(len(value), out)
        out.write(value)


class _Boolean(_Writer):
    def write(self, value: Any, out: BytesWriter) -> None:
        if type(value) is not bool:
            raise _expected("bool", value)
        out.append(1 if value else 0)


class _Double(_Writer):
    def write(self, value: Any, out: BytesWriter) -> None:
        if type(value) is not float and type(value) is not int:
            raise _expected("float", value)
        write_f64_le(out, float(value))


class _Enum(_Writer):
    def __init__(self, symbols: list[str]) -> None:
        self._numbers: dict[str, int] = {symbol: number for number, symbol in enumerate(symbols)}
        self._members: list[tuple[Any, int]] = []

    def write(self, value: Any, out: BytesWriter) -> None:
        # Few members, and the one that is looked for is known: hashing it would be a Python call.
        for member, number in self._members:
            if member is value:
                out.append(u8(number))
                return
        number = self._numbers[value._value_]
        if number < 64:
            self._members.append((value, number << 1))
        _write_long(number, out)


class _Array(_Writer):
    def __init__(self, item: _Writer) -> None:
        self._item = item

    def write(self, value: Any, out: BytesWriter) -> None:
        if type(value) is not tuple:
            raise _expected("tuple", value)
        if value:
            _write_long(len(value), out)
            for item in value:
                self._item.write(item, out)
        out.append(0)


class _Map(_Writer):
    def __init__(self, value: _Writer) -> None:
        self._key = _String()
        self._value = value

    def write(self, value: Any, out: BytesWriter) -> None:
        if type(value) is not dict:
            raise _expected("dict", value)
        if value:
            _write_long(len(value), out)
            for key, one in value.items():
                self._key.write(key, out)
                self._value.write(one, out)
        out.append(0)


class _Nullable(_Writer):
    def __init__(self, some: _Writer) -> None:
        self._some = some

    def write(self, value: Any, out: BytesWriter) -> None:
        if value is None:
            out.append(0)
        else:
            out.append(2)
            self._some.write(value, out)


class _Record(_Writer):
    def __init__(self, cls: type[Any], fields: list[_Writer]) -> None:
        self._cls = cls
        self._fields = fields

    def write(self, value: Any, out: BytesWriter) -> None:
        if type(value) is not self._cls:
            raise _expected(self._cls.__name__, value)
        values: tuple[Any, ...] = astuple(value)
        for position, field in enumerate(self._fields):
            field.write(values[position], out)


class _Repeated(_Writer):
    """Remembers the newest: what was read in a row is one object (`schemas.decoders`), and a value."""

    def __init__(self, record: _Record) -> None:
        self._record = record
        self._newest: object = None
        self._data = b""

    def write(self, value: Any, out: BytesWriter) -> None:
        if value is None or value is not self._newest:
            self._data = _written(value, self._record)
            self._newest = value
        out.write(self._data)


def _written(value: Any, writer: _Writer) -> bytes:
    out = BytesWriter()
    writer.write(value, out)
    return out.getvalue()


class EncoderCompiler:
    """Makes encoders for the current schemas; a nested record's writer is made once and shared."""

    def __init__(self, classes: Classes) -> None:
        self._classes = classes
        self._done: dict[str, _Writer] = {}

    def compile(self, schema: Schema) -> Encoder:
        """The encoder of a record schema that is complete in itself."""
        writer = self._record(schema, Names())
        return lambda record: _written(record, writer)

    def _record(self, schema: Schema, names: Names) -> _Writer:
        name = full_name(schema)
        cls = self._classes[name]
        if list(attributes(cls)) != [field["name"] for field in schema["fields"]]:
            # An attribute without a field would be lost in silence.
            raise ValueError(f"{name}: the schema file does not have the fields of the class")
        # Walked even if it is done: types may be spelled out in here and only named further on.
        fields = [self._writer(field["type"], names) for field in schema["fields"]]
        if name not in self._done:
            record = _Record(cls, fields)
            self._done[name] = _Repeated(record) if name in REPEATED else record
        return self._done[name]

    def _writer(self, schema: Schema, names: Names) -> _Writer:
        schema = names.resolve(schema)
        match kind_of(schema):
            case "long":
                return _Long()
            case "string":
                return _String()
            case "bytes":
                return _Bytes()
            case "enum":
                return _Enum(schema["symbols"])
            case "boolean":
                return _Boolean()
            case "double":
                return _Double()
            case "record":
                return self._record(schema, names)
            case "array":
                return _Array(self._writer(schema["items"], names))
            case "map":
                return _Map(self._writer(schema["values"], names))
            case "union":
                return _Nullable(self._writer(nullable(schema), names))
            case kind:
                raise ValueError(f"no encoding for {kind}")
