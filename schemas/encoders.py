"""Makes the functions that write records; see `schemas.source` for why.

Types are checked while writing, since nothing else stops a bool in a long or a str in bytes: a Struct takes
whatever it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from schemas.source import DOUBLE, Classes, Function, Names, Schema, attributes, full_name, kind_of, nullable
from schemas.varint import encode_long

Encoder = Callable[[Any], bytes]


def _encode_boolean(value: bool) -> bytes:
    if value is True:
        return b"\x01"
    if value is False:
        return b"\x00"
    raise TypeError(f"expected bool, got {type(value).__name__}")


def _encode_double(value: float) -> bytes:
    if type(value) is not float and type(value) is not int:
        raise TypeError(f"expected float, got {type(value).__name__}")
    return DOUBLE.pack(value)


def _encode_array(item: Encoder) -> Encoder:
    def encode(items: tuple[Any, ...]) -> bytes:
        if type(items) is not tuple:
            raise TypeError(f"expected tuple, got {type(items).__name__}")
        if not items:
            return b"\x00"
        return b"".join((encode_long(len(items)), *map(item, items), b"\x00"))

    return encode


def _encode_map(value: Encoder) -> Encoder:
    def encode(items: dict[str, Any]) -> bytes:
        if type(items) is not dict:
            raise TypeError(f"expected dict, got {type(items).__name__}")
        if not items:
            return b"\x00"
        out = [encode_long(len(items))]
        for key, one in items.items():
            text = key.encode()
            out += (encode_long(len(text)), text, value(one))
        return b"".join((*out, b"\x00"))

    return encode


class EncoderCompiler:
    """Makes encoders for the current schemas; a nested record's encoder is made once and shared."""

    def __init__(self, classes: Classes) -> None:
        self._classes = classes
        self._done: dict[str, Encoder] = {}

    def compile(self, schema: Schema) -> Encoder:
        """The encoder of a record schema that is complete in itself."""
        return self._record(schema, Names())

    def _record(self, schema: Schema, names: Names) -> Encoder:
        schema = names.resolve(schema)
        name = full_name(schema)
        names_in_python = attributes(self._classes[name])
        if list(names_in_python) != [field["name"] for field in schema["fields"]]:
            # An attribute without a field would be lost in silence.
            raise ValueError(f"{name}: the schema file does not have the fields of the class")
        function = Function()
        # Walked even if it is done: types may be spelled out in here and only named further on.
        pieces = [
            piece
            for field in schema["fields"]
            for piece in self._pieces(field["type"], f"r.{names_in_python[field['name']]}", function, names)
        ]
        if name not in self._done:
            join = function.bind(b"".join)
            function.lines.append(f"return {join}(({', '.join(pieces)},))")
            self._done[name] = function.make("r", name)
        return self._done[name]

    def _value(self, schema: Schema, names: Names) -> Encoder:
        """The encoder of an array's item or a map's value."""
        if kind_of(names.resolve(schema)) == "record":
            return self._record(schema, names)
        function = Function()
        pieces = self._pieces(schema, "r", function, names)
        join = function.bind(b"".join)
        function.lines.append(f"return {join}(({', '.join(pieces)},))")
        return cast(Encoder, function.make("r", kind_of(schema)))

    def _pieces(self, schema: Schema, value: str, function: Function, names: Names) -> list[str]:
        """Expressions for the bytes of `value`, to be joined in order."""
        schema = names.resolve(schema)
        match kind_of(schema):
            case "long":
                return [f"{function.bind(encode_long)}({value})"]
            case "string":
                text = function.variable()
                return [f"{function.bind(encode_long)}(len({text} := {value}.encode()))", text]
            case "bytes":
                data = function.variable()
                return [f"{function.bind(encode_long)}(len({data} := {value}))", data]
            case "enum":
                table = {s: encode_long(i) for i, s in enumerate(schema["symbols"])}
                # By `_value_`: hashing a member is a Python call, hashing its string is not.
                return [f"{function.bind(table)}[{value}._value_]"]
            case "boolean":
                return [f"{function.bind(_encode_boolean)}({value})"]
            case "double":
                return [f"{function.bind(_encode_double)}({value})"]
            case "record":
                return [f"{function.bind(self._record(schema, names))}({value})"]
            case "array":
                return [f"{function.bind(_encode_array(self._value(schema['items'], names)))}({value})"]
            case "map":
                return [f"{function.bind(_encode_map(self._value(schema['values'], names)))}({value})"]
            case "union":
                some = function.variable()
                pieces = self._pieces(nullable(schema), some, function, names)
                join = function.bind(b"".join)
                given = f'{join}((b"\\x02", {", ".join(pieces)}))'
                return [f'(b"\\x00" if ({some} := {value}) is None else {given})']
            case kind:
                raise ValueError(f"no encoding for {kind}")
