"""Topics as data: their names, their settings, and which partition a job lives in. No client is imported.

The partition is always explicit. Clients differ in how they hash a key (Java murmur2, librdkafka CRC-32), so
whoever left the choice to one of them would split a job over two partitions.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from zlib import crc32

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

DEFAULT_AUDIT_RETENTION_MS = 30 * DAY_MS
# A local store older than this may have missed tombstones and is thrown away (architecture §4).
TOMBSTONE_RETENTION_MS = 7 * DAY_MS
REPLY_PARTITIONS = 16
MAX_MESSAGE_BYTES = 1 << 20
# An index is a sparse file in memory, and ext4 fills it with zeros from its first entry on: 3 to 5 ms of CPU
# for each of the two that a partition has at the usual 10 MiB (measured on Linux 6.18), a tenth now. Not for
# topics that are there already: a broker (Kafka 4.4) does not start on a segment with more entries than its
# indexes may have. So a segment ends long before they are full.
INDEX_BYTES = 1 << 20
SEGMENT_BYTES = 1 << 28

# Transactional id of the producer that wrote an event: a successor ends that producer's open transaction.
HEADER_WRITER = "writer"
# Input positions after a transaction, carried by its last event (`pack_positions`).
HEADER_POSITION = "pos"

# No "_": Kafka's metrics write "." as "_", so names that differ only there collide. 249 is Kafka's limit.
_NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,199}")
_POSITIONS = struct.Struct(">QQ")


class Topics:
    """Names of one installation's topics. Tenants' target topics may not begin with `prefix`."""

    def __init__(self, namespace: str) -> None:
        if not _NAMESPACE.fullmatch(namespace):
            raise ValueError(f"namespace {namespace!r}: letters, digits, '.' and '-', at most 200 characters")
        self.namespace = namespace
        self.prefix = f"{namespace}."
        self.commands = f"{namespace}.commands"
        self.work = f"{namespace}.work"
        self.events = f"{namespace}.events"
        self.tenants = f"{namespace}.tenants"
        self.replies = f"{namespace}.replies"
        self.dead_letters = f"{namespace}.dead-letters"
        self.quarantine = f"{namespace}.quarantine"
        self.status = f"{namespace}.status"
        self.clock = f"{namespace}.clock"


@dataclass(frozen=True)
class TopicSpec:
    """How a topic is made. `key` and `holds` are for people (docs/schemas.md)."""

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str]
    key: str
    holds: str


def _deleted(retention_ms: int, segment_ms: int) -> dict[str, str]:
    # Retention drops whole closed segments only, so a segment must be much younger than the retention.
    return {"cleanup.policy": "delete", "retention.ms": str(retention_ms), "segment.ms": str(segment_ms)}


def _compacted(lag_ms: int, segment_ms: int) -> dict[str, str]:
    # The open segment is never cleaned, so its age bounds how long an old value of a key stays.
    return {
        "cleanup.policy": "compact",
        "min.compaction.lag.ms": str(lag_ms),
        "delete.retention.ms": str(TOMBSTONE_RETENTION_MS),
        "segment.ms": str(segment_ms),
    }


def _spec(
    replication: int,
    name: str,
    count: int,
    config: dict[str, str],
    key: str,
    holds: str,
    stamped_by: str = "CreateTime",
) -> TopicSpec:
    common = {
        "message.timestamp.type": stamped_by,
        "max.message.bytes": str(MAX_MESSAGE_BYTES),
        "segment.bytes": str(SEGMENT_BYTES),
        "segment.index.bytes": str(INDEX_BYTES),
        "unclean.leader.election.enable": "false",
    }
    if replication >= 3:
        # On the topic itself: brokers with eligible leader replicas ignore their own setting.
        common["min.insync.replicas"] = "2"
    return TopicSpec(name, count, replication, config | common, key, holds)


def catalogue(
    namespace: str,
    partitions: int,
    replication: int,
    audit_retention_ms: int = DEFAULT_AUDIT_RETENTION_MS,
) -> list[TopicSpec]:
    """Every topic of an installation. `partitions` is fixed for its life."""
    if partitions < 1 or replication < 1:
        raise ValueError("partitions and replication are at least 1")
    names = Topics(namespace)

    spec = partial(_spec, replication)
    return [
        spec(names.commands, partitions, _deleted(7 * DAY_MS, DAY_MS), "routing key", "commands on jobs"),
        # The broker's clock decides whether a heartbeat was in time.
        spec(
            names.work,
            partitions,
            _deleted(DAY_MS, 3 * HOUR_MS),
            "routing key",
            "work requests, heartbeats and outcomes; drained before commands",
            stamped_by="LogAppendTime",
        ),
        spec(
            names.events,
            partitions,
            _compacted(audit_retention_ms, DAY_MS),
            "entity key",
            "what happened: the source of truth",
        ),
        spec(names.tenants, 1, _compacted(0, DAY_MS), "tenant", "settings of tenants"),
        spec(
            names.replies,
            REPLY_PARTITIONS,
            _deleted(HOUR_MS, 10 * MINUTE_MS),
            "none",
            "answers and grants, in the asker's partition",
        ),
        spec(
            names.dead_letters,
            partitions,
            _deleted(30 * DAY_MS, DAY_MS),
            "execution key",
            "given-up executions for outside consumers",
        ),
        spec(
            names.quarantine,
            partitions,
            _deleted(30 * DAY_MS, DAY_MS),
            "none",
            "commands that cannot be decoded or decided, as they came",
        ),
        spec(names.status, 1, _compacted(0, HOUR_MS), "partition", "who runs a partition and how far it is"),
        # Nobody reads it: the timestamp in the acknowledgement is what its writer is after.
        spec(
            names.clock,
            1,
            _deleted(HOUR_MS, 10 * MINUTE_MS),
            "instance",
            "by its acknowledgement a processor learns the brokers' time",
            stamped_by="LogAppendTime",
        ),
    ]


def shard_of(job_id: str, shards: int) -> int:
    """Which of its tenant's shards a job belongs to."""
    return crc32(job_id.encode()) % shards


def partition_of(tenant: str, job_id: str, shards: int, partitions: int) -> int:
    """Where a job, its executions and the commands on them live."""
    return (crc32(tenant.encode()) + shard_of(job_id, shards)) % partitions


def tenant_partitions(tenant: str, shards: int, partitions: int) -> list[int]:
    """The distinct partitions that can hold jobs of a tenant, by shard."""
    first = crc32(tenant.encode())
    return [(first + shard) % partitions for shard in range(min(shards, partitions))]


def pack_positions(commands: int, work: int) -> bytes:
    """Value of HEADER_POSITION: the next offsets to read of `commands` and `work`."""
    return _POSITIONS.pack(commands, work)


def unpack_positions(value: bytes) -> tuple[int, int]:
    """(commands, work); ValueError for anything that `pack_positions` did not make."""
    if len(value) != _POSITIONS.size:
        raise ValueError(f"positions are {_POSITIONS.size} bytes, not {len(value)}")
    commands, work = _POSITIONS.unpack(value)
    return commands, work
