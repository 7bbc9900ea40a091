"""Runs seeds, in this process or in several, and says what came of each."""

from __future__ import annotations

import gc
import hashlib
import logging
import multiprocessing
import os
import time
import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.simulation.checking.verdict import violations
from tests.simulation.hazards import Counts
from tests.simulation.world import Ledger, World

HASH_SEED = "0"
"""The order of sets of strings is part of a run: interpreters that run seeds have this PYTHONHASHSEED."""
RERUN = "make sim SEED={}"


@dataclass(slots=True)
class Result:
    """What one seed came to. `print`: of its whole log, to tell whether a run repeats exactly."""

    seed: int
    violations: list[str] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    events: int = 0
    happenings: int = 0
    compared: int = 0
    virtual_sec: float = 0.0
    cpu_sec: float = 0.0
    print: str = ""


def run_seed(seed: int, ledger: Ledger | None = None) -> Result:
    """One run and its verdict."""
    logging.getLogger("horarium").setLevel(logging.CRITICAL + 1)
    before = time.process_time()
    # Looking for cycles again and again costs a tenth of a run. They go when it is over, in one look that
    # leaves aside what was there before.
    gc.disable()
    gc.freeze()
    try:
        result = _run(seed, ledger)
        gc.collect()
    finally:
        gc.unfreeze()
        gc.enable()
    result.cpu_sec = time.process_time() - before
    return result


def _run(seed: int, ledger: Ledger | None) -> Result:
    world, result = World(seed, ledger), Result(seed)
    try:
        world.run()
        result.violations = [*world.violations, *violations(world)]
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        result.violations = [*world.violations, f"raised: {error!r}\n{traceback.format_exc()}"]
    result.counts = world.counts
    for each in world.history:
        result.counts[f"event {type(each.event).__name__ if each.event else 'tombstone'}"] += 1
    result.events = len(world.history)
    result.happenings = world.agenda.happened
    result.compared = world.replicas.compared
    result.virtual_sec = (world.agenda.now_ms - world.started_ms) / 1000
    result.print = _print(world)
    return result


def _print(world: World) -> str:
    digest = hashlib.sha256()
    for each in world.history:
        digest.update(f"{each.partition} {each.offset} {each.stamped_ms} {each.key}".encode())
        digest.update(each.value or b"")
    return digest.hexdigest()


def run_seeds(seeds: Iterable[int], processes: int | None = None) -> Iterator[Result]:
    """Results in the order of the seeds, from interpreters of their own."""
    context = multiprocessing.get_context("spawn")
    with with_hash_seed(), ProcessPoolExecutor(processes or os.cpu_count(), mp_context=context) as pool:
        yield from pool.map(run_seed, seeds)


@contextmanager
def with_hash_seed() -> Iterator[None]:
    """For the interpreters that are started meanwhile."""
    before = os.environ.get("PYTHONHASHSEED")
    os.environ["PYTHONHASHSEED"] = HASH_SEED
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONHASHSEED"]
        else:
            os.environ["PYTHONHASHSEED"] = before
