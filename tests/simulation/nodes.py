"""API nodes: commands out with their answers awaited, claims of workers met by the real `Asker`.

Owns what an API process keeps in memory, and loses with it. HTTP is left out: what its handlers decide
(bodies, problems) changes nothing in the log.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

from api.work.asker import Actions, Asker, Request
from api.work.credit import PARK_SEC
from api.work.waiting import Claim
from schemas import codec
from schemas.commands import Handback, JobCommand, Release, RequestWork, WorkCommand
from schemas.ids import SHARED
from schemas.replies import CommandDone, Grant, Granted, WorkDone, WorkHinted, WorkSeen
from schemas.topics import partition_of, tenant_partitions
from streams.transport.log import Isolation, LogError, Outgoing, TopicPartition, Written
from tests.simulation.journal import Journal
from tests.simulation.network import Network
from tests.simulation.servers import Surroundings

ANSWER_MS = 10_000
"""As the API waits for the answer to a command."""
RESTART_MS = (500, 8_000)
NEVER = math.inf

Answered = Callable[[Any], None]


class Node:
    """One API process. `life` is 0 while it is down."""

    def __init__(
        self,
        around: Surroundings,
        network: Network,
        journal: Journal,
        shards: dict[str, int],
        name: str,
        reply_partition: int,
    ) -> None:
        self.around = around
        self.name = name
        self.reply_partition = reply_partition
        self._network = network
        self._journal = journal
        self._shards = shards
        self._lives = itertools.count(1)
        self._numbers = itertools.count(1)
        self._writer = around.log.plain_writer()
        self._reader = around.log.reader(Isolation.COMMITTED)
        self.kept_down = False
        self.life = 0
        self._session = ""
        self._pending: dict[str, tuple[JobCommand | WorkCommand, Answered]] = {}
        self._desks: dict[tuple[str, str], Asker] = {}
        self._due: dict[tuple[str, str], float] = {}
        """When a desk is to act next; one that is not in here at once."""
        self._claims: dict[int, Answered] = {}
        self._wake_ms: int | None = None

    # -- its life

    def start(self) -> None:
        """A new session, which knows nothing of the former one's."""
        if self.life or self.kept_down:
            return
        self.life = next(self._lives)
        self._session = f"{self.name}-{self.life}"
        self._pending, self._desks, self._claims, self._due = {}, {}, {}, {}
        replies = TopicPartition(self.around.topics.replies, self.reply_partition)
        self._reader.assign({replies: self.around.log.end_offset(replies, Isolation.COMMITTED)})
        self._wake_ms = None
        self.around.tell(self.name, f"starts as {self._session}")
        self.wake(0)

    def crash(self) -> None:
        """Everything that waits here is lost; who called hears nothing."""
        if not self.life:
            return
        self.life = 0
        self.around.tell(self.name, "dies")
        self.around.agenda.after(self.around.chance.randint(*RESTART_MS), self.start)

    # -- commands

    def where(self, tenant: str, job_id: str) -> int:
        return partition_of(tenant, job_id, self._shards[tenant], self.around.partitions)

    def new_id(self) -> str:
        """Of a command; unlike any other's."""
        return f"{self._session}.{next(self._numbers)}"

    def envelope(self, tenant: str, request_key: str = "") -> dict[str, Any]:
        """What every command begins with."""
        return {
            "command_id": self.new_id(),
            "tenant": tenant,
            "actor": self.name,
            "reply_partition": self.reply_partition,
            "session": self._session,
            "request_key": request_key,
        }

    def ask(self, command: JobCommand | WorkCommand, partition: int, answered: Answered) -> None:
        """Sends a command; `answered` gets its reply, or None when there was none in time."""
        self._pending[command.command_id] = (command, answered)
        life = self.life

        def too_late() -> None:
            if self.life == life and self._pending.pop(command.command_id, None) is not None:
                answered(None)

        self.around.agenda.after(ANSWER_MS, too_late)
        self._send(command, partition)

    def _send(
        self, command: JobCommand | WorkCommand, partition: int, done: Callable[[], None] | None = None
    ) -> None:
        topics = self.around.topics
        topic = topics.work if isinstance(command, WorkCommand) else topics.commands
        key = command.tenant.encode()
        life = self.life

        def delivered(written: Written | None, error: LogError | None) -> None:
            if done is not None and self.life == life:
                done()

        self._writer.send(Outgoing(topic, partition, key, codec.encode(command)), delivered)

    # -- claims

    def claim(self, owner: str, pool: str, claim: Claim, answered: Answered) -> None:
        """A worker waits for executions; `answered` gets a list of grants. `owner`: a tenant, or `shared`."""
        self._claims[claim.token] = answered
        desk = self._desks.get((owner, pool))
        if desk is None:
            desk = self._desks[owner, pool] = Asker(self._partitions_of(owner), self.now)
        desk.claim(claim, self.now)
        self._due.pop((owner, pool), None)
        self.wake(0)

    def _partitions_of(self, owner: str) -> list[int]:
        if owner == SHARED:
            return list(range(self.around.partitions))
        return tenant_partitions(owner, self._shards[owner], self.around.partitions)

    def abandon(self, owner: str, pool: str, token: int) -> None:
        """The worker's connection is gone."""
        desk = self._desks.get((owner, pool))
        if desk is not None:
            desk.cancel(token, self.now)
            self._due.pop((owner, pool), None)
        self._claims.pop(token, None)
        self.wake(0)

    @property
    def now(self) -> float:
        """Monotonic seconds."""
        return self.around.agenda.now_ms / 1000

    def new_token(self) -> int:
        return next(self._numbers)

    # -- turns

    def wake(self, in_ms: int) -> None:
        """A turn at that time at the latest."""
        if not self.life:
            return
        when_ms = self.around.agenda.now_ms + in_ms
        if self._wake_ms is not None and self._wake_ms <= when_ms:
            return
        self._wake_ms = when_ms
        life = self.life
        self.around.agenda.after(in_ms, lambda: self._turn(life, when_ms))

    def _turn(self, life: int, when_ms: int) -> None:
        if life != self.life or when_ms != self._wake_ms:
            return
        self._wake_ms = None
        for record in self._reader.poll(100_000, 0):
            self._take(codec.decode(record.value or b""))
        now = self.now
        for place, desk in self._desks.items():
            if self._due.get(place, 0.0) <= now:
                self._do(*place, desk.act(now), desk)
                self._due[place] = desk.due_at(now) or NEVER
        due_at = min(self._due.values(), default=NEVER)
        if due_at < NEVER:
            self.wake(max(1, math.ceil((due_at - now) * 1000)))

    def _take(self, reply: Any) -> None:
        session, _, owner = reply.session.partition("~")
        if session != self._session:
            return
        if isinstance(reply, CommandDone | WorkDone):
            pending = self._pending.pop(reply.command_id, None)
            if pending is not None:
                command, answered = pending
                self._journal.answered(self.around.agenda.now_ms, command, reply)
                answered(reply)
            return
        if isinstance(reply, Granted):
            self._journal.granted(self.around.agenda.now_ms, reply)
        desk = self._desks.get((owner, reply.pool))
        if desk is None:
            return
        self._due.pop((owner, reply.pool), None)
        match reply:
            case Granted():
                desk.granted(reply, self.now)
            case WorkHinted():
                desk.hinted(reply, self.now)
            case WorkSeen():
                desk.seen(reply, self.now)

    def _do(self, owner: str, pool: str, actions: Actions, desk: Asker) -> None:
        for token, grants in actions.answers:
            answered = self._claims.pop(token, None)
            if answered is not None:
                answered(grants)
            else:
                self._release(grants)
        self._release([grant for _, grant in actions.releases])
        for request in actions.requests:
            self._request(owner, pool, request, desk)

    def _release(self, grants: list[Grant]) -> None:
        by_place: dict[tuple[int, str, str], list[Handback]] = {}
        for grant in grants:
            execution = grant.execution
            back = Handback(
                execution_id=execution.execution_id,
                worker_id=execution.worker_id,
                lease_epoch=execution.lease_epoch,
            )
            place = (self.where(execution.tenant, execution.job_id), execution.tenant, execution.pool)
            by_place.setdefault(place, []).append(back)
        for (partition, tenant, pool), items in by_place.items():
            self.around.counts["grant handed back by the API"] += len(items)
            command = Release(
                command_id=self.new_id(),
                tenant=tenant,
                actor=self._session,
                items=tuple(items),
                pools=(pool,),
            )
            self._send(command, partition)

    def _request(self, owner: str, pool: str, request: Request, desk: Asker) -> None:
        command = RequestWork(
            command_id=self.new_id(),
            tenant=owner,
            actor=self._session,
            reply_partition=self.reply_partition,
            session=f"{self._session}~{owner}",
            pool=pool,
            seq=request.seq,
            grants_seen=request.grants_seen,
            park_sec=PARK_SEC,
            slots=request.slots,
            ack=True,
            running_max=request.running_max,
        )

        def delivered() -> None:
            self._due.pop((owner, pool), None)
            desk.delivered(request.partition, request.seq, self.now)

        self._send(command, request.partition, delivered)
