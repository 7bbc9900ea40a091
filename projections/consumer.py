"""Owns the loop: committed events of all partitions into the read model, from where its positions say.

No consumer group: one follower reads every partition, and where it stands is in the database with the rows.
What is wrong with the log or the database for a while is waited out, since readers go on meanwhile; what can
never be right (another number of partitions) ends it with an error. An event that cannot be read stops its
partition, so that nothing is skipped, and only that one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from threading import Event

from sqlalchemy import Connection, select
from sqlalchemy.exc import OperationalError

from projections.batch import Batch, UnknownEventError
from projections.retention import Retention
from projections.store import TOPIC_ID, PositionsMovedError, Store, get_meta, set_meta
from projections.tables import offsets
from streams.transport.log import Isolation, Log, LogError, LogRetriable, Reader, Record, TopicPartition

logger = logging.getLogger(__name__)

# Larger batches fold more events of an entity into one row; memory and the length of a transaction bound it.
BATCH_RECORDS = 5_000
# Definitions may carry 256 KiB each.
BATCH_BYTES = 16 << 20
POLL_SEC = 0.25
RETRY_SEC = 1.0


class WrongPartitionsError(Exception):
    """The topic has another number of partitions than HORARIUM_PARTITIONS says."""


class Follower:
    """Folds events into a store; used by one thread."""

    def __init__(
        self, store: Store, log: Log, topic: str, partitions: int, retention: Retention | None = None
    ) -> None:
        self._store = store
        self._log = log
        self._partitions = [TopicPartition(topic, number) for number in range(partitions)]
        self._topic = topic
        self._retention = retention
        self._reader: Reader | None = None
        self._positions: dict[int, int] = {}
        self._stuck: dict[int, int] = {}
        """Partitions with an event that cannot be read, and its offset: nothing from there on is folded."""

    @property
    def positions(self) -> Mapping[int, int]:
        """The next offset of each partition that is not folded yet."""
        return self._positions

    def run(self, stop: Event) -> None:
        """Follows the log until stopped."""

        def follow() -> None:
            while not stop.is_set():
                self.step()
                self._purge()

        self._in_spite_of_trouble(stop, follow)

    def catch_up(self, stop: Event) -> int:
        """Folds everything that is committed by now, unless stopped; returns how many events that were."""
        folded = 0

        def reach_the_end() -> None:
            nonlocal folded
            ends = {tp: self._log.end_offset(tp, Isolation.COMMITTED) for tp in self._partitions}
            while not stop.is_set() and any(self._reached(tp) < end for tp, end in ends.items()):
                folded += self.step()

        self._in_spite_of_trouble(stop, reach_the_end)
        return folded

    def step(self) -> int:
        """Folds what has come, in one transaction; returns how many events that were."""
        self._open()
        batch = Batch(self._positions)
        try:
            batch.fold([each for each in self._gather() if not self._is_stuck(each)])
            self._positions |= batch.write(self._store)
        except UnknownEventError as error:
            logger.error("partition %d of the read model stands still: %s", error.partition, error)
            self._stuck[error.partition] = error.offset
            self.close()
            self._open()
            return 0
        except BaseException:
            # The reader is ahead of the rows now.
            self.close()
            raise
        return batch.folded

    def close(self) -> None:
        """The next step begins at the store's positions again."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _in_spite_of_trouble(self, stop: Event, work: Callable[[], None]) -> None:
        while not stop.is_set():
            try:
                self._open()
                work()
                return
            except PositionsMovedError as error:
                logger.warning("%s: another process folds into this database; going on where it is", error)
            except (LogError, OperationalError) as error:
                logger.warning("the read model stands still: %s", error)
                stop.wait(RETRY_SEC)
            finally:
                self.close()

    def _open(self) -> None:
        if self._reader is not None:
            return
        count = self._log.partitions(self._topic)
        if count == 0:
            raise LogRetriable(f"there is no topic {self._topic} yet")
        if count != len(self._partitions):
            raise WrongPartitionsError(
                f"{self._topic} has {count} partitions, HORARIUM_PARTITIONS says {len(self._partitions)}"
            )
        positions = self._find_positions()
        reader = self._log.reader(Isolation.COMMITTED)
        reader.assign({tp: positions[tp.partition] for tp in self._partitions})
        self._reader, self._positions = reader, positions

    def _find_positions(self) -> dict[int, int]:
        """Where to go on in this topic; a read model of another topic, shape or log is dropped."""
        topic_id = self._log.topic_id(self._topic).encode()
        starts = {tp.partition: self._log.start_offset(tp) for tp in self._partitions}
        ends = {tp.partition: self._log.end_offset(tp, Isolation.UNCOMMITTED) for tp in self._partitions}
        reason = self._why_not_usable(topic_id, ends)
        if reason:
            logger.warning("the read model is replayed from the log's beginning: %s", reason)
            self._store.recreate()
        with self._store.writing() as writer:
            if get_meta(writer.connection, TOPIC_ID) is None:
                set_meta(writer.connection, TOPIC_ID, topic_id)
            known = _positions(writer.connection)
            new = [
                {"partition": number, "next_offset": start, "at_ms": 0}
                for number, start in starts.items()
                if number not in known
            ]
            writer.insert(offsets, new)
        return starts | known

    def _why_not_usable(self, topic_id: bytes, ends: Mapping[int, int]) -> str:
        if not self._store.is_current():
            return "its tables are new or of another version"
        with self._store.reading() as connection:
            known_id, known = get_meta(connection, TOPIC_ID), _positions(connection)
        if known_id is not None and known_id != topic_id:
            return f"{self._topic} was made anew"
        beyond = [number for number, position in known.items() if position > ends.get(number, -1)]
        return f"the log ends before the positions of partitions {beyond}" if beyond else ""

    def _gather(self) -> list[Record]:
        """Waits for a record, then takes what else is there."""
        assert self._reader is not None
        records = more = self._reader.poll(BATCH_RECORDS, POLL_SEC)
        room = BATCH_BYTES
        while more:
            room -= sum(len(record.value or b"") for record in more)
            if room <= 0 or len(records) >= BATCH_RECORDS:
                break
            more = self._reader.poll(BATCH_RECORDS - len(records), 0)
            records = records + more
        return records

    def _is_stuck(self, record: Record) -> bool:
        stuck = self._stuck.get(record.partition)
        return stuck is not None and record.offset >= stuck

    def _reached(self, tp: TopicPartition) -> int:
        # The reader's position goes on over what is never delivered: markers and aborted records.
        assert self._reader is not None
        return self._reader.position(tp)

    def _purge(self) -> None:
        if self._retention is not None:
            self._retention.step(self._store)


def _positions(connection: Connection) -> dict[int, int]:
    return {row.partition: row.next_offset for row in connection.execute(select(offsets))}
