"""The log as one process has it: what it fetches of `work` may be late, although it is there.

Owns that lateness alone; a real reader's poll gives nothing while its fetch is on its way. May not know whose
process it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from streams.transport.log import Isolation, Reader, Record, TopicPartition
from streams.transport.memory import MemoryLog


class Fetching:
    """A `Reader`. `is_late`: asked at each poll of `topic`; then nothing comes of it."""

    def __init__(self, reader: Reader, topic: str, is_late: Callable[[], bool]) -> None:
        self._reader = reader
        self._topic = topic
        self._is_late = is_late
        self._concerned = False

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self._concerned = any(tp.topic == self._topic for tp in positions)
        self._reader.assign(positions)

    def poll(self, max_records: int, timeout_sec: float) -> list[Record]:
        if self._concerned and self._is_late():
            return []
        return self._reader.poll(max_records, timeout_sec)

    def position(self, tp: TopicPartition) -> int:
        return self._reader.position(tp)

    def known_end(self, tp: TopicPartition) -> int:
        return self._reader.known_end(tp)

    def close(self) -> None:
        self._reader.close()


class FetchingLog:
    """The rest of a `Log` is as it was."""

    def __init__(self, log: MemoryLog, topic: str, is_late: Callable[[], bool]) -> None:
        self._log = log
        self._topic = topic
        self._is_late = is_late

    def reader(self, isolation: Isolation) -> Reader:
        return Fetching(self._log.reader(isolation), self._topic, self._is_late)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)
