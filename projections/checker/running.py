"""Owns what runs in each partition: of a tenant, in a pool, and of a tenant in a pool."""

from __future__ import annotations

from collections import Counter

from schemas import ids
from schemas.entities import Execution, ExecutionStatus


class Running:
    """Counts, as of the newest event."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[int, str]] = Counter()

    def of(self, partition: int, tenant: str) -> int:
        """Of a tenant, in all pools."""
        return self._counts[partition, tenant]

    def within(self, partition: int, pool_key: str) -> int:
        """In a pool (`<owner>/<pool>`)."""
        return self._counts[partition, pool_key]

    def of_within(self, partition: int, tenant: str, pool_key: str) -> int:
        """Of a tenant, in a pool."""
        return self._counts[partition, of_within(tenant, pool_key)]

    def changed(self, partition: int, now: Execution, before: Execution | None) -> bool:
        """An execution is now as given; whether it began to run."""
        runs = now.status is ExecutionStatus.RUNNING
        ran = before is not None and before.status is ExecutionStatus.RUNNING
        if runs == ran:
            return False
        pool_key = ids.pool_key(now.tenant, now.pool)
        for name in (now.tenant, pool_key, of_within(now.tenant, pool_key)):
            self._counts[partition, name] += 1 if runs else -1
            if not self._counts[partition, name]:
                del self._counts[partition, name]
        return runs


def of_within(tenant: str, pool_key: str) -> str:
    """What a tenant's part of a pool is called."""
    return f"{tenant} in {pool_key}"
