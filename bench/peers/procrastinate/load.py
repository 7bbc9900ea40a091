"""procrastinate under the same load as Horarium: one-off jobs, due at one instant or at a steady rate.

    python load.py URL JOBS RATE LEAD_SEC     (RATE 0: all at once)

Runs in an environment of its own (requirements.lock). Prints one JSON line, which bench/peers/driver.py
reads.
"""

import asyncio
import json
import sys
import time
from datetime import UTC, datetime

import procrastinate

BATCH = 1_000
CONCURRENCY = 50
CONNECTIONS = 20
WITHIN_MS = 300_000
OPEN = "select exists (select from procrastinate_jobs where status in ('todo', 'doing')) as open"


class Load:
    def __init__(self, url: str, jobs: int, rate: float, lead_sec: float) -> None:
        connector = procrastinate.PsycopgConnector(conninfo=url, min_size=5, max_size=CONNECTIONS)
        self.app = procrastinate.App(connector=connector)
        self.jobs, self.rate = jobs, rate
        self.due_ms = now_ms() + round(lead_sec * 1000)
        self.started_ms = [0] * jobs
        self.runs = 0
        self.task = self.app.task(name="noop")(self.noop)

    def due_of(self, number: int) -> int:
        return self.due_ms + (round(number * 1000 / self.rate) if self.rate else 0)

    async def noop(self, number: int, pad: str) -> None:
        self.started_ms[number] = now_ms()
        self.runs += 1

    async def run(self) -> None:
        async with self.app.open_async():
            await self.app.schema_manager.apply_schema_async()
            register_sec = await self.register()
            if now_ms() > self.due_ms:
                raise SystemExit("the first job was due before all were registered: the machine is too busy")
            worker = asyncio.create_task(
                self.app.run_worker_async(
                    concurrency=CONCURRENCY, fetch_job_polling_interval=0.1, install_signal_handlers=False
                )
            )
            last_ms = await self.wait()
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)
        late_ms = [
            started - self.due_of(number) if started else None
            for number, started in enumerate(self.started_ms)
        ]
        result = {
            "registerSec": register_sec,
            "dueMs": self.due_ms,
            "lastMs": last_ms,
            "runs": self.runs,
            "lateMs": late_ms,
        }
        sys.stdout.write(json.dumps(result) + "\n")

    async def register(self) -> float:
        """A batch has one due time; jobs at a rate are registered one by one, on all connections."""
        began = time.perf_counter()
        if self.rate:
            numbers = iter(range(self.jobs))

            async def some() -> None:
                for number in numbers:
                    at = datetime.fromtimestamp(self.due_of(number) / 1000, UTC)
                    await self.task.configure(schedule_at=at).defer_async(number=number, pad="x" * 190)

            await asyncio.gather(*(some() for _ in range(CONNECTIONS)))
        else:
            at = datetime.fromtimestamp(self.due_ms / 1000, UTC)
            for first in range(0, self.jobs, BATCH):
                rows = [
                    {"number": number, "pad": "x" * 190}
                    for number in range(first, min(self.jobs, first + BATCH))
                ]
                await self.task.configure(schedule_at=at).batch_defer_async(*rows)
        return time.perf_counter() - began

    async def wait(self) -> int:
        """Until the last outcome is stored."""
        deadline_ms = self.due_of(self.jobs - 1) + WITHIN_MS
        while now_ms() < deadline_ms:
            if self.runs >= self.jobs:
                row = await self.app.connector.execute_query_one_async(OPEN)
                if not row["open"]:
                    break
            await asyncio.sleep(0.01)
        return now_ms()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    asyncio.run(Load(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])).run())
