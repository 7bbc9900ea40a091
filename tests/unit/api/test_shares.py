"""A shared pool, tenants of different weights in different partitions, endless backlogs: the slots that each
holds go by weight, also if runs of one are long, also across a processor that is killed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import pytest

from schemas.entities import Pool, Priority, Tenant
from schemas.ids import SHARED
from tests.unit.api.cluster import Cluster
from tests.unit.api.worksim import Office, Simulation, Worker

POOL = "shared/gpu"
WEIGHTS = {"red": 1, "green": 2, "blue": 5}
PARTITIONS = 8


class Shares:
    """`slots` of so many workers; `run_sec` by tenant. Time-averaged: what every tenant holds."""

    def __init__(
        self, run_sec: Mapping[str, float], workers: int, slots: int, offices: int = 1, processors: int = 1
    ) -> None:
        places = workers * slots
        shared = Tenant(
            tenant=SHARED, pools=(Pool(name=POOL, max_running=places, tenant_max_running=places),)
        )
        tenants = [
            Tenant(tenant=name, weight=weight, registrations_per_sec=100_000, max_running=100_000)
            for name, weight in WEIGHTS.items()
        ]
        self.cluster = Cluster(PARTITIONS, settings=[shared, *tenants])
        homes = [self.cluster.partitions_of(tenant)[0] for tenant in WEIGHTS]
        assert len(set(homes)) == len(homes)
        self.simulation = Simulation(self.cluster, processors=processors)
        self.run_sec = run_sec
        self.places = places
        self.held: dict[str, float] = defaultdict(float)
        self.samples = 0
        self.most = 0
        for tenant in WEIGHTS:
            self._feed(tenant)
        for number in range(offices):
            office = Office(self.simulation, f"s{number}", SHARED, POOL)
            office.asker.max_running = places
            for each in range(number, workers, offices):
                worker = Worker(office, f"w{each}", slots, lambda grant: run_sec[grant.execution.tenant])
                self.simulation.at(1 + 0.01 * each, worker.claim)

    def run(self, settle_sec: float, until: float) -> dict[str, float]:
        """Shares of what is held, from then on."""
        self.simulation.at(settle_sec, self._sample)
        self.simulation.run(until)
        total = sum(self.held.values())
        return {tenant: held / total for tenant, held in self.held.items()}

    @property
    def used(self) -> float:
        """The share of the slots that is held."""
        return sum(self.held.values()) / self.samples / self.places

    def _sample(self) -> None:
        running = {tenant: self._running(tenant) for tenant in WEIGHTS}
        for tenant, count in running.items():
            self.held[tenant] += count
        self.most = max(self.most, sum(running.values()))
        self.samples += 1
        self.simulation.at(self.simulation.now + 0.0101, self._sample)

    def _running(self, tenant: str) -> int:
        engine = self.cluster.engines[self.cluster.partitions_of(tenant)[0]]
        return engine.state.indexes.running_of_in(tenant, POOL)

    def _feed(self, tenant: str) -> None:
        """More work than slots, always."""
        engine = self.cluster.engines[self.cluster.partitions_of(tenant)[0]]
        waiting = dict(engine.state.indexes.waiting(POOL, Priority.NORMAL)).get(tenant, 0)
        wanted = self.places + round(self.places * 0.3 / self.run_sec[tenant])
        for _ in range(max(0, wanted - waiting)):
            self.simulation.register(tenant, POOL)
        self.simulation.at(self.simulation.now + 0.1, self._feed, tenant)


def assert_by_weight(shares: Mapping[str, float]) -> None:
    """Within three hundredths of all that is held."""
    total = sum(WEIGHTS.values())
    for tenant, weight in WEIGHTS.items():
        assert abs(shares[tenant] - weight / total) <= 0.03, shares


@pytest.mark.parametrize("slots", [1, 8])
def test_slots_are_held_by_weight(slots: int) -> None:
    shares = Shares(dict.fromkeys(WEIGHTS, 0.2), 40 // slots, slots)
    assert_by_weight(shares.run(2, 6))
    assert shares.used > 0.85
    assert shares.most <= shares.places


def test_also_when_runs_of_one_tenant_are_ten_times_as_long() -> None:
    shares = Shares({"red": 2, "green": 0.2, "blue": 0.2}, 40, 1)
    assert_by_weight(shares.run(6, 12))
    assert shares.used > 0.85


def test_also_across_a_processor_that_is_killed() -> None:
    shares = Shares(dict.fromkeys(WEIGHTS, 0.2), 40, 1, processors=2)
    shares.simulation.at(3, shares.simulation.kill, 0, 0.5)
    assert_by_weight(shares.run(2, 6))
    assert shares.simulation.work.most_over == 0
