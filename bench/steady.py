"""Jobs due one after the other at a steady rate: `python -m bench.steady`.

The jobs are registered ahead in batches; while they become due, workers run them, single registrations
(`--posts` a second, due much later) and status reads (`--reads` a second) go on. Their latency counts from
the instant at which they should have been sent, so a server that stalls is not spared.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from bench import report, site
from bench.herd import LEASE_SEC, read_model_catches_up, server_options, warm_up
from bench.usage import per_unit_us
from bench.wire import Answer, Connection, Refused
from bench.worker import Load
from dev.server import Server
from streams.ambient import wall_ms

POOL = "steady"
LATER_MS = 86_400_000
CALM_MS = 3_000


def measure(options: argparse.Namespace) -> report.Figures:
    """One steady run on a fresh server."""
    with site.running(shards=options.shards, processors=options.processors) as server:
        return asyncio.run(_steady(server, options))


async def _steady(server: Server, options: argparse.Namespace) -> report.Figures:
    load = Load(server, lease_sec=LEASE_SEC)
    rate = await warm_up(load, options)
    count = round(options.rate * options.seconds)
    first_ms = wall_ms() + round(1_500 * count / rate) + 2 * CALM_MS
    due_ms = [first_ms + round(number * 1000 / options.rate) for number in range(count)]
    made = await load.register(POOL, due_ms, options.connections)
    if first_ms - wall_ms() < CALM_MS:
        raise Refused("the first job was due before all were registered: the machine is too busy")
    usage = site.usage_of(server)

    async def side_load() -> tuple[dict[str, Any], dict[str, Any]]:
        await asyncio.sleep((first_ms - wall_ms()) / 1000)
        usage.since()
        return await asyncio.gather(
            _open_loop(load, options.posts, options.seconds, _poster(load), 201),
            _open_loop(load, options.reads, options.seconds, _reader(made), 200),
        )

    within_sec = (first_ms - wall_ms()) / 1000 + options.seconds + report.within_sec(count)
    seen, (posts, reads) = await asyncio.gather(
        load.work(POOL, len(made), options.workers, options.credit, within_sec), side_load()
    )
    used = usage.since()
    site.check_alive(server)
    return {
        "executions": len(seen.accepted),
        **seen.lateness(),
        "postMs": posts,
        "readMs": reads,
        "cpuUsPerExecution": per_unit_us(used, len(made)),
        "readModelBehindSec": await read_model_catches_up(load, POOL),
        "memoryMib": usage.memory_mib(),
        **seen.verdict(len(made)),
    }


Ask = Callable[[Connection, int], Awaitable[Answer]]


def _poster(load: Load) -> Ask:
    async def post(connection: Connection, number: int) -> Answer:
        body = msgspec.json.encode(load.job("later", wall_ms() + LATER_MS))
        return await connection.post("/v1/jobs", body, f"Idempotency-Key: later-{number}\r\n")

    return post


def _reader(jobs: list[str]) -> Ask:
    async def read(connection: Connection, number: int) -> Answer:
        return await connection.get(f"/v1/jobs/{jobs[number * 7919 % len(jobs)]}")

    return read


async def _open_loop(load: Load, rate: float, seconds: float, ask: Ask, wanted: int) -> dict[str, Any]:
    """Asks at a fixed rate, however long answers take; milliseconds from when each was due to be asked."""
    idle: deque[Connection] = deque()
    took_ms: list[float] = []
    failed = 0

    async def one(number: int, at: float) -> None:
        nonlocal failed
        connection = idle.popleft() if idle else load.connection()
        try:
            answer = await ask(connection, number)
        except (OSError, EOFError):
            failed += 1
            await connection.close()
            return
        failed += answer.status != wanted
        took_ms.append((time.perf_counter() - at) * 1000)
        idle.append(connection)

    began = time.perf_counter()
    asked = []
    for number in range(round(rate * seconds)):
        at = began + number / rate
        await asyncio.sleep(max(0.0, at - time.perf_counter()))
        asked.append(asyncio.create_task(one(number, at)))
    await asyncio.gather(*asked)
    for connection in idle:
        await connection.close()
    return {**report.spread(took_ms), "failed": failed}


def main() -> None:
    """The command line."""
    parser = report.arguments(__doc__ or "")
    parser.add_argument("--rate", type=float, default=250, help="jobs due a second")
    parser.add_argument("--seconds", type=float, default=20, help="for so long")
    server_options(parser)
    parser.add_argument("--credit", type=int, default=100, help="executions a worker takes at once")
    parser.add_argument("--posts", type=float, default=20, help="single registrations a second meanwhile")
    parser.add_argument("--reads", type=float, default=20, help="status reads a second meanwhile")
    options = parser.parse_args()
    report.run("steady", options, lambda: measure(options))


if __name__ == "__main__":
    main()
