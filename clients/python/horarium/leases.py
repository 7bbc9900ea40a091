"""Keeps leases: extends each at a third of what is left of it, many in one request.

Runs apart from the handlers and goes on until the last outcome is accepted, also while the worker drains.
How long a lease lasts is known from two readings of the *server's* clock (its end, and the `Date` of the
answer), never from this machine's. `Date` is cut to the second: beats count on the shorter reading, giving
a lease up counts on the longer one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from horarium import work_calls
from horarium.client import AsyncClient
from horarium.clock import Clock, wait_event
from horarium.errors import HorariumError
from horarium.exchange import NO_RETRY, utc_seconds
from horarium.models import Claimed, LeaseAnswer
from horarium.work_calls import UNSET, Beat

log = logging.getLogger("horarium.worker")

BATCH_MAX = 1_000  # what the server takes
SHARE = 3  # a beat may fail and be repeated twice within the lease
SOONEST_SEC = 0.1  # a lease about to end at its deadline is not beaten without pause
RETRY_SEC = 1.0  # after a beat that got no answer
TOGETHER = 0.25  # of its interval that a lease is extended early, to share a request
PROGRESS_SEC = 1.0  # the shortest time between two reports of progress
REQUEST_SEC = 10.0
LONGEST_SLEEP_SEC = 3600.0  # it is woken when there is something to do
UNKNOWN_LEASE_SEC = 3.0  # if the answer had no Date: often enough for a short lease

LOST, TIMEOUT = "lease_lost", "timeout"


@dataclass(slots=True, eq=False)
class Held:
    """One lease. `on_lost` is called once, with the reason, when it is not ours any more."""

    claimed: Claimed
    tenant: str | None
    on_lost: Callable[[str], None]
    interval_sec: float = 0.0
    beat_at: float = 0.0
    ends_at: float = 0.0
    last_beat: float = 0.0
    until: datetime | None = None
    progress: Any = UNSET
    beating: bool = False

    def extended(self, until: datetime, server_time: datetime | None, sent_at: float, now: float) -> None:
        """Sets the times from an answer that came now; it was given at some time since `sent_at`."""
        self.until = until
        if server_time is None:
            shortest, longest = UNKNOWN_LEASE_SEC, float("inf")
        else:
            longest = utc_seconds(until) - utc_seconds(server_time)
            shortest = longest - 1
        self.interval_sec = max(SOONEST_SEC, shortest / SHARE)
        self.beat_at = sent_at + self.interval_sec
        self.ends_at = now + longest

    @property
    def why_ended(self) -> str:
        """A lease that ends with its execution's time is a timeout."""
        deadline = self.claimed.deadline
        return TIMEOUT if deadline is not None and self.until is not None and self.until >= deadline else LOST


