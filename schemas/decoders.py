"""Makes the functions that read records; see `schemas.source` for why.

A function is made from the schema that the *writer* had and from today's class: a field that the class lacks
is read and dropped, one that the writer lacked takes the class's default (`schemas.compatibility` says which
changes that allows). The writer may also be newer: an upgrade that was taken back.

Made functions raise IndexError, KeyError, ValueError or struct.error for bad bytes, and may step beyond the
end of the data, which the caller sees from the position.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, cast

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
from schemas.varint import (
    INSTANT_BYTES,
    INSTANTS,
    SMALL,
    SMALL_LENGTH,
    decode_length,
    decode_long,
)

Decoder = Callable[[bytes, int], tuple[Any, int]]
# Member by symbol, by full name of the enum; "": what an unknown symbol is read as.
Enums = dict[str, dict[str, Any]]

_BOOLEANS = {0: False, 1: True}


def _block(data: bytes, position: int) -> tuple[int, int]:
    """(number of items, position of the first) of a block of an array or map; 0 ends it."""
    count, position = decode_long(data, position)
    if count < 0:
        # Other writers may add the block's size in bytes and say so by a negative count.
        count = -count
        _, position = decode_length(data, position)
    return count, position


def _decode_array(item: Decoder) -> Decoder:
    def decode(data: bytes, position: int) -> tuple[tuple[Any, ...], int]:
        if data[position] == 0:
            return (), position + 1
        out = []
        count, position = _block(data, position)
        while count:
            for _ in range(count):
                value, position = item(data, position)
                out.append(value)
            count, position = _block(data, position)
        return tuple(out), position

    return decode


def _decode_map(pair: Decoder) -> Decoder:
    def decode(data: bytes, position: int) -> tuple[dict[str, Any], int]:
        out = {}
        count, position = _block(data, position)
        while count:
            for _ in range(count):
                (key, value), position = pair(data, position)
                out[key] = value
            count, position = _block(data, position)
        return out, position

    return decode


def _decode_repeated(decode: Decoder) -> Decoder:
    """Remembers the newest: equal bytes are an equal value, and no encoding begins with another one."""
    newest: tuple[bytes, Any] | None = None

    def decode_or_recall(data: bytes, position: int) -> tuple[Any, int]:
        nonlocal newest
        known = newest  # once: another thread may read the next record meanwhile
        if known is not None and data.startswith(known[0], position):
            return known[1], position + len(known[0])
        record, end = decode(data, position)
        if end <= len(data):
            newest = (data[position:end], record)
        return record, end

    return decode_or_recall


class DecoderCompiler:
    """Makes decoders for one version of the schemas; a nested record's decoder is made once and shared."""

    def __init__(self, classes: Classes, enums: Enums) -> None:
        self._classes = classes
        self._enums = enums
        self._done: dict[str, Decoder] = {}

    def compile(self, schema: Schema) -> Decoder:
        """The decoder of a record schema that is complete in itself."""
        return self._record(schema, Names())

    def _record(self, schema: Schema, names: Names) -> Decoder:
        name = full_name(schema)
        function = Function()
        # Walked even if it is done: types may be spelled out in here and only named further on.
        variables = {field["name"]: self._read(field["type"], function, names) for field in schema["fields"]}
        if name not in self._done:
            record = self._construction(self._classes.get(name), variables, function)
            function.lines.append(f"return {record}, p")
            made = function.make("b, p", name)
            self._done[name] = _decode_repeated(made) if name in REPEATED else made
        return self._done[name]

    def _construction(self, cls: type[Any] | None, variables: dict[str, str], function: Function) -> str:
        """The expression that makes the record; None for a type that is gone and only read over."""
        if cls is None:
            return "None"
        arguments: list[str] = []
        by_name = False
        parameters = inspect.signature(cls).parameters
        for field, attribute in attributes(cls).items():
            if field not in variables:
                by_name = True
                continue
            by_name = by_name or parameters[attribute].kind is inspect.Parameter.KEYWORD_ONLY
            arguments.append(f"{attribute}={variables[field]}" if by_name else variables[field])
        return f"{function.bind(cls)}({', '.join(arguments)})"

    def _symbols(self, schema: Schema) -> dict[int, Any]:
        """Member by the byte on the wire. Without a default, a symbol of a newer version is no member."""
        members = self._enums.get(full_name(schema))
        if members is None:
            return dict.fromkeys(range(0, 2 * len(schema["symbols"]), 2))
        found = ((2 * i, members.get(s, members.get(""))) for i, s in enumerate(schema["symbols"]))
        return {byte: member for byte, member in found if member is not None}

    def _value(self, schema: Schema, names: Names, *, keyed: bool = False) -> Decoder:
        """The decoder of an array's item, or of a map's key and value."""
        function = Function()
        made = f"({self._read('string', function, names)}, " if keyed else ""
        made += self._read(schema, function, names) + (")" if keyed else "")
        function.lines.append(f"return {made}, p")
        return cast(Decoder, function.make("b, p", "item"))

    def _read(self, schema: Schema, function: Function, names: Names) -> str:
        """Adds lines that read one value at `p` and move `p`; the name of the variable that holds it."""
        schema = names.resolve(schema)
        value = function.variable()
        match kind_of(schema):
            case "long":
                function.lines += _long(value, function)
            case "string":
                function.lines += _sized(value, function, 'str(b[p:(p := p + n)], "utf-8")', '""')
            case "bytes":
                function.lines += _sized(value, function, "b[p:(p := p + n)]", 'b""')
            case "enum":
                table = self._symbols(schema)
                function.lines += [f"{value} = {function.bind(table)}[b[p]]", "p += 1"]
            case "boolean":
                function.lines += [f"{value} = {function.bind(_BOOLEANS)}[b[p]]", "p += 1"]
            case "double":
                function.lines += [f"{value}, = {function.bind(DOUBLE.unpack_from)}(b, p)", "p += 8"]
            case "record":
                function.lines.append(f"{value}, p = {function.bind(self._record(schema, names))}(b, p)")
            case "array":
                array = _decode_array(self._value(schema["items"], names))
                function.lines.append(f"{value}, p = {function.bind(array)}(b, p)")
            case "map":
                pairs = _decode_map(self._value(schema["values"], names, keyed=True))
                function.lines.append(f"{value}, p = {function.bind(pairs)}(b, p)")
            case "union":
                some = self._value(nullable(schema), names)
                branch = function.bind({0: None, 2: some})
                function.lines += [
                    f"f = {branch}[b[p]]",
                    "p += 1",
                    f"{value} = None",
                    f"if f is not None: {value}, p = f(b, p)",
                ]
            case kind:
                raise ValueError(f"no decoding for {kind}")
        return value


def _long(value: str, function: Function) -> list[str]:
    """One byte by table, an instant from those seen lately, anything else by hand."""
    instant = function.bind(INSTANTS.get)
    return [
        f"{value} = {function.bind(SMALL)}[b[p]]",
        f"if {value} is not None: p += 1",
        "else:",
        f"    {value} = {instant}(b[p:p + {INSTANT_BYTES}])",
        f"    if {value} is not None: p += {INSTANT_BYTES}",
        f"    else: {value}, p = {function.bind(decode_long)}(b, p)",
    ]


def _sized(value: str, function: Function, taken: str, empty: str) -> list[str]:
    return [
        f"n = {function.bind(SMALL_LENGTH)}[b[p]]",
        "if n is not None: p += 1",
        f"else: n, p = {function.bind(decode_length)}(b, p)",
        f"{value} = {taken} if n else {empty}",
    ]
