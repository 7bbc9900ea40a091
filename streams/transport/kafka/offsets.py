"""Owns the question where a group stands: stable committed offsets, asked of the group's coordinator.

A consumer of the group that never subscribes asks, so it is no member. Not the admin client: when it is told
"not the coordinator", as after a broker's restart, librdkafka follows a null pointer and the process dies
(librdkafka#5040; found by the chaos).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as Tp

from streams.ambient import monotonic_ms
from streams.transport.kafka.errors import translate
from streams.transport.log import LogRetriable, TopicPartition

COORDINATOR_SEC = 1.0
"""A group's coordinator answers within milliseconds; longer means that it is not the coordinator any more."""
SETTINGS: Mapping[str, Any] = {
    "enable.auto.commit": False,
    # Stable offsets: an open transaction of the group is waited for.
    "isolation.level": "read_committed",
    "retry.backoff.ms": 5,
    "retry.backoff.max.ms": 20,
}


class GroupOffsets:
    """Thread-safe."""

    def __init__(self, settings: Mapping[str, Any], group: str) -> None:
        self._settings = {**SETTINGS, **settings, "group.id": group}
        self._group = group
        self._lock = threading.Lock()
        self._consumer: Consumer | None = None
        self._silent_since_ms: int | None = None
        """Since when it is asked without an answer."""

    def fetch(self, tps: Sequence[TopicPartition], wait_sec: float) -> dict[TopicPartition, int]:
        """Offsets of the partitions that have one. LogRetriable while a transaction on any of them is open,
        which librdkafka asks again about until the time is over, or without an answer."""
        with self._lock:
            if self._consumer is None:
                self._consumer = Consumer(self._settings)
            if self._silent_since_ms is None:
                self._silent_since_ms = monotonic_ms()
            try:
                answers = self._consumer.committed([Tp(*tp) for tp in tps], timeout=wait_sec)
                found = self._offsets(answers)
            except KafkaException as error:
                self._forget_if_silent()
                raise translate(error.args[0], f"group {self._group}") from error
            except LogRetriable:
                self._forget_if_silent()
                raise
            self._silent_since_ms = None
            return found

    def close(self) -> None:
        with self._lock:
            self._forget()

    def _offsets(self, answers: Sequence[Tp]) -> dict[TopicPartition, int]:
        found = {}
        for answer in answers:
            tp = TopicPartition(answer.topic, answer.partition)
            if answer.error is not None:
                raise translate(answer.error, f"group {self._group}, {tp}")
            if answer.offset >= 0:
                found[tp] = answer.offset
        return found

    def _forget_if_silent(self) -> None:
        # After a broker came back, a client asked its old coordinator for ever, while a new client was
        # answered at once (measured). An open transaction looks the same from here, and a new client is no
        # harm then.
        if monotonic_ms() - (self._silent_since_ms or 0) >= COORDINATOR_SEC * 1000:
            self._forget()

    def _forget(self) -> None:
        self._silent_since_ms = None
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