class LeaseKeeper:
    """All leases of one worker. `run` is its task."""

    def __init__(self, client: AsyncClient, worker_id: str, clock: Clock) -> None:
        self._client = client
        self._worker_id = worker_id
        self._clock = clock
        self._held: set[Held] = set()
        self._wake = asyncio.Event()
        self._beats: set[asyncio.Task[None]] = set()

    def hold(
        self,
        claimed: Claimed,
        server_time: datetime | None,
        on_lost: Callable[[str], None],
        tenant: str | None = None,
    ) -> Held:
        """Begins to extend a lease that was just granted."""
        now = self._clock.monotonic()
        lease = Held(claimed, tenant, on_lost, last_beat=now)
        # A claim is answered when there is work, which may be long after it was sent.
        lease.extended(claimed.lease_until, server_time, now, now)
        self._held.add(lease)
        self._wake.set()
        return lease

    def drop(self, lease: Held) -> None:
        """Ends that: the outcome is known, or somebody else has it."""
        self._held.discard(lease)

    def progress(self, lease: Held, progress: Any) -> None:
        """Progress to send with the next beat, which comes soon."""
        lease.progress = progress
        lease.beat_at = min(lease.beat_at, lease.last_beat + PROGRESS_SEC)
        self._wake.set()

    async def flush(self, lease: Held) -> None:
        """Sends progress that waits, since the next attempt shall see it; tries once."""
        if lease.progress is not UNSET and lease in self._held:
            await self._extend([lease])

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                self._wake.clear()
                now = self._clock.monotonic()
                self._give_up_ended(now)
                for batch in _batches(self._due(now)):
                    self._begin(batch)
                await wait_event(self._clock, self._wake, self._next_sec(now))
        finally:
            for task in self._beats:
                task.cancel()
            await asyncio.gather(*self._beats, return_exceptions=True)

    def _give_up_ended(self, now: float) -> None:
        for lease in [lease for lease in self._held if lease.ends_at <= now]:
            self._lose(lease, lease.why_ended)

    def _lose(self, lease: Held, reason: str) -> None:
        if lease in self._held:
            self._held.discard(lease)
            lease.on_lost(reason)

    def _due(self, now: float) -> list[Held]:
        idle = [lease for lease in self._held if not lease.beating]
        if not any(lease.beat_at <= now for lease in idle):
            return []
        return [lease for lease in idle if lease.beat_at - TOGETHER * lease.interval_sec <= now]

    def _next_sec(self, now: float) -> float:
        moments = [
            lease.ends_at if lease.beating else min(lease.beat_at, lease.ends_at) for lease in self._held
        ]
        return max(0.0, min([*moments, now + LONGEST_SLEEP_SEC]) - now)

    def _begin(self, batch: list[Held]) -> None:
        # Each request is a task of its own: one that hangs must not hold up the others.
        task = asyncio.create_task(self._extend(batch))
        self._beats.add(task)
        task.add_done_callback(self._beats.discard)

    async def _extend(self, batch: list[Held]) -> None:
        now = self._clock.monotonic()
        sent = [(lease, lease.progress) for lease in batch]
        for lease in batch:
            lease.beating, lease.last_beat, lease.progress = True, now, UNSET
        beats = [
            Beat(
                execution_id=lease.claimed.execution_id,
                lease_epoch=lease.claimed.lease_epoch,
                progress=progress,
                tenant=lease.tenant,
            )
            for lease, progress in sent
        ]
        shortest = min(lease.interval_sec for lease in batch)
        call = work_calls.heartbeats(self._worker_id, beats, timeout_sec=min(REQUEST_SEC, max(1.0, shortest)))
        try:
            answers = await self._client.run(call, NO_RETRY)
        except HorariumError as error:
            log.warning("leases could not be extended, trying again: %s", error)
            answers = tuple(LeaseAnswer(status=503) for _ in batch)
        finally:
            for lease in batch:
                lease.beating = False
        answers += tuple(LeaseAnswer(status=503) for _ in batch[len(answers) :])
        for (lease, progress), answer in zip(sent, answers, strict=False):
            self._take(lease, progress, answer, now)
        self._wake.set()

    def _take(self, lease: Held, progress: Any, answer: LeaseAnswer, sent_at: float) -> None:
        now = self._clock.monotonic()
        if answer.accepted and answer.extend_until is not None:
            lease.extended(answer.extend_until, answer.server_time, sent_at, now)
            if lease.progress is not UNSET:
                lease.beat_at = min(lease.beat_at, lease.last_beat + PROGRESS_SEC)
        elif answer.status in (404, 409):
            self._lose(lease, answer.code if answer.status == 409 and answer.code else LOST)
        else:
            lease.beat_at = now + min(RETRY_SEC, lease.interval_sec)
            if lease.progress is UNSET:
                lease.progress = progress


def _batches(leases: list[Held]) -> Iterable[list[Held]]:
    return (leases[start : start + BATCH_MAX] for start in range(0, len(leases), BATCH_MAX))
