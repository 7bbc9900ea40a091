"""Owns caps on what runs, held against every grant: of a tenant, of a pool, and of a tenant in a shared pool.

A lower cap is held against a grant only when every partition has heard of it. A cap that is split over
partitions is only known as a whole: none of them may exceed it alone.
"""

from __future__ import annotations

from projections.checker.report import Kind, Report
from projections.checker.running import Running, of_within
from projections.checker.settings import Settings, pool_of, tenant_max_of
from schemas import ids
from schemas.entities import Execution, Tenant


class Caps:
    """What may run in each partition."""

    def __init__(self, report: Report, settings: Settings, running: Running) -> None:
        self._report = report
        self._settings = settings
        self._running = running

    def began(self, partition: int, now: Execution) -> None:
        """An execution runs, and is counted."""
        tenant, pool_key = now.tenant, ids.pool_key(now.tenant, now.pool)
        of_tenant = max((one.max_running for one in self._in_force(tenant, now)), default=0)
        self._check(partition, now, tenant, self._running.of(partition, tenant), of_tenant)
        owner, _, name = pool_key.partition("/")
        pools = [pool_of(one, name) for one in self._in_force(owner, now)]
        of_pool = _highest([pool.max_running for pool in pools])
        self._check(partition, now, pool_key, self._running.within(partition, pool_key), of_pool)
        if owner == ids.SHARED:
            part = of_within(tenant, pool_key)
            runs = self._running.of_within(partition, tenant, pool_key)
            self._check(partition, now, part, runs, _highest([tenant_max_of(pool) for pool in pools]))

    def _in_force(self, tenant: str, now: Execution) -> list[Tenant]:
        return self._settings.in_force(tenant, now.started_ms)

    def _check(self, partition: int, now: Execution, whose: str, runs: int, most: int) -> None:
        if 0 < most < runs:
            detail = f"{runs} of {most} run in partition {partition} at {now.started_ms}"
            self._report.add(Kind.CAP, whose, detail)


def _highest(caps: list[int]) -> int:
    """The most that any of them allows; 0: no bound."""
    return 0 if 0 in caps else max(caps, default=0)
