"""Many tenants as load on one shared pool: their jobs, their settings, and workers for all of them."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any, NamedTuple

from msgspec.structs import replace

from bench.partition import ACTOR, SESSION, completions
from bench.service import PARK_SEC, REPLIES, Service
from bench.site import pause
from bench.wire import Refused
from schemas import codec
from schemas.commands import ConfigureTenant, RequestWork, Slot
from schemas.entities import Execution
from schemas.ids import SHARED
from schemas.replies import CommandDone, Grant, Granted
from schemas.topics import Topics, tenant_partitions
from streams.core import limits
from streams.transport.log import Log, Outgoing

POOL = f"{SHARED}/bench"
CONFIGURE_SEC = 60.0
FOLLOWED_SEC = 1.0
"""After this every process has read the settings that were answered."""


class Late(NamedTuple):
    """What was granted: whose, and how late it began."""

    tenant: str
    priority: str
    due_ms: int
    late_ms: int


class Crowd(Service):
    """Tenants of one shard each; `slots` of one worker at each partition."""

    def __init__(self, log: Log, topics: Topics, partitions: int) -> None:
        super().__init__(log, topics, shards=1, partitions=partitions)
        self.late: list[Late] = []

    def configure(self, weights: dict[str, int]) -> None:
        """Weights of tenants; what they may register is not bounded."""
        for tenant, weight in weights.items():
            command = ConfigureTenant(
                **_envelope(f"configure-{tenant}", tenant),
                weight=weight,
                registrations_per_sec=limits.REGISTRATIONS_PER_SEC[1],
                max_jobs=limits.JOBS[1],
            )
            (home,) = tenant_partitions(tenant, 1, self._partitions)
            self._send(Outgoing(self._topics.commands, home, tenant.encode(), codec.encode(command)))
        answered, deadline = 0, time.monotonic() + CONFIGURE_SEC
        while answered < len(weights):
            if time.monotonic() > deadline:
                raise Refused(f"{answered} of {len(weights)} tenants configured")
            answered += sum(isinstance(reply, CommandDone) for reply in self._replies())
        pause(FOLLOWED_SEC)

    def _asked(self) -> list[int]:
        return list(range(self._partitions))

    def _report(self, reply: Granted) -> None:
        self._seen[reply.partition] = reply.number
        by_tenant: dict[str, list[Grant]] = defaultdict(list)
        for grant in reply.grants:
            by_tenant[grant.execution.tenant].append(grant)
            self.late.append(_late(grant.execution))
        for tenant, grants in by_tenant.items():
            name = f"outcomes-{tenant}-{reply.partition}-{reply.number}"
            for command in completions(grants, name):
                self._reported[command.command_id] = [item.execution_id for item in command.items]
                self._work(reply.partition, replace(command, tenant=tenant, pools=(POOL,)))

    def _ask(self, partition: int, credit: int) -> None:
        request = RequestWork(
            **_envelope(f"ask-{partition}", SHARED),
            pool=POOL,
            seq=next(self._seq),
            grants_seen=self._seen.get(partition, 0),
            park_sec=PARK_SEC,
            slots=(Slot(worker_id=f"bench-{partition}", credit=credit),),
        )
        self._work(partition, request)


def _envelope(command_id: str, tenant: str) -> dict[str, Any]:
    return {
        "command_id": command_id,
        "tenant": tenant,
        "actor": ACTOR,
        "reply_partition": REPLIES,
        "session": SESSION,
    }


def _late(execution: Execution) -> Late:
    return Late(
        execution.tenant,
        execution.priority,
        execution.due_ms,
        execution.started_ms - execution.due_ms,
    )
