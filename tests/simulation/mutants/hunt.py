"""Runs seeds against mutated product code until the simulation finds the break."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass

from tests.simulation.mutants.of_core import OF_CORE
from tests.simulation.mutants.of_runtime import OF_RUNTIME
from tests.simulation.mutants.of_turns import OF_TURNS
from tests.simulation.runs import run_seed, with_hash_seed

ALL = {mutation.name: mutation for mutation in (*OF_RUNTIME, *OF_CORE, *OF_TURNS)}
SEEDS_MAX = 40


@dataclass(frozen=True, slots=True)
class Catch:
    """`seeds`: how many it took; 0: it got away. `by`: the first violation."""

    name: str
    seeds: int
    by: str
    cpu_sec: float


def hunt_one(name: str, seeds_max: int = SEEDS_MAX) -> Catch:
    """To be called in an interpreter of its own, which it leaves broken."""
    ALL[name].apply()
    cpu_sec = 0.0
    for seed in range(1, seeds_max + 1):
        result = run_seed(seed)
        cpu_sec += result.cpu_sec
        if result.violations:
            return Catch(name, seed, result.violations[0].splitlines()[0], cpu_sec)
    return Catch(name, 0, "", cpu_sec)


def hunt(names: Iterable[str], seeds_max: int = SEEDS_MAX, processes: int | None = None) -> Iterator[Catch]:
    """As they are found."""
    context = multiprocessing.get_context("spawn")
    count = processes or os.cpu_count()
    with (
        with_hash_seed(),
        ProcessPoolExecutor(count, mp_context=context, max_tasks_per_child=1) as pool,
    ):
        for future in as_completed([pool.submit(hunt_one, name, seeds_max) for name in names]):
            yield future.result()
