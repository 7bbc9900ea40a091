"""Very many small workers on one API process: `python -m bench.claims`.

Each has a connection of its own and a long poll for one execution. What they cost while nothing happens, as
share of a core and as memory, and how late executions are in their hands when jobs become due one after the
other.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from bench import report, site
from bench.herd import LEASE_SEC, server_options, warm_up
from bench.usage import per_unit_us
from bench.wire import Refused
from bench.worker import Load, Seen
from dev.server import Server
from streams.ambient import wall_ms

POOL = "claims"
LEAD_MS = 5_000
POLL_SEC = 20
WITHIN_SEC = 60.0


def measure(options: argparse.Namespace) -> report.Figures:
    """One crowd on a fresh server."""
    with site.running(shards=options.shards, processors=options.processors) as server:
        return asyncio.run(_crowd(server, options))


async def _crowd(server: Server, options: argparse.Namespace) -> report.Figures:
    load = Load(server, lease_sec=LEASE_SEC, wait_sec=POLL_SEC)
    rate = await warm_up(load, argparse.Namespace(**vars(options) | {"workers": 8, "credit": 1_000}))
    usage = site.usage_of(server)
    empty = usage.memory_mib()
    count = round(options.rate * options.seconds)
    workers = asyncio.create_task(load.work(POOL, count, options.workers, 1, 600.0))
    await _all_wait(load, options.workers)
    usage.since()
    await asyncio.sleep(options.idle)
    idle = usage.since()
    first_ms = wall_ms() + LEAD_MS + round(3_000 * count / rate)
    due_ms = [first_ms + round(number * 1000 / options.rate) for number in range(count)]
    made = await load.register(POOL, due_ms, options.connections)
    if wall_ms() >= first_ms:
        raise Refused("the first job was due before all were registered: the machine is too busy")
    await asyncio.sleep((first_ms - wall_ms()) / 1000)
    usage.since()
    seen: Seen = await asyncio.wait_for(workers, options.seconds + WITHIN_SEC)
    used = usage.since()
    site.check_alive(server)
    return {
        "cpuShareWhileWaiting": {name: round(sec / options.idle, 3) for name, sec in idle.items()},
        "memoryMibBefore": empty,
        "memoryMib": usage.memory_mib(),
        "cpuUsPerExecution": per_unit_us(used, len(made)),
        **seen.lateness(),
        **seen.verdict(len(made)),
    }


async def _all_wait(load: Load, workers: int) -> None:
    """Until the API says that the claims wait, but for those that are just renewed."""
    async with load.connection() as connection:
        for _ in range(600):
            answer = await connection.get("/metrics")
            if _claims_waiting(answer.expect(200)) >= 0.98 * workers:
                return
            await asyncio.sleep(0.1)
    raise Refused(f"not all of {workers} claims got there in a minute")


def _claims_waiting(metrics: bytes) -> float:
    lines: list[Any] = [line.split() for line in metrics.splitlines() if b"claims_waiting" in line]
    return max((float(line[-1]) for line in lines if not line[0].startswith(b"#")), default=0.0)


def main() -> None:
    """The command line."""
    parser = report.arguments(__doc__ or "")
    server_options(parser)
    parser.set_defaults(workers=2_000)
    parser.add_argument("--rate", type=float, default=100, help="jobs due a second")
    parser.add_argument("--seconds", type=float, default=10, help="for so long")
    parser.add_argument("--idle", type=float, default=10, help="seconds of waiting that are measured before")
    options = parser.parse_args()
    report.run("claims", options, lambda: measure(options))


if __name__ == "__main__":
    main()
