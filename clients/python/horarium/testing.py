"""For unit tests of handlers: a context without a server.

::

    async def test_report():
        ctx = TestContext(payload={"month": "2026-07"}, attempt=2)
        assert await ctx.run(app.find("nightly-report")) == Completed({"rows": 3})
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from horarium import handlers
from horarium.context import Context
from horarium.handlers import Handler, Payload, PayloadError
from horarium.models import Claimed
from horarium.results import Ended

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class TestContext(Context[Any]):
    """A context with every value settable; `beats` collects the progress a handler leaves.

    A handler may also be called directly with it; `run` treats what it returns or raises as a worker would.
    """

    __test__ = False  # pytest collects classes of such a name

    def __init__(
        self,
        payload: Any = None,
        *,
        task: str = "task",
        tenant: str = "tenant",
        execution_id: str = "job.1.1.s",
        job_id: str = "job",
        attempt: int = 1,
        max_attempts: int = 4,
        delivery_count: int = 1,
        lease_epoch: int = 1,
        fencing_token: int = 1,
        idempotency_key: str | None = None,
        scheduled_at: datetime = EPOCH,
        deadline: datetime | None = None,
        progress: Any = None,
        labels: dict[str, str] | None = None,
    ) -> None:
        claimed = Claimed(
            execution_id=execution_id,
            job_id=job_id,
            task=task,
            tenant=tenant,
            name=task,
            lease_epoch=lease_epoch,
            lease_until=scheduled_at + timedelta(minutes=1),
            fencing_token=fencing_token,
            scheduled_time=scheduled_at,
            attempt=attempt,
            max_attempts=max_attempts,
            delivery_count=delivery_count,
            deadline=deadline or scheduled_at + timedelta(hours=6),
            idempotency_key=idempotency_key or execution_id,
            payload=payload,
            progress=progress,
            labels=labels or {},
        )
        self.beats: list[Any] = []
        super().__init__(claimed, payload, self.beats.append)

    async def run(self, handler: Handler | Callable[..., Any], payload: Payload | None = None) -> Ended:
        """Runs a handler (of `app.find`, or a function with its payload model) on this context."""
        found = handler if isinstance(handler, Handler) else handlers.make(self.task, handler, payload)
        try:
            self.payload = handlers.decode(found.payload, self.payload)
        except PayloadError as error:
            return handlers.refusal(error)
        return await handlers.call(found, self)
