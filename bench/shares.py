"""What three tenants of weights 1 : 2 : 5 hold of a shared pool: `python -m bench.shares`.

Real processes, workers over HTTP, endless backlogs in three partitions. `--runs 600,0.01,0.5`: seconds that
a run of each tenant takes. `--kill`: one of two processors is killed half-way and starts again. `--apis`: the
workers ask so many API processes. Slots by tenant on average, of 8: `held`, from a grant until the slot is
granted anew (semantics §6), and `running`, without the time between two runs; `ofAllSlots`: the latter of all
there are; `overTime` as `held`, by second.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import msgspec

from bench import report, site
from bench.wire import Connection
from dev.server import Server

POOL = "shared/gpu"
PATH = "/v1/pools/shared%2Fgpu"
WEIGHTS = {"red": 1, "green": 2, "blue": 5}
KEYS = "".join(f"{tenant}={tenant}-key," for tenant in WEIGHTS) + (
    f"ops=operator-key:operator,ops=worker-key:worker:{POOL}"
)
BATCH = 500
BACKLOG_MAX = 2_000
SETTLE_SEC = 5.0
SAMPLE_SEC = 0.02
DOWN_SEC = 2.0


def measure(options: argparse.Namespace) -> report.Figures:
    """One run on a fresh server."""
    settings = {"HORARIUM_DEV_KEYS": KEYS}
    processors = 2 if options.kill else 1
    with ExitStack() as open_:
        server = open_.enter_context(site.running(shards=1, processors=processors, settings=settings))
        others = (site.another_api(server, f"api{number}") for number in range(1, options.apis))
        urls = [server.url, *map(open_.enter_context, others)]
        return asyncio.run(_Shares(server, urls, options).run())


class _Shares:
    def __init__(self, server: Server, urls: Sequence[str], options: argparse.Namespace) -> None:
        self._server, self._urls, self._options = server, urls, options
        self._run_sec = dict(zip(WEIGHTS, map(float, options.runs.split(",")), strict=True))
        self._held: Counter[str] = Counter()
        self._running: Counter[str] = Counter()
        self._open: Counter[str] = Counter()
        self._ended: Counter[str] = Counter()
        self._full = {tenant: asyncio.Event() for tenant in WEIGHTS}

    async def run(self) -> report.Figures:
        """Backlogs, workers, samples."""
        await self._configure()
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(self._feed(tenant)) for tenant in WEIGHTS]
        # Who is alone may take everything, and keeps it for as long as its runs take.
        await asyncio.gather(*(self._full[tenant].wait() for tenant in WEIGHTS))
        tasks += [asyncio.create_task(self._work(number)) for number in range(self._options.workers)]
        sampling = asyncio.create_task(self._sample())
        try:
            await asyncio.wait([sampling, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
            over_time, running, killed = await sampling
        finally:
            for task in (sampling, *tasks):
                task.cancel()
            await asyncio.gather(sampling, *tasks, return_exceptions=True)
        total = sum((Counter(second) for second in over_time), Counter())
        slots = self._options.workers * self._options.slots
        samples = len(over_time) * round(1 / SAMPLE_SEC)
        return {
            "held": {tenant: _eighths(total, tenant) for tenant in WEIGHTS},
            "running": {tenant: _eighths(running, tenant) for tenant in WEIGHTS},
            "ofAllSlots": {tenant: round(running[tenant] / samples / slots, 3) for tenant in WEIGHTS},
            "slotsUsed": round(running.total() / samples / slots, 3),
            "ended": dict(self._ended),
            "overTime": {
                f"{number:02d}": {tenant: _eighths(Counter(second), tenant) for tenant in WEIGHTS}
                for number, second in enumerate(over_time)
            },
            report.VALID: killed == self._options.kill and bool(self._ended),
        }

    async def _configure(self) -> None:
        slots = self._options.workers * self._options.slots
        limits = {"registrationsPerSec": 100_000, "maxRunning": 100_000}
        async with Connection(self._server.url, "operator-key") as operator:
            for tenant, weight in WEIGHTS.items():
                body = msgspec.json.encode({"weight": weight, **limits})
                (await operator.post(f"/v1/tenants/{tenant}", body, method="PUT")).expect(200)
            body = msgspec.json.encode({"maxRunning": slots, "tenantMaxRunning": slots})
            (await operator.post(PATH, body, method="PUT")).expect(200)

    async def _feed(self, tenant: str) -> None:
        """More work than slots, always."""
        job = {"schedule": {"delaySec": 0}, "target": {"pool": POOL, "task": "run"}, "name": tenant}
        body = msgspec.json.encode({"jobs": [job] * BATCH})
        async with Connection(self._server.url, f"{tenant}-key") as connection:
            while True:
                if self._open[tenant] < self._wanted(tenant):
                    answer = await connection.post("/v1/jobs/batch", body)
                    self._open[tenant] += answer.expect(200).count(b'"jobId"')
                else:
                    self._full[tenant].set()
                    await asyncio.sleep(0.05)

    def _wanted(self, tenant: str) -> int:
        slots: int = self._options.workers * self._options.slots
        return min(BACKLOG_MAX, slots * (2 + round(2 / self._run_sec[tenant])))

    async def _work(self, number: int) -> None:
        name, url = f"w{number}", self._urls[number % len(self._urls)]
        runs: set[asyncio.Task[None]] = set()
        holders = deque([""] * self._options.slots)  # of the free slots
        async with Connection(url, "worker-key") as connection:
            while True:
                free = self._options.slots - len(runs)
                if not free:
                    await asyncio.wait(runs, return_when=asyncio.FIRST_COMPLETED)
                    continue
                claim = {"workerId": name, "max": free, "waitSec": 5, "leaseSec": 900}
                answer = await connection.post(f"{PATH}/claim", msgspec.json.encode(claim))
                for grant in msgspec.json.decode(answer.expect(200))["executions"]:
                    self._held[holders.popleft()] -= 1
                    self._held[grant["tenant"]] += 1
                    task = asyncio.create_task(self._run(name, url, grant, holders))
                    runs.add(task)
                    task.add_done_callback(runs.discard)

    async def _run(self, name: str, url: str, grant: dict[str, Any], holders: deque[str]) -> None:
        tenant = grant["tenant"]
        self._running[tenant] += 1
        try:
            await asyncio.sleep(self._run_sec[tenant])
            done = {"workerId": name, "tenant": tenant, "leaseEpoch": grant["leaseEpoch"]}
            async with Connection(url, "worker-key") as connection:
                path = f"/v1/executions/{grant['executionId']}/complete"
                while (await connection.post(path, msgspec.json.encode(done))).status == 503:
                    continue  # nobody knows whether it counted; the same word again is harmless
            self._ended[tenant] += 1
            self._open[tenant] -= 1
        finally:
            self._running[tenant] -= 1
            holders.append(tenant)

    async def _sample(self) -> tuple[list[Counter[str]], Counter[str], bool]:
        """What is held, by second; what runs; whether a processor was killed on the way."""
        await asyncio.sleep(SETTLE_SEC)
        over_time: list[Counter[str]] = []
        running: Counter[str] = Counter()
        killed = False
        for second in range(self._options.seconds):
            if self._options.kill and second == self._options.seconds // 2:
                await asyncio.to_thread(self._server.kill, "p0")
                killed = True
                asyncio.get_running_loop().call_later(
                    DOWN_SEC, asyncio.get_running_loop().run_in_executor, None, self._server.restart, "p0"
                )
            held: Counter[str] = Counter()
            for _ in range(round(1 / SAMPLE_SEC)):
                await asyncio.sleep(SAMPLE_SEC)
                held.update({tenant: self._held[tenant] for tenant in WEIGHTS})
                running.update(self._running)
            over_time.append(Counter({tenant: round(count * SAMPLE_SEC) for tenant, count in held.items()}))
        return over_time, running, killed


def _eighths(held: Counter[str], tenant: str) -> float:
    return round(8 * held[tenant] / max(1, held.total()), 3)


def main() -> None:
    """The command line."""
    parser = report.arguments(__doc__ or "")
    parser.add_argument("--runs", default="0.5,0.5,0.5", help="seconds that a run of red, green, blue takes")
    parser.add_argument("--workers", type=int, default=10, help="workers")
    parser.add_argument("--slots", type=int, default=8, help="slots of each")
    parser.add_argument("--seconds", type=int, default=20, help="measured, after some to settle")
    parser.add_argument("--kill", action="store_true", help="kill one of two processors half-way")
    parser.add_argument("--apis", type=int, default=1, help="API processes that the workers ask")
    options = parser.parse_args()
    report.run("shares", options, lambda: measure(options))


if __name__ == "__main__":
    main()
