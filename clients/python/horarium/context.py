"""What a handler is given: the execution it runs, its payload, and its line to the server."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, MutableMapping
from datetime import datetime
from typing import Any, Generic, TypeVar

from horarium.exchange import encode
from horarium.models import Claimed

P = TypeVar("P")

PROGRESS_BYTES_MAX = 4 * 1024


class TaskLog(logging.LoggerAdapter[logging.Logger]):
    """A logger whose records name the execution (`execution_id`, `job_id`, `task`, `attempt`)."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


class Context(Generic[P]):
    """One delivery of an execution. `P` is the type of the payload.

    `idempotency_key` is the same for every delivery and attempt: give it to whatever must happen once.
    `fencing_token` grows with every grant: give it to whatever must refuse a worker that was replaced.
    `cancelled` is set when the lease was lost, the execution cancelled or timed out, or the worker is
    ending (`cancel_reason` says which); an async handler is cancelled as well. What a cancelled handler
    returns is dropped.
    """

    def __init__(self, claimed: Claimed, payload: P, beat: Callable[[Any], None]) -> None:
        self.execution_id: str = claimed.execution_id
        self.job_id: str = claimed.job_id
        self.tenant: str = claimed.tenant
        self.task: str = claimed.task
        self.name: str = claimed.name
        self.attempt: int = claimed.attempt
        self.max_attempts: int | None = claimed.max_attempts
        self.delivery_count: int = claimed.delivery_count
        self.lease_epoch: int = claimed.lease_epoch
        self.fencing_token: int = claimed.fencing_token
        self.idempotency_key: str = claimed.idempotency_key
        self.scheduled_at: datetime | None = claimed.scheduled_time
        self.deadline: datetime | None = claimed.deadline
        self.labels: Mapping[str, str] = claimed.labels
        self.traceparent: str | None = claimed.traceparent
        self.payload: P = payload
        self.progress: Any = claimed.progress
        """What an earlier attempt or delivery left with `heartbeat`; None if nothing."""
        self.cancelled = threading.Event()
        self.cancel_reason = ""
        self.log = TaskLog(
            logging.getLogger("horarium.task"),
            {
                "execution_id": self.execution_id,
                "job_id": self.job_id,
                "task": self.task,
                "attempt": self.attempt,
            },
        )
        self._beat = beat

    def heartbeat(self, progress: Any) -> None:
        """Leaves progress (JSON, at most 4 KiB) for the next attempt; callable from any thread.

        Only for progress: leases are extended without it. The newest is sent, about once a second.
        """
        size = len(encode(progress))
        if size > PROGRESS_BYTES_MAX:
            raise ValueError(f"progress has {size} bytes; {PROGRESS_BYTES_MAX} are allowed")
        self._beat(progress)

    def cancel(self, reason: str) -> None:
        """Tells the handler to stop; called by the worker."""
        self.cancel_reason = self.cancel_reason or reason
        self.cancelled.set()
