"""What the calls have in common: paths, parameters, and how answers are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import quote

from horarium.convert import build
from horarium.exchange import Answer
from horarium.models import Page
from horarium.schedules import format_time

T = TypeVar("T")


def path_of(*parts: str) -> str:
    """A path of the API."""
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def one(cls: type[T]) -> Callable[[Answer], T]:
    """Reads one object."""
    return lambda answer: build(cls, answer.json())


def listed(cls: type[T], member: str) -> Callable[[Answer], tuple[T, ...]]:
    """Reads a whole list."""
    return lambda answer: tuple(build(cls, each) for each in answer.json()[member])


def paged(cls: type[T], member: str) -> Callable[[Answer], Page[T]]:
    """Reads one page of a list."""

    def parse(answer: Answer) -> Page[T]:
        body = answer.json()
        items = tuple(build(cls, each) for each in body[member])
        return Page(items, body.get("nextPageToken") or None)

    return parse


def params_of(labels: Mapping[str, str] | None = None, **values: Any) -> dict[str, str]:
    """Query parameters: those that are given, times as text."""
    params = {f"label.{name}": value for name, value in (labels or {}).items()}
    given = {name: value for name, value in values.items() if value is not None}
    return params | {
        name: format_time(value) if isinstance(value, datetime) else str(value)
        for name, value in given.items()
    }


def given(**members: Any) -> dict[str, Any]:
    """Members of a body that are given."""
    return {name: value for name, value in members.items() if value is not None}


def window_of(since: datetime | str | None, until: datetime | str | None) -> dict[str, str]:
    """`from` and `to`: words of Python, so their parameters have other names."""
    names = {"since": "from", "until": "to"}
    return {names[name]: value for name, value in params_of(since=since, until=until).items()}


def match_of(version: int) -> dict[str, str]:
    """Binds a change to the version that its caller saw."""
    return {"If-Match": f'"{version}"'}
