"""Which changes of a schema are allowed: every released version and today's must read each other.

History is replayed for ever, and after an upgrade was taken back the older version, given the newer one's
folder of `schemas/released/`, reads what that wrote. So between any two versions: a field may come or go only
if it has a default, types stay as they are, an enum may gain a symbol only if the older one names a default,
nothing is renamed (no alias is read).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from schemas.source import Names, Schema, full_name, kind_of, parts

_LONGS = range(-(1 << 63), 1 << 63)


def problems(older: dict[str, Schema], newer: dict[str, Schema]) -> list[str]:
    """What is wrong with going from one set of complete schemas, by full name, to the other."""
    found = [f"{name}: was removed, its records could not be read" for name in older.keys() - newer.keys()]
    for name in sorted(older.keys() & newer.keys()):
        found += _Comparison(older[name], newer[name]).compare(older[name], newer[name], name)
    for name in sorted(newer):
        found += _bad_defaults(newer[name], Names())
    # Entities are part of many records: say it once.
    return sorted(set(found))


class _Comparison:
    def __init__(self, older: Schema, newer: Schema) -> None:
        self._older, self._newer = Names(), Names()
        self._older.learn(older)
        self._newer.learn(newer)

    def compare(self, older: Schema, newer: Schema, where: str) -> Iterator[str]:
        """Problems of two types in the same place."""
        older, newer = self._older.resolve(older), self._newer.resolve(newer)
        kind = kind_of(older)
        if kind != kind_of(newer):
            yield f"{where}: {kind} became {kind_of(newer)}"
        elif kind == "union" and len(older) != len(newer):
            yield f"{where}: the union has other branches"
        elif kind in ("union", "array", "map"):
            for one, other in zip(parts(older), parts(newer), strict=True):
                yield from self.compare(one, other, where)
        elif kind in ("record", "enum") and full_name(older) != full_name(newer):
            yield f"{where}: {full_name(older)} became {full_name(newer)}"
        elif kind == "enum":
            yield from _enum(older, newer)
        elif kind == "record":
            yield from self._record(older, newer)

    def _record(self, older: Schema, newer: Schema) -> Iterator[str]:
        before = {field["name"]: field for field in older["fields"]}
        after = {field["name"]: field for field in newer["fields"]}
        for name, field in (before | after).items():
            where = f"{full_name(newer)}.{name}"
            if name in before and name in after:
                yield from self.compare(before[name]["type"], field["type"], where)
            elif "default" not in field:
                change = "added" if name in after else "removed or renamed"
                yield f"{where}: was {change} without a default"


def _enum(older: Schema, newer: Schema) -> Iterator[str]:
    where = full_name(newer)
    for symbol in older["symbols"]:
        if symbol not in newer["symbols"]:
            yield f"{where}: symbol {symbol} was removed"
    for symbol in newer["symbols"]:
        if symbol not in older["symbols"] and "default" not in older:
            yield f"{where}: symbol {symbol} was added, and the older version has no default for it"


def _bad_defaults(schema: Schema, names: Names) -> Iterator[str]:
    names.learn(schema)
    for part in parts(schema):
        yield from _bad_defaults(part, names)
    if isinstance(schema, dict):
        if kind_of(schema) == "enum" and schema.get("default", schema["symbols"][0]) not in schema["symbols"]:
            yield f"{full_name(schema)}: the default is no symbol"
        for field in schema.get("fields", ()):
            if "default" in field and not fits(field["default"], field["type"], names):
                where = f"{full_name(schema)}.{field['name']}"
                yield f"{where}: the default does not fit the type (of a union: its first branch)"


def fits(default: Any, schema: Schema, names: Names) -> bool:
    """Whether a default is one for the type; that of a union belongs to its first branch."""
    schema = names.resolve(schema)
    match kind_of(schema):
        case "union":
            return fits(default, schema[0], names)
        case "null":
            return default is None
        case "boolean":
            return isinstance(default, bool)
        case "long":
            return type(default) is int and default in _LONGS
        case "double":
            return type(default) in (int, float)
        case "string":
            return isinstance(default, str)
        case "bytes":
            return isinstance(default, str) and all(ord(character) < 256 for character in default)
        case "enum":
            return default in schema["symbols"]
        case "array":
            return isinstance(default, list) and all(fits(one, schema["items"], names) for one in default)
        case "map":
            return isinstance(default, dict) and all(
                fits(one, schema["values"], names) for one in default.values()
            )
        case "record":
            return isinstance(default, dict) and all(
                fits(default.get(field["name"], field.get("default")), field["type"], names)
                for field in schema["fields"]
            )
        case kind:
            raise ValueError(f"{kind} is not used in our schemas")
