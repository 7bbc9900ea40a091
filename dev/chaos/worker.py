"""A worker process of the chaos: `python -m dev.chaos.worker URL KEY POOL WORKER_ID SLOTS EFFECTS`.

Its effect on the outside comes in the middle of its work, so that it can be killed before and after it.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from horarium import App, Context

from dev.chaos.effects import Effects

WAIT_SEC = 5.0
DEFAULT_SEC = 0.2


def make(url: str, key: str, pool: str, worker_id: str, slots: int, effects: Effects) -> App:
    """`work` takes `{"sec": …}`; `flaky` fails at its first attempt."""
    app = App(url, key, pool=pool, slots=slots, worker_id=worker_id, wait_sec=WAIT_SEC, drain_sec=5)

    @app.handler("work")
    async def work(ctx: Context[Any]) -> None:
        half_sec = (ctx.payload or {}).get("sec", DEFAULT_SEC) / 2
        await asyncio.to_thread(effects.begin, ctx.idempotency_key, ctx.fencing_token)
        await asyncio.sleep(half_sec)
        await asyncio.to_thread(effects.perform, ctx.idempotency_key, ctx.fencing_token, worker_id)
        await asyncio.sleep(half_sec)

    @app.handler("flaky")
    async def flaky(ctx: Context[Any]) -> None:
        if ctx.attempt == 1:
            raise RuntimeError("the first attempt fails on purpose")
        await work(ctx)

    return app


if __name__ == "__main__":
    _url, _key, _pool, _worker_id, _slots, _effects = sys.argv[1:]
    make(_url, _key, _pool, _worker_id, int(_slots), Effects(Path(_effects))).run()
