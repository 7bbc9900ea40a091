"""librdkafka's errors as the log's.

Owns which of the four an error is: by its flags first (set on transactional calls), else by its code. May
not know what the caller does about it.
"""

from __future__ import annotations

from confluent_kafka import KafkaError

from streams.transport.log import LogAborted, LogError, LogFatal, LogRefused, LogRetriable

# The same record or topic would be refused again.
_REFUSED = frozenset(
    {
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)

# Passes by itself. Flags say so on transactional calls only; readers, plain writers and Admin go by code.
TRANSIENT = frozenset(
    {
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._QUEUE_FULL,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_COORD,
    }
)


def translate(error: KafkaError, where: str) -> LogError:
    """What the caller gets; `where` names topic and partition, group or transactional id."""
    text = f"{where}: {error.str()} ({error.name()})"
    code = error.code()
    if error.fatal():
        return LogFatal(text)
    if code in _REFUSED:
        return LogRefused(text)
    if error.txn_requires_abort():
        return LogAborted(text)
    if error.retriable() or code in TRANSIENT:
        return LogRetriable(text)
    return LogFatal(text)
