"""How many of each tenant run in one partition: what it says, less what will have ended since. Pure.

A partition speaks when it grants and when it is asked, not at each end. Of short runs many have ended by the
time that somebody looks; taken as running, they would keep their tenant below its share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from schemas.replies import Waiting

RATE_SEC = 1.0
"""How fast a tenant's rate of ends is forgotten."""


class Running:
    """Counts of one pool's tenants; those that do not wait run at most what is left of all that run."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._rates: dict[str, float] = {}
        self._granted: dict[str, int] = {}
        self._told_at = 0.0

    def granted(self, tenants: Mapping[str, int]) -> None:
        """So many of each were granted; the report that comes with them counts them."""
        for tenant, count in tenants.items():
            self._granted[tenant] = self._granted.get(tenant, 0) + count

    def told(self, waiting: tuple[Waiting, ...], running: int, now: float) -> None:
        """The newest report."""
        told = {row.tenant: row.running for row in waiting}
        rest = max(0, running - sum(told.values()))
        untold = {tenant: min(count, rest) for tenant, count in self._counts.items() if tenant not in told}
        counts = told | {tenant: count for tenant, count in untold.items() if count}
        kept = math.exp((self._told_at - now) / RATE_SEC)
        for tenant in counts.keys() | self._rates.keys():
            ended = self._counts.get(tenant, 0) + self._granted.get(tenant, 0) - counts.get(tenant, 0)
            rate = self._rates.get(tenant, 0.0) * kept + max(0, ended) / RATE_SEC
            if rate > 1e-3 and tenant in counts:
                self._rates[tenant] = rate
            else:
                self._rates.pop(tenant, None)
        self._counts, self._told_at = counts, now
        self._granted.clear()

    def now(self, now: float) -> dict[str, float]:
        """What should run."""
        since = now - self._told_at
        return {
            tenant: max(0.0, count - self._rates.get(tenant, 0.0) * since)
            for tenant, count in self._counts.items()
        }
