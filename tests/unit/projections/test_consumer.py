"""The follower on a log in memory: what is committed, once, from where the database is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from projections import consumer
from projections.consumer import Follower, WrongPartitionsError
from projections.queries import list_jobs, positions
from projections.stats import StatRows
from projections.store import SHAPE, PositionsMovedError, Store
from projections.tables import jobs, meta
from schemas.topics import Topics, catalogue
from streams.transport.log import Isolation, LogRetriable, Outgoing, Record, TopicPartition
from streams.transport.memory import MemoryLog, MemoryReader
from tests.unit.projections.stories import compacted, long_story, rows_of
from tests.unit.projections.story import T0, TENANT, Story, job

PARTITIONS = 2
EVENTS = Topics("t").events


class ScriptedLog(MemoryLog):
    """Whenever a reader finds nothing more, the next thing happens; after the last one `stop` is set."""

    def __init__(self) -> None:
        super().__init__(lambda: T0)
        self.stop = threading.Event()
        self.script: list[Callable[[], None]] = []

    def reader(self, isolation: Isolation) -> MemoryReader:
        return ScriptedReader(self, isolation)

    def go_on(self) -> None:
        (self.script.pop(0) if self.script else self.stop.set)()


class ScriptedReader(MemoryReader):
    def __init__(self, log: ScriptedLog, isolation: Isolation) -> None:
        super().__init__(log, isolation)
        self._go_on = log.go_on

    def poll(self, max_records: int, timeout_sec: float) -> list[Record]:
        records = super().poll(max_records, timeout_sec)
        # With a timeout of 0 it was asked whether there is more to a batch.
        if not records and timeout_sec:
            self._go_on()
        return records


@pytest.fixture
def log() -> ScriptedLog:
    made = ScriptedLog()
    made.create_topics(catalogue("t", PARTITIONS, 1))
    return made


@pytest.fixture
def follower(store: Store, log: MemoryLog) -> Iterator[Follower]:
    made = Follower(store, log, EVENTS, PARTITIONS)
    yield made
    made.close()


def write(log: MemoryLog, records: list[Record], writer_id: str = "w", *, commit: bool = True) -> None:
    writer = log.transactional_writer(writer_id)
    for start in range(0, len(records), 10):
        writer.begin()
        writer.send(
            Outgoing(EVENTS, record.partition, record.key, record.value)
            for record in records[start : start + 10]
        )
        if commit:
            writer.commit()
        else:
            writer.abort()


def run(follower: Follower, log: ScriptedLog) -> None:
    log.stop.clear()
    follower.run(log.stop)


def test_what_is_committed_shows_and_what_is_aborted_never(
    store: Store, log: ScriptedLog, follower: Follower
) -> None:
    write(log, long_story(1, 0).records[:3])
    write(log, long_story(2, 0).records, commit=False)
    write(log, long_story(2, 1).records)
    assert follower.catch_up(threading.Event()) == 3 + len(long_story(2, 1).records)
    assert follower.catch_up(threading.Event()) == 0
    with store.reading() as connection:
        shown = {view.job.job_id for view in list_jobs(connection, TENANT).items}
    assert {name for name in shown if name.startswith("p0")} < {"p0-0", "p0-1", "p0-2"}
    assert {name for name in shown if name.startswith("p1")} == {f"p1-{number}" for number in range(6)}


def test_a_follower_goes_on_where_the_database_is(store: Store, log: ScriptedLog, follower: Follower) -> None:
    write(log, long_story(1).records)
    stop = threading.Event()
    folded = follower.catch_up(stop)
    follower.close()
    rows = rows_of(store)
    assert follower.catch_up(stop) == 0
    assert rows_of(store) == rows

    write(log, long_story(2, 1).records)
    another = Follower(store, log, EVENTS, PARTITIONS)
    assert another.catch_up(stop) == len(long_story(2, 1).records)
    assert folded == len(long_story(1).records)


def test_rebuild_equals_live(store: Store, log: ScriptedLog, follower: Follower) -> None:
    stop = threading.Event()
    for record in long_story(5).records:
        write(log, [record])
        follower.catch_up(stop)
    live = rows_of(store)

    store.recreate()
    follower.close()
    follower.catch_up(stop)
    assert rows_of(store) == live


def test_a_rebuild_under_a_running_follower(store: Store, log: ScriptedLog, follower: Follower) -> None:
    records = long_story(5).records
    write(log, records[:20])
    # Noticed with the next events.
    log.script = [store.recreate, lambda: write(log, records[20:])]
    run(follower, log)
    rows = rows_of(store)

    store.recreate()
    follower.catch_up(threading.Event())
    assert rows_of(store) == rows


def test_two_followers_fold_each_event_once(store: Store, log: ScriptedLog, follower: Follower) -> None:
    write(log, long_story(1).records)
    another = Follower(store, log, EVENTS, PARTITIONS)
    assert another.step() == len(long_story(1).records)
    follower.step()
    write(log, long_story(2, 1).records)
    another.step()
    with pytest.raises(PositionsMovedError):
        follower.step()
    run(follower, log)
    rows = rows_of(store)

    store.recreate()
    follower.catch_up(threading.Event())
    assert rows_of(store) == rows


def test_it_waits_for_the_topic_and_the_brokers(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "RETRY_SEC", 0)
    log = ScriptedLog()
    troubles: list[Callable[[], int]] = [lambda: 0, lambda: raise_error(LogRetriable("no brokers"))]

    def partitions(topic: str) -> int:
        if troubles:
            return troubles.pop(0)()
        if not log.cluster.count(topic):
            log.create_topics(catalogue("t", PARTITIONS, 1))
            write(log, long_story(1).records)
        return MemoryLog.partitions(log, topic)

    monkeypatch.setattr(log, "partitions", partitions)
    run(Follower(store, log, EVENTS, PARTITIONS), log)
    assert rows_of(store)["jobs"]


def raise_error(error: Exception) -> int:
    raise error


def test_a_topic_made_anew_is_another_log(store: Store, log: ScriptedLog, follower: Follower) -> None:
    write(log, long_story(1).records)
    follower.catch_up(threading.Event())

    anew = ScriptedLog()
    anew.create_topics(catalogue("t", PARTITIONS, 1))
    anew.topic_id = lambda topic: f"another {topic}"  # type: ignore[method-assign]
    write(anew, long_story(2, 1).records)
    Follower(store, anew, EVENTS, PARTITIONS).catch_up(threading.Event())
    with store.reading() as connection:
        names = {view.job.job_id for view in list_jobs(connection, TENANT).items}
    assert names == {f"p1-{number}" for number in range(6)}


def test_a_log_that_lost_its_end_is_another_log(store: Store, log: ScriptedLog, follower: Follower) -> None:
    write(log, long_story(1).records)
    follower.catch_up(threading.Event())
    shorter = ScriptedLog()
    shorter.create_topics(catalogue("t", PARTITIONS, 1))
    shorter.topic_id = log.topic_id  # type: ignore[method-assign]
    write(shorter, long_story(1).records[:1])
    Follower(store, shorter, EVENTS, PARTITIONS).catch_up(threading.Event())
    assert len(rows_of(store)["history"]) == 1


def test_a_database_of_another_shape_is_replayed(store: Store, log: ScriptedLog, follower: Follower) -> None:
    write(log, long_story(1).records)
    follower.catch_up(threading.Event())
    rows = rows_of(store)
    follower.close()
    with store.writing() as writer:
        writer.connection.execute(meta.update().where(meta.c.name == SHAPE).values(value=b"older"))
        writer.connection.execute(jobs.delete())
    assert not store.is_current()
    follower.catch_up(threading.Event())
    assert rows_of(store) == rows


def test_another_number_of_partitions_is_refused(store: Store, log: ScriptedLog) -> None:
    with pytest.raises(WrongPartitionsError, match="has 2 partitions, HORARIUM_PARTITIONS says 3"):
        run(Follower(store, log, EVENTS, 3), log)


def test_a_compacted_log_is_read_to_its_end(store: Store, log: ScriptedLog, follower: Follower) -> None:
    """Offsets have gaps, and the last record may be long before the end."""
    records = long_story(1).records
    write(log, records)
    write(log, long_story(2).records, commit=False)
    log.compact(EVENTS, 0)
    assert follower.catch_up(threading.Event()) == len(compacted(records))
    with store.reading() as connection:
        (position, nothing) = (positions(connection)[number].next_offset for number in range(PARTITIONS))
    assert 0 < position < log.end_offset(TopicPartition(EVENTS, 0), Isolation.COMMITTED)
    assert nothing == 0


def test_a_trimmed_log_is_read_from_its_beginning(store: Store, log: ScriptedLog, follower: Follower) -> None:
    write(log, long_story(1).records)
    log.trim(TopicPartition(EVENTS, 0), 30)
    follower.catch_up(threading.Event())
    assert rows_of(store)["history"]


def test_a_step_that_failed_is_taken_again(
    store: Store, log: ScriptedLog, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = long_story(1).records
    write(log, records)
    with monkeypatch.context() as patched:
        patched.setattr(StatRows, "write", lambda *_: raise_error(OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            follower.step()
    assert follower.step() == len(records)


def test_an_event_that_cannot_be_read_stops_its_partition_alone(
    store: Store, log: ScriptedLog, follower: Follower
) -> None:
    """What came before it is folded, nothing behind it is, and the other partitions go on."""
    writer = log.transactional_writer("w")

    def put(partition: int, name: str, value: bytes | None = None) -> None:
        story = Story()
        story.register(job(name))
        first = story.records[0]
        writer.begin()
        writer.send([Outgoing(EVENTS, partition, first.key, value or first.value)])
        writer.commit()

    put(0, "before")
    put(0, "strange", b"\xc3\x01 nonsense")
    put(0, "behind")
    put(1, "beside")
    assert follower.catch_up(threading.Event()) == 2
    with store.reading() as connection:
        names = {view.job.job_id for view in list_jobs(connection, TENANT).items}
        assert names == {"before", "beside"}
        assert positions(connection)[0].next_offset <= 2
