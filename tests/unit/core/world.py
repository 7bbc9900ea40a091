"""One partition in virtual time: the real engine on the in-memory store, driven as the runtime drives it.

Every command is a transaction of its own unless `batch` is used. `log` keeps what the events topic would.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from schemas import codec, ids
from schemas.commands import (
    BackfillJob,
    Beat,
    CancelExecution,
    CancelJob,
    Complete,
    Completion,
    DiscardDeadLetter,
    ExtendLease,
    Fail,
    Failure,
    Handback,
    JobCommand,
    LeaseRef,
    MissedInPause,
    PauseJob,
    RegisterJob,
    RegisterMode,
    Release,
    ReplayDeadLetter,
    RequestWork,
    ResumeJob,
    ScheduleSpec,
    Slot,
    TriggerJob,
    UpdateJob,
    WorkCommand,
)
from schemas.entities import Alert, Content, Cursor, Execution, Policies, RetryPolicy, Tenant
from schemas.replies import CommandDone, Grant, Granted, ItemResult, Reply, WorkDone, WorkHinted, WorkSeen
from streams.ambient import Chance
from streams.core.effects import Answer, Bury, Quarantine
from streams.core.engine import Engine
from streams.core.instants import parse_instant
from streams.core.transaction import Source
from streams.store.memory import MemoryStore

TENANT = "acme"
SESSION = "session-1"
NO_RETRY = RetryPolicy(max_attempts=1)


class OnePartition:
    """Everything lives in partition 0. `settings` are what the tenants topic says."""

    def __init__(self) -> None:
        self.settings: dict[str, Tenant] = {}

    def partition_of(self, tenant: str, job_id: str) -> int:
        return 0

    def partitions_of(self, tenant: str) -> list[int]:
        return [0]

    def settings_of(self, tenant: str) -> Tenant:
        return self.settings.get(tenant) or Tenant(tenant=tenant)


class World:
    def __init__(self, now: str = "2026-05-01T00:00:00Z", seed: int = 1) -> None:
        self.start_ms = self.now_ms = parse_instant(now, "now")
        self.store = MemoryStore()
        self.router = OnePartition()
        self.engine = Engine(0, self.store, codec, self.router)
        self.chance = Chance(seed)
        self.log: list[tuple[str, bytes | None]] = []
        self.work: list[tuple[int, WorkCommand]] = []
        self.types: list[str] = []
        self.replies: list[Reply] = []
        self.alerts: list[Alert] = []
        self.buried: list[Bury] = []
        self.quarantined: list[Quarantine] = []
        self._offset = itertools.count()
        self._seq = itertools.count(1)
        self.grants_seen = 0

    # -- driving

    def run(self, *commands: JobCommand | WorkCommand, settled: bool = True) -> list[Reply]:
        """One or more transactions now; returns the replies."""
        first = len(self.replies)
        settled_ms = self.now_ms if settled else 0
        more = self.one(settled_ms, 1_000, commands)
        while more or self.engine.next_wakeup_ms(self.now_ms) <= self.now_ms:
            more = self.one(settled_ms, 1_000)
        return self.replies[first:]

    def one(self, settled_ms: int, limit: int, commands: Sequence[JobCommand | WorkCommand] = ()) -> bool:
        """One transaction; True if there may be more due now."""
        self.engine.begin(self.now_ms, self.chance.random)
        for command in commands:
            topic, offset = "commands", next(self._offset)
            if isinstance(command, WorkCommand):
                topic = "work"
                self.work.append((offset, command))
            self.engine.decide(command, Source(topic, offset, self.now_ms))
        more = self.engine.fire(settled_ms, limit)
        self.engine.grant()
        decided = self.engine.decided()
        for event in decided.events:
            self.log.append((event.key, event.value))
            self.types.append(event.type)
        for effect in decided.effects:
            self._take(effect)
        self.store.write(self.engine.commit())
        self.engine.written()
        return more

    def _take(self, effect: object) -> None:
        match effect:
            case Answer():
                self.replies.append(effect.reply)
                if isinstance(effect.reply, Granted):
                    self.grants_seen = effect.reply.number
            case Alert():
                self.alerts.append(effect)
            case Bury():
                self.buried.append(effect)
            case Quarantine():
                self.quarantined.append(effect)

    def at(self, sec: float) -> None:
        """Moves to `sec` after the start, stopping at every timer on the way."""
        self.until(self.start_ms + round(sec * 1000))

    def until(self, target_ms: int) -> None:
        assert target_ms >= self.now_ms
        while True:
            due = self.engine.next_wakeup_ms(self.now_ms)
            self.engine.state.leases.load_ahead(self.now_ms)
            lease = self.engine.state.leases.next_ms()
            soonest = min(due, lease if lease is not None else due)
            if soonest > target_ms:
                break
            self.now_ms = max(self.now_ms, soonest)
            self.run()
        self.now_ms = target_ms
        self.run()

    def jump(self, target: str) -> None:
        """The partition was down until `target`."""
        self.now_ms = parse_instant(target, "target")
        self.run()

    def rebuilt(self) -> Engine:
        """A new engine from the log alone."""
        return rebuild(self.log, self.router)

    def configure(self, tenant: str = TENANT, **settings: Any) -> None:
        """The tenants topic brought other settings."""
        self.router.settings[tenant] = replace(self.router.settings_of(tenant), **settings)
        self.engine.settings_changed()
        self.run()

    # -- asking

    def register(
        self, job_id: str = "job-1", key: str = "", mode: RegisterMode = RegisterMode.CREATE, **kw: Any
    ) -> CommandDone:
        schedule = {k: kw.pop(k) for k in ScheduleSpec.__struct_fields__ if k in kw}
        payload = kw.pop("payload", b'{"x":1}')
        command = RegisterJob(
            **self._envelope(key, kw.pop("tenant", TENANT)),
            job_id=job_id,
            mode=mode,
            schedule=ScheduleSpec(**schedule),
            pool=kw.pop("pool", "default"),
            content=Content(name=job_id, task="task", payload=payload),
            policies=kw.pop("policies", Policies(**kw)),
        )
        return self._done(command)

    def update(self, version: int, job_id: str = "job-1", key: str = "", **kw: Any) -> CommandDone:
        schedule = {k: kw.pop(k) for k in ScheduleSpec.__struct_fields__ if k in kw}
        command = UpdateJob(
            **self._envelope(key),
            job_id=job_id,
            version=version,
            schedule=ScheduleSpec(**schedule),
            pool=kw.pop("pool", "default"),
            content=Content(name=job_id, task="task", payload=kw.pop("payload", b'{"x":1}')),
            policies=Policies(**kw),
        )
        return self._done(command)

    def pause(self, job_id: str = "job-1", key: str = "") -> CommandDone:
        return self._done(PauseJob(**self._envelope(key), job_id=job_id))

    def resume(
        self, job_id: str = "job-1", missed: MissedInPause = MissedInPause.SKIP, key: str = ""
    ) -> CommandDone:
        return self._done(ResumeJob(**self._envelope(key), job_id=job_id, missed=missed))

    def backfill(
        self, *scheduled: str, job_id: str = "job-1", backfill_id: str = "b1", **kw: Any
    ) -> CommandDone:
        times = tuple(parse_instant(text, "t") for text in scheduled)
        command = BackfillJob(
            **self._envelope(), job_id=job_id, backfill_id=backfill_id, scheduled_ms=times, **kw
        )
        return self._done(command)

    def cancel_job(self, job_id: str = "job-1") -> CommandDone:
        return self._done(CancelJob(**self._envelope(), job_id=job_id))

    def cancel(self, execution_id: str) -> CommandDone:
        return self._done(CancelExecution(**self._envelope(), execution_id=execution_id))

    def trigger(
        self, job_id: str = "job-1", key: str = "", payload: bytes | None = None, **kw: Any
    ) -> CommandDone:
        envelope = self._envelope(key, kw.pop("tenant", TENANT))
        return self._done(TriggerJob(**envelope, job_id=job_id, payload=payload, **kw))

    def replay(self, execution_id: str, key: str = "", payload: bytes | None = None) -> CommandDone:
        command = ReplayDeadLetter(**self._envelope(key), execution_id=execution_id, payload=payload)
        return self._done(command)

    def discard(self, execution_id: str) -> CommandDone:
        return self._done(DiscardDeadLetter(**self._envelope(), execution_id=execution_id))

    def request(
        self, *slots: Slot, pool: str = "default", park_sec: int = 20, ack: bool = False, **kw: Any
    ) -> list[Reply]:
        command = RequestWork(
            **self._envelope(tenant=ids.SHARED if pool.startswith("shared/") else TENANT),
            pool=pool,
            seq=kw.get("seq", next(self._seq)),
            grants_seen=kw.get("grants_seen", self.grants_seen),
            park_sec=park_sec,
            slots=slots,
            ack=ack,
        )
        return self.run(command)

    def claim(
        self,
        worker: str = "A",
        count: int = 1,
        *,
        pool: str = "default",
        lease_sec: int = 0,
        claim_id: str = "",
        park_sec: int = 0,
        ack: bool = False,
    ) -> list[Grant]:
        """Asks and takes what is granted at once; what is not stays parked for `park_sec`."""
        slot = Slot(worker_id=worker, credit=count, claim_id=claim_id, lease_sec=lease_sec)
        replies = self.request(slot, pool=pool, park_sec=park_sec or 1, ack=ack)
        if not park_sec:
            replies += self.request(pool=pool, park_sec=0)
        return granted(replies)

    def beat(self, grant: Grant, progress: bytes | None = None) -> ItemResult:
        return self._report(ExtendLease, Beat(**_ref(grant), progress=progress), grant.execution)

    def complete(self, grant: Grant, result: bytes = b"") -> ItemResult:
        return self._report(Complete, Completion(**_ref(grant), result=result), grant.execution)

    def fail(self, grant: Grant, error: str = "boom", **kw: Any) -> ItemResult:
        return self._report(Fail, Failure(**_ref(grant), error=error, **kw), grant.execution)

    def release(self, grant: Grant, delay_sec: int = 0) -> ItemResult:
        return self._report(Release, Handback(**_ref(grant), delay_sec=delay_sec), grant.execution)

    def report(self, kind: type[ExtendLease | Complete | Fail | Release], item: LeaseRef) -> ItemResult:
        return self._report(kind, item)

    # -- looking

    def execution(self, execution_id: str) -> Execution:
        found = self.engine.state.execution(TENANT, execution_id)
        assert found is not None
        return found

    def execution_of(self, job_id: str) -> Execution:
        """The only one of a job."""
        (found,) = (e for e in self.executions() if e.job_id == job_id)
        return found

    def executions(self) -> list[Execution]:
        """All that the partition still knows, in key order."""
        found = [codec.decode(value) for _, value in self.store.scan(b"eexec:", b"eexec;")]
        return [event.execution for event in found]  # type: ignore[attr-defined]

    def cursor(self, job_id: str = "job-1") -> Cursor:
        job = self.engine.state.job(TENANT, job_id)
        assert job is not None
        return self.engine.state.cursor(job)

    def knows_job(self, job_id: str = "job-1") -> bool:
        return self.engine.state.job(TENANT, job_id) is not None

    def sec(self, instant_ms: int) -> float:
        """Seconds since the start."""
        return (instant_ms - self.start_ms) / 1000

    # -- inside

    def _envelope(self, key: str = "", tenant: str = TENANT) -> dict[str, Any]:
        return {
            "command_id": f"c{next(self._offset)}",
            "tenant": tenant,
            "actor": "tester",
            "reply_partition": 0,
            "session": SESSION,
            "request_key": key,
        }

    def _done(self, command: JobCommand) -> CommandDone:
        replies = [r for r in self.run(command) if isinstance(r, CommandDone)]
        assert len(replies) == 1
        assert replies[0].command_id == command.command_id
        return replies[0]

    def _report(
        self,
        kind: type[ExtendLease | Complete | Fail | Release],
        item: LeaseRef,
        held: Execution | None = None,
    ) -> ItemResult:
        """As a worker of the pool of what is held; None: as one of the tenant's own pools."""
        envelope = self._envelope(tenant=held.tenant if held is not None else TENANT)
        pools = (held.pool,) if held is not None else ()
        replies = self.run(kind(**envelope, items=(item,), pools=pools))  # type: ignore[arg-type]
        done = [r for r in replies if isinstance(r, WorkDone)]
        assert len(done) == 1
        return done[0].results[0]


