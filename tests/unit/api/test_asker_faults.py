"""Whatever is lost, comes twice or dies: no worker is handed more than it has room for, and all work is done
while somebody of its pool is there. Real askers and engines in virtual time, one seed a run."""

from __future__ import annotations

import pytest

from schemas.entities import Pool, Tenant
from schemas.ids import SHARED
from streams.ambient import Chance
from tests.unit.api.cluster import Cluster
from tests.unit.api.worksim import Office, Simulation, Worker

LEASE_SEC = 3
PARTITIONS = (1, 5, 16)


class Scene:
    """A tenant over `k` partitions and a shared pool; some API processes ask for both."""

    def __init__(self, k: int, seed: int) -> None:
        self.chance = Chance(seed)
        tenants = [
            Tenant(tenant="acme", shards=k, max_running=10_000, registrations_per_sec=10_000),
            Tenant(tenant="other", registrations_per_sec=10_000),
            Tenant(tenant=SHARED, pools=(Pool(name="shared/x", max_running=20, tenant_max_running=20),)),
        ]
        self.simulation = Simulation(Cluster(k, settings=tenants), processors=min(k, 3), seed=seed)
        self.simulation.lease_sec = LEASE_SEC
        self.pools = [("acme", "own", "acme"), ("acme", "shared/x", SHARED), ("other", "shared/x", SHARED)]
        self.workers: list[Worker] = []
        for number in range(3):
            for owner, pool in (("acme", "own"), (SHARED, "shared/x")):
                office = Office(self.simulation, f"s{number}-{pool}", owner, pool)
                office.asker.max_running = 20 if owner == SHARED else 0
                for each in range(self._pick(1, 3)):
                    self._worker(office, f"{pool}-{number}-{each}")
        self.expected = 0

    def _pick(self, low: int, high: int) -> int:
        return low + int(self.chance.random() * (high - low + 1))

    def _worker(self, office: Office, name: str) -> None:
        slots, run_sec = self._pick(1, 6), self.chance.uniform(0.01, 0.2)
        worker = Worker(office, name, slots, lambda grant: run_sec, claim_ids=self.chance.random() < 0.5)
        self.workers.append(worker)
        self.simulation.at(0.1 * self.chance.random(), worker.claim)

    def work(self, count: int, until: float) -> None:
        """Jobs of all pools, at any time up to then."""
        for _ in range(count):
            tenant, pool, _ = self.pools[self._pick(0, len(self.pools) - 1)]
            self.simulation.at(until * self.chance.random(), self.simulation.register, tenant, pool)
        self.expected += count

    def done(self, until: float) -> float:
        """When all was done; not later than that."""
        while len(self.simulation.work.done) < self.expected and self.simulation.now < until:
            self.simulation.run(self.simulation.now + 0.5)
        assert len(self.simulation.work.done) == self.expected
        assert self.simulation.work.most_over <= 0
        return self.simulation.now


@pytest.mark.parametrize(
    ("k", "seed"),
    [
        *((1, 1), (2, 1), (5, 1), (5, 2), (16, 1)),
        *(pytest.param(64, seed, marks=pytest.mark.slow) for seed in (1, 2)),
    ],
)
def test_without_faults_nothing_waits_while_a_worker_is_idle(k: int, seed: int) -> None:
    scene = Scene(k, seed)
    scene.work(200, 4)
    assert scene.done(10) <= 6
    assert max(scene.simulation.work.waits) < 1
    assert scene.simulation.work.grants_each <= 1.1


@pytest.mark.parametrize("k", PARTITIONS)
@pytest.mark.parametrize("seed", range(2))
def test_replies_are_lost_and_come_twice(k: int, seed: int) -> None:
    """What was granted in a lost reply costs its lease, nothing else is held up."""
    scene = Scene(k, seed)
    scene.simulation.lost, scene.simulation.twice = 0.05, 0.1
    scene.work(150, 4)
    scene.simulation.run(6)
    scene.simulation.lost = 0
    scene.done(30)


@pytest.mark.parametrize("k", PARTITIONS)
@pytest.mark.parametrize("seed", range(2))
def test_processors_die_and_an_api_process_vanishes(k: int, seed: int) -> None:
    """New owners know nothing that is soft; who vanished costs its lease time alone."""
    scene = Scene(k, seed)
    scene.work(150, 6)
    simulation = scene.simulation
    simulation.at(2, simulation.kill, 0, 1.0)
    simulation.at(4, simulation.kill, min(k, 3) - 1, 0.5)
    for session in ("s0-own", "s0-shared/x"):
        simulation.at(3, simulation.offices[session].vanish)
    simulation.run(10)
    kept = {key for worker in scene.workers if worker.office.gone for key in worker.held}
    assert len(simulation.work.done) >= scene.expected - len(kept) - 25
    scene.done(30)
