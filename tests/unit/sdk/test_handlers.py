"""Handlers alone: payload models, what a value or an exception means, and the context for tests."""

import enum
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import horarium
import msgspec
import pydantic
import pytest
from horarium import App, Completed, Context, Fail, Failed, NonRetryable, Snooze, TestContext
from horarium.handlers import make
from horarium.results import ERROR_BYTES_MAX, of_exception


class Colour(enum.Enum):
    RED = "red"


class Pydantic(pydantic.BaseModel, strict=True):
    when: datetime
    colour: Colour
    count: int = 1


class Struct(msgspec.Struct):
    when: datetime
    colour: Colour
    count: int = 1


@dataclass(frozen=True)
class Inner:
    name: str


@dataclass(frozen=True)
class Data:
    when: datetime
    inner: list[Inner]
    maybe: Inner | None = None
    raw: str = ""
    by_name: dict[str, Inner] | None = None


SENT = {"when": "2026-07-01T09:00:00Z", "colour": "red"}


@pytest.mark.parametrize("model", [Pydantic, Struct])
async def test_models_of_others(model: Any) -> None:
    async def handler(ctx: Context[Any]) -> Any:
        assert isinstance(ctx.payload, model)
        assert (ctx.payload.when.hour, ctx.payload.colour) == (9, Colour.RED)
        return ctx.payload

    assert await TestContext(SENT).run(handler, model) == Completed({**SENT, "count": 1})


async def test_dataclasses() -> None:
    def handler(ctx: Context[Data]) -> str:
        data = ctx.payload
        assert data.by_name == {"b": Inner("c")}
        return f"{data.when.hour} {data.inner[0].name} {data.maybe} {data.raw}"

    payload = {
        "when": "2026-07-01T09:00:00Z",
        "inner": [{"name": "a", "more": 1}],
        "raw": "r",
        "by_name": {"b": {"name": "c"}},
    }
    assert await TestContext(payload).run(handler, Data) == Completed("9 a None r")


async def test_any_function_makes_a_payload() -> None:
    assert await TestContext("12").run(lambda ctx: ctx.payload + 1, int) == Completed(13)


@pytest.mark.parametrize("model", [Pydantic, Struct, Data, int])
async def test_a_payload_that_does_not_fit_gives_up(model: Any) -> None:
    ended = await TestContext({"colour": "blue"}).run(lambda ctx: None, model)
    assert isinstance(ended, Failed)
    assert not ended.retryable
    assert ended.error.startswith("the payload does not fit: ")


@pytest.mark.parametrize(
    ("returned", "ended"),
    [
        (None, Completed(None)),
        ([1, {"a": "é"}], Completed([1, {"a": "é"}])),
        (Inner("x"), Completed({"name": "x"})),
        (Snooze(1), Snooze(1)),
        (Fail("no", retry=False), Failed("no", retryable=False)),
        (Fail(after=0.2), Failed("failed", retryable=True, retry_after_sec=1)),
    ],
)
async def test_what_a_value_means(returned: Any, ended: Any) -> None:
    assert await TestContext().run(lambda ctx: returned) == ended


@pytest.mark.parametrize("returned", [object(), float("nan"), "\ud800", "x" * 20_000, {1, 2}])
async def test_a_result_that_cannot_be_kept_is_a_failure(returned: Any) -> None:
    ended = await TestContext().run(lambda ctx: returned)
    assert isinstance(ended, Failed)
    assert not ended.retryable


class Never(NonRetryable):
    """A program's own."""


@pytest.mark.parametrize("error", [ValueError("x"), Never("x"), SystemExit(1), StopIteration("x")])
async def test_what_an_exception_means(error: BaseException) -> None:
    def raises(ctx: Context[Any]) -> None:
        raise error

    ended = await TestContext().run(raises)
    assert isinstance(ended, Failed)
    assert ended.retryable is not isinstance(error, Never)
    assert type(error).__name__ in ended.error


def test_long_errors_are_cut() -> None:
    ended = of_exception(ValueError("é" * 10_000))
    assert len(ended.error.encode()) <= ERROR_BYTES_MAX
    assert ended.error.startswith("ValueError: é")


async def test_a_context_for_tests() -> None:
    app = App("http://127.0.0.1:1", "key")

    @app.handler("count")
    def count(ctx: Context[Any]) -> Any:
        start = (ctx.progress or {"row": 0})["row"]
        ctx.heartbeat({"row": start + 1})
        ctx.log.info("one more")
        if ctx.cancelled.is_set():
            return ctx.cancel_reason
        return [ctx.attempt, ctx.lease_epoch, ctx.fencing_token, ctx.idempotency_key]

    ctx = TestContext(progress={"row": 7}, attempt=2, fencing_token=99)
    assert count(ctx) == [2, 1, 99, "job.1.1.s"]
    assert ctx.beats == [{"row": 8}]
    ctx.cancel("lease_lost")
    assert await ctx.run(app.find("count")) == Completed("lease_lost")
    with pytest.raises(KeyError):
        app.find("other")


def test_a_task_has_one_handler() -> None:
    app = App("http://127.0.0.1:1", "key")
    app.handler("a")(lambda ctx: None)
    with pytest.raises(ValueError, match="'a' has a handler"):
        app.handler("a")(lambda ctx: None)


class Callable:
    async def __call__(self, ctx: Context[Any]) -> str:
        return "object"


async def test_an_object_with_an_async_call_is_async() -> None:
    assert make("t", Callable(), None).is_async
    assert await TestContext().run(Callable()) == Completed("object")


def test_the_library_needs_no_model_library() -> None:
    code = "import sys, horarium; print(sorted({'pydantic', 'msgspec', 'rich'} & set(sys.modules)))"
    environment = {**os.environ, "PYTHONPATH": str(Path(horarium.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == "[]"
