"""One partition, pure: the same state, input and now give the same events and effects.

The runtime drives it. Live, one transaction at a time:

    engine.begin(now_ms, chance)           chance() draws from [0, 1); what was drawn stands in the event
    engine.decide(command, source)         any number; a handler that raises is undone and quarantined
    more = engine.fire(settled_ms, limit)  due timers, at most `limit`; lease ends only up to settled_ms
    engine.grant()                         parked requests meet pending executions
    decided = engine.decided()             events and effects of the transaction
  then, once the log has them,
    batch = engine.commit()                state and indexes; the caller adds its checkpoint and writes
    engine.written()                       after that write: near timers join the wheel
  or
    engine.abort()                         as if begin had never been called

Replay is `apply` alone, with `commit` and `written` every few thousand records. Reading order: `transaction`,
`state`, then `handlers/` one by one.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from schemas.commands import (
    BackfillJob,
    CancelExecution,
    CancelJob,
    Complete,
    ConfigurePool,
    ConfigureTenant,
    DiscardDeadLetter,
    ExtendLease,
    Fail,
    JobCommand,
    PauseJob,
    RegisterJob,
    Release,
    ReplayDeadLetter,
    RequestWork,
    ResumeJob,
    TriggerJob,
    UpdateJob,
    WorkCommand,
)
from schemas.entities import Job, PartitionMeta
from schemas.events import PartitionOpened
from schemas.ids import SHARED, TENANT, job_id_of
from schemas.replies import CommandDone, ItemResult, WorkDone
from schemas.topics import REPLY_PARTITIONS
from streams.core import digest
from streams.core.effects import Answer, Effect, Quarantine
from streams.core.fairness import Fairness
from streams.core.guards import Guards
from streams.core.handlers.alarming import sweep
from streams.core.handlers.cancelling import cancel_execution, cancel_job
from streams.core.handlers.configuring import configure_pool, configure_tenant
from streams.core.handlers.discarding import discard_dead_letter
from streams.core.handlers.granting import match, request_work
from streams.core.handlers.leasing import report
from streams.core.handlers.outcome import Done
from streams.core.handlers.pausing import pause_job, resume_job
from streams.core.handlers.registration import register_job, update_job
from streams.core.handlers.rezoning import recompute_some, start_over
from streams.core.handlers.timing import pause_after_error, visit
from streams.core.handlers.triggering import backfill_job, replay_dead_letter, trigger_job
from streams.core.handlers.vacating import vacate
from streams.core.invariants import InvariantError, invariant
from streams.core.limits import SWEEP_MS, WHEEL_AHEAD_MS
from streams.core.parking import Parking
from streams.core.refusals import INTERNAL_ERROR, MISROUTED, Refusal, invalid
from streams.core.room import Room
from streams.core.state import Codec, State
from streams.core.transaction import Logged, Router, Source, Transaction
from streams.core.validation import check, refuse
from streams.core.zones import TZ_VERSION
from streams.store.kv import Batch, KeyValue
from streams.store.overlay import Overlay

READ_AHEAD = 64
"""Due timers whose entities are read at once: of more, each costs hardly less (measured), and nothing else
runs meanwhile."""


class Decided(msgspec.Struct, frozen=True, gc=False):
    """What one transaction has to say to the log and, after the commit, to askers and operators."""

    events: list[Logged]
    effects: list[Effect]


class Engine:
    """Decides and evolves one partition; used by one thread."""

    def __init__(
        self, partition: int, kv: KeyValue, codec: Codec, router: Router, room: Room | None = None
    ) -> None:
        """`room`: what a process gives all its engines for decoded entities; by default one of its own."""
        self.partition = partition
        self.state = State(Overlay(kv), codec, room or Room())
        self._router = router
        self._parking = Parking()
        self._fairness = Fairness()
        self._guards = Guards()
        self._tx: Transaction | None = None
        self._settled_ms = 0
        self._unmatched: list[str] = []
        self._sweep_ms = 0
        self._swept_to = b""
        """Where the pass over what is late goes on, and when; soft, as what it tells is."""
        self._rezoning = 0
        """While a pass over new time zone data goes on: the partition count to record when it is through."""
        self._replayed = False
        """Whether the log had events that this store did not, which may be those of another owner."""

    # -- live

    def begin(self, now_ms: int, chance: Callable[[], float]) -> None:
        """Opens a transaction; `now_ms` never decreases."""
        invariant(self._tx is None, "a transaction is open")
        self.state.timers.advance_floor(now_ms)
        self.state.leases.advance_floor(now_ms)
        for pool_key in self._parking.drop_stale(now_ms):
            self._fairness.forget(pool_key)
        self._guards.drop_stale(now_ms)
        pools = [*self._unmatched, *self._parking.take_later(now_ms)]
        self._tx = Transaction(
            self.state, self._router, self._guards, self.partition, now_ms, chance, pools=pools
        )
        self._unmatched = []

    def open_partition(self, partition_count: int) -> None:
        """Records what the partition was made with, if that is new. Raises InvariantError if P changed.

        Newer time zone data than recorded start a pass over its jobs (`rezoning`). Older ones change no job,
        and are recorded: what is planned with them is for the next pass.
        """
        tx = self._open()
        known = self.state.meta()
        invariant(
            known is None or known.partition_count == partition_count,
            f"partition {self.partition} was made for {known.partition_count if known else 0} partitions, "
            f"not {partition_count}",
        )
        if known is None:
            self._record_meta(tx, partition_count)
        elif known.tz_version < TZ_VERSION:
            self._rezoning = partition_count
            if self._replayed:
                start_over(tx)
        elif known.tz_version > TZ_VERSION:
            detail = f"tzdata {TZ_VERSION} is older than the partition's {known.tz_version}"
            tx.alert("tz_shift", "", detail)
            self._record_meta(tx, partition_count)

    def alert(self, kind: str, detail: str) -> None:
        """Records what operators were told at once, by metric and log line."""
        tx = self._open()
        tx.actor, tx.cause = "system", "time"
        tx.alert(kind, "", detail, told=True)

    def _record_meta(self, tx: Transaction, partition_count: int) -> None:
        meta = PartitionMeta(partition=self.partition, partition_count=partition_count, tz_version=TZ_VERSION)
        tx.emit(PartitionOpened, meta=meta)

    def decide(self, command: JobCommand | WorkCommand, source: Source) -> None:
        """Decides a command and answers it. Raises only InvariantError: the partition must stop."""
        tx = self._open()
        tx.actor = command.actor
        tx.cause = f"{source.topic}@{source.offset}#{command.command_id}"
        before = tx.savepoint()
        try:
            self._decide(tx, command, source)
        except InvariantError:
            raise
        except Exception as error:  # a bug: this command is set aside, the partition goes on
            tx.rollback(before)
            tx.effects.append(Quarantine(f"{type(error).__name__}: {error}"))
            tenant = command.tenant if TENANT.fullmatch(command.tenant) else ""
            tx.alert("internal_error", tenant, f"{tx.cause}: {error!r}")
            self._answer(command, INTERNAL_ERROR)

    def fire(self, settled_ms: int, limit: int) -> bool:
        """Handles due timers, some more than `limit` at most; True if there may be more due now."""
        tx = self._open()
        tx.actor, tx.cause = "system", "time"
        self._settled_ms = settled_ms
        visited = self.state.timers.pop(tx.now_ms, limit)
        ended = self.state.leases.pop(min(settled_ms, tx.now_ms), limit)
        due = [*ended, *visited]
        for at in range(0, len(due), READ_AHEAD):
            some = due[at : at + READ_AHEAD]
            self.state.read_ahead(some)
            for key in some:
                self._visit(tx, key)
        more = len(visited) >= limit or len(ended) >= limit
        if self._rezoning and not more and not recompute_some(tx):
            self._record_meta(tx, self._rezoning)
            self._rezoning = 0
        if not more and tx.now_ms >= self._sweep_ms:
            self._swept_to = sweep(tx, self._swept_to)
            self._sweep_ms = tx.now_ms if self._swept_to else tx.now_ms + SWEEP_MS
        return more

    def grant(self) -> None:
        """Gives pending executions to parked requests, in the pools that this transaction touched. Pools that
        could give more than one pass may are taken up again by the next one, which is then due at once."""
        self._unmatched = match(self._open(), self._parking, self._fairness, self.partition)

    def decided(self) -> Decided:
        tx = self._open()
        return Decided(tx.events, tx.effects)

    def commit(self) -> Batch:
        """Closes the transaction; its changes are the caller's to write."""
        self._tx = None
        self._parking.settled()
        self._fairness.settled()
        self._guards.settled()
        return self.state.take()

    def written(self) -> None:
        """The batch of `commit` is in the store."""
        self.state.timers.written()
        self.state.leases.written()

    def abort(self) -> None:
        """Drops what is open, if anything. Its requests stay parked, so their pools are matched again."""
        if self._tx is None:
            return
        self._unmatched = list(dict.fromkeys((*self._unmatched, *self._tx.pools)))
        self._tx = None
        self._parking.undo()
        self._fairness.undo()
        self._guards.undo()
        self.state.abort()

    def settings_changed(self) -> None:
        """What the router says of tenants is new: the next transaction matches parked requests again."""
        self._unmatched = list(dict.fromkeys((*self._unmatched, *self._parking.pools())))

    # -- time

    def next_wakeup_ms(self, now_ms: int) -> int:
        """When `fire` should be called next, lease ends left aside."""
        if self._unmatched or self._rezoning:
            return now_ms
        self.state.timers.load_ahead(now_ms)
        ahead_ms = now_ms + WHEEL_AHEAD_MS // 2
        if self._swept_to or self._guards.late.waits or self.state.indexes.lines(b"", 1):
            ahead_ms = min(ahead_ms, self._sweep_ms)
        due = (self.state.timers.next_ms(), self._parking.next_ms(), ahead_ms)
        return min(at_ms for at_ms in due if at_ms is not None)

    def lease_due(self, now_ms: int) -> bool:
        """Whether a lease end needs the caller to settle the work up to now first (architecture §5.9)."""
        self.state.leases.load_ahead(now_ms)
        soonest = self.state.leases.next_ms()
        return soonest is not None and self._settled_ms < soonest <= now_ms

    # -- replay

    def apply(self, key: str, value: bytes | None) -> None:
        """Evolve only. Raises InvariantError or what the codec raises: the partition must stop."""
        self._replayed = True
        self.state.apply(key, value)

    def digest(self) -> str:
        """Hash of all entities: equal for equal logs, compacted or not."""
        return digest.of_entities(self.state.kv)

    # -- inside

    def _open(self) -> Transaction:
        if self._tx is None:
            raise InvariantError("no transaction is open")
        return self._tx

    def _visit(self, tx: Transaction, key: str) -> None:
        before = tx.savepoint()
        try:
            visit(tx, key, self._settled_ms)
            vacate(tx)
        except InvariantError:
            raise
        except Exception as error:  # a bug: the job is paused, the partition goes on
            tx.rollback(before)
            pause_after_error(tx, key, repr(error))

    def _decide(self, tx: Transaction, command: JobCommand | WorkCommand, source: Source) -> None:
        match command:
            case RequestWork():
                if not check(command) and self._holds(command.tenant):
                    request_work(tx, self._parking, self._fairness, self.partition, command, source)
            case ExtendLease() | Complete() | Fail() | Release():
                self._report(tx, command)
            case _:
                self._answer(command, self._refused(command) or self._handle(tx, command))
        vacate(tx)

    def _holds(self, tenant: str) -> bool:
        """Whether work of the tenant's pools can be here; that of shared pools can be anywhere."""
        return tenant == SHARED or self.partition in self._router.partitions_of(tenant)

    def _refused(self, command: JobCommand) -> Refusal | None:
        refusal = refuse(command)
        if refusal is None:
            match command:
                case ConfigureTenant(version=int()) if self._holds(command.tenant):
                    partition = self.partition  # a question to one of its partitions
                case ConfigureTenant() | ConfigurePool():
                    partition = self._router.partitions_of(command.tenant)[0]
                case CancelExecution() | ReplayDeadLetter() | DiscardDeadLetter():
                    job_id = job_id_of(command.execution_id) or ""
                    partition = self._router.partition_of(command.tenant, job_id)
                case _:
                    partition = self._router.partition_of(command.tenant, command.job_id)
            if partition != self.partition:
                return MISROUTED
        return refusal

    def _handle(self, tx: Transaction, command: JobCommand) -> Done | Refusal:
        match command:
            case RegisterJob():
                return register_job(tx, command)
            case UpdateJob():
                return update_job(tx, command)
            case PauseJob():
                return pause_job(tx, command)
            case ResumeJob():
                return resume_job(tx, command)
            case BackfillJob():
                return backfill_job(tx, command)
            case CancelJob():
                return cancel_job(tx, command)
            case CancelExecution():
                return cancel_execution(tx, command)
            case TriggerJob():
                return trigger_job(tx, command)
            case ReplayDeadLetter():
                return replay_dead_letter(tx, command)
            case DiscardDeadLetter():
                return discard_dead_letter(tx, command)
            case ConfigureTenant():
                return configure_tenant(tx, command)
            case ConfigurePool():
                return configure_pool(tx, command)

    def _report(self, tx: Transaction, command: ExtendLease | Complete | Fail | Release) -> None:
        problems = check(command)
        if problems:
            refusal = invalid(*problems)
            results = [ItemResult(status=refusal.status, code=refusal.code, detail=refusal.detail)]
        else:
            results = [report(tx, command.tenant, item, command.pools) for item in command.items]
        if _is_awaited(command):
            done = WorkDone(
                session=command.session,
                command_id=command.command_id,
                results=tuple(results),
                partition=self.partition,
            )
            tx.effects.append(Answer(command.reply_partition, done))

    def _answer(self, command: JobCommand | WorkCommand, outcome: Done | Refusal) -> None:
        if not _is_awaited(command):
            return
        if isinstance(outcome, Refusal):
            done = CommandDone(
                session=command.session,
                command_id=command.command_id,
                status=outcome.status,
                code=outcome.code,
                detail=outcome.detail,
                errors=outcome.errors,
                partition=self.partition,
                limit=outcome.limit,
                retry_after_ms=outcome.retry_after_ms,
            )
        else:
            done = CommandDone(
                session=command.session,
                command_id=command.command_id,
                status=outcome.status,
                replayed=outcome.replayed,
                job=_without_payload(outcome.job),
                cursor=outcome.cursor,
                execution=outcome.execution,
                partition=self.partition,
                count=outcome.count,
                configured=outcome.configured,
            )
        self._open().effects.append(Answer(command.reply_partition, done))


def _is_awaited(command: JobCommand | WorkCommand) -> bool:
    """A partition of replies that is not there would end the transaction of everybody else's commands."""
    return 0 <= command.reply_partition < REPLY_PARTITIONS


def _without_payload(job: Job | None) -> Job | None:
    """Answers to changes leave the payload out."""
    return job and replace(job, content=replace(job.content, payload=b""))
