"""Caps on what runs, as settings give them to one partition: they delay, they never drop (semantics §6).

A tenant's cap is split over the partitions that can hold it, so it is exact for a tenant of one shard. None
of them gets less than one, else jobs that live there would never run. A shared pool's own cap holds in each
partition: split, it would keep a tenant of one partition from what the others leave free.
"""

from __future__ import annotations

from schemas.entities import Pool, Tenant
from schemas.ids import SHARED
from streams.core.transaction import Router


def share(cap: int, partitions: list[int], partition: int) -> int:
    """The part of a tenant's cap that a partition may use."""
    if not cap or len(partitions) <= 1 or partition not in partitions:
        return cap
    part, rest = divmod(cap, len(partitions))
    return max(1, part + (partitions.index(partition) < rest))


def running_max(router: Router, settings: Tenant, partition: int) -> int:
    """How many executions of a tenant may run here."""
    return share(settings.max_running, router.partitions_of(settings.tenant), partition)


def tenant_max_of(pool: Pool) -> int:
    """How many of one tenant may run in a shared pool: half of its places, unless it says otherwise; 0: no
    bound."""
    return pool.tenant_max_running or (max(1, pool.max_running // 2) if pool.max_running else 0)


class PoolCaps:
    """What the settings say of one pool."""

    def __init__(self, router: Router, pool_key: str, partition: int) -> None:
        owner, _, name = pool_key.partition("/")
        self._router = router
        self._partition = partition
        self._settings = router.settings_of(owner)
        self._pool = next((pool for pool in self._settings.pools if pool.name == name), Pool(name=name))
        self.shared = owner == SHARED
        self.paused = self._pool.paused or (self._settings.paused and self.shared)

    @property
    def running_max(self) -> int | None:
        """Of the pool; None: no bound of its own."""
        cap = self._pool.max_running
        if not cap:
            return None
        return (
            cap
            if self.shared
            else share(cap, self._router.partitions_of(self._settings.tenant), self._partition)
        )

    def tenant_running_max(self, settings: Tenant) -> int | None:
        """Of one tenant: half of a shared pool's places, unless the pool says otherwise."""
        cap = tenant_max_of(self._pool)
        if not self.shared or not cap:
            return None
        return share(cap, self._router.partitions_of(settings.tenant), self._partition)
