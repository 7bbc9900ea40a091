"""What every released version wrote is replayed for ever, by the core, the read model and the checker."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest
from sqlalchemy import func, select

from projections.checker.checker import Checker
from projections.consumer import Follower
from projections.store import Store
from projections.tables import executions, jobs
from schemas import avsc, codec
from schemas.events import Event
from schemas.topics import catalogue
from streams.store.memory import MemoryStore
from streams.transport.log import Outgoing
from streams.transport.memory import MemoryLog
from tests import golden_log
from tests.unit.core.world import compacted, rebuild

ROOT = Path(__file__).resolve().parents[3]
VERSIONS = golden_log.versions()


def state_after(log: golden_log.Log) -> list[tuple[str, bytes]]:
    base = rebuild(log).state.kv._base
    assert isinstance(base, MemoryStore)
    return [(key[1:].decode(), value) for key, value in base.scan(b"e", b"f")]


def test_every_released_version_has_a_golden_log() -> None:
    """A new one is made by `python -m tests.golden_log <version>`."""
    assert avsc.released_versions() == VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_it_was_written_by_that_version(version: str) -> None:
    log, expected = golden_log.read(version)
    assert dict(sorted(golden_log.types_of(log).items())) == expected["events"]
    prints = {bytes.fromhex(one) for one in avsc.released_fingerprints(version).values()}
    assert {value[2:10] for _, value in log if value is not None} <= prints
    assert (golden_log.FOLDER / version / golden_log.LOG).stat().st_size < 300_000


@pytest.mark.parametrize("version", VERSIONS)
def test_the_core_comes_to_the_same_state(version: str) -> None:
    """From the whole log, and from what compaction leaves of it at any point."""
    log, expected = golden_log.read(version)
    for cut in (0, len(log) // 3, len(log) // 2, len(log)):
        state = state_after(compacted(log, cut))
        assert golden_log.state_digest(version, state) == expected["state"], cut


@pytest.mark.parametrize("version", VERSIONS)
def test_a_digest_minds_every_field_of_the_version(version: str) -> None:
    log, expected = golden_log.read(version)
    state = dict(state_after(log))
    key = next(key for key in sorted(state) if key.startswith("exec:"))
    newest = max(value for one, value in log if one == key and value is not None)
    others = [value for one, value in log if one.startswith("exec:") and value is not None]
    other = next(value for value in others if value not in (newest, state[key]))
    assert golden_log.state_digest(version, (state | {key: other}).items()) != expected["state"]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_read_model_folds_it(version: str, tmp_path: Path) -> None:
    told, _ = golden_log.read(version)
    log = MemoryLog(lambda: 0)
    log.create_topics(catalogue("t", 1, 1))
    writer = log.plain_writer()
    for key, value in told:
        writer.send(Outgoing("t.events", 0, key.encode(), value))
    store = Store(f"sqlite:///{tmp_path / 'read.db'}")
    store.recreate()
    follower = Follower(store, log, "t.events", 1)
    assert follower.catch_up(threading.Event()) == len(told)
    made = {key for key, _ in told if key.startswith("exec:")}
    with store.reading() as db:
        assert db.execute(select(func.count()).select_from(executions)).scalar_one() == len(made)
        named = {key for key, _ in told if key.startswith("job:")}
        assert db.execute(select(func.count()).select_from(jobs)).scalar_one() == len(named)
    follower.close()
    store.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_checker_finds_nothing_wrong_with_it(version: str) -> None:
    log, _ = golden_log.read(version)
    checker = Checker()
    newest_ms = 0
    for key, value in log:
        event = codec.decode(value) if value is not None else None
        if isinstance(event, Event):
            checker.take(0, event)
            newest_ms = event.at_ms
        else:
            checker.forgotten(key)
    report = checker.finish(newest_ms)
    assert report.good, report.violations
    assert report.due > 100
    # The data of then are not installed any more.
    assert set(report.unjudged) <= {"jobs", "occurrences while zone data changed"}


def test_the_story_tells_of_every_type_of_event() -> None:
    """So that the next version's golden log has all that the engine makes."""
    sources = "".join(path.read_text() for path in (ROOT / "streams" / "core").rglob("*.py"))
    missing = golden_log.missing_types(golden_log.story().log)
    assert [name for name in missing if re.search(rf"\b{name}\b", sources)] == []
