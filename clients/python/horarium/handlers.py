"""Handlers: which function runs which task, how its payload is made, and how it is called."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import importlib
import inspect
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from horarium import convert
from horarium.context import Context
from horarium.exchange import encode
from horarium.results import Ended, Failed, error_text, of_exception, of_value

F = TypeVar("F", bound=Callable[..., Any])

Payload = Callable[..., Any]
"""A pydantic model, a msgspec Struct, a dataclass, or any function of the JSON value."""


@dataclass(frozen=True, slots=True)
class Handler:
    """One registered function."""

    task: str
    function: Callable[[Context[Any]], Any]
    payload: Payload | None
    is_async: bool


class Handlers:
    """The functions of an app by task."""

    def __init__(self) -> None:
        self._by_task: dict[str, Handler] = {}

    def add(self, task: str, function: Callable[..., Any], payload: Payload | None) -> None:
        """Registers a function; a second one for a task is a mistake."""
        if task in self._by_task:
            raise ValueError(f"task {task!r} has a handler already")
        self._by_task[task] = make(task, function, payload)

    def get(self, task: str) -> Handler | None:
        """The handler of a task."""
        return self._by_task.get(task)

    def __len__(self) -> int:
        return len(self._by_task)


def make(task: str, function: Callable[..., Any], payload: Payload | None) -> Handler:
    """A handler, known to be async by its function or by its `__call__`."""
    call = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    return Handler(task, function, payload, inspect.iscoroutinefunction(call))


class PayloadError(Exception):
    """The payload does not fit the handler's model; another try would not help."""


def decode(payload: Payload | None, value: Any) -> Any:
    """The payload as the handler wants it."""
    if payload is None:
        return value
    try:
        if hasattr(payload, "model_validate_json"):
            # From JSON, so that a strict model takes times and enums from text.
            return payload.model_validate_json(encode(value))
        if hasattr(payload, "__struct_fields__"):
            return importlib.import_module("msgspec").convert(value, payload)
        if dataclasses.is_dataclass(payload) and isinstance(payload, type):
            return convert.build(payload, value, convert.same)
        return payload(value)
    except Exception as error:
        raise PayloadError(f"the payload does not fit: {error}") from error


async def call(handler: Handler, ctx: Context[Any]) -> Ended:
    """Runs the function, on the loop or in a thread; only the caller's cancellation gets out."""
    try:
        if handler.is_async:
            return of_value(await handler.function(ctx))
        return of_value(await _in_thread(handler.function, ctx))
    except (Exception, SystemExit) as error:
        return of_exception(error)


def refusal(error: PayloadError) -> Failed:
    """What becomes of an execution whose payload does not fit."""
    return Failed(error_text(str(error)), retryable=False)


def _in_thread(function: Callable[[Context[Any]], Any], ctx: Context[Any]) -> Awaitable[Any]:
    """Runs a function in a daemon thread, so that one that never returns cannot keep the process alive."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)

    def run() -> None:
        value: Any = None
        failure: BaseException | None = None
        try:
            value = context.run(function, ctx)
        except BaseException as error:
            # These two mean something else to whoever waits for a future.
            strange = isinstance(error, StopIteration | asyncio.CancelledError)
            failure = RuntimeError(repr(error)) if strange else error
        try:
            loop.call_soon_threadsafe(settle, value, failure)
        except RuntimeError:
            # The loop is closed: the worker gave this thread up.
            pass

    threading.Thread(target=run, name=f"horarium-{ctx.execution_id}", daemon=True).start()
    return future
