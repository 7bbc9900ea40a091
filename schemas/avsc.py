"""The schema files: found, and made complete in themselves.

A file under `schemas/<folder>/` names the types of other files; a fingerprint or a reader needs them spelled
out, else a change of a nested entity would go unseen. `schemas/released/<version>/` keeps complete copies.
"""

from __future__ import annotations

import enum
import json
from functools import cache
from pathlib import Path
from typing import Any

import schemas.commands
import schemas.entities
import schemas.events
import schemas.replies
from schemas.entities import Record
from schemas.source import Classes, Schema, full_name

ROOT = Path(__file__).parent
RELEASED = ROOT / "released"
FINGERPRINTS = "fingerprints.json"
NAMESPACE = "horarium"

_MODULES = (schemas.entities, schemas.commands, schemas.events, schemas.replies)
_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


def _named(base: type[Any]) -> Classes:
    """Types of ours that have a schema file, by full Avro name."""
    found = {}
    for module in _MODULES:
        folder = module.__name__.rpartition(".")[2]
        for name, thing in vars(module).items():
            if isinstance(thing, type) and issubclass(thing, base) and thing.__module__ == module.__name__:
                full = f"{NAMESPACE}.{folder}.{name}"
                if full in files():
                    found[full] = thing
    return found


@cache
def files() -> dict[str, Schema]:
    """Today's schemas as written, by full name, in the order of their paths."""
    found = {}
    for path in sorted(ROOT.glob("*/*.avsc")):
        schema = json.loads(path.read_text(encoding="utf-8"))
        if f"{NAMESPACE}.{path.parent.name}.{path.stem}" != full_name(schema):
            raise ValueError(f"{path} holds {full_name(schema)}")
        found[full_name(schema)] = schema
    return found


@cache
def record_classes() -> Classes:
    """Every record that can be encoded; a base class has no file and is none."""
    return _named(Record)


@cache
def enum_members() -> dict[str, dict[str, Any]]:
    """Members of every enum by symbol, by full name; "" is what a reader takes for an unknown symbol."""
    found = {}
    for name, cls in _named(enum.Enum).items():
        found[name] = dict(cls.__members__)
        if "default" in files()[name]:
            found[name][""] = cls[files()[name]["default"]]
    return found


def complete(name: str) -> Schema:
    """The schema with every named type spelled out where it is first used."""
    return _spell_out(name, set())


def _spell_out(schema: Schema, seen: set[str]) -> Schema:
    if isinstance(schema, str):
        return schema if schema in _PRIMITIVES or schema in seen else _spell_out(files()[schema], seen)
    if isinstance(schema, list):
        return [_spell_out(branch, seen) for branch in schema]
    out = dict(schema)
    if "name" in schema:
        seen.add(full_name(schema))
    for part in ("items", "values"):
        if part in schema:
            out[part] = _spell_out(schema[part], seen)
    if "fields" in schema:
        out["fields"] = [{**field, "type": _spell_out(field["type"], seen)} for field in schema["fields"]]
    return out


def released_versions() -> list[str]:
    """Names of the released versions, oldest first."""
    folders = (path.name for path in RELEASED.iterdir() if path.is_dir())
    return sorted(folders, key=lambda name: int(name.removeprefix("v")))


def released(version: str) -> dict[str, Schema]:
    """The complete schemas of a released version, by full name."""
    paths = sorted((RELEASED / version).glob("*.avsc"))
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths}


def released_fingerprints(version: str) -> dict[str, str]:
    """Fingerprint (hex, as on the wire) of each record of a released version, by full name."""
    text = (RELEASED / version / FINGERPRINTS).read_text(encoding="utf-8")
    found: dict[str, str] = json.loads(text)
    return found
