"""Owns caps on what runs, held against every grant: of a tenant, of a pool, and of a tenant in a shared pool.

Partitions hear of new settings one after the other, so a lower cap is held against a grant only when it has
been in the log for a while. A cap that is split over partitions is only known as a whole: none of them may
exceed it alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from projections.checker.report import Kind, Report
from schemas import ids
from schemas.entities import Execution, ExecutionStatus, Tenant

# Longer than a partition may take to hear of a change.
HEARD_MS = 30_000
_UNBOUNDED = 1 << 60


class Caps:
    """What runs in each partition, and what may."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._running: Counter[tuple[int, str]] = Counter()
        self._settings: dict[str, dict[int, tuple[int, Tenant]]] = defaultdict(dict)

    def configured(self, settings: Tenant, at_ms: int) -> None:
        """Settings since an instant; they may come in any order, and more than once."""
        self._settings[settings.tenant][settings.version] = (at_ms, settings)

    def changed(self, partition: int, now: Execution, before: Execution | None, *, judged: bool) -> None:
        """An execution is now as given."""
        runs = now.status is ExecutionStatus.RUNNING
        ran = before is not None and before.status is ExecutionStatus.RUNNING
        if runs == ran:
            return
        pool = ids.pool_key(now.tenant, now.pool)
        caps = self._caps(now.tenant, pool, now.started_ms) if runs and judged else {}
        for name in (now.tenant, pool, f"{now.tenant} in {pool}"):
            self._running[partition, name] += 1 if runs else -1
            running = self._running[partition, name]
            if not running:
                del self._running[partition, name]
            elif name in caps and 0 < caps[name] < running:
                detail = f"{running} of {caps[name]} run in partition {partition} at {now.started_ms}"
                self._report.add(Kind.CAP, name, detail)

    def _caps(self, tenant: str, pool: str, at_ms: int) -> dict[str, int]:
        """The most that any settings in force allow; 0: no bound."""
        owner, _, name = pool.partition("/")
        caps = {tenant: max(one.max_running for one in self._in_force(tenant, at_ms))}
        of_pool, of_tenant = [], []
        for settings in self._in_force(owner, at_ms):
            found = next((one for one in settings.pools if one.name == name), None)
            of_pool.append(found.max_running if found is not None else 0)
            half = max(1, found.max_running // 2) if found is not None and found.max_running else 0
            of_tenant.append((found.tenant_max_running or half) if found is not None else 0)
        caps[pool] = 0 if 0 in of_pool else max(of_pool)
        if owner == ids.SHARED:
            caps[f"{tenant} in {pool}"] = 0 if 0 in of_tenant else max(of_tenant)
        return caps

    def _in_force(self, tenant: str, at_ms: int) -> list[Tenant]:
        """Those that some partition may have gone by: the newest that all have heard of, and newer ones."""
        known = [one for _, one in sorted(self._settings.get(tenant, {}).items())]
        heard = [n for n, (since_ms, _) in enumerate(known) if since_ms <= at_ms - HEARD_MS]
        if heard:
            return [settings for _, settings in known[heard[-1] :]]
        # Before its first settings a tenant has the defaults; what was before others is not known.
        first = known[0][1].version if known else 1
        before = Tenant(tenant=tenant, max_running=1_000 if first <= 1 else _UNBOUNDED)
        return [before, *(settings for _, settings in known)]
