"""Owns who waits for which answer: commands sent by this process, and the futures of those who asked.

Lives on the event loop; the thread that reads replies hands them over in batches. Knows no Kafka and no HTTP.
Several commands of one request share one `Waiting`, so that a batch costs one wake-up and not one an item.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from schemas.replies import CommandDone, WorkDone

A = TypeVar("A", CommandDone, WorkDone)


class Waiting(Generic[A]):
    """The answers to some commands, in their order; None where none came."""

    __slots__ = ("answers", "command_ids", "done", "missing")

    def __init__(self, command_ids: Sequence[str], loop: asyncio.AbstractEventLoop) -> None:
        self.command_ids = command_ids
        self.answers: list[A | None] = [None] * len(command_ids)
        self.missing = len(command_ids)
        self.done: asyncio.Future[None] = loop.create_future()

    def take(self, index: int, answer: A | None) -> None:
        """One answer, or None: there will be none."""
        self.answers[index] = answer
        self.missing -= 1
        if not self.missing and not self.done.done():
            self.done.set_result(None)


class Outcomes:
    """Everybody who waits, by command id."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[Waiting[CommandDone] | Waiting[WorkDone], int]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def expect(self, waiting: Waiting[CommandDone] | Waiting[WorkDone]) -> None:
        """Answers to these commands go to `waiting` from now on."""
        for index, command_id in enumerate(waiting.command_ids):
            self._places[command_id] = (waiting, index)

    def forget(self, waiting: Waiting[CommandDone] | Waiting[WorkDone]) -> None:
        """Nobody waits for the rest of these commands any more."""
        for command_id in waiting.command_ids:
            self._places.pop(command_id, None)

    def give(self, answers: Iterable[CommandDone | WorkDone]) -> None:
        """Answers that came. Repeats, and those that nobody waits for any more, are dropped."""
        for answer in answers:
            place = self._places.pop(answer.command_id, None)
            if place is not None:
                waiting, index = place
                waiting.take(index, answer)  # type: ignore[arg-type]  # an id belongs to one kind

    def fail(self, command_id: str) -> None:
        """The command could not be delivered; no answer will come."""
        place = self._places.pop(command_id, None)
        if place is not None:
            waiting, index = place
            waiting.take(index, None)
