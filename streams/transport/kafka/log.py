"""`KafkaLog`: a cluster reached through confluent-kafka, which only this package imports.

Owns the settings all clients share and what is asked of brokers about topics and offsets. May not know what
the topics are for.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as Tp
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from schemas.topics import TopicSpec
from streams.ambient import monotonic_ms
from streams.transport.kafka.errors import translate
from streams.transport.kafka.offsets import GroupOffsets
from streams.transport.kafka.readers import KafkaGroupReader, KafkaReader
from streams.transport.kafka.writers import KafkaPlainWriter, KafkaTransactionalWriter
from streams.transport.log import (
    COMMITTED_WAIT_SEC,
    Isolation,
    LogError,
    LogRefused,
    LogRetriable,
    Rebalance,
    TopicPartition,
)

TRANSACTION_TIMEOUT_MS = 10_000  # longer than a living writer's transaction takes
REQUEST_SEC = 10.0
RETRY_SEC = 0.01

# A group name only because librdkafka wants one: readers that assign themselves never speak to a group.
READER_GROUP = "horarium-reader"

_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_ISOLATIONS = {
    Isolation.COMMITTED: IsolationLevel.READ_COMMITTED,
    Isolation.UNCOMMITTED: IsolationLevel.READ_UNCOMMITTED,
}


class KafkaLog:
    """`Log`. `settings` are librdkafka's, for all clients (security); `member_settings` for group members."""

    def __init__(
        self,
        bootstrap: str,
        settings: Mapping[str, Any] | None = None,
        *,
        member_settings: Mapping[str, Any] | None = None,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    ) -> None:
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "client.id": "horarium",
            "logger": logging.getLogger("streams.transport.kafka.librdkafka"),
            **(settings or {}),
        }
        self._member_settings = dict(member_settings or {})
        self._transaction_timeout_ms = transaction_timeout_ms
        self._admin = AdminClient(self._settings)
        self._lock = threading.Lock()
        self._groups: dict[str, GroupOffsets] = {}

    def create_topics(self, specs: Sequence[TopicSpec]) -> None:
        new = [NewTopic(s.name, s.partitions, s.replication, config=dict(s.config)) for s in specs]
        if not new:
            return
        for name, future in self._admin.create_topics(new, request_timeout=REQUEST_SEC).items():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise translate(error.args[0], name) from error
        self._wait_until_known([spec.name for spec in specs])

    def partitions(self, topic: str) -> int:
        try:
            found = self._admin.list_topics(topic, REQUEST_SEC).topics[topic]
        except KafkaException as error:
            raise translate(error.args[0], topic) from error
        if found.error is None:
            return len(found.partitions)
        translated = translate(found.error, topic)
        if isinstance(translated, LogRefused):
            return 0
        raise translated

    def topic_id(self, topic: str) -> str:
        futures = self._admin.describe_topics(TopicCollection([topic]), request_timeout=REQUEST_SEC)
        return str(_answer(futures[topic], topic).topic_id)

    def start_offset(self, tp: TopicPartition) -> int:
        return self._offset(tp, _EARLIEST, Isolation.UNCOMMITTED)

    def end_offset(self, tp: TopicPartition, isolation: Isolation) -> int:
        return self._offset(tp, _LATEST, isolation)

    def committed(self, group: str, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        with self._lock:
            asker = self._groups.setdefault(group, GroupOffsets(self._settings, group))
        deadline = monotonic_ms() + int(COMMITTED_WAIT_SEC * 1000)
        while True:
            left_sec = (deadline - monotonic_ms()) / 1000
            try:
                return asker.fetch(tps, max(RETRY_SEC, left_sec))
            except LogRetriable:
                if monotonic_ms() >= deadline:
                    raise
            threading.Event().wait(RETRY_SEC)

    def reader(self, isolation: Isolation) -> KafkaReader:
        return KafkaReader({**self._settings, "group.id": READER_GROUP}, isolation)

    def group_reader(self, group: str, topic: str, rebalance: Rebalance) -> KafkaGroupReader:
        settings = {**self._settings, **self._member_settings}
        return KafkaGroupReader(settings, self.reader(Isolation.COMMITTED), group, topic, rebalance)

    def transactional_writer(self, transactional_id: str) -> KafkaTransactionalWriter:
        return KafkaTransactionalWriter(self._settings, transactional_id, self._transaction_timeout_ms)

    def plain_writer(self) -> KafkaPlainWriter:
        return KafkaPlainWriter(self._settings)

    def close(self) -> None:
        """Readers and writers are closed by who asked for them; Admin goes with its last reference."""
        with self._lock:
            for asker in self._groups.values():
                asker.close()
            self._groups.clear()

    def _wait_until_known(self, names: Sequence[str]) -> None:
        # The controller answers before the brokers know the topic (measured: UNKNOWN_TOPIC_OR_PART after it).
        deadline = monotonic_ms() + int(REQUEST_SEC * 1000)
        for name in names:
            while not self._known(name):
                if monotonic_ms() > deadline:
                    raise LogRetriable(f"{name}: made, but brokers do not know it yet")
                threading.Event().wait(RETRY_SEC)

    def _known(self, topic: str) -> bool:
        try:
            found = self._admin.list_topics(topic, REQUEST_SEC).topics[topic]
        except KafkaException as error:
            raise translate(error.args[0], topic) from error
        return found.error is None and all(part.leader >= 0 for part in found.partitions.values())

    def _offset(self, tp: TopicPartition, spec: OffsetSpec, isolation: Isolation) -> int:
        asked = Tp(tp.topic, tp.partition)
        futures = self._admin.list_offsets(
            {asked: spec}, isolation_level=_ISOLATIONS[isolation], request_timeout=REQUEST_SEC
        )
        try:
            offset: int = _answer(futures[asked], str(tp)).offset
            return offset
        except LogError as error:
            # "No leaders found" is said of what does not exist as of what is between two leaders.
            if tp.partition >= self.partitions(tp.topic):
                raise LogRefused(f"no partition {tp.partition} of topic {tp.topic}") from error
            raise LogRetriable(str(error)) from error


def _answer(future: Future[Any], where: str) -> Any:
    try:
        return future.result()
    except KafkaException as error:
        raise translate(error.args[0], where) from error
