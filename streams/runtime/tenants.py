"""What the process knows of tenants: the tenants topic, read to its end before anything is served.

Owns the settings by tenant and, from them, where a job lives (`streams.core.engine.Router`). May not know
how a partition uses them. Only operators' changes write to the topic, and the first start of a development
server.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from schemas.entities import Tenant
from schemas.events import TenantConfigured
from schemas.topics import Topics, partition_of, tenant_partitions
from streams.runtime.partition import Codec, GivenUp
from streams.runtime.telemetry import Telemetry
from streams.transport.log import Isolation, Log, Outgoing, Record, TopicPartition

READ_RECORDS = 1_000
READ_SEC = 0.05
READS_MAX = 20_000
"""Bounds the wait for the end of the topic; then the log is not to be had."""
WRITE_SEC = 10.0
ACTOR = "development"


class TenantDirectory:
    """Used by one thread."""

    def __init__(
        self, log: Log, topics: Topics, partition_count: int, codec: Codec, telemetry: Telemetry
    ) -> None:
        self._log = log
        self._topics = topics
        self._partition_count = partition_count
        self._codec = codec
        self._telemetry = telemetry
        self._tp = TopicPartition(topics.tenants, 0)
        self._tenants: dict[str, Tenant] = {}
        self._partitions: dict[str, list[int]] = {}
        self._reader = log.reader(Isolation.COMMITTED)
        self._started = False
        self._news = False

    def partition_of(self, tenant: str, job_id: str) -> int:
        return partition_of(tenant, job_id, self.shards(tenant), self._partition_count)

    def partitions_of(self, tenant: str) -> list[int]:
        """Kept, since every work request asks; unknown tenants are not, since anyone may invent them."""
        known = self._partitions.get(tenant)
        return known or tenant_partitions(tenant, self.shards(tenant), self._partition_count)

    def shards(self, tenant: str) -> int:
        return self.settings_of(tenant).shards

    def load(self) -> None:
        """Reads to the end the topic has now."""
        if not self._started:
            self._reader.assign({self._tp: self._log.start_offset(self._tp)})
            self._started = True
        end = self._log.end_offset(self._tp, Isolation.UNCOMMITTED)
        for _ in range(READS_MAX):
            if self._reader.position(self._tp) >= end:
                return
            self._take(self._reader.poll(READ_RECORDS, READ_SEC))
        raise GivenUp(f"the end of {self._topics.tenants} cannot be reached")

    def follow(self, wait_sec: float = 0) -> bool:
        """Takes what there is; True if anything came since this was asked last."""
        self._take(self._reader.poll(READ_RECORDS, wait_sec))
        news, self._news = self._news, False
        return news

    def end_offset(self) -> int:
        """The end that all who read the topic may have reached by now."""
        return self._log.end_offset(self._tp, Isolation.COMMITTED)

    def has_reached(self, offset: int) -> bool:
        """Whether the topic was read to there; if not, reads on."""
        if self._reader.position(self._tp) < offset:
            self._take(self._reader.poll(READ_RECORDS, 0))
        return self._reader.position(self._tp) >= offset

    def configure(self, shards: Mapping[str, int], jitter: Mapping[str, int], now_ms: int) -> None:
        """Settings of a development server: makes the tenants that are not there, and takes another default
        jitter. A tenant's shards are fixed, since its jobs would be looked for elsewhere."""
        changed = []
        for name in {**shards, **jitter}:
            known = self._tenants.get(name)
            count = shards.get(name, self.shards(name))
            if known is not None and known.shards != count:
                raise GivenUp(
                    f"HORARIUM_DEV_SHARDS: tenant {name!r} was made with {known.shards} shards and cannot "
                    f"have {count}"
                )
            settings = self.settings_of(name)
            jitter_sec = jitter.get(name, settings.default_jitter_sec)
            wanted = replace(settings, shards=count, default_jitter_sec=jitter_sec)
            if wanted != known:
                changed.append(replace(wanted, version=settings.version + 1))
        if changed:
            self._write(changed, now_ms)
            self.load()

    def settings_of(self, tenant: str) -> Tenant:
        """The defaults for a tenant that nobody has configured."""
        return self._tenants.get(tenant) or Tenant(tenant=tenant)

    def _write(self, tenants: list[Tenant], now_ms: int) -> None:
        writer = self._log.plain_writer()
        try:
            for tenant in tenants:
                event = TenantConfigured(at_ms=now_ms, actor=ACTOR, cause="settings", configured=tenant)
                value = self._codec.encode(event)
                writer.send(Outgoing(self._tp.topic, self._tp.partition, tenant.tenant.encode(), value))
            if not writer.flush(WRITE_SEC):
                raise GivenUp(f"{self._tp.topic} cannot be written")
        finally:
            writer.close()

    def _take(self, records: list[Record]) -> None:
        self._news = self._news or bool(records)
        for record in records:
            name = (record.key or b"").decode(errors="replace")
            if record.value is None:
                self._tenants.pop(name, None)
                self._partitions.pop(name, None)
                continue
            event = self._decode(record)
            if event is not None:
                self._tenants[name] = event.configured
                self._partitions[name] = tenant_partitions(
                    name, event.configured.shards, self._partition_count
                )

    def _decode(self, record: Record) -> TenantConfigured | None:
        try:
            event = self._codec.decode(record.value or b"")
        except ValueError as error:
            # What was known of the tenant stays: guessing would route its jobs elsewhere.
            self._telemetry.warning(
                f"tenant not understood: {error}", topic=record.topic, offset=record.offset
            )
            return None
        return event if isinstance(event, TenantConfigured) else None

    def close(self) -> None:
        self._reader.close()
