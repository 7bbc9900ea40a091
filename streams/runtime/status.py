"""Says who runs a partition and how far it is: records on the compacted topic `status`, and gauges.

At every change and every few seconds, by the plain writer: nobody decides by a status, except a successor
that wants to know whether a writer lives (`predecessor`). May not know why a partition changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from schemas.replies import PartitionStatus
from schemas.topics import Topics
from streams.core.zones import TZ_VERSION
from streams.runtime.ownership import HANDED_OVER
from streams.runtime.partition import Ambient, Codec, Partition, PartitionState
from streams.runtime.predecessor import STATUS_EVERY_MS
from streams.runtime.telemetry import Telemetry
from streams.transport.log import Outgoing, TopicPartition

KnownEnd = Callable[[TopicPartition], int]
"""Next offset to be written to a partition of `commands` or `work`, as far as reading has shown."""


class StatusBoard:
    """Used by one thread."""

    def __init__(
        self,
        topics: Topics,
        instance: str,
        publish: Callable[[Outgoing], None],
        codec: Codec,
        ambient: Ambient,
        telemetry: Telemetry,
    ) -> None:
        self._topics = topics
        self._instance = instance
        self._publish = publish
        self._codec = codec
        self._ambient = ambient
        self._telemetry = telemetry
        self._told: dict[int, tuple[PartitionState, int]] = {}

    def refresh(self, partitions: Iterable[Partition], known_end: KnownEnd) -> None:
        """Tells what changed, and the one partition that was not told of for longest, if it is time: one at a
        time, so that what many of them have to say does not hold up a step."""
        now_ms = self._ambient.monotonic_ms()
        oldest: Partition | None = None
        oldest_ms = now_ms - STATUS_EVERY_MS
        for partition in partitions:
            state, told_ms = self._told.get(partition.number, (None, 0))
            if state is not partition.state:
                self._tell(partition, now_ms, known_end)
            elif told_ms <= oldest_ms:
                oldest, oldest_ms = partition, told_ms
        if oldest is not None:
            self._tell(oldest, now_ms, known_end)

    def forget(self, partition: Partition, handed_over: bool) -> None:
        """It is not ours any more. Handed over: nobody runs it until its new owner speaks. Lost: that one
        may have spoken already."""
        number = str(partition.number)
        if handed_over:
            self._say(partition, owner="", state=PartitionState.RESTORING, reason=HANDED_OVER)
        self._told.pop(partition.number, None)
        self._telemetry.owner.labels(number).set(0)
        self._telemetry.restore_remaining.labels(number).set(0)

    def _tell(self, partition: Partition, now_ms: int, known_end: KnownEnd) -> None:
        self._told[partition.number] = (partition.state, now_ms)
        self._telemetry.owner.labels(str(partition.number)).set(int(partition.running))
        lag = self._lag(partition, known_end) if partition.running else 0
        self._say(partition, self._instance, partition.state, partition.reason, lag)

    def _say(
        self, partition: Partition, owner: str, state: PartitionState, reason: str, lag: int = 0
    ) -> None:
        status = PartitionStatus(
            partition=partition.number,
            owner=owner,
            state=state.value,
            reason=reason[:1_000],
            position=partition.mark.next_offset,
            lag=lag,
            restore_remaining=partition.restore_remaining,
            tz_version=TZ_VERSION,
            at_ms=self._ambient.clock.now_ms(),
        )
        key = str(partition.number).encode()
        self._publish(Outgoing(self._topics.status, 0, key, self._codec.encode(status)))

    def _lag(self, partition: Partition, known_end: KnownEnd) -> int:
        lag = 0
        for topic, position in (
            (self._topics.commands, partition.positions.commands),
            (self._topics.work, partition.positions.work),
        ):
            behind = max(0, known_end(TopicPartition(topic, partition.number)) - position)
            self._telemetry.lag.labels(topic, str(partition.number)).set(behind)
            lag += behind
        return lag
