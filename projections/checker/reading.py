"""Reads a live log into the checker: committed events up to the ends seen at the start, one partition after
the other, and beside them the records of `work` that they name as their cause.

Held in memory: what the checker holds, and of `work` no more than one batch beyond the event at hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from projections.checker.checker import Checker
from schemas import codec
from schemas.commands import WorkCommand
from schemas.events import Event, TenantConfigured
from schemas.topics import Topics
from streams.transport.log import Isolation, Log, LogError, LogRetriable, Reader, Record, TopicPartition

RECORDS = 2_000
POLL_SEC = 1.0
# A partition that brings nothing for so many polls, although there is more, cannot be read now.
IDLE_POLLS_MAX = 60
_CAUSE = re.compile(r"work@(\d+)#")


class UnreadableError(LogError):
    """An event, or a partition, cannot be read; the message names partition and offset."""


def read_all(log: Log, topics: Topics, checker: Checker, say: Callable[[str], None]) -> None:
    """Feeds everything that is committed now. UnreadableError, or LogError of the log."""
    count = log.partitions(topics.events)
    if not count:
        raise UnreadableError(f"there is no topic {topics.events}")
    for event in _tenants(log, TopicPartition(topics.tenants, 0)):
        checker.configured(event.configured, event.at_ms)
    ends = {
        number: log.end_offset(TopicPartition(topics.events, number), Isolation.COMMITTED)
        for number in range(count)
    }
    for number, end in ends.items():
        before = checker.report.events
        _Partition(log, topics, checker, number).read(end)
        say(f"partition {number}: {checker.report.events - before} events")


def _tenants(log: Log, topic: TopicPartition) -> Iterator[TenantConfigured]:
    """Settings that the tenants topic holds now: what is in no partition's events, such as a development
    server's, and what partitions that are read early went by."""
    end = log.end_offset(topic, Isolation.COMMITTED)
    reader = log.reader(Isolation.COMMITTED)
    try:
        reader.assign({topic: log.start_offset(topic)})
        for _ in range(IDLE_POLLS_MAX):
            if reader.position(topic) >= end:
                return
            for record in _poll(reader):
                try:
                    event = codec.decode(record.value) if record.value is not None else None
                except codec.UndecodableError:
                    continue  # processors go by what they knew before
                if isinstance(event, TenantConfigured):
                    yield event
    finally:
        reader.close()


class _Partition:
    def __init__(self, log: Log, topics: Topics, checker: Checker, number: int) -> None:
        self._checker = checker
        self._number = number
        self._events = TopicPartition(topics.events, number)
        self._work = TopicPartition(topics.work, number)
        self._log = log
        self._work_reader: Reader | None = None

    def read(self, end: int) -> None:
        reader = self._log.reader(Isolation.COMMITTED)
        try:
            reader.assign({self._events: self._log.start_offset(self._events)})
            idle = 0
            while reader.position(self._events) < end:
                records = _poll(reader)
                idle = 0 if records else idle + 1
                if idle == IDLE_POLLS_MAX:
                    raise UnreadableError(f"{self._events} stands still at {reader.position(self._events)}")
                for record in records:
                    if record.offset < end:
                        self._take(record)
        finally:
            reader.close()
            if self._work_reader is not None:
                self._work_reader.close()

    def _take(self, record: Record) -> None:
        if record.value is None:
            self._checker.forgotten((record.key or b"").decode())
            return
        try:
            event = codec.decode(record.value)
        except codec.UndecodableError as error:
            raise UnreadableError(f"{self._events} at offset {record.offset}: {error}") from error
        if isinstance(event, Event):
            cause = _CAUSE.match(event.cause)
            if cause is not None:
                self._read_work(int(cause[1]))
            self._checker.take(self._number, event)

    def _read_work(self, offset: int) -> None:
        """Reads `work` up to the record at the offset; older ones may be gone."""
        if self._work_reader is None:
            self._work_reader = self._log.reader(Isolation.COMMITTED)
            self._work_reader.assign({self._work: self._log.start_offset(self._work)})
        idle = 0
        while self._work_reader.position(self._work) <= offset and idle < IDLE_POLLS_MAX:
            records = _poll(self._work_reader)
            idle = 0 if records else idle + 1
            for record in records:
                self._say(record)

    def _say(self, record: Record) -> None:
        try:
            command = codec.decode(record.value or b"")
        except codec.UndecodableError:
            return  # quarantined; no event names it
        if isinstance(command, WorkCommand):
            self._checker.word(self._number, record.offset, command)


def _poll(reader: Reader) -> list[Record]:
    try:
        return reader.poll(RECORDS, POLL_SEC)
    except LogRetriable:
        return []
