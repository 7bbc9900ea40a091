"""The checker: events of a log in, a report out. It asks no server, and shares no decision with the engine.

Feed it every record of every partition in the order of its partition: `take` for an event, `forgotten` for a
tombstone; then `finish` once. It is incremental: what it holds is what the engine holds (jobs, unfinished
executions, and finished ones for the day that the engine remembers them), without payloads.
"""

from __future__ import annotations

from msgspec.structs import replace

from projections.checker.alarms import Alarms
from projections.checker.breakers import Breakers
from projections.checker.caps import Caps
from projections.checker.executions import Lives
from projections.checker.occurrences import Account
from projections.checker.oracle import Oracle
from projections.checker.payloads import Payloads
from projections.checker.places import Places
from projections.checker.report import Kind, Report
from projections.checker.running import Running
from projections.checker.settings import Settings
from projections.checker.shares import Shares
from projections.checker.skips import KEPT_MAX
from projections.checker.turns import Turns
from projections.checker.words import Words
from schemas import ids
from schemas.commands import WorkCommand
from schemas.entities import Content, Execution, ExecutionKind, Job, JobStatus, Policies, Tenant
from schemas.events import (
    BreakerEvent,
    ContentKept,
    CursorEvent,
    Event,
    ExecutionCancelled,
    ExecutionEvent,
    ExecutionFired,
    ExecutionSkipped,
    JobEvent,
    JobRegistered,
    LeaseExtended,
    TenantConfigured,
)

GRACE_MS = 60_000
"""What was due so shortly before the end of the log need not be decided yet (semantics, section 1)."""
_BIRTHS = (ExecutionFired, ExecutionCancelled, ExecutionSkipped)
_NO_CONTENT = Content(name="", task="")