def dead_letters(world: World, count: int, job_id: str = "job-1") -> list[str]:
    """So many given-up executions of one job."""
    made = []
    for n in range(count):
        world.trigger(job_id, key=f"{job_id}-{n}")
        (grant,) = world.claim("A")
        world.fail(grant, retryable=False)
        made.append(grant.execution.execution_id)
    return made


def registration(world: World, delay_sec: int, mode: RegisterMode = RegisterMode.CREATE) -> RegisterJob:
    return RegisterJob(
        **world._envelope(),
        job_id="job-1",
        mode=mode,
        schedule=ScheduleSpec(delay_sec=delay_sec),
        pool="default",
        content=Content(name="n", task="t", payload=b'"new"'),
        policies=Policies(),
    )


def work_request(
    world: World, seq: int, credit: int, park_sec: int = 20, grants_seen: int = 0
) -> RequestWork:
    slots = (Slot(worker_id="A", credit=credit),)
    return RequestWork(
        **world._envelope(), pool="default", seq=seq, grants_seen=grants_seen, park_sec=park_sec, slots=slots
    )


def granted(replies: Sequence[Reply]) -> list[Grant]:
    return [grant for r in replies if isinstance(r, Granted) for grant in r.grants]


def hints(replies: Sequence[Reply]) -> list[WorkHinted]:
    return [r for r in replies if isinstance(r, WorkHinted)]


