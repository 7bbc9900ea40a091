"""Operators: they change settings of tenants and pools while everything runs, and mend them at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from schemas.commands import ConfigurePool, ConfigureTenant, JobCommand
from schemas.ids import SHARED
from schemas.replies import CommandDone
from schemas.topics import tenant_partitions
from tests.simulation import jobs
from tests.simulation.network import Network
from tests.simulation.nodes import Answered, Node
from tests.simulation.servers import Surroundings

Build = Callable[[dict[str, Any]], JobCommand]


class Operator:
    """Repeats what it is not answered. `waiting`: changes without an answer yet."""

    def __init__(
        self, around: Surroundings, network: Network, nodes: list[Node], shards: dict[str, int]
    ) -> None:
        self.waiting = 0
        self._around = around
        self._network = network
        self._nodes = nodes
        self._shards = shards

    def change(self) -> None:
        """Something, of somebody."""
        chance = self._around.chance
        self._around.counts["settings changed"] += 1
        if chance.random() < 0.5:
            tenant = chance.choice(list(self._shards))
            self._configure_tenant(
                tenant,
                max_running=chance.choice((1, 3, 10, 1_000)),
                weight=chance.choice((1, 2, 5)),
                default_jitter_sec=chance.choice((0, 2, 30)),
                paused=chance.random() < 0.15,
            )
            return
        owner, pool = chance.choice(self._pools())
        self._configure_pool(owner, pool, chance.random() < 0.2, chance.choice((0, 1, 3, 10)))

    def mend(self) -> None:
        """Nothing is paused or capped any more. Waits for what was asked before, which would undo it."""
        if self.waiting:
            self._around.agenda.after(500, self.mend)
            return
        for tenant in self._shards:
            self._configure_tenant(tenant, max_running=1_000, paused=False)
        for owner, pool in self._pools():
            self._configure_pool(owner, pool, False, 0)

    def _pools(self) -> list[tuple[str, str]]:
        own = [pool for pool in jobs.POOLS if pool != jobs.SHARED_POOL]
        pools = [(tenant, pool) for tenant in self._shards for pool in own]
        return [*pools, (SHARED, jobs.SHARED_POOL.partition("/")[2])]

    def _configure_tenant(self, tenant: str, **settings: Any) -> None:
        self._around.tell("operator", f"tenant {tenant}: {settings}")
        self._ask(tenant, lambda envelope: ConfigureTenant(**envelope, **settings))

    def _configure_pool(self, owner: str, pool: str, paused: bool, max_running: int) -> None:
        self._around.tell("operator", f"pool {owner}/{pool}: paused={paused} max_running={max_running}")
        self._ask(
            owner,
            lambda envelope: ConfigurePool(**envelope, pool=pool, paused=paused, max_running=max_running),
        )

    def _ask(self, tenant: str, build: Build) -> None:
        home = tenant_partitions(tenant, self._shards.get(tenant, 1), self._around.partitions)[0]
        self.waiting += 1

        def take(done: CommandDone | None) -> None:
            if done is None:
                self._around.agenda.after(self._around.chance.randint(100, 3_000), ask)
                return
            self.waiting -= 1
            if done.code:
                self._around.complain(f"settings of {tenant} were refused: {done.code} {done.detail}")

        def ask() -> None:
            node = self._around.chance.choice([node for node in self._nodes if node.life] or self._nodes)

            def call(respond: Answered) -> None:
                node.ask(build(node.envelope(tenant)), home, respond)

            self._network.call(node, call, take)

        ask()
