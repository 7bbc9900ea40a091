"""Owns what operators set: which settings some partition may have gone by at an instant.

Partitions hear of new settings one after the other, so for a while the older ones are in force as well.
"""

from __future__ import annotations

from collections import defaultdict

from schemas.entities import Pool, Tenant

# Longer than a partition may take to hear of a change, and than the clocks of two partitions are apart.
HEARD_MS = 30_000


class Settings:
    """Of all tenants, by version."""

    def __init__(self) -> None:
        self._versions: dict[str, dict[int, tuple[int, Tenant]]] = defaultdict(dict)
        self._defaults: dict[str, list[Tenant]] = {}
        self._settled: dict[str, tuple[int, list[Tenant]]] = {}
        """Since when all partitions have heard of the newest, and that one."""

    def configured(self, settings: Tenant, at_ms: int) -> None:
        """Settings since an instant; they may come in any order, and more than once."""
        versions = self._versions[settings.tenant]
        versions[settings.version] = (at_ms, settings)
        settled_ms = max(since_ms for since_ms, _ in versions.values()) + HEARD_MS
        self._settled[settings.tenant] = (settled_ms, [versions[max(versions)][1]])

    def in_force(self, tenant: str, at_ms: int) -> list[Tenant]:
        """The newest that all partitions have heard of by then, and newer ones; none: they are not known."""
        settled = self._settled.get(tenant)
        if settled is None:
            return self._default(tenant)
        if at_ms >= settled[0]:
            return settled[1]
        versions = self._versions[tenant]
        told = [versions[version] for version in sorted(versions) if versions[version][0] <= at_ms + HEARD_MS]
        known = [settings for _, settings in told]
        heard = [n for n, (since_ms, _) in enumerate(told) if since_ms <= at_ms - HEARD_MS]
        if heard:
            return known[heard[-1] :]
        # Before its first settings a tenant has the defaults; what was before others is not known.
        return [*self._default(tenant), *known] if min(versions) <= 1 else []

    def _default(self, tenant: str) -> list[Tenant]:
        found = self._defaults.get(tenant)
        if found is None:
            found = self._defaults[tenant] = [Tenant(tenant=tenant)]
        return found


def pool_of(settings: Tenant, name: str) -> Pool:
    """A pool as its owner's settings have it."""
    return next((one for one in settings.pools if one.name == name), Pool(name=name))


def tenant_max_of(pool: Pool) -> int:
    """How many of one tenant may run in a shared pool: half of its places unless it says otherwise; 0: no
    bound."""
    return pool.tenant_max_running or (max(1, pool.max_running // 2) if pool.max_running else 0)
