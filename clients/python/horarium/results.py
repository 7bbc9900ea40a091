"""How a handler ends: what it may return or raise, and what the worker makes of that."""

from __future__ import annotations

import dataclasses
import importlib
import math
import re
import traceback
from dataclasses import dataclass
from typing import Any

from horarium.exchange import encode

RESULT_BYTES_MAX = 16 * 1024
ERROR_BYTES_MAX = 8 * 1024

_NOT_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class Snooze:
    """Return it to get the execution again after so many seconds; spends neither attempt nor delivery."""

    seconds: float

    @property
    def delay_sec(self) -> int:
        """Never earlier than asked for."""
        return math.ceil(self.seconds)


@dataclass(frozen=True, slots=True)
class Fail:
    """Return it to fail the attempt: retried by policy, or `after` seconds, or (`retry` False) given up."""

    error: str = "failed"
    retry: bool = True
    after: float | None = None


class NonRetryable(Exception):
    """Raise it, or a subclass, when trying again cannot help: the execution goes to the dead letters."""


@dataclass(frozen=True, slots=True)
class Completed:
    """The handler succeeded; `result` is what it returned, as JSON values."""

    result: Any = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt failed."""

    error: str
    retryable: bool = True
    retry_after_sec: int | None = None


Ended = Completed | Failed | Snooze


def of_value(value: Any) -> Ended:
    """What a returned value means."""
    if isinstance(value, Snooze):
        return value
    if isinstance(value, Fail):
        after = None if value.after is None else math.ceil(value.after)
        return Failed(error_text(value.error), value.retry, after)
    try:
        result = to_json(value)
        size = len(encode(result))
    except (TypeError, ValueError, RecursionError) as error:
        return Failed(error_text(f"the result is no JSON: {error}"), retryable=False)
    if size > RESULT_BYTES_MAX:
        # Another try would return as much again.
        return Failed(f"the result has {size} bytes; {RESULT_BYTES_MAX} are allowed", retryable=False)
    return Completed(result)


def of_exception(error: BaseException) -> Failed:
    """What a raised exception means."""
    head = "".join(traceback.format_exception_only(error)).strip()
    where = "".join(traceback.format_tb(error.__traceback__)[-5:])
    return Failed(error_text(f"{head}\n{where}".strip()), retryable=not isinstance(error, NonRetryable))


def to_json(value: Any) -> Any:
    """Models (pydantic, msgspec, dataclasses) as JSON values; anything else as it is."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if hasattr(value, "__struct_fields__"):
        return importlib.import_module("msgspec").to_builtins(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value


def error_text(text: str) -> str:
    """Cut to what the server keeps, without characters that it refuses."""
    data = _NOT_TEXT.sub("?", text).encode("utf-8", "replace")
    return (data[:ERROR_BYTES_MAX].decode("utf-8", "ignore")) or "failed"
