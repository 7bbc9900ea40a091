"""Breaks of the core: grants, leases, retries, schedules, policies."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from schemas.commands import LeaseRef
from schemas.entities import Execution, WaitingFor
from schemas.events import ExecutionClaimed
from streams.core import retry
from streams.core.effects import Bury
from streams.core.handlers import (
    cancelling,
    ending,
    firing,
    following,
    gating,
    leasing,
    pausing,
    registration,
    rezoning,
    scheduling,
    timing,
)
from streams.core.handlers.scheduling import Moving
from streams.core.parking import Asker, Credit, Parking
from streams.core.state import State
from streams.core.transaction import Transaction
from tests.simulation.mutants.mutation import Mutation, change


def _nothing(original: Any) -> Any:
    return lambda *args, **kw: None


def _claims_differ(**changes: Any) -> None:
    """Grants are logged with other values; a callable gets the transaction and the execution."""

    def make(original: Any) -> Any:
        def emit(self: Transaction, event: Any, execution: Execution) -> Any:
            if event is ExecutionClaimed:
                values = {name: value(self, execution) for name, value in changes.items()}
                execution = replace(execution, **values)
            return original(self, event, execution)

        return emit

    change(Transaction, "emit_execution", make)


def _epoch_not_raised() -> None:
    _claims_differ(lease_epoch=lambda tx, execution: max(1, execution.lease_epoch - 1))


def _token_not_monotonic() -> None:
    _claims_differ(fencing_token=lambda tx, execution: tx.now_ms * 1024)


def _deliveries_not_counted() -> None:
    _claims_differ(delivery_count=lambda tx, execution: 1)


def _fence_removed() -> None:
    def make(original: Any) -> Any:
        def report(tx: Transaction, tenant: str, item: LeaseRef, pools: Any = ()) -> Any:
            held = tx.state.execution(tenant, item.execution_id)
            if held is not None:
                item = replace(item, worker_id=held.worker_id, lease_epoch=held.lease_epoch)
            return original(tx, tenant, item, pools)

        return report

    change(leasing, "report", make)


def _beats_forgotten() -> None:
    def make(original: Any) -> Any:
        return lambda self, execution: execution.lease_until_ms

    change(State, "lease_until_ms", make)


def _redelivery_forgotten() -> None:
    change(timing, "_redeliver", _nothing)


def _backoff_forgotten() -> None:
    change(retry, "backoff_ms", lambda original: lambda policy, attempt, draw: 3_600_000)


def _one_attempt_more() -> None:
    def make(original: Any) -> Any:
        def fail(tx: Transaction, execution: Execution, error: str, lease_end: Any, **kw: Any) -> Any:
            kw.pop("retryable", None)
            _, policies = ending.content_of(tx, execution)
            if execution.attempt == policies.retry.max_attempts:
                after_ms = kw.get("retry_after_ms")
                return ending._retry_later(tx, execution, error, lease_end, policies, after_ms)
            return original(tx, execution, error, lease_end, **kw)

        return fail

    change(ending, "fail_attempt", make)


def _catch_up_dropped() -> None:
    def make(original: Any) -> Any:
        def keep(tx: Any, job: Any, moving: Moving, *args: Any) -> Any:
            moved = original(tx, job, moving, *args)
            moving.cursor = replace(moving.cursor, catch_up=())
            return moved

        return keep

    change(scheduling, "keep", make)


def _cursor_not_advanced() -> None:
    change(scheduling, "move", _nothing)


def _an_occurrence_passed_over() -> None:
    """The cursor goes two occurrences on when three are behind it."""

    def make(original: Any) -> Any:
        def move(job: Any, moving: Moving, last: Any) -> None:
            original(job, moving, last)
            if moving.cursor.runs % 4 == 3 and moving.cursor.next_ms:
                cursor = moving.cursor
                following_one = type(last)(cursor.next_ms, cursor.next_local)
                original(job, moving, following_one)

        return move

    change(scheduling, "move", make)


def _early() -> None:
    def make(original: Any) -> Any:
        return lambda cursor: original(cursor) - 2_000

    change(scheduling, "_due", make)


def _update_drops_kept() -> None:
    change(following, "make_all_kept", _nothing)


def _pause_swallows() -> None:
    change(pausing, "skip_missed", lambda original: lambda tx, job, cursor: replace(cursor, skips=()))


def _repeat_registers_anew() -> None:
    change(registration, "_is_repeat", _nothing)


def _repeat_triggers_anew() -> None:
    change(State, "triggered", _nothing)


def _overlap_ignored() -> None:
    def make(original: Any) -> Any:
        def overlap(tx: Transaction, job: Any, policy: Any = None) -> Any:
            waiting = original(tx, job, policy)
            return WaitingFor.WORKER if waiting is WaitingFor.OVERLAP else waiting

        return overlap

    change(following, "overlap", make)


def _next_in_line_forgotten() -> None:
    def make(original: Any) -> Any:
        def follow(tx: Transaction, job: Any, cursor: Any) -> Any:
            return cursor if tx.state.blocked(job.tenant, job.job_id, 1) else original(tx, job, cursor)

        return follow

    change(following, "follow_up", make)


def _cancel_not_told() -> None:
    change(leasing, "_told", lambda original: leasing._accept)


def _deadline_ignored() -> None:
    change(timing, "must_have_started", lambda original: lambda execution, now_ms: False)


def _parked_credit_not_spent() -> None:
    def make(original: Any) -> Any:
        def spend(self: Parking, pool_key: str, asker: Asker) -> Credit:
            credit: Credit = original(self, pool_key, asker)
            credit.places += 1
            if asker.credits and asker.credits[0] is credit:
                return credit
            asker.credits.appendleft(credit)
            return credit

        return spend

    change(Parking, "spend", make)


def _gates_open() -> None:
    """Caps, pauses, breakers and exclusion groups hold nothing back."""
    change(gating, "gate", lambda original: lambda tx, execution: WaitingFor.WORKER)


def _dead_letter_not_sent() -> None:
    def make(original: Any) -> Any:
        def dead_letter(tx: Transaction, *args: Any) -> Any:
            before = len(tx.effects)
            ended = original(tx, *args)
            tx.effects[before:] = [e for e in tx.effects[before:] if not isinstance(e, Bury)]
            return ended

        return dead_letter

    change(ending, "dead_letter", make)


def _cancelled_next_runs() -> None:
    """A cancelled next occurrence leaves no trace in the cursor."""
    change(
        cancelling,
        "_cancel_next",
        lambda original: (
            lambda tx, job, cursor: firing.new_execution(
                job, firing.scheduled(job, cursor.next_ms), cursor.next_ms, tx.now_ms
            )
        ),
    )


def _newer_zones_ignored() -> None:
    change(rezoning, "recompute_some", lambda original: lambda tx: False)


def _only_open_or_not() -> None:
    change(State, "is_alone", lambda original: lambda self, job: True)


def _closed_job_stays() -> None:
    """The execution that says that its job is completed is forgotten alone."""
    change(timing, "_forget_closed", lambda original: lambda tx, job, execution: timing._drop(tx, execution))


def _closing_unheard() -> None:
    """Neither the execution nor the job says that the job is completed."""

    def make(original: Any) -> Any:
        def emit(self: Transaction, event: Any, execution: Execution) -> Any:
            return original(self, event, replace(execution, closes_job=False))

        return emit

    change(Transaction, "emit_execution", make)


OF_CORE = (
    Mutation("closed beside an open one", "a job is completed while it runs", _only_open_or_not),
    Mutation("closed job stays", "a job fires again when its execution is forgotten", _closed_job_stays),
    Mutation("closing unheard", "a one-off that ran is never completed", _closing_unheard),
    Mutation("newer zones ignored", "what was planned by older zone data stays", _newer_zones_ignored),
    Mutation("epoch not raised", "two grants of an execution under one epoch", _epoch_not_raised),
    Mutation("token not monotonic", "grants of one millisecond have one token", _token_not_monotonic),
    Mutation("deliveries not counted", "an execution is delivered without bound", _deliveries_not_counted),
    Mutation("fence removed", "the word of a replaced worker counts", _fence_removed),
    Mutation("beats forgotten", "leases end as if nobody had beaten", _beats_forgotten),
    Mutation("redelivery forgotten", "what expired is never delivered again", _redelivery_forgotten),
    Mutation("backoff of an hour", "retries beyond their policy", _backoff_forgotten),
    Mutation("an attempt too many", "one more than maxAttempts", _one_attempt_more),
    Mutation("catch-up dropped", "kept misfires are lost", _catch_up_dropped),
    Mutation("cursor not advanced", "an occurrence fires, and its cursor stays", _cursor_not_advanced),
    Mutation("an occurrence passed over", "one in four is lost", _an_occurrence_passed_over),
    Mutation("two seconds early", "occurrences fire before they are due", _early),
    Mutation("update drops kept misfires", "an update swallows what was due", _update_drops_kept),
    Mutation("pause swallows", "what fell into a pause is not recorded", _pause_swallows),
    Mutation("repeat registers anew", "a repeated registration makes another job", _repeat_registers_anew),
    Mutation("repeat triggers anew", "a repeated trigger runs twice", _repeat_triggers_anew),
    Mutation("overlap ignored", "what should wait in line runs", _overlap_ignored),
    Mutation("next in line forgotten", "nobody follows an execution that ended", _next_in_line_forgotten),
    Mutation("cancel not told", "a worker's word counts after the cancel", _cancel_not_told),
    Mutation("deadline ignored", "startDeadlineSec holds nothing back", _deadline_ignored),
    Mutation("parked credit not spent", "a request grants more than it offers", _parked_credit_not_spent),
    Mutation("gates open", "caps, pauses and groups hold nothing back", _gates_open),
    Mutation("dead letter not sent", "a given-up execution is nowhere to be found", _dead_letter_not_sent),
    Mutation("cancelled next runs", "a cancelled next occurrence runs all the same", _cancelled_next_runs),
)
