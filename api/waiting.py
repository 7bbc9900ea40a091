"""Owns what holds a whole queue back, in this one place: a pause, or a cap that is reached.

No event says so of each execution, a million of them would need a million: it is worked out from the settings
as they are now and from what runs as the read model has it. What holds back a single one (overlap, an
exclusion group, a breaker, the wait for a redelivery) stands in the execution itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from api.followed import Followed
from projections.pools import Running, running_of
from schemas.entities import Execution, ExecutionStatus, WaitingFor
from schemas.ids import is_shared
from schemas.topics import partition_of, tenant_partitions
from streams.core.caps import tenant_max_of


def counted(connection: Any, tenant: str, executions: Iterable[Execution]) -> Running:
    """What `Gates` needs for these executions of a tenant; nothing is asked if none of them is in line."""
    pools = {execution.pool for execution in executions if _is_in_line(execution)}
    return running_of(connection, tenant, pools) if pools else Running()


class Gates:
    """What holds the queues of one tenant."""

    def __init__(self, followed: Followed, partitions: int, tenant: str, running: Running) -> None:
        self._followed = followed
        self._partitions = max(1, partitions)  # not known before the log was reached
        self._tenant = tenant
        self._running = running

    def of(self, execution: Execution) -> WaitingFor:
        """What the execution waits for."""
        if not _is_in_line(execution):
            return execution.waiting_for
        settings = self._followed.settings_of(self._tenant)
        pool = self._followed.pool_of(self._tenant, execution.pool)
        if settings.paused or pool.paused:
            return WaitingFor.PAUSED_POOL
        mine = self._running.mine.get(execution.pool, 0)
        caps = [(sum(self._running.mine.values()), settings.max_running)]
        if is_shared(execution.pool):
            caps.append((self._running_beside(execution), pool.max_running))
            caps.append((mine, tenant_max_of(pool)))
        else:
            caps.append((mine, pool.max_running))
        reached = any(cap and running >= cap for running, cap in caps)
        return WaitingFor.CAP if reached else execution.waiting_for

    def _running_beside(self, execution: Execution) -> int:
        """What runs of its shared pool in its partition, for which the pool's bound is; what tenants of
        several shards run is taken to be spread evenly."""
        shards = self._followed.shards(self._tenant)
        here = partition_of(self._tenant, execution.job_id, shards, self._partitions)
        running = 0
        for tenant, count in self._running.shared.get(execution.pool, {}).items():
            theirs = tenant_partitions(tenant, self._followed.shards(tenant), self._partitions)
            running += count // len(theirs) if here in theirs else 0
        return running


def _is_in_line(execution: Execution) -> bool:
    return execution.status is ExecutionStatus.PENDING and execution.waiting_for is WaitingFor.WORKER
