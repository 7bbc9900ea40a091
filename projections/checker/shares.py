"""Owns the shares of tenants in a shared pool: the next one is the one with the least running / weight.

That holds at every grant. Among equals a virtual time decides, which the engine keeps in memory and forgets
when a partition moves; so there what counts is how often in a row another one was preferred.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from math import inf

from projections.checker.lines import Line, PoolLines
from projections.checker.running import Running
from projections.checker.settings import Settings, pool_of, tenant_max_of
from schemas.entities import Execution, Priority

WEIGHED_MAX = 500
"""With more tenants waiting, a pass does not weigh all of them against each other."""
MOVES_MAX = 16
"""How often a partition may have moved while somebody waited for a turn among equals."""


class Shares:
    """What each tenant has of the pools that it shares."""

    def __init__(self, settings: Settings, running: Running) -> None:
        self._settings = settings
        self._running = running
        self._rows: dict[tuple[int, str], _Row] = {}

    def waits(self, pool: PoolLines, tenant: str, line: Line, at_ms: int) -> bool:
        """Whether one of a line could have been granted: it waits since before, and its tenant may run more,
        whichever settings a partition went by."""
        if not line.waits_since_before(at_ms):
            return False
        settings = self._settings.in_force(tenant, at_ms)
        shards = max((one.shards for one in settings), default=1)
        owner, _, name = pool.key.partition("/")
        pools = [pool_of(one, name) for one in self._settings.in_force(owner, at_ms)]
        if not settings or not pools or any(one.paused for one in settings):
            return False
        runs = self._running.of(pool.partition, tenant)
        runs_here = self._running.of_within(pool.partition, tenant, pool.key)
        most_here = [tenant_max_of(one) for one in pools]
        return runs < max(1, min(one.max_running for one in settings) // shards) and all(
            not most or runs_here < max(1, most // shards) for most in most_here
        )

    def why_wrong(self, pool: PoolLines, now: Execution, at_ms: int) -> str:
        """What is wrong with the tenant that is granted next; "" if nothing is. `now` is not counted yet."""
        lines = pool.of(now.priority)
        if len(lines) == 1 or len(lines) > WEIGHED_MAX:
            self._rows.pop((pool.partition, pool.key), None)
            return ""
        row = self._row(pool, now.priority)
        row.passed.pop(now.tenant, None)
        mine = self._share(pool, now.tenant, at_ms)
        for tenant, line in lines.items():
            if tenant == now.tenant:
                continue
            theirs = self._share(pool, tenant, at_ms)
            # Looked at in the order of what it costs; mostly the others have more.
            if mine[0] < theirs[-1] or not self.waits(pool, tenant, line, at_ms):
                row.passed.pop(tenant, None)
            elif mine[0] > theirs[-1]:
                return f"{tenant} waited with {theirs[-1]:g} running a weight, {now.tenant} had {mine[0]:g}"
            elif mine[0] != mine[-1] or theirs[0] != theirs[-1]:
                row.passed.pop(tenant, None)
            elif self._is_passed_over(row, tenant, now.tenant, at_ms):
                return f"{tenant} was passed over {row.passed[tenant][now.tenant]} times for {now.tenant}"
        return ""

    def _row(self, pool: PoolLines, priority: Priority) -> _Row:
        """Grants of one priority in a row; those of others move the virtual time as well."""
        place = (pool.partition, pool.key)
        row = self._rows.get(place)
        if row is None or row.priority is not priority:
            row = self._rows[place] = _Row(priority)
        return row

    def _is_passed_over(self, row: _Row, tenant: str, other: str, at_ms: int) -> bool:
        """Whether the other one had more turns than its weight gives it until this one's, over and over."""
        row.passed[tenant][other] += 1
        mine, theirs = (self._settings.in_force(one, at_ms)[0].weight for one in (tenant, other))
        return row.passed[tenant][other] > theirs // mine + 1 + MOVES_MAX

    def _share(self, pool: PoolLines, tenant: str, at_ms: int) -> list[float]:
        """Running / weight, by each weight that may be in force, the least first; nothing is known: any."""
        runs = self._running.of_within(pool.partition, tenant, pool.key)
        settings = self._settings.in_force(tenant, at_ms)
        if len(settings) == 1:
            return [runs / settings[0].weight]
        return sorted(runs / one.weight for one in settings) or [0.0, inf]


class _Row:
    """`passed`: by tenant that waits, how often which other one of the same share was preferred."""

    def __init__(self, priority: Priority) -> None:
        self.priority = priority
        self.passed: dict[str, Counter[str]] = defaultdict(Counter)
