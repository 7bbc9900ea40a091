"""Owns query parameters: each endpoint names those it takes; others, and values of a wrong form, are 400.

An ignored filter would be an answer to another question, so unknown names are refused like unknown members.
"""

from __future__ import annotations

import enum
import re
from typing import Any, NamedTuple, TypeVar

from starlette.requests import Request

from api.problems import wrong
from projections.views import PageRequest
from streams.core.instants import TimeInputError, parse_instant
from streams.core.limits import LABELS_MAX

E = TypeVar("E", bound=enum.StrEnum)

LABEL_PREFIX = "label."
VALUE_CHARS_MAX = 512
VALUES_MAX = 20
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class Param(NamedTuple):
    """One query parameter, for the check and for the description."""

    name: str
    kind: str = "string"
    doc: str = ""
    several: bool = False


PAGE = (
    Param("pageSize", "integer", "Items a page; larger than the limit means the limit"),
    Param("pageToken", "string", "`nextPageToken` of the page before"),
)
TENANT = Param("tenant", "string", "Whose things, for auditors; everybody else reads their own")
LABELS = Param("label.x", "string", "Only with this value of label x; any number of labels")


class Params:
    """The query of one request."""

    def __init__(self, request: Request, *known: Param) -> None:
        names = {param.name for param in known}
        single = {param.name for param in known if not param.several}
        self._values: dict[str, list[str]] = {}
        for name, value in request.query_params.multi_items():
            is_label = LABELS in known and name.startswith(LABEL_PREFIX) and name != LABEL_PREFIX
            if name not in names and not is_label:
                raise wrong(_shown(name), "is not known here")
            if len(value) > VALUE_CHARS_MAX or _UNPRINTABLE.search(value):
                raise wrong(_shown(name), f"is at most {VALUE_CHARS_MAX} printable characters")
            values = self._values.setdefault(name, [])
            values.append(value)
            if len(values) > 1 and (name in single or is_label):
                raise wrong(_shown(name), "is given more than once")
            if len(values) > VALUES_MAX:
                raise wrong(_shown(name), f"is given more than {VALUES_MAX} times")

    def text(self, name: str) -> str:
        """The value, "" if it was not given."""
        return self._values.get(name, [""])[0]

    def instant(self, name: str) -> int | None:
        """An instant in milliseconds."""
        if name not in self._values:
            return None
        try:
            return parse_instant(self.text(name), name)
        except TimeInputError as error:
            raise wrong(error.field, error.detail) from None

    def has(self, name: str) -> bool:
        """Whether it was given, were it empty."""
        return name in self._values

    def integer(self, name: str, bounds: tuple[int, int], default: int) -> int:
        """A whole number within the bounds."""
        text = self.text(name)
        if name not in self._values:
            return default
        if not re.fullmatch(r"-?[0-9]{1,18}", text) or not bounds[0] <= int(text) <= bounds[1]:
            raise wrong(name, f"is a whole number from {bounds[0]} to {bounds[1]}")
        return int(text)

    def several(self, name: str, kind: type[E]) -> tuple[E, ...]:
        """Every given value, as one of the words."""
        return tuple(_word(name, value, kind) for value in self._values.get(name, ()))

    def one_of(self, name: str, kind: type[E]) -> E | None:
        """The value as one of the words."""
        return _word(name, self.text(name), kind) if name in self._values else None

    def labels(self) -> dict[str, str]:
        """The labels asked for."""
        found = {
            name.removeprefix(LABEL_PREFIX): values[0]
            for name, values in self._values.items()
            if name.startswith(LABEL_PREFIX)
        }
        if len(found) > LABELS_MAX:
            raise wrong("label", f"are at most {LABELS_MAX}")
        return found

    def page(self) -> PageRequest:
        """Which page."""
        if not self.has("pageSize"):
            return PageRequest(token=self.text("pageToken"))
        size = self.text("pageSize")
        if not re.fullmatch(r"[0-9]{1,9}", size) or not int(size):
            raise wrong("pageSize", "is a whole number from 1 on")
        return PageRequest(size=int(size), token=self.text("pageToken"))


def described(*known: Param) -> list[dict[str, Any]]:
    """The parameters for the OpenAPI description."""
    return [
        {
            "name": param.name,
            "in": "query",
            "required": False,
            "description": param.doc,
            "schema": (
                {"type": "array", "items": {"type": param.kind}} if param.several else {"type": param.kind}
            ),
        }
        for param in known
    ]


def _word(name: str, value: str, kind: type[E]) -> E:
    try:
        return kind(value.upper())
    except ValueError:
        raise wrong(name, f"is one of {', '.join(word.value for word in kind)}") from None


def _shown(name: str) -> str:
    return _UNPRINTABLE.sub("?", name[:100])
