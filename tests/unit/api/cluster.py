"""All partitions in one place: the real engines on in-memory stores, in virtual time, without a log.

What a processor does with its partition, done at once: each command is a transaction. Replies come back as
values; what would go to the topic `events` is kept in `events`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from schemas import codec
from schemas.commands import JobCommand, WorkCommand
from schemas.entities import Tenant
from schemas.events import TenantConfigured
from schemas.replies import CommandDone, Reply, WorkDone
from schemas.topics import partition_of, tenant_partitions
from streams.ambient import Chance
from streams.core.effects import Answer
from streams.core.engine import Engine
from streams.core.instants import parse_instant
from streams.core.transaction import Logged, Source
from streams.store.memory import MemoryStore


class Cluster:
    """`partitions` engines; a tenant has the settings or shards given, else the defaults."""

    def __init__(
        self,
        partitions: int = 4,
        shards: dict[str, int] | None = None,
        now: str = "2026-05-01T00:00:00Z",
        seed: int = 1,
        settings: Sequence[Tenant] = (),
    ) -> None:
        self.now_ms = parse_instant(now, "now")
        self.partitions = partitions
        self.shards = shards or {}
        self.stores = [MemoryStore() for _ in range(partitions)]
        self.engines = [Engine(number, store, codec, self) for number, store in enumerate(self.stores)]
        self.chance = Chance(seed)
        self.events: list[list[Logged]] = [[] for _ in range(partitions)]
        self._offset = 0
        self.tenants = {name: Tenant(tenant=name, shards=count) for name, count in (shards or {}).items()}
        self.tenants |= {each.tenant: each for each in settings}
        """As the tenants topic tells everybody."""

    def partition_of(self, tenant: str, job_id: str) -> int:
        return partition_of(tenant, job_id, self.settings_of(tenant).shards, self.partitions)

    def partitions_of(self, tenant: str) -> list[int]:
        return tenant_partitions(tenant, self.settings_of(tenant).shards, self.partitions)

    def settings_of(self, tenant: str) -> Tenant:
        return self.tenants.get(tenant) or Tenant(tenant=tenant)

    def run(self, partition: int, *commands: JobCommand | WorkCommand, sent_ms: int = 0) -> list[Reply]:
        """One or more transactions of a partition now."""
        replies, more, _ = self.step(partition, commands, 1_000, sent_ms)
        while more:
            said, more, _ = self.step(partition, (), 1_000)
            replies += said
        return replies

    def step(
        self, partition: int, commands: Sequence[JobCommand | WorkCommand], fire_limit: int, sent_ms: int = 0
    ) -> tuple[list[Reply], bool, int]:
        """One transaction: replies, whether more is due now, and how many events it has."""
        engine = self.engines[partition]
        engine.begin(self.now_ms, self.chance.random)
        for command in commands:
            self._offset += 1
            topic = "work" if isinstance(command, WorkCommand) else "commands"
            engine.decide(command, Source(topic, self._offset, sent_ms or self.now_ms))
        more = engine.fire(self.now_ms, fire_limit)
        engine.grant()
        decided = engine.decided()
        self.events[partition] += decided.events
        count = len(decided.events)
        replies = [effect.reply for effect in decided.effects if isinstance(effect, Answer)]
        self.stores[partition].write(engine.commit())
        engine.written()
        self._tell(decided.events)
        offset = len(self.events[partition]) - 1
        return [_placed(reply, offset) for reply in replies], more, count

    def rebuild(self, partition: int) -> None:
        """A new owner, from the events alone: what was soft is gone."""
        store = self.stores[partition] = MemoryStore()
        engine = self.engines[partition] = Engine(partition, store, codec, self)
        for event in self.events[partition]:
            engine.apply(event.key, event.value)
        store.write(engine.commit())
        engine.written()

    def is_due(self, partition: int) -> bool:
        """Whether a partition has something to do now."""
        return self.wakeup_ms([partition]) <= self.now_ms

    def _tell(self, events: Sequence[Logged]) -> None:
        """Changed settings reach every partition."""
        for event in events:
            if event.type == TenantConfigured.__name__:
                told = codec.decode(event.value or b"")
                assert isinstance(told, TenantConfigured)
                self.tenants[told.configured.tenant] = told.configured
                for engine in self.engines:
                    engine.settings_changed()

    def wakeup_ms(self, partitions: Sequence[int] | None = None) -> int:
        """The earliest timer of some partitions."""
        return min(
            self.now_ms if engine.lease_due(self.now_ms) else engine.next_wakeup_ms(self.now_ms)
            for engine in (self.engines[number] for number in partitions or range(self.partitions))
        )


def _placed(reply: Reply, offset: int) -> Reply:
    if isinstance(reply, CommandDone | WorkDone):
        return msgspec.structs.replace(reply, offset=offset)
    return reply
