"""A shared pool, tenants of different weights in different partitions, endless backlogs: the slots that each
holds go by weight, however long runs are, through however many API processes, also across a processor that is
killed.

A slot is held by the tenant that it was last granted to, until it is granted anew (semantics §6)."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping

import pytest

from schemas.entities import Pool, Priority, Tenant
from schemas.ids import SHARED
from schemas.replies import Grant
from tests.unit.api.cluster import Cluster
from tests.unit.api.worksim import Office, Simulation, Worker

POOL = "shared/gpu"
WEIGHTS = {"red": 1, "green": 2, "blue": 5}
PARTITIONS = 8


EQUAL = dict.fromkeys(WEIGHTS, 0.2)
TENFOLD = {"red": 2, "green": 0.2, "blue": 0.2}
ENDLESS = {"red": 600, "green": 0.01, "blue": 0.5}


class Slots(Worker):
    """A worker that knows who holds its slots; of free ones the one that is free longest is taken next."""

    def __init__(self, office: Office, name: str, slots: int, run_sec: Callable[[Grant], float]) -> None:
        super().__init__(office, name, slots, run_sec)
        self.holders: Counter[str] = Counter()
        self._free = deque([""] * slots)

    def _answered(self, grants: list[Grant]) -> None:
        for grant in grants:
            self.holders[self._free.popleft()] -= 1
            self.holders[grant.execution.tenant] += 1
        super()._answered(grants)

    def _finish(self, grants: list[Grant]) -> None:
        self._free += [grant.execution.tenant for grant in grants]
        super()._finish(grants)


class Shares:
    """`slots` of so many workers; `run_sec` by tenant. Time-averaged: what every tenant holds."""

    def __init__(
        self,
        run_sec: Mapping[str, float],
        workers: int,
        slots: int = 1,
        *,
        offices: int = 1,
        processors: int = 1,
        max_running: int = 0,
    ) -> None:
        self.places = workers * slots
        most = max_running or self.places
        shared = Tenant(tenant=SHARED, pools=(Pool(name=POOL, max_running=most, tenant_max_running=most),))
        tenants = [
            Tenant(tenant=name, weight=weight, registrations_per_sec=100_000, max_running=100_000)
            for name, weight in WEIGHTS.items()
        ]
        self.cluster = Cluster(PARTITIONS, settings=[shared, *tenants])
        homes = [self.cluster.partitions_of(tenant)[0] for tenant in WEIGHTS]
        assert len(set(homes)) == len(homes)
        self.simulation = Simulation(self.cluster, processors=processors)
        self.simulation.lease_sec = 900
        self.run_sec = run_sec
        self.held: dict[str, float] = defaultdict(float)
        self.running = 0.0
        self.samples = 0
        self.most = 0
        self.workers: list[Slots] = []
        for tenant in WEIGHTS:
            self._feed(tenant)
        for number in range(offices):
            office = Office(self.simulation, f"s{number}", SHARED, POOL)
            office.asker.max_running = most
            for each in range(number, workers, offices):
                worker = Slots(office, f"w{each}", slots, lambda grant: run_sec[grant.execution.tenant])
                self.workers.append(worker)
                self.simulation.at(1 + 0.01 * each, worker.claim)

    def run(self, settle_sec: float, until: float) -> dict[str, float]:
        """Shares of what is held, from then on."""
        self.simulation.at(settle_sec, self._sample)
        self.simulation.run(until)
        total = sum(self.held.values())
        return {tenant: self.held[tenant] / total for tenant in WEIGHTS}

    @property
    def used(self) -> float:
        """The share of the slots in which something runs."""
        return self.running / self.samples / self.places

    def _sample(self) -> None:
        for worker in self.workers:
            for tenant in WEIGHTS:
                self.held[tenant] += worker.holders[tenant]
        running = sum(self._running(tenant) for tenant in WEIGHTS)
        self.running += running
        self.most = max(self.most, running)
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
    shares = Shares(EQUAL, 40 // slots, slots)
    assert_by_weight(shares.run(2, 6))
    assert shares.used > 0.85
    assert shares.most <= shares.places


def test_also_when_runs_of_one_tenant_are_ten_times_as_long() -> None:
    shares = Shares(TENFOLD, 40)
    assert_by_weight(shares.run(6, 12))
    assert shares.used > 0.85


@pytest.mark.parametrize("offices", [1, 2])
def test_also_across_a_processor_that_is_killed(offices: int) -> None:
    """While it is away others use what its tenants cannot."""
    shares = Shares(EQUAL, 40, offices=offices, processors=2)
    shares.simulation.at(3, shares.simulation.kill, 0, 0.5)
    assert_by_weight(shares.run(2, 8))
    assert shares.simulation.work.most_over == 0


@pytest.mark.parametrize("offices", [2, 4, 8])
@pytest.mark.parametrize("run_sec", [EQUAL, TENFOLD, ENDLESS], ids=["equal", "tenfold", "endless"])
def test_also_through_several_api_processes(offices: int, run_sec: dict[str, float]) -> None:
    """None of them knows what the others have on its way."""
    shares = Shares(run_sec, 40, offices=offices)
    assert_by_weight(shares.run(2, 5))
    assert shares.used > 0.75


@pytest.mark.parametrize("offices", [1, 2, 8])
def test_also_of_a_few_slots_when_runs_of_one_tenant_do_not_end(offices: int) -> None:
    """One slot too many would be held for ten minutes."""
    shares = Shares(ENDLESS, 8, offices=offices)
    assert_by_weight(shares.run(2, 6))


def test_the_pool_s_cap_is_exceeded_by_less_than_one_for_each_api_process() -> None:
    shares = Shares(EQUAL, 40, offices=4, max_running=20)
    shares.run(2, 4)
    assert 20 <= shares.most < 20 + 4


def test_also_of_workers_with_several_slots_when_runs_of_one_tenant_do_not_end() -> None:
    shares = Shares(ENDLESS, 5, 8, offices=2)
    assert_by_weight(shares.run(2, 5))
    assert shares.simulation.work.most_over == 0
