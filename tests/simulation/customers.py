"""Tenants' callers: they register, change, trigger and cancel jobs, and repeat what they are not answered.

Owns what is asked and when. Every request has a key and is repeated under it until it is answered, as the
promise of an acknowledgement needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from projections.checker.oracle import Oracle
from schemas.commands import (
    BackfillJob,
    CancelExecution,
    CancelJob,
    JobCommand,
    MissedInPause,
    PauseJob,
    RegisterJob,
    RegisterMode,
    ReplayDeadLetter,
    ResumeJob,
    ScheduleSpec,
    TriggerJob,
    UpdateJob,
)
from schemas.entities import Job, OverlapPolicy, ScheduleKind
from schemas.ids import job_id_of, scheduled_execution_id
from schemas.replies import CommandDone
from streams.core.instants import format_instant
from tests.simulation import jobs, zone_data
from tests.simulation.history import History
from tests.simulation.journal import Journal
from tests.simulation.network import Network
from tests.simulation.nodes import Answered, Node
from tests.simulation.servers import Surroundings

TRIES_MAX = 25
MEAN_PAUSE_SEC = 1.8
HERD = (20, 50)
RUSH = (30, 70)

ORACLE = Oracle(zone_data.info)
"""Of all runs of a process: it knows the occurrences of a day when it is asked again."""
Build = Callable[[dict[str, Any]], JobCommand]


@dataclass(slots=True, eq=False)
class Known:
    """A job as its owner last heard of it."""

    job: Job
    over: bool = False


@dataclass(slots=True, eq=False)
class Customer:
    around: Surroundings
    network: Network
    nodes: list[Node]
    journal: Journal
    history: History
    tenant: str
    jobs_max: int
    known: dict[str, Known] = field(default_factory=dict)
    waiting: int = 0
    """Requests without an answer yet."""
    active: bool = True
    _numbers: int = 0

    def start(self) -> None:
        """Begins to ask for things."""
        self._next()

    def _next(self) -> None:
        pause_ms = round(self.around.chance.expovariate(1 / MEAN_PAUSE_SEC) * 1000)
        self.around.agenda.after(pause_ms, self._act)

    def _act(self) -> None:
        if not self.active:
            return
        if self.around.chance.random() < 0.35 and len(self.known) < self.jobs_max:
            self._register()
        elif self.known:
            self.around.chance.choice(_CHANGES)(self, self.around.chance.choice(list(self.known.values())))
        self._next()

    # -- requests

    def request(
        self, job_id: str, build: Build, answered: Callable[[CommandDone], None] | None = None, key: str = ""
    ) -> None:
        """Asks until there is an answer. `key` "": a new one."""
        self.waiting += 1
        key = key or self._new("key")

        def take(done: CommandDone | None) -> None:
            if done is None and left[0]:
                self.around.agenda.after(self.around.chance.randint(100, 3_000), ask)
                return
            self.waiting -= 1
            if done is None:
                self.around.complain(f"{self.tenant}: {job_id}: no answer after {TRIES_MAX} tries")
                return
            if answered is not None and not done.code:
                answered(done)
            if self.active and self.around.chance.random() < 0.08:
                self.around.counts["request repeated for nothing"] += 1
                self.waiting += 1
                left[0] = max(left[0], 5)
                self.around.agenda.after(self.around.chance.randint(50, 8_000), ask_again)

        def ask() -> None:
            left[0] -= 1
            node = self.around.chance.choice([node for node in self.nodes if node.life] or self.nodes)

            def call(respond: Answered) -> None:
                node.ask(build(node.envelope(self.tenant, key)), node.where(self.tenant, job_id), respond)

            self.network.call(node, call, take)

        def ask_again() -> None:
            nonlocal answered
            answered = None
            ask()

        left = [TRIES_MAX]
        ask()

    def _new(self, what: str) -> str:
        self._numbers += 1
        return f"{what}-{self._numbers}"

    def _register(self, schedule: ScheduleSpec | None = None, *, rush: bool = False) -> None:
        chance = self.around.chance
        job_id = self._new(jobs.OVERRIDDEN + "job" if chance.random() < 0.15 else "job")
        finished = [each.job.job_id for each in self.known.values() if each.over]
        mode = RegisterMode.CREATE
        if finished and not rush and chance.random() < 0.2:
            job_id, mode = chance.choice(finished), RegisterMode.PUT
        spec = schedule or jobs.schedule(chance, self.around.agenda.now_ms)
        pool = jobs.SHARED_POOL if rush else chance.choice(jobs.POOLS)
        content, policies = jobs.content(chance, job_id), jobs.policies(chance)

        def build(envelope: dict[str, Any]) -> JobCommand:
            return RegisterJob(
                **envelope,
                job_id=job_id,
                mode=mode,
                schedule=spec,
                pool=pool,
                content=content,
                policies=policies,
            )

        # Those of a rush are left alone: they are many, and the changes are for all the others.
        self.request(job_id, build, None if rush else self._learn)

    def herd(self) -> None:
        """Many one-offs of one instant."""
        chance = self.around.chance
        count = chance.randint(*HERD)
        self.around.counts["herd"] += 1
        self.around.tell(self.tenant, f"a herd of {count}")
        at = format_instant((self.around.agenda.now_ms // 1000 + chance.randint(3, 15)) * 1000)
        for _ in range(count):
            self._register(ScheduleSpec(run_at=at))

    def rush(self, at: str) -> None:
        """Many one-offs of one instant in the pool that all tenants share; the others rush there as well."""
        count = self.around.chance.randint(*RUSH)
        self.around.tell(self.tenant, f"a rush of {count}")
        for _ in range(count):
            self._register(ScheduleSpec(run_at=at), rush=True)

    def _learn(self, done: CommandDone) -> None:
        if done.job is not None:
            known = self.known.setdefault(done.job.job_id, Known(done.job))
            if done.job.version >= known.job.version:
                known.job = done.job
                known.over = done.cursor is not None and bool(done.cursor.finished_ms)

    # -- changes

    def _update(self, known: Known) -> None:
        chance, job = self.around.chance, known.job
        spec = _spec_of(job)
        if job.schedule.kind is not ScheduleKind.ONCE and chance.random() < 0.6:
            spec = jobs.schedule(chance, self.around.agenda.now_ms)
            if spec.cron is None and spec.every_sec is None:
                return
        content, policies = jobs.content(chance, job.job_id), jobs.policies(chance)

        def build(envelope: dict[str, Any]) -> JobCommand:
            return UpdateJob(
                **envelope,
                job_id=job.job_id,
                version=job.version,
                schedule=spec,
                pool=job.pool,
                content=content,
                policies=policies,
            )

        self.request(job.job_id, build, self._learn)

    def _pause(self, known: Known) -> None:
        job_id = known.job.job_id
        self.request(job_id, lambda envelope: PauseJob(**envelope, job_id=job_id))
        self.around.agenda.after(self.around.chance.randint(500, 40_000), lambda: self._resume(known))

    def _resume(self, known: Known) -> None:
        if self.active:
            job_id, missed = known.job.job_id, self.around.chance.choice(list(MissedInPause))
            self.request(job_id, lambda envelope: ResumeJob(**envelope, job_id=job_id, missed=missed))

    def _cancel(self, known: Known) -> None:
        if self.around.chance.random() < 0.3:
            self.cancel(known)

    def cancel(self, known: Known) -> None:
        """The whole job."""

        def over(done: CommandDone) -> None:
            known.over = True

        job_id = known.job.job_id
        self.request(job_id, lambda envelope: CancelJob(**envelope, job_id=job_id), over)

    def end_schedule(self, known: Known) -> None:
        """No further occurrences: half of the jobs are cancelled, the others paused for good."""
        job_id = known.job.job_id
        if self.around.chance.random() < 0.5:
            self.cancel(known)
        else:
            self.request(job_id, lambda envelope: PauseJob(**envelope, job_id=job_id))

    def _trigger(self, known: Known) -> None:
        chance, job_id = self.around.chance, known.job.job_id
        payload = b'{"own":1}' if chance.random() < 0.3 else None
        overlap = None
        if job_id.startswith(jobs.OVERRIDDEN):
            overlap = chance.choice((None, *OverlapPolicy))

        def build(envelope: dict[str, Any]) -> JobCommand:
            return TriggerJob(**envelope, job_id=job_id, payload=payload, overlap=overlap)

        self.request(job_id, build)

    def _backfill(self, known: Known) -> None:
        chance, job = self.around.chance, known.job
        now_ms = self.around.agenda.now_ms
        if job.schedule.kind is ScheduleKind.ONCE:
            return
        since_ms = max(job.created_ms, now_ms - 60_000)
        past = ORACLE.between(job.schedule, since_ms, now_ms - 10_000)
        if not past:
            return
        chosen = tuple(sorted(chance.sample(past, min(len(past), 4))))
        rerun = chance.random() < 0.3
        overlap = OverlapPolicy.ALLOW if job.job_id.startswith(jobs.OVERRIDDEN) else None
        backfill_id = self._new("bf")

        def build(envelope: dict[str, Any]) -> JobCommand:
            return BackfillJob(
                **envelope,
                job_id=job.job_id,
                backfill_id=backfill_id,
                scheduled_ms=chosen,
                overlap=overlap,
                rerun=rerun,
            )

        self.request(job.job_id, build)

    def _cancel_execution(self, known: Known) -> None:
        """The next one of the schedule, as it would be called."""
        job, now_ms = known.job, self.around.agenda.now_ms
        ahead = ORACLE.between(job.schedule, now_ms, now_ms + 60_000)
        if ahead:
            execution_id = scheduled_execution_id(job.job_id, job.incarnation, ahead[0])
            self.request(job.job_id, lambda envelope: CancelExecution(**envelope, execution_id=execution_id))

    def _replay(self, known: Known) -> None:
        """Any dead letter of the tenant."""
        chance, dead = self.around.chance, self.history.dead_letters(self.tenant)
        if not dead:
            return
        execution_id = chance.choice(dead)
        payload = b'{"corrected":1}' if chance.random() < 0.3 else None

        def build(envelope: dict[str, Any]) -> JobCommand:
            return ReplayDeadLetter(**envelope, execution_id=execution_id, payload=payload)

        self.request(job_id_of(execution_id) or "", build)


_CHANGES = (
    Customer._update,
    Customer._update,
    Customer._pause,
    Customer._pause,
    Customer._cancel,
    Customer._trigger,
    Customer._trigger,
    Customer._backfill,
    Customer._cancel_execution,
    Customer._replay,
)


def _spec_of(job: Job) -> ScheduleSpec:
    """The same schedule once more, as its owner would send it."""
    schedule = job.schedule
    bounds: dict[str, Any] = {
        "start_at": format_instant(schedule.start_at_ms) if schedule.start_at_ms else None,
        "end_at": format_instant(schedule.end_at_ms) if schedule.end_at_ms else None,
        "max_runs": schedule.max_runs or None,
        "jitter_sec": schedule.jitter_ms // 1000 or None,
    }
    match schedule.kind:
        case ScheduleKind.ONCE:
            return ScheduleSpec(run_at=format_instant(schedule.run_at_ms), **bounds)
        case ScheduleKind.EVERY:
            return ScheduleSpec(every_sec=schedule.every_ms // 1000, **bounds)
        case ScheduleKind.CRON:
            return ScheduleSpec(cron=schedule.cron, time_zone=schedule.time_zone, **bounds)
