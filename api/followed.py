"""Owns what this process follows on the small compacted topics: settings of tenants, owners of partitions.

One thread reads both from their beginning; requests look at the newest values without waiting. Until the
tenants were read to their end, nobody can know where a tenant's jobs live.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

from schemas import codec
from schemas.entities import Pool, Tenant
from schemas.events import TenantConfigured
from schemas.ids import pool_key
from schemas.replies import PartitionStatus
from schemas.topics import Topics
from streams.transport.log import Isolation, Log, LogError, Reader, Record, TopicPartition

log = logging.getLogger(__name__)

POLL_SEC = 0.5
RETRY_SEC = 0.5
RECORDS_PER_POLL = 500
REACH_SEC = 2.0
"""As long as a read waits for the caller's own writes."""


@dataclass(frozen=True, slots=True, eq=False)
class _Awaited:
    tenant: str
    version: int
    seen: Future[None] = field(default_factory=Future)


class Followed:
    """The newest value of every key of the topics `tenants` and `status`."""

    def __init__(self, log_: Log, topics: Topics) -> None:
        self._log = log_
        self._tenants_topic = TopicPartition(topics.tenants, 0)
        self._status_topic = TopicPartition(topics.status, 0)
        self._tenants: dict[str, Tenant] = {}
        self._statuses: dict[int, PartitionStatus] = {}
        self._awaited: list[_Awaited] = []
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._caught_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="horarium-followed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10.0)

    @property
    def caught_up(self) -> bool:
        """Whether the topics were read to the ends that they had when this process began."""
        return self._caught_up.is_set()

    def shards(self, tenant: str) -> int:
        """k of the tenant."""
        return self.settings_of(tenant).shards

    def settings_of(self, tenant: str) -> Tenant:
        """The defaults for a tenant that nobody has configured."""
        return self._tenants.get(tenant) or Tenant(tenant=tenant)

    def pool_of(self, tenant: str, pool: str) -> Pool:
        """Settings of a pool as the tenant names it; the defaults if nobody has set any."""
        owner, _, name = pool_key(tenant, pool).partition("/")
        known = (each for each in self.settings_of(owner).pools if each.name == name)
        return next(known, Pool(name=name))

    def tenants(self) -> list[str]:
        """The names of all that were ever configured."""
        return list(self._tenants)

    async def reached(self, tenant: str, version: int) -> bool:
        """Whether the tenant's settings are of this version or newer within `REACH_SEC`."""
        awaited = _Awaited(tenant, version)
        with self._lock:
            self._awaited.append(awaited)
        self._answer()
        try:
            await asyncio.wait_for(asyncio.wrap_future(awaited.seen), REACH_SEC)
        except TimeoutError:
            return False
        return True

    def statuses(self) -> Mapping[int, PartitionStatus]:
        """The newest word of each partition's owner."""
        return dict(self._statuses)

    def take(self, records: list[Record]) -> None:
        """Newer values; what cannot be read is skipped loudly, the older value stays."""
        for record in records:
            if record.value is None:
                self._forget(record)
                continue
            try:
                value = codec.decode(record.value)
            except codec.UndecodableError as error:
                log.error("cannot read %s@%d: %s", record.topic, record.offset, error)
                continue
            if isinstance(value, TenantConfigured):
                self._tenants[value.configured.tenant] = value.configured
            elif isinstance(value, PartitionStatus):
                self._statuses[value.partition] = value
        self._answer()

    def _answer(self) -> None:
        with self._lock:
            ready = [each for each in self._awaited if self._is_there(each)]
            self._awaited = [
                each for each in self._awaited if each not in ready and not each.seen.cancelled()
            ]
        for each in ready:
            if each.seen.set_running_or_notify_cancel():
                each.seen.set_result(None)

    def _is_there(self, awaited: _Awaited) -> bool:
        return self.settings_of(awaited.tenant).version >= awaited.version

    def _forget(self, record: Record) -> None:
        key = (record.key or b"").decode(errors="replace")
        if record.topic == self._tenants_topic.topic:
            self._tenants.pop(key, None)
        elif key.isdigit():
            self._statuses.pop(int(key), None)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
            except LogError as error:
                log.warning("following tenants and partitions: %s", error)
                self._stopping.wait(RETRY_SEC)
            except Exception:
                # A bug; but without this thread the process would look alive and serve nobody.
                log.exception("following tenants and partitions: begun anew")
                self._stopping.wait(RETRY_SEC)

    def _follow(self) -> None:
        wanted = (self._tenants_topic, self._status_topic)
        if not all(self._log.partitions(tp.topic) for tp in wanted):
            self._stopping.wait(RETRY_SEC)  # the first processor makes the topics
            return
        ends = {tp: self._log.end_offset(tp, Isolation.COMMITTED) for tp in wanted}
        reader = self._log.reader(Isolation.COMMITTED)
        try:
            reader.assign({tp: self._log.start_offset(tp) for tp in wanted})
            while not self._stopping.is_set():
                self.take(reader.poll(RECORDS_PER_POLL, POLL_SEC))
                if not self._caught_up.is_set() and _is_past(reader, ends):
                    self._caught_up.set()
        finally:
            reader.close()


def _is_past(reader: Reader, ends: Mapping[TopicPartition, int]) -> bool:
    return all(reader.position(tp) >= end for tp, end in ends.items())
