"""A worker process of the demo, made with the library: `python -m dev.demo.worker URL KEY WORKER_ID`."""

import asyncio
import logging
import sys
from typing import Any

from horarium import App, Context

from dev.demo.mix import POOL, SHORT_FORM

SLOTS = 8
LONG_SEC = 15.0  # long enough to be killed in
PATIENT_SEC = 60.0  # long enough to be cancelled in


def make(url: str, key: str, worker_id: str) -> App:
    """The handlers of the demo's tasks."""
    app = App(url, key, pool=POOL, slots=SLOTS, worker_id=worker_id, drain_sec=5)

    async def quick(ctx: Context[Any]) -> dict[str, Any]:
        await asyncio.sleep(0.1)
        return {"by": worker_id, "token": ctx.fencing_token}

    # The short form names the task by the job's name.
    for task in ("quick", SHORT_FORM):
        app.handler(task)(quick)

    @app.handler("flaky")
    def flaky(ctx: Context[Any]) -> str:
        if ctx.attempt < 3:
            raise RuntimeError(f"attempt {ctx.attempt} fails on purpose")
        return f"attempt {ctx.attempt} succeeds"

    @app.handler("hopeless")
    def hopeless(ctx: Context[Any]) -> None:
        raise RuntimeError("this always fails")

    @app.handler("long")
    async def long(ctx: Context[Any]) -> dict[str, Any]:
        if ctx.delivery_count == 1:
            ctx.heartbeat({"half": "done"})
            await asyncio.sleep(LONG_SEC)
        return {"found": ctx.progress}

    @app.handler("patient")
    def patient(ctx: Context[Any]) -> None:
        ctx.cancelled.wait(PATIENT_SEC)

    return app


if __name__ == "__main__":
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s %(message)s")
    make(*sys.argv[1:4]).run()
