"""A log is read as it is: committed events up to the end, tombstones, and the words that caused them."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from projections.checker import __main__ as command
from projections.checker.checker import Checker
from projections.checker.reading import UnreadableError, read_all
from projections.checker.report import Kind, Report
from schemas import codec
from schemas.commands import Complete
from schemas.topics import Topics, catalogue
from streams.transport.log import Outgoing
from streams.transport.memory import MemoryLog
from tests.unit.checker.tale import tell
from tests.unit.core.world import World

TOPICS = Topics("t")


def logged(world: World, *, stale: bool = False) -> MemoryLog:
    """The tale's partition as topics. A record of `work` has the offset that events name it by."""
    log = MemoryLog(lambda: world.now_ms)
    log.create_topics(catalogue("t", 1, 1))
    writer = log.plain_writer()
    for key, value in world.log:
        writer.send(Outgoing(TOPICS.events, 0, key.encode(), value))
    words = dict(world.work)
    for offset in range(max(words) + 1):
        word = words.get(offset)
        if stale and isinstance(word, Complete):
            word = replace(word, items=tuple(replace(one, lease_epoch=0) for one in word.items))
        writer.send(Outgoing(TOPICS.work, 0, b"k", codec.encode(word) if word is not None else b"rubbish"))
    return log


def read(log: MemoryLog, world: World) -> Report:
    checker = Checker()
    read_all(log, TOPICS, checker, lambda line: None)
    return checker.finish(world.now_ms, drained=True)


def test_a_log_is_read_to_its_end() -> None:
    world = tell()
    report = read(logged(world), world)
    assert report.good, report.violations
    assert report.events == sum(value is not None for _, value in world.log)
    assert not report.unjudged


def test_the_words_of_workers_are_read_with_it() -> None:
    world = tell()
    assert set(read(logged(world, stale=True), world).found) == {Kind.ACCEPTED_TWICE}


def test_what_cannot_be_read_is_an_error_that_says_where() -> None:
    world = tell()
    log = logged(world)
    log.plain_writer().send(Outgoing(TOPICS.events, 0, b"job:a/b", b"rubbish"))
    with pytest.raises(UnreadableError, match=rf"partition=0\) at offset {len(world.log)}"):
        read(log, world)
    with pytest.raises(UnreadableError, match=r"no topic other\.events"):
        read_all(log, Topics("other"), Checker(), lambda line: None)


def test_what_it_says_to_people_and_to_programs() -> None:
    world = tell()
    report = read(logged(world), world)
    text = command.as_text(report)
    assert text.endswith("every promise was kept\n")
    assert "unexplained 0" in text
    assert "skipped (MISFIRE_POLICY 2, OVERLAP 1)" in text
    report.add(Kind.EARLY, "acme/a", "so")
    assert "WRONG: early: acme/a: so" in command.as_text(report)
    told = json.loads(command.as_json(report))
    assert told["good"] is False
    assert told["violations"]["early"] == 1
    assert told["found"] == [{"kind": "early", "subject": "acme/a", "detail": "so"}]


def test_settings_are_needed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("HORARIUM_KAFKA", raising=False)
    assert command.main([]) == command.UNREADABLE
    assert "HORARIUM_KAFKA is not set" in capsys.readouterr().err
