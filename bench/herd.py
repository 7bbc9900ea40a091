"""Very many jobs due at the same instant: `python -m bench.herd`.

Its own server on loopback. Registers one-off jobs in batches through the API, all with the same `runAt` some
seconds after the registration ends; no-op workers claim and report through the HTTP protocol. Throughput
counts from the due instant to the last acknowledged outcome. CPU by process is counted for the registration,
for the herd itself, and until the read model has all of it.
"""

from __future__ import annotations

import argparse
import asyncio
import time

from bench import report, site
from bench.usage import Usage, per_unit_us
from bench.wire import Refused
from bench.worker import Load
from dev.server import Server
from streams.ambient import wall_ms

POOL = "herd"
WARM_UP = 2_000
WARM_UP_LEAD_MS = 3_000
CALM_SEC = 3.0
"""At least so long between the end of the registration and the herd."""
READ_MODEL_SEC = 300.0
LEASE_SEC = 300
"""Longer than a run: what is measured is not to be mixed with redelivery."""


def measure(options: argparse.Namespace) -> report.Figures:
    """One herd on a fresh server."""
    with site.running(shards=options.shards, processors=options.processors) as server:
        return asyncio.run(_herd(server, options))


async def _herd(server: Server, options: argparse.Namespace) -> report.Figures:
    load = Load(server, lease_sec=LEASE_SEC)
    rate = await warm_up(load, options)
    usage = site.usage_of(server)
    lead_ms = round(1_500 * options.n / rate + 2_000 * CALM_SEC)
    due_ms = wall_ms() + lead_ms
    began = time.perf_counter()
    made = await load.register(POOL, [due_ms] * options.n, options.connections)
    took = time.perf_counter() - began
    registering = usage.since()
    if due_ms - wall_ms() < 1_000 * CALM_SEC:
        raise Refused("the herd was due before all of it was registered: the machine is too busy")
    within_sec = lead_ms / 1000 + report.within_sec(options.n)
    seen, waiting = await asyncio.gather(
        load.work(POOL, len(made), options.workers, options.credit, within_sec),
        _at(due_ms, usage),
    )
    running = usage.since()
    site.check_alive(server)
    behind_sec = await read_model_catches_up(load, POOL)
    return {
        "registeredPerSec": round(len(made) / took),
        "executionsPerSec": round(1000 * len(seen.accepted) / max(1, seen.last_ms - due_ms)),
        **seen.lateness(),
        "cpuUsPerRegistration": per_unit_us(registering, len(made)),
        "cpuUsPerExecution": per_unit_us(running, len(made)),
        "cpuUsOfReadModelAfterwards": per_unit_us(usage.since(), len(made)).get("projections"),
        "cpuShareWhileWaiting": waiting,
        "readModelBehindSec": behind_sec,
        "memoryMib": usage.memory_mib(),
        **seen.verdict(len(made)),
    }


async def _at(due_ms: int, usage: Usage) -> dict[str, float]:
    """Between registration and herd: what an idle server costs, as share of a core. Starts the count anew."""
    idle_sec = (due_ms - wall_ms()) / 1000
    await asyncio.sleep(idle_sec)
    return {name: round(seconds / idle_sec, 3) for name, seconds in usage.since().items()}


async def warm_up(load: Load, options: argparse.Namespace) -> float:
    """A small herd, so that the first jobs do not pay for start-up; how many are registered a second."""
    began = time.perf_counter()
    made = await load.register("warm-up", [wall_ms() + WARM_UP_LEAD_MS] * WARM_UP, options.connections)
    rate = len(made) / (time.perf_counter() - began)
    seen = await load.work("warm-up", len(made), options.workers, options.credit, report.within_sec(WARM_UP))
    if len(seen.accepted) < len(made):
        raise Refused(f"only {len(seen.accepted)} of {len(made)} executions of the warm-up ran")
    return rate


async def read_model_catches_up(load: Load, pool: str) -> float | None:
    """Seconds until the read model says that nothing of the pool is open; None if it never does."""
    began = time.perf_counter()
    path = f"/v1/executions?pool={pool}&pageSize=1&status=PENDING&status=RUNNING&status=SCHEDULED"
    async with load.connection() as connection:
        while time.perf_counter() - began < READ_MODEL_SEC:
            answer = await connection.get(path)
            if answer.status == 200 and b'"executions":[]' in answer.body.replace(b" ", b""):
                return round(time.perf_counter() - began, 2)
            answer.expect(200, 503)
            await asyncio.sleep(0.1)
    return None


def main() -> None:
    """The command line."""
    parser = report.arguments(__doc__ or "")
    parser.add_argument("-n", type=int, default=50_000, help="jobs due at once")
    server_options(parser)
    parser.add_argument("--credit", type=int, default=1_000, help="executions a worker takes at once")
    options = parser.parse_args()
    report.run("herd", options, lambda: measure(options))


def server_options(parser: argparse.ArgumentParser) -> None:
    """What every scenario with a server has."""
    parser.add_argument("--shards", type=int, default=1, help="partitions of the tenant, of 8")
    parser.add_argument("--processors", type=int, default=1, help="processor processes")
    parser.add_argument("--workers", type=int, default=8, help="no-op workers, one connection each")
    parser.add_argument("--connections", type=int, default=4, help="connections that register")


if __name__ == "__main__":
    main()
