"""The read side as a process, on a real broker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from projections.consumer import Follower
from projections.positions import PositionWatch
from projections.stats import StatRows
from projections.store import Store
from schemas.topics import Topics, catalogue
from streams.transport.kafka.log import KafkaLog
from streams.transport.log import Outgoing, Record
from tests.unit.projections.stories import long_story, rows_of

pytestmark = pytest.mark.kafka

PARTITIONS = 2
WAIT_SEC = 30
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def log(kafka: str, namespace: str) -> Iterator[KafkaLog]:
    made = KafkaLog(kafka)
    made.create_topics(catalogue(namespace, PARTITIONS, 1))
    yield made
    made.close()


def write(
    log: KafkaLog, topic: str, records: Sequence[Record], *, commit: bool = True, size: int = 20
) -> dict[int, int]:
    """Writes transactions; returns the newest offset of each partition."""
    newest: dict[int, int] = {}

    def remember(record: Outgoing, offset: int) -> None:
        newest[record.partition] = offset

    writer = log.transactional_writer("test-projections")
    for start in range(0, len(records), size):
        writer.begin()
        writer.send(
            [Outgoing(topic, one.partition, one.key, one.value) for one in records[start : start + size]],
            remember,
        )
        if commit:
            writer.commit()
        else:
            writer.abort()
    writer.close()
    return newest


@contextmanager
def projections(kafka: str, namespace: str, data: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {
        **os.environ,
        "HORARIUM_KAFKA": kafka,
        "HORARIUM_NAMESPACE": namespace,
        "HORARIUM_PARTITIONS": str(PARTITIONS),
        "HORARIUM_DATA": str(data),
    }
    command = [sys.executable, "-m", "projections.main", *arguments]
    with subprocess.Popen(command, env=environment, cwd=ROOT) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def test_a_process_follows_ends_cleanly_and_rebuilds(
    kafka: str, namespace: str, log: KafkaLog, tmp_path: Path
) -> None:
    topic = Topics(namespace).events
    store = Store(f"sqlite:///{tmp_path / 'projections.db'}")
    watch = PositionWatch(store)
    first, second = long_story(1, 0).records, long_story(2, 1).records
    with projections(kafka, namespace, tmp_path) as process:
        newest = write(log, topic, first)
        write(log, topic, long_story(3, 0).records, commit=False)
        assert watch.wait_for(newest, WAIT_SEC)
        newest = write(log, topic, second)
        assert watch.wait_for(newest, WAIT_SEC)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SEC) == 0
    live = rows_of(store)
    # Aborted events would be more.
    assert len(live["history"]) == len(first) + len(second)

    with projections(kafka, namespace, tmp_path, "rebuild") as process:
        assert process.wait(WAIT_SEC) == 0
    assert rows_of(store) == live
    watch.close()
    store.close()


def test_another_number_of_partitions_ends_it(kafka: str, namespace: str, tmp_path: Path) -> None:
    other = KafkaLog(kafka)
    other.create_topics(catalogue(namespace, PARTITIONS + 1, 1))
    with projections(kafka, namespace, tmp_path) as process:
        assert process.wait(WAIT_SEC) == 1


class Killed(BaseException):
    """As a kill does, it passes every handler."""


def killed(*_: object) -> None:
    raise Killed


def test_a_killed_follower_loses_and_doubles_nothing(
    namespace: str, log: KafkaLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the rows and before the commit, at every batch."""
    monkeypatch.setattr("projections.consumer.BATCH_RECORDS", 17)
    topic = Topics(namespace).events
    records = [*long_story(1, 0).records, *long_story(2, 1).records]
    write(log, topic, records)
    crashed, whole = (Store(f"sqlite:///{tmp_path / name}.db") for name in ("crashed", "whole"))
    Follower(whole, log, topic, PARTITIONS).catch_up(threading.Event())

    kills = 0
    while not crashed.is_current() or len(rows_of(crashed)["history"]) < len(records):
        with monkeypatch.context() as patched:
            patched.setattr(StatRows, "write", killed)
            kills += _is_killed(Follower(crashed, log, topic, PARTITIONS))
        survivor = Follower(crashed, log, topic, PARTITIONS)
        survivor.step()
        survivor.close()
    assert kills >= len(records) // 17
    assert rows_of(crashed) == rows_of(whole)
    crashed.close()
    whole.close()


def _is_killed(follower: Follower) -> bool:
    try:
        follower.step()
    except Killed:
        return True
    follower.close()
    return False
