"""Registration by HTTP: `python -m bench.registration`.

Jobs that are due much later, first one by one, then in batches of 1,000; each connection sends its next
request when the last one was answered. An answer counts once the partition's decision is in it.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec

from bench import report, site
from bench.herd import server_options
from bench.usage import Usage, per_unit_us
from bench.wire import Connection, Refused
from bench.worker import BATCH, Load
from dev.server import Server
from streams.ambient import wall_ms

POOL = "later"
LATER_MS = 30 * 86_400_000
WARM_UP = 500


def measure(options: argparse.Namespace) -> report.Figures:
    """Both ways, on a fresh server."""
    with site.running(shards=options.shards, processors=options.processors) as server:
        return asyncio.run(_registration(server, options))


async def _registration(server: Server, options: argparse.Namespace) -> report.Figures:
    load = Load(server)
    body = msgspec.json.encode(load.job(POOL, wall_ms() + LATER_MS))
    batch = msgspec.json.encode({"jobs": [load.job(POOL, wall_ms() + LATER_MS)] * BATCH})

    async def single(connection: Connection) -> int:
        (await connection.post("/v1/jobs", body)).expect(201)
        return 1

    async def many(connection: Connection) -> int:
        answer = (await connection.post("/v1/jobs/batch", batch)).expect(200)
        wrong = [each for each in msgspec.json.decode(answer)["results"] if each["status"] != 201]
        if wrong:
            raise Refused(f"{len(wrong)} of a batch not registered, the first: {wrong[0]}")
        return BATCH

    await _closed_loop(load, options.connections, WARM_UP, single)
    usage = site.usage_of(server)
    alone = await _phase(load, usage, options.connections, options.n, single)
    batches = await _phase(load, usage, options.connections, options.batches, many)
    site.check_alive(server)
    return {"single": alone, "batch": batches, "memoryMib": usage.memory_mib(), report.VALID: True}


Ask = Callable[[Connection], Awaitable[int]]


async def _phase(load: Load, usage: Usage, connections: int, requests: int, ask: Ask) -> dict[str, Any]:
    usage.since()
    began = time.perf_counter()
    made, took_ms = await _closed_loop(load, connections, requests, ask)
    took = time.perf_counter() - began
    return {
        "registeredPerSec": round(made / took),
        "requestMs": report.spread(took_ms),
        "cpuUsPerRegistration": per_unit_us(usage.since(), made),
    }


async def _closed_loop(load: Load, connections: int, requests: int, ask: Ask) -> tuple[int, list[float]]:
    """Jobs made, and how long each request took. Raises Refused at the first that is not answered well."""
    waiting: Iterator[int] = iter(range(requests))
    took_ms: list[float] = []
    made = 0

    async def one() -> None:
        nonlocal made
        async with load.connection() as connection:
            for _ in waiting:
                began = time.perf_counter()
                registered = await ask(connection)
                made += registered
                took_ms.append((time.perf_counter() - began) * 1000)

    await asyncio.gather(*(one() for _ in range(connections)))
    return made, took_ms


def main() -> None:
    """The command line."""
    parser = report.arguments(__doc__ or "")
    parser.add_argument("-n", type=int, default=5_000, help="single registrations")
    parser.add_argument("--batches", type=int, default=50, help=f"batches of {BATCH:,}")
    server_options(parser)
    options = parser.parse_args()
    report.run("registration", options, lambda: measure(options))


if __name__ == "__main__":
    main()
