"""A herd over many partitions in virtual time: each execution is granted about once, however long workers
take and however busy the processor is, and nothing is left behind."""

from __future__ import annotations

import pytest

from schemas.entities import Tenant
from tests.unit.api.cluster import Cluster
from tests.unit.api.worksim import Office, Simulation, Worker

TENANT = "acme"
DUE = 10


def herd(
    count: int, k: int, workers: int, slots: int, run_sec: float, txn_sec: tuple[float, float]
) -> Simulation:
    """Workers are there in time; each runs all that a claim brings before it claims again."""
    settings = Tenant(tenant=TENANT, shards=k, max_running=100_000, registrations_per_sec=100_000)
    simulation = Simulation(Cluster(k, settings=[settings]), txn_sec=txn_sec)
    office = Office(simulation, "s", TENANT, "p")
    for number in range(count):
        simulation.register(TENANT, "p", delay_sec=DUE, job_id=f"j{number}")
    simulation.run(DUE - 1)
    for number in range(workers):
        worker = Worker(office, f"w{number}", slots, lambda grant: run_sec, in_one=True)
        simulation.at(simulation.now, worker.claim)
    while len(simulation.work.done) < count and simulation.now < 100:
        simulation.run(simulation.now + 1)
    assert len(simulation.work.done) == count
    assert simulation.work.most_over == 0
    return simulation


BUSY = (0.005, 0.0003)
"""Seconds of a transaction, and of each event in it."""


@pytest.mark.parametrize(
    ("k", "workers", "slots", "run_sec"),
    [
        (1, 4, 500, 0.3),
        (8, 8, 500, 1.0),
        (8, 2, 500, 1.0),
        (8, 40, 10, 0.3),
        (64, 3, 500, 0.5),
    ],
)
def test_each_execution_of_a_herd_is_granted_about_once(
    k: int, workers: int, slots: int, run_sec: float
) -> None:
    simulation = herd(3_000, k, workers, slots, run_sec, BUSY)
    assert simulation.work.grants_each <= 1.1


def test_a_fast_processor_changes_nothing() -> None:
    assert herd(3_000, 8, 8, 500, 0.05, (0.001, 0.00002)).work.grants_each <= 1.1
