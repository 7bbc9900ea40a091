"""Owns the claims of this process on the event loop: one `Asker` for each pool of a tenant, its timer, its
sends.

Everything that decides is in `api.work.asker`; here is what it asks for: answers become futures, requests and
releases become commands on the log, replies and the clock come in.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Iterable, Sequence
from functools import partial

from api.log_client import TENANT_MARK, LogClient, WorkReply
from api.metrics import Metrics
from api.problems import Problem
from api.work.asker import Actions, Asker, Request
from api.work.credit import PARK_SEC
from api.work.waiting import Claim
from schemas.commands import Handback, Release, RequestWork
from schemas.replies import Grant, Granted, WorkHinted
from streams.ambient import new_id
from streams.core.limits import ENTITIES_PER_COMMAND_MAX

log = logging.getLogger(__name__)

DRAIN_SEC = 1.0
"""At the end: how long grants that were on their way are awaited, to be handed back."""


class Desk:
    """One pool. `owner`: its tenant, or `shared`; then each grant says whose execution it is."""

    def __init__(self, client: LogClient, metrics: Metrics, owner: str, pool: str) -> None:
        self.partitions = client.asked_partitions(owner)
        self._client = client
        self._metrics = metrics
        self._owner = owner
        self._pool = pool
        self._session = f"{client.session}{TENANT_MARK}{owner}"
        self._asker = Asker(self.partitions, time.monotonic())
        self._futures: dict[int, asyncio.Future[list[Grant]]] = {}
        self._loop = asyncio.get_running_loop()
        self._due: asyncio.TimerHandle | None = None
        self._acts_soon = False
        self._closing = False
        self.drained = asyncio.Event()
        """Set when, after `close`, no partition can grant anything any more."""

    @property
    def is_idle(self) -> bool:
        return self._asker.is_idle(time.monotonic())

    def claim(self, claim: Claim) -> asyncio.Future[list[Grant]]:
        """The executions for a worker, once there are some or its time is over."""
        future: asyncio.Future[list[Grant]] = self._loop.create_future()
        self._futures[claim.token] = future
        self._asker.claim(claim, time.monotonic())
        self._act_soon()
        return future

    def abandon(self, token: int) -> None:
        """Nobody waits for the claim any more: what it got, or gets, is released."""
        future = self._futures.pop(token, None)
        if future is not None and future.done() and not future.cancelled():
            self.give_back(future.result())
        self._asker.cancel(token, time.monotonic())
        self._act_soon()

    def give_back(self, grants: Iterable[Grant]) -> None:
        """Hands executions back that cannot be handed out; a release spends no delivery."""
        for grant in grants:
            execution = grant.execution
            partition = self._client.partition_of(execution.tenant, execution.job_id)
            self._release(partition, execution.tenant, [grant])

    def take(self, reply: WorkReply) -> None:
        """A partition says something."""
        now = time.monotonic()
        if isinstance(reply, Granted):
            self._asker.granted(reply, now)
        elif isinstance(reply, WorkHinted):
            self._asker.hinted(reply, now)
        else:
            self._asker.seen(reply, now)
        self._act_soon()

    def close(self) -> None:
        """Everybody is answered, and no credit stays out."""
        self._closing = True
        self._asker.close(time.monotonic())
        self._act()

    def _act_soon(self) -> None:
        # After everything that came in the same round of the loop: one request for all of it.
        if not self._acts_soon:
            self._acts_soon = True
            self._loop.call_soon(self._act)

    def _act(self) -> None:
        self._acts_soon = False
        now = time.monotonic()
        self._asker.max_running = self._client.max_running(self._owner, self._pool)
        self._do(self._asker.act(now))
        due_at = self._asker.due_at(now)
        if self._due is not None:
            self._due.cancel()
        self._due = None if due_at is None else self._loop.call_later(due_at - now, self._act)
        if self._closing and self._asker.is_idle(now):
            self.drained.set()

    def _do(self, actions: Actions) -> None:
        for token, grants in actions.answers:
            future = self._futures.pop(token, None)
            if future is not None and not future.done():
                self._metrics.grants.labels("handed_out").inc(len(grants))
                future.set_result(grants)
            else:
                self.give_back(grants)
        released: dict[tuple[int, str], list[Grant]] = {}
        for partition, grant in actions.releases:
            released.setdefault((partition, grant.execution.tenant), []).append(grant)
        for (partition, tenant), grants in released.items():
            self._release(partition, tenant, grants)
        for request in actions.requests:
            self._send(request)

    def _release(self, partition: int, tenant: str, grants: Sequence[Grant]) -> None:
        self._metrics.grants.labels("released").inc(len(grants))
        for start in range(0, len(grants), ENTITIES_PER_COMMAND_MAX):
            items = tuple(
                Handback(
                    execution_id=grant.execution.execution_id,
                    worker_id=grant.execution.worker_id,
                    lease_epoch=grant.execution.lease_epoch,
                )
                for grant in grants[start : start + ENTITIES_PER_COMMAND_MAX]
            )
            command = Release(
                command_id=new_id(),
                tenant=tenant,
                actor=self._client.session,
                items=items,
                pools=(self._pool,),
            )
            try:
                self._client.tell(partition, command)
            except Problem as problem:
                # Their leases end by themselves.
                log.warning("%d executions could not be handed back: %s", len(items), problem)

    def _send(self, request: Request) -> None:
        command = RequestWork(
            command_id=new_id(),
            tenant=self._owner,
            actor=self._client.session,
            reply_partition=self._client.reply_partition,
            session=self._session,
            pool=self._pool,
            seq=request.seq,
            grants_seen=request.grants_seen,
            park_sec=PARK_SEC,
            slots=request.slots,
            ack=True,
            running_max=request.running_max,
        )
        delivered = partial(self._delivered, request)
        try:
            self._client.tell(request.partition, command, delivered)
        except Problem as problem:
            # As one that nobody answers: its credit comes back in time, and it is renewed.
            log.warning("work request to partition %d: %s", request.partition, problem)
            delivered()

    def _delivered(self, request: Request) -> None:
        self._asker.delivered(request.partition, request.seq, time.monotonic())


class Desks:
    """All pools for which someone waits here."""

    def __init__(self, client: LogClient, metrics: Metrics) -> None:
        self._client = client
        self._metrics = metrics
        self._desks: dict[tuple[str, str], Desk] = {}
        self._tokens = itertools.count(1)
        self._closed = False
        client.on_work = self._take

    def new_token(self) -> int:
        """A number for a claim."""
        return next(self._tokens)

    def desk(self, owner: str, pool: str) -> Desk:
        """The desk for a pool, made if there is none; Problem while the log cannot be written."""
        if self._closed:
            raise Problem(503, "stopping", "this server is stopping; ask another one, or again")
        partitions = self._client.asked_partitions(owner)
        desk = self._desks.get((owner, pool))
        if desk is not None and desk.partitions == partitions:
            return desk
        if desk is not None:
            desk.close()
        for key in [key for key, other in self._desks.items() if other.is_idle]:
            del self._desks[key]
        self._desks[owner, pool] = Desk(self._client, self._metrics, owner, pool)
        return self._desks[owner, pool]

    async def close(self) -> None:
        """Ends all claims and hands back what was on its way."""
        self._closed = True
        for desk in self._desks.values():
            desk.close()
        try:
            async with asyncio.timeout(DRAIN_SEC):
                for desk in self._desks.values():
                    await desk.drained.wait()
        except TimeoutError:
            log.warning("work requests were not taken back in time; leases on their way end by themselves")

    def _take(self, replies: list[WorkReply]) -> None:
        for reply in replies:
            owner = reply.session.partition(TENANT_MARK)[2]
            desk = self._desks.get((owner, reply.pool))
            if desk is not None:
                desk.take(reply)
            elif isinstance(reply, Granted):
                log.warning("%d executions were granted to a pool nobody asks for", len(reply.grants))