def seen(replies: Sequence[Reply]) -> WorkSeen:
    found = [r for r in replies if isinstance(r, WorkSeen)]
    assert len(found) == 1
    return found[0]


def ref(grant: Grant, **changes: Any) -> dict[str, Any]:
    return {**_ref(grant), **changes}


def _ref(grant: Grant) -> dict[str, Any]:
    e = grant.execution
    return {"execution_id": e.execution_id, "worker_id": e.worker_id, "lease_epoch": e.lease_epoch}


def rebuild(log: Sequence[tuple[str, bytes | None]], router: OnePartition | None = None) -> Engine:
    """State from a log, as a taker without local state makes it."""
    store = MemoryStore()
    engine = Engine(0, store, codec, router or OnePartition())
    for key, value in log:
        engine.apply(key, value)
    store.write(engine.commit())
    engine.written()
    return engine


def compacted(log: Sequence[tuple[str, bytes | None]], upto: int) -> list[tuple[str, bytes | None]]:
    """The log as the broker's cleaner leaves it: of the first `upto` records, the newest of each key."""
    newest = {key: at for at, (key, _) in enumerate(log[:upto])}
    head = [record for at, record in enumerate(log[:upto]) if newest[record[0]] == at]
    return [*head, *log[upto:]]


__all__ = [
    "NO_RETRY",
    "OnePartition",
    "World",
    "compacted",
    "dead_letters",
    "granted",
    "hints",
    "ids",
    "rebuild",
    "ref",
    "registration",
    "replace",
    "seen",
    "work_request",
]
