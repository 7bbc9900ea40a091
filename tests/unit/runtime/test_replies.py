"""How the answers of one transaction leave the process."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

from schemas import codec
from schemas.entities import Record
from schemas.replies import CommandDone
from schemas.topics import Topics
from streams.core.effects import Answer
from streams.runtime.checkpoint import Checkpoint
from streams.transport.log import Outgoing


def test_all_are_encoded_before_the_first_is_sent() -> None:
    """The client makes requests of what comes at once: one by one, each costs the broker a request."""
    told: list[str] = []

    def encode(record: Record) -> bytes:
        told.append("encoded")
        return codec.encode(record)

    def send(record: Outgoing, done: Any = None) -> None:
        told.append("sent")

    log, telemetry = MagicMock(), MagicMock()
    log.plain_writer.return_value.send = send
    stub = MagicMock(encode=encode)
    checkpoint = Checkpoint(log, Topics("t"), "p0", stub, MagicMock(), telemetry, lambda step: None)
    unencodable = CommandDone(session="s", command_id=None, status=200, partition=0)  # type: ignore[arg-type]
    done = CommandDone(session="s", command_id="c", status=200, partition=0)
    checkpoint.answer([Answer(0, done), Answer(0, unencodable), Answer(0, done)], 0, 7)
    assert told == ["encoded"] * 3 + ["sent"] * 2
    assert telemetry.warning.call_count == 1
