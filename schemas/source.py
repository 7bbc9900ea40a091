"""What the makers of encoders and decoders share: a function in the making, and names of types.

fastavro walks schema and dict at every record: 16 µs to write an execution's event and 14 µs to read it
(measured). So `schemas.encoders` and `schemas.decoders` make Python functions, each as if written by hand for
one record type; they take a fifth of that. Tests hold them to fastavro's bytes and values. The text of a
function is made from our own schema files alone, never from data.
"""

from __future__ import annotations

import enum
import struct
from typing import Any, cast

import msgspec

# JSON of an Avro schema, complete in itself: every named type is spelled out where it is first used.
Schema = Any
# Struct by full Avro name.
Classes = dict[str, type[Any]]

DOUBLE = struct.Struct("<d")
NO_DEFAULT = msgspec.NODEFAULT
REPEATED = frozenset({"horarium.entities.Policies", "horarium.replies.ItemResult"})
"""Records that are mostly equal to the one before: 19 fields in every job, answer and grant; "accepted"."""


class Function:
    """One function in the making: its lines, and the objects that names in them stand for."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._objects: dict[str, Any] = {}
        self._variables = 0

    def bind(self, thing: Any) -> str:
        """A name for `thing` inside the function."""
        name = f"g{len(self._objects)}"
        self._objects[name] = thing
        return name

    def variable(self) -> str:
        """A fresh local name."""
        self._variables += 1
        return f"v{self._variables}"

    def make(self, parameters: str, label: str) -> Any:
        """The finished function; `label` names it in tracebacks."""
        text = "\n    ".join([f"def made({parameters}):", *self.lines])
        exec(compile(text, f"<avro {label}>", "exec"), self._objects)
        return self._objects["made"]


class Names:
    """Named types met so far while a complete schema is walked."""

    def __init__(self) -> None:
        self._schemas: dict[str, Schema] = {}

    def resolve(self, schema: Schema) -> Schema:
        """The type that is spelled out here or named."""
        if isinstance(schema, dict) and "name" in schema:
            self._schemas[full_name(schema)] = schema
        return self._schemas.get(schema, schema) if isinstance(schema, str) else schema

    def learn(self, schema: Schema) -> None:
        """Meets every type that is spelled out in it."""
        self.resolve(schema)
        for part in parts(schema):
            self.learn(part)


def parts(schema: Schema) -> list[Schema]:
    """The types directly within a type."""
    if isinstance(schema, list):
        return schema
    if isinstance(schema, str):
        return []
    inner = [schema[part] for part in ("items", "values") if part in schema]
    return inner + [field["type"] for field in schema.get("fields", ())]


def full_name(schema: Schema) -> str:
    """Namespace and name of a record or enum."""
    return f"{schema['namespace']}.{schema['name']}"


def kind_of(schema: Schema) -> str:
    """Avro's word for the type: long, record, union …"""
    if isinstance(schema, list):
        return "union"
    return cast(str, schema if isinstance(schema, str) else schema["type"])


def nullable(union: list[Schema]) -> Schema:
    """The type beside null in a union, the only kind of union we have: others cost time and clarity."""
    if len(union) != 2 or union[0] != "null":
        raise ValueError(f"only nullable unions are known, not {union}")
    return union[1]


def attributes(cls: type[Any]) -> dict[str, str]:
    """Attribute by Avro field name."""
    return {field.encode_name: field.name for field in msgspec.structs.fields(cls)}


def plain_defaults(cls: type[Any]) -> list[Any]:
    """The default of each field, if values that equal it are nearly always that object; else NO_DEFAULT."""
    defaults = (field.default for field in msgspec.structs.fields(cls))
    return [default if _is_one_object(default) else NO_DEFAULT for default in defaults]


def _is_one_object(value: object) -> bool:
    if type(value) is int:
        return -5 <= value <= 256  # those that Python keeps
    return value is None or isinstance(value, bool | enum.Enum) or value in ("", b"", ())
