"""JSON values to dataclasses: for the API's answers (camelCase members) and for payloads of handlers.

Tolerant where a server may grow: unknown members are ignored, missing ones take the field's default.
Knows nothing of HTTP.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin

T = TypeVar("T")

RAW = "raw"
"""In the API's models a field of this name gets the whole JSON object."""


class ConvertError(ValueError):
    """The value does not have the form of its type; the message names the member."""


def camel(name: str) -> str:
    """`next_run_at` as the API spells it: `nextRunAt`."""
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)


def same(name: str) -> str:
    """Payloads keep the names of their fields."""
    return name


def parse_time(text: str) -> datetime:
    """An RFC 3339 instant."""
    return datetime.fromisoformat(text)


def build(cls: type[T], value: Any, rename: Callable[[str], str] = camel) -> T:
    """The dataclass `cls` made from a JSON object."""
    if not isinstance(value, Mapping):
        raise ConvertError(f"{cls.__name__} is made from a JSON object, not from {type(value).__name__}")
    members: dict[str, Any] = {}
    kind: Any = cls  # the cache wants a Hashable, which a checker does not see in type[T]
    for name, hint, needed in _fields(kind):
        if name == RAW and rename is camel:
            members[name] = dict(value)
        elif (member := rename(name)) in value:
            members[name] = convert(hint, value[member], rename, member)
        elif needed:
            raise ConvertError(f"{cls.__name__}: member {member!r} is missing")
    return cls(**members)


def convert(hint: Any, value: Any, rename: Callable[[str], str], where: str) -> Any:
    """The value as the type hint says; types that JSON does not know are made from strings or objects."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        inner = [each for each in arguments if each is not type(None)]
        return convert(inner[0], value, rename, where) if len(inner) == 1 else value
    if origin in (list, tuple):
        if not isinstance(value, list):
            raise ConvertError(f"{where} is no list")
        return origin(convert(arguments[0], each, rename, where) for each in value)
    if origin in (dict, Mapping):
        if not isinstance(value, Mapping):
            raise ConvertError(f"{where} is no object")
        return {name: convert(arguments[1], each, rename, where) for name, each in value.items()}
    if hint is datetime:
        try:
            return parse_time(value)
        except (TypeError, ValueError):
            raise ConvertError(f"{where} is no RFC 3339 time: {value!r}") from None
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return build(hint, value, rename)
    return value


@cache
def _fields(cls: Any) -> tuple[tuple[str, Any, bool], ...]:
    hints = typing.get_type_hints(cls)
    return tuple(
        (
            field.name,
            hints[field.name],
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
        )
        for field in dataclasses.fields(cls)
        if field.init
    )
