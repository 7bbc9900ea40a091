"""Owns circuit breakers as they stand; each partition of a tenant has its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from sqlalchemy import Connection, bindparam, delete, select

from projections.store import Upsert, Writer
from projections.tables import breakers
from schemas.entities import Breaker, BreakerStatus

KEEP = Upsert(breakers)
FORGET = delete(breakers).where(
    breakers.c.tenant == bindparam("of_tenant"),
    breakers.c.target == bindparam("of_target"),
    breakers.c.partition == bindparam("of_partition"),
)

Key = tuple[str, str, int]
"""Tenant, target and partition."""


class BreakerRows:
    """Breakers of one batch: the newest state of each; None: the engine let go of it."""

    def __init__(self) -> None:
        self._newest: dict[Key, Breaker | None] = {}

    def fold(self, breaker: Breaker, partition: int) -> None:
        """A breaker as it is now."""
        self._newest[breaker.tenant, breaker.target, partition] = breaker

    def forget(self, tenant: str, target: str, partition: int) -> None:
        """There is none any more."""
        self._newest[tenant, target, partition] = None

    def write(self, writer: Writer) -> None:
        """All rows of the batch."""
        kept, gone = [], []
        for (tenant, target, partition), breaker in self._newest.items():
            if breaker is None:
                gone.append({"of_tenant": tenant, "of_target": target, "of_partition": partition})
                continue
            row = msgspec.structs.asdict(breaker)
            probes = msgspec.json.encode(breaker.probes).decode()
            kept.append(row | {"partition": partition, "status": breaker.status.value, "probes": probes})
        writer.upsert(KEEP, kept)
        writer.each(FORGET, gone)


def list_breakers(connection: Connection, tenant: str) -> list[tuple[int, Breaker]]:
    """Every breaker of a tenant that ever opened, with its partition, by target."""
    found = connection.execute(
        select(breakers).where(breakers.c.tenant == tenant).order_by(breakers.c.target, breakers.c.partition)
    ).mappings()
    return [(row["partition"], _breaker(row)) for row in found]


def _breaker(row: Mapping[Any, Any]) -> Breaker:
    attributes = {name: row[name] for name in Breaker.__struct_fields__}
    probes = msgspec.json.decode(row["probes"], type=tuple[str, ...])
    return Breaker(**attributes | {"status": BreakerStatus(row["status"]), "probes": probes})
