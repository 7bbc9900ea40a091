"""A start waits for brokers that have not heard of what was just made, and for nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from streams.runtime import startup
from streams.runtime.partition import GivenUp
from streams.runtime.startup import insist
from streams.transport.log import Isolation, LogRefused, LogRetriable, TopicPartition
from tests.unit.runtime.installation import Installation


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "PAUSE_SEC", 0)


def test_a_broker_may_hear_late_of_new_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured on three brokers: the one that was asked knew them, the next one did not."""
    world = Installation()
    answers = 0
    end_offset = world.log.end_offset

    def slow(tp: TopicPartition, isolation: Isolation) -> int:
        nonlocal answers
        answers += tp.topic == world.topics.tenants
        if answers < 4:
            raise LogRefused(f"no partition {tp.partition} of topic {tp.topic}")
        return end_offset(tp, isolation)

    monkeypatch.setattr(world.log, "end_offset", slow)
    assert world.live().running == [0]
    assert answers >= 4


@pytest.mark.parametrize(
    ("error", "made", "tries"),
    [
        (LogRetriable("busy"), False, startup.TRIES),
        (LogRetriable("busy"), True, startup.TRIES),
        (LogRefused("never"), True, startup.TRIES),
        (LogRefused("never"), False, 1),
    ],
)
def test_what_stays_wrong_is_given_up(error: Exception, made: bool, tries: int) -> None:
    called: list[Any] = []

    def call() -> None:
        called.append(1)
        raise error

    with pytest.raises(GivenUp, match=str(error)):
        insist(call, made=made)
    assert len(called) == tries
