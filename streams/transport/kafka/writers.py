"""Writers on confluent-kafka: the transactional one and the plain idempotent one.

Owns producers, their settings, deadlines for what librdkafka calls retriable, the polling thread of the
plain writer, and threads for calls that may never come back. May not know what a record means, nor decide
what is done about an error.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn, cast

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Tp

from schemas.topics import MAX_MESSAGE_BYTES
from streams.ambient import monotonic_ms
from streams.transport.kafka.errors import translate
from streams.transport.kafka.membership import is_member
from streams.transport.log import (
    Done,
    LogAborted,
    LogError,
    LogFatal,
    LogRefused,
    LogRetriable,
    OnLast,
    Outgoing,
    TopicPartition,
    Written,
)

logger = logging.getLogger(__name__)

# The topics' limit is one of batches: room for a batch's header and for a record's own fields.
RECORD_BYTES = MAX_MESSAGE_BYTES - 1024

WRITER_SETTINGS: Mapping[str, Any] = {
    "enable.idempotence": True,
    "acks": "all",
    "message.max.bytes": RECORD_BYTES,
    "socket.nagle.disable": True,
}

TRANSACTIONAL_SETTINGS: Mapping[str, Any] = {
    # A transaction that finds the markers of its producer's last one unwritten is told to come again: after
    # 100 ms by default. It applies to all retries and is the default of the metadata refresh, so both get
    # their own bounds.
    "retry.backoff.ms": 1,
    "retry.backoff.max.ms": 1_000,
    "topic.metadata.refresh.fast.interval.ms": 100,
    # A message for a topic that does not exist fails after this; 30 s by default, three transactions long.
    "topic.metadata.propagation.max.ms": 2_000,
    "queue.buffering.max.messages": 500_000,
    # Commit flushes without waiting for this, so it costs no latency, and a fifth less CPU than 1 ms for
    # transactions of 1,000 (measured): bursts become fewer batches.
    "linger.ms": 5,
    # Events resemble each other: two fifths of the bytes are left in a transaction of four, an eighth in one
    # of hundreds, and the broker's CPU falls by more than this costs (measured).
    "compression.type": "lz4",
}

PLAIN_SETTINGS: Mapping[str, Any] = {
    # Whoever sent a command waits for its answer; later it is told that the outcome is unknown.
    "message.timeout.ms": 30_000,
    # Every answer to a worker waits for it.
    "linger.ms": 1,
    # Records not answered yet; more means that the brokers cannot keep up.
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 262_144,
    "topic.metadata.propagation.max.ms": 2_000,
}
# As a record's timestamp: the client sets it. Given so that `produce` gets all by position: 1.0 µs instead of
# 1.5 with a keyword (measured).
PRODUCED_NOW = 0
# What the second producer of a writer adds to the writer's id.
OTHER_SUFFIX = ".b"
INIT_SEC = 30.0  # longer than a broker's fail-over (9.9 s)
OFFSETS_SEC = 10.0  # the transaction time-out: later there may be nothing left to add to
# Commit and abort outlive the transaction time-out. What is unknown then is for the next writer with the id.
END_SEC = 15.0
OVERTIME_SEC = 2.0  # a call that is not back so long after its time-out never comes back
QUEUE_FULL_SEC = 10.0
BETWEEN_TRIES_SEC = 0.01
PLAIN_CLOSE_SEC = 5.0
PLAIN_POLL_SEC = 0.1

# Delivery reports of records that only went down with their transaction.
_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)


class KafkaTransactionalWriter:
    """`TransactionalWriter`, initialised when made.

    Two producers take turns, each with an id of its own: a commit returns before its markers are written, and
    its producer's next transaction has to wait for them, 20 ms where librdkafka adds the partition too early
    (measured: mean 9 ms a transaction, 4 ms in turns).
    """

    def __init__(self, settings: Mapping[str, Any], transactional_id: str, timeout_ms: int) -> None:
        self.transactional_id = transactional_id
        self._failure: LogError | None = None
        self._open = False
        # Newest delivered record of each partition in the open transaction.
        self._lasts: dict[tuple[str, int], tuple[Outgoing, int, OnLast | None]] = {}
        self._undelivered: LogError | None = None
        self._producers: deque[Producer] = deque()
        for producer_id in (transactional_id, transactional_id + OTHER_SUFFIX):
            self._producer = Producer(
                {
                    **WRITER_SETTINGS,
                    **TRANSACTIONAL_SETTINGS,
                    **settings,
                    "transactional.id": producer_id,
                    "transaction.timeout.ms": timeout_ms,
                }
            )
            # Whoever takes the id takes both: what either left open has ended then.
            self._within(INIT_SEC, self._producer.init_transactions)
            self._producers.append(self._producer)

    def begin(self) -> None:
        self._check()
        self._producers.rotate()
        self._producer = self._producers[0]
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            raise self._spoiled(translate(error.args[0], self.transactional_id)) from error
        self._lasts = {}
        self._undelivered = None
        self._open = True

    def send(self, records: Iterable[Outgoing], on_last: OnLast | None = None) -> None:
        self._check()
        batch = records if isinstance(records, list) else list(records)
        # A callback costs more than the record: only the newest of each partition has one. A failed delivery
        # of the others fails the transaction all the same, but `commit` cannot name it.
        lasts = {(record[0], record[1]): index for index, record in enumerate(batch)}
        with_callback = set(lasts.values())
        produce: Any = self._producer.produce  # its stub knows no Mapping
        for index, record in enumerate(batch):
            topic, partition, key, value, headers = record
            callback = partial(self._delivered, record, on_last) if index in with_callback else None
            try:
                produce(topic, value, key, partition, callback, None, PRODUCED_NOW, headers or None)
            except BufferError:
                self._produce_when_there_is_room(record, on_last)
            except KafkaException as error:
                self._refused(error, record)

    def send_offsets(self, offsets: Mapping[TopicPartition, int], membership: object) -> None:
        self._check()
        if not is_member(membership):
            raise self._spoiled(LogAborted(f"{self.transactional_id}: {membership!r} is not a member's"))
        positions = [Tp(tp.topic, tp.partition, offset) for tp, offset in offsets.items()]
        answer: Future[None] = Future()

        def ask() -> None:
            try:
                self._within(OFFSETS_SEC, self._producer.send_offsets_to_transaction, positions, membership)
            except BaseException as error:
                answer.set_exception(error)
            else:
                answer.set_result(None)

        # On a thread of its own: after a broker came back, librdkafka waited for the group's old coordinator
        # for ever, whatever time-out it was given (measured: minutes). A new producer finds the new one, and
        # fences what this one may still send.
        threading.Thread(target=ask, name="send-offsets", daemon=True).start()
        try:
            answer.result(OFFSETS_SEC + OVERTIME_SEC)
        except (LogRetriable, TimeoutError) as error:
            text = f"{self.transactional_id}: no answer to offsets: {error}"
            raise self._spoiled(LogFatal(text)) from error

    def commit(self) -> None:
        self._check()
        try:
            self._within(END_SEC, self._producer.commit_transaction)
        except LogAborted as error:
            # librdkafka says "see individual delivery reports": the first one is the cause.
            raise self._spoiled(self._undelivered or error) from error
        except LogRetriable as error:
            # librdkafka has no KIP-890: a late EndTxn could hit the next transaction (stack §2.3).
            raise self._spoiled(LogFatal(f"outcome of commit unknown: {error}")) from error
        self._open = False
        for record, offset, on_last in self._lasts.values():
            if on_last is not None:
                on_last(record, offset)

    def abort(self) -> None:
        if isinstance(self._failure, LogAborted):
            self._failure = None
        self._check()
        if not self._open:
            return
        try:
            self._within(END_SEC, self._producer.abort_transaction)
        except LogError as error:
            raise self._spoiled(LogFatal(f"abort failed: {error}")) from error
        self._open = False

    def close(self) -> None:
        if not isinstance(self._failure, LogFatal):
            # Aborts an open transaction. Where that is no longer ours to do, somebody else has or will.
            for producer in self._producers:
                with suppress(KafkaException):
                    producer.close()
        self._failure = LogFatal(f"{self.transactional_id}: the writer is closed")
        # A spoiled producer is destroyed without another request.
        self._producers.clear()
        self.__dict__.pop("_producer", None)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _spoiled(self, error: LogError) -> LogError:
        """Remembered until `abort` (LogAborted) or for good."""
        if not isinstance(error, (LogAborted, LogFatal)):
            error = LogFatal(str(error))
        self._failure = error
        return error

    def _within(self, deadline_sec: float, call: Callable[..., None], *arguments: Any) -> None:
        """Calls until it succeeds, fails for good, or the deadline is over (LogRetriable)."""
        deadline = monotonic_ms() + int(deadline_sec * 1000)
        while True:
            left_sec = (deadline - monotonic_ms()) / 1000
            try:
                call(*arguments, max(0.001, left_sec))
                return
            except KafkaException as error:
                translated = translate(error.args[0], self.transactional_id)
                if not isinstance(translated, LogRetriable):
                    raise self._spoiled(translated) from error
                if left_sec <= 0:
                    raise translated from error
            self._producer.poll(BETWEEN_TRIES_SEC)

    def _produce_when_there_is_room(self, record: Outgoing, on_last: OnLast | None) -> None:
        deadline = monotonic_ms() + int(QUEUE_FULL_SEC * 1000)
        callback = partial(self._delivered, record, on_last)
        topic, partition, key, value, headers = record
        produce: Any = self._producer.produce
        while True:
            self._producer.poll(BETWEEN_TRIES_SEC)
            try:
                produce(topic, value, key, partition, callback, None, PRODUCED_NOW, headers or None)
                return
            except BufferError as error:
                if monotonic_ms() > deadline:
                    raise self._spoiled(LogAborted(f"{self.transactional_id}: queue full")) from error
            except KafkaException as error:
                self._refused(error, record)

    def _refused(self, error: KafkaException, record: Outgoing) -> NoReturn:
        kafka_error = error.args[0]
        where = f"{record.topic} [{record.partition}]"
        if kafka_error.code() == KafkaError._STATE:
            # The transaction failed in the background; `abort` learns whether for good.
            raise self._spoiled(LogAborted(f"{where}: {kafka_error}")) from error
        raise self._spoiled(translate(kafka_error, where)) from error

    def _delivered(
        self, record: Outgoing, on_last: OnLast | None, error: KafkaError | None, message: Message
    ) -> None:
        if error is None:
            self._lasts[record[0], record[1]] = (record, cast(int, message.offset()), on_last)
        elif self._undelivered is None and error.code() not in _PURGED:
            translated = translate(error, f"{record.topic} [{record.partition}]")
            self._undelivered = (
                translated if isinstance(translated, LogRefused) else LogAborted(str(translated))
            )


class KafkaPlainWriter:
    """`PlainWriter`, with a thread that runs the callbacks."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._producer = Producer({**WRITER_SETTINGS, **PLAIN_SETTINGS, **settings})
        self._served = threading.Condition()
        self._closed = False
        self._fatal: LogFatal | None = None
        self._thread = threading.Thread(target=self._serve, name="plain-writer", daemon=True)
        self._thread.start()

    def send(self, record: Outgoing, done: Done | None = None) -> None:
        if self._fatal is not None:
            raise self._fatal
        topic, partition, key, value, headers = record
        produce: Any = self._producer.produce
        callback = self._unasked if done is None else partial(self._answered, record, done)
        try:
            produce(topic, value, key, partition, callback, None, PRODUCED_NOW, headers or None)
        except BufferError as error:
            raise LogRetriable(f"{topic} [{partition}]: the queue is full") from error
        except KafkaException as error:
            translated = translate(error.args[0], f"{topic} [{partition}]")
            if not isinstance(translated, LogRefused):
                raise translated from error
            _tell(record, done, None, translated)

    def flush(self, timeout_sec: float) -> bool:
        # Not the producer's flush: that would run callbacks on this thread. A record is counted until its
        # callback has returned (read in librdkafka's source).
        deadline = monotonic_ms() + int(timeout_sec * 1000)
        with self._served:
            while len(self._producer):
                left_sec = (deadline - monotonic_ms()) / 1000
                if left_sec <= 0:
                    return False
                self._served.wait(min(left_sec, BETWEEN_TRIES_SEC))
        return True

    def close(self) -> None:
        self.flush(PLAIN_CLOSE_SEC)
        self._closed = True
        self._thread.join()
        self._fatal = LogFatal("the writer is closed")

    def _serve(self) -> None:
        while not self._closed:
            if self._producer.poll(PLAIN_POLL_SEC):
                with self._served:
                    self._served.notify_all()

    def _unasked(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed(translate(error, f"{message.topic()} [{message.partition()}]"))

    def _answered(self, record: Outgoing, done: Done, error: KafkaError | None, message: Message) -> None:
        if error is None:
            stamped_by, timestamp_ms = message.timestamp()
            stamped = timestamp_ms if stamped_by == TIMESTAMP_LOG_APPEND_TIME else None
            _tell(record, done, Written(cast(int, message.offset()), stamped), None)
            return
        translated = translate(error, f"{record.topic} [{record.partition}]")
        self._failed(translated)
        _tell(record, done, None, translated)

    def _failed(self, error: LogError) -> None:
        logger.warning("not delivered: %s", error)
        if isinstance(error, LogFatal):
            self._fatal = error


def _tell(record: Outgoing, done: Done | None, written: Written | None, error: LogError | None) -> None:
    if done is None:
        logger.warning("not sent: %s", error)
        return
    try:
        done(written, error)
    except Exception:
        # An exception would end the polling thread, and with it the answers to everyone else.
        logger.exception("callback of a record for %s [%d] failed", record.topic, record.partition)