class Checker:
    """`complete_since_ms`: events before it may have been compacted away. What began before it is taken as it
    is found, and judged from then on; 0: the log is whole. `kept_max`: the engine's bound on kept ones."""

    def __init__(
        self, *, oracle: Oracle | None = None, complete_since_ms: int = 0, kept_max: int = KEPT_MAX
    ) -> None:
        self.report = Report()
        self._oracle = oracle or Oracle()
        self._complete_since_ms = complete_since_ms
        self._kept_max = kept_max
        self._accounts: dict[str, Account] = {}
        self._lives = Lives(self.report)
        self._places = Places(self.report)
        self._settings = Settings()
        self._running = Running()
        self._caps = Caps(self.report, self._settings, self._running)
        self._turns = Turns(self.report, Shares(self._settings, self._running))
        self._words = Words(self.report)
        self._breakers = Breakers(self.report)
        self._alarms = Alarms(self.report, self._lives)
        self._payloads = Payloads(self.report)
        self._times: dict[int, int] = {}

    def word(self, partition: int, offset: int, command: WorkCommand) -> None:
        """A record of the topic `work`, given before the events that it caused: then an outcome is also held
        against the lease that its worker showed. Who feeds one such record must feed all of them."""
        self._words.said(partition, offset, command)

    def configured(self, settings: Tenant, at_ms: int) -> None:
        """A tenant's settings since an instant, as the tenants topic has them; best before all events."""
        self._settings.configured(settings, at_ms)

    def take(self, partition: int, event: Event) -> None:
        """The next event of a partition."""
        self.report.events += 1
        newest_ms = self._times.get(partition, 0)
        if event.at_ms < newest_ms:
            self.report.add(Kind.TIME, f"partition {partition}", f"{event.at_ms} after {newest_ms}")
        self._times[partition] = max(newest_ms, event.at_ms)
        judged = event.at_ms >= self._complete_since_ms
        self._alarms.take(partition, event, judged=judged)
        match event:
            case ExecutionEvent():
                self._execution(partition, event, judged=judged)
            case CursorEvent():
                self._cursor(event, judged=judged)
            case JobEvent():
                self._job(event, judged=judged)
            case TenantConfigured():
                self.configured(event.configured, event.at_ms)
            case BreakerEvent():
                self._breakers.changed(partition, event, judged=judged)
            case ContentKept():
                life = self._lives.get(f"{event.kept.tenant}/{event.kept.execution_id}")
                self._payloads.kept(event.kept, life.last if life is not None else None, judged=judged)
            case LeaseExtended():
                if judged:
                    self._extended(partition, event)
            case _:
                pass

    def forgotten(self, key: str) -> None:
        """A tombstone: the engine forgot the entity of this key."""
        kind, _, name = key.partition(":")
        if kind == "pay":
            self._payloads.forgotten(name)
        elif kind == "breaker":
            self._breakers.forgotten(name)
        elif kind == "exec":
            life = self._lives.get(name)
            self._lives.forget(name)
            if life is not None and life.last.kind is ExecutionKind.SCHEDULE:
                account = self._account_of(life.last)
                if account is not None:
                    account.forgot(life.last)
        elif kind == "job":
            account = self._accounts.pop(name, None)
            self._payloads.undefined(name)
            if account is not None and account.status not in (JobStatus.CANCELLED, JobStatus.COMPLETED):
                self.report.add(Kind.LIFE, name, f"forgotten while {account.status}")

    def finish(self, end_ms: int, *, drained: bool = False, grace_ms: int = GRACE_MS) -> Report:
        """All has been read that was there at `end_ms`. `drained`: by then everything had to be over."""
        for account in self._accounts.values():
            account.end(end_ms, grace_ms, drained=drained)
        for execution in self._lives.unfinished() if drained else ():
            name = f"{execution.tenant}/{execution.execution_id}"
            self.report.add(Kind.UNFINISHED, name, f"still {execution.status}, {execution.waiting_for}")
        self._alarms.finish()
        self._payloads.finish(self._lives.remembered())
        self._lives.finish(end_ms - grace_ms)
        return self.report

    # -- kinds of events

    def _job(self, event: JobEvent, *, judged: bool) -> None:
        self._payloads.defined(event.job)
        # Payloads are not held; they may be 256 KiB each.
        job = replace(event.job, content=_NO_CONTENT)
        name = f"{job.tenant}/{job.job_id}"
        account = self._accounts.get(name)
        if isinstance(event, JobRegistered):
            self.report.jobs += 1
            if account is not None and account.status not in (JobStatus.CANCELLED, JobStatus.COMPLETED):
                self.report.add(Kind.LIFE, name, f"registered anew while {account.status}")
            self._begin(name, job, begun=True)
        elif account is None:
            if judged:
                self.report.add(Kind.LIFE, name, "updated, and never registered")
            self.report.jobs += 1
            self._begin(name, job, begun=False)
        else:
            account.updated(job, event.at_ms, judged=judged)

    def _begin(self, name: str, job: Job, *, begun: bool) -> None:
        self._accounts[name] = Account(job, self._oracle, self.report, begun=begun, kept_max=self._kept_max)

    def _cursor(self, event: CursorEvent, *, judged: bool) -> None:
        cursor = event.cursor
        account = self._accounts.get(f"{cursor.tenant}/{cursor.job_id}")
        if account is not None and cursor.incarnation == account.job.incarnation:
            open_now = self._places.open_of(cursor.tenant, cursor.job_id)
            account.moved(event, open_now, judged=judged)
        elif judged:
            detail = f"{type(event).__name__} of a job that is not registered"
            self.report.add(Kind.LIFE, f"{cursor.tenant}/{cursor.job_id}", detail)

    def _execution(self, partition: int, event: ExecutionEvent, *, judged: bool) -> None:
        execution = event.execution
        name = f"{execution.tenant}/{execution.execution_id}"
        known = self._lives.get(name)
        if known is None and not isinstance(event, _BIRTHS) and execution.fired_ms < self._complete_since_ms:
            self.report.unjudged["executions from before the complete part of the log"] += 1
            judged = False
        account = self._account_of(execution)
        job = account.job if account is not None else None
        before = self._lives.changed(partition, event, _policies(job, execution), judged=judged)
        if judged and known is not None:
            self._words.check(partition, event, before, known.policies)
        if before is None and execution.kind is ExecutionKind.SCHEDULE:
            self._born(event, account, judged=judged)
        self._places.changed(event, before, job, judged=judged)
        self._breakers.executed(partition, event, judged=judged)
        if judged:
            self._payloads.executed(event, job)
        self._turns.changed(partition, event, before, judged=judged)
        if execution.closes_job:
            self._closed(event, account, judged=judged)
        if self._running.changed(partition, execution, before) and judged:
            self._caps.began(partition, execution)

    def _closed(self, event: ExecutionEvent, account: Account | None, *, judged: bool) -> None:
        """A one-off is completed by its execution's own end."""
        execution = event.execution
        if account is not None:
            account.closed(event, self._places.open_of(execution.tenant, execution.job_id), judged=judged)
        elif judged:
            name = f"{execution.tenant}/{execution.execution_id}"
            self.report.add(Kind.LIFE, name, "closes a job that is not registered")

    def _extended(self, partition: int, event: LeaseExtended) -> None:
        lease = event.lease
        name = f"{lease.tenant}/{lease.execution_id}"
        life = self._lives.get(name)
        if life is not None:
            self._words.check(partition, event, life.last, life.policies)
            self._lives.extended(name, lease.lease_epoch, lease.until_ms)

    def _born(self, event: ExecutionEvent, account: Account | None, *, judged: bool) -> None:
        if account is not None:
            account.born(event, judged=judged and isinstance(event, _BIRTHS))
        elif judged:
            execution = event.execution
            name = f"{execution.tenant}/{execution.execution_id}"
            self.report.add(Kind.NOT_DUE, name, "no such job is registered")

    def _account_of(self, execution: Execution) -> Account | None:
        """The account of the incarnation that an execution belongs to."""
        account = self._accounts.get(f"{execution.tenant}/{execution.job_id}")
        if account is None:
            return None
        job = account.job
        return account if ids.is_of(execution.execution_id, job.job_id, job.incarnation) else None


def _policies(job: Job | None, execution: Execution) -> Policies | None:
    return job.policies if job is not None and job.version == execution.job_version else None
