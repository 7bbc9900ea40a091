"""Ends the open transaction of a dead predecessor, so that its successor need not wait for the time-out.

A killed writer's transaction holds back the stable offsets of its partitions until the broker's time-out
(measured: 17 s with random ids). The newest events name their writer, ids are stable per instance, and
`init_transactions` on an id ends what is open under it (architecture §5.5).

A *living* writer must not be fenced for nothing, so an id is only taken when it is not our own and its
instance has not spoken for longer than a living one is ever silent: every processor publishes a status every
few seconds. Were the guess wrong all the same, nothing is lost: the fenced one's transaction is aborted as a
whole, it makes a new writer and decides the batch again.

Owns that judgement. May not know what a take-over does besides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

from schemas.replies import PartitionStatus
from schemas.topics import HEADER_WRITER, Topics
from streams.runtime.background import Work
from streams.runtime.partition import Codec, PartitionState
from streams.runtime.telemetry import Telemetry
from streams.transport.log import Isolation, Log, Record, TopicPartition

STATUS_EVERY_MS = 5_000
"""How often a processor says of each of its partitions that it runs."""
SILENT_MS = STATUS_EVERY_MS + 500
"""Longer than a living processor is ever silent, and less than its session with the group lasts."""
NEWEST_RECORDS = 4_000
"""How far back the newest writer is looked for: more than one transaction puts into a partition."""
NEWEST_STATUSES = 2_048
"""Half a minute of 256 partitions; what is older speaks of the dead."""
READS_MAX = 200
"""Polls that one look at the end of a topic may take."""
READ_SEC = 0.05


class Predecessors:
    """Work for `background`, in the rare case that a take-over has to wait; ends one after the other."""

    def __init__(self, log: Log, topics: Topics, own_id: str, codec: Codec, telemetry: Telemetry) -> None:
        self._log = log
        self._topics = topics
        self._own_id = own_id
        self._codec = codec
        self._telemetry = telemetry
        self._ended: dict[str, int] = {}
        """Who was ended, and when it had spoken last: ended again only if it has spoken since."""

    def end_transactions(self, partitions: Sequence[int], now_ms: int) -> Work[None]:
        """Takes the ids of the dead ones that may have left a transaction open on these partitions.

        Their last owners first, since one look at the statuses names them all. Only if that ends nobody the
        events are read, partition by partition.
        """
        heard, owners = self._speakers()
        yield
        suspects = {owners.get(partition, "") for partition in partitions}
        dead = self._dead(suspects, heard, now_ms)
        if not dead:
            for partition in partitions:
                suspects.add(self._newest_writer(partition))
                yield
            dead = self._dead(suspects, heard, now_ms)
        for writer in dead:
            self._telemetry.warning(
                f"ending the transaction that {writer} left open; it is silent for "
                f"{now_ms - heard.get(writer, 0)} ms"
            )
            self._log.transactional_writer(writer).close()
            self._ended[writer] = heard.get(writer, 0)
            yield

    def _dead(self, suspects: Set[str], heard: Mapping[str, int], now_ms: int) -> list[str]:
        """Those that are silent for too long and have not been ended."""
        return sorted(
            writer
            for writer in suspects - {"", self._own_id}
            if now_ms - heard.get(writer, 0) > SILENT_MS and self._ended.get(writer) != heard.get(writer, 0)
        )

    def stopped(self) -> dict[int, str]:
        """Partitions that stood still when they were heard of last, and why. Raises LogError."""
        reasons: dict[int, str] = {}
        for status in self._statuses():
            if status.state == PartitionState.STOPPED:
                reasons[status.partition] = status.reason
            elif status.state == PartitionState.RUNNING:
                reasons.pop(status.partition, None)
        return reasons

    def _newest_writer(self, partition: int) -> str:
        """Of the newest event, committed or not: an open transaction's events name the one to end."""
        found = ""
        for record in self._newest(TopicPartition(self._topics.events, partition), NEWEST_RECORDS):
            found = record.headers.get(HEADER_WRITER, b"").decode(errors="replace") or found
        return found

    def _statuses(self) -> Iterator[PartitionStatus]:
        for record in self._newest(TopicPartition(self._topics.status, 0), NEWEST_STATUSES):
            try:
                status = self._codec.decode(record.value or b"")
            except ValueError:
                continue
            if isinstance(status, PartitionStatus) and status.owner:
                yield status

    def _speakers(self) -> tuple[dict[str, int], dict[int, str]]:
        """When each writer was heard of last, and of each partition the last owner that is not us: its last
        transaction may have held offsets only, which name nobody."""
        heard: dict[str, int] = {}
        owners: dict[int, str] = {}
        for status in self._statuses():
            writer = self._writer_of(status.owner)
            heard[writer] = max(heard.get(writer, 0), status.at_ms)
            if writer != self._own_id:
                owners[status.partition] = writer
        return heard, owners

    def _writer_of(self, owner: str) -> str:
        return f"{self._topics.namespace}.{owner}.0"

    def _newest(self, tp: TopicPartition, count: int) -> list[Record]:
        end = self._log.end_offset(tp, Isolation.UNCOMMITTED)
        start = max(self._log.start_offset(tp), end - count)
        reader = self._log.reader(Isolation.UNCOMMITTED)
        records: list[Record] = []
        try:
            reader.assign({tp: start})
            for _ in range(READS_MAX):
                if reader.position(tp) >= end:
                    break
                records += reader.poll(count, READ_SEC)
        finally:
            reader.close()
        return records
