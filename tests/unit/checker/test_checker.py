"""The checker finds what it is there to find: a good log is tampered with, one promise at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from msgspec.structs import replace

from projections.checker.checker import Checker
from projections.checker.promises import Promise, check_promises
from projections.checker.report import Kind
from schemas.commands import Complete, Fail, MissedInPause, WorkCommand
from schemas.entities import (
    CatchUp,
    ExecutionStatus,
    LeaseEnd,
    OverlapPolicy,
    Skip,
    SkipReason,
    Tenant,
    WaitingFor,
)
from schemas.events import (
    AlertRaised,
    AttemptFailed,
    ContentKept,
    CursorEvent,
    CursorMoved,
    Event,
    ExecutionClaimed,
    ExecutionCompleted,
    ExecutionDeadLettered,
    ExecutionEvent,
    ExecutionFired,
    JobRegistered,
    JobResumed,
    LeaseExpired,
    LeaseExtended,
    TenantConfigured,
)
from schemas.ids import scheduled_execution_id
from tests.unit.checker.tale import Line, Log, judged, log_of, tell
from tests.unit.core.world import World, compacted


@cache
def told() -> tuple[World, tuple[Line, ...]]:
    world = tell()
    return world, tuple(log_of(world))


ENTITIES = ("execution", "cursor", "job", "lease", "alert", "kept", "breaker")


def is_of(event: Event | None, job_id: str) -> bool:
    if isinstance(event, ExecutionEvent):
        return event.execution.job_id == job_id
    return isinstance(event, CursorEvent) and event.cursor.job_id == job_id


def at(log: Log, kind: type[Event], which: Callable[[Any], bool] = lambda event: True) -> int:
    """Where the first event of a kind is."""
    return next(n for n, (_, event) in enumerate(log) if isinstance(event, kind) and which(event))


def change(kind: type[Event], which: Callable[[Any], bool] = lambda event: True, **changes: Any) -> Any:
    """Another value in the first such event: of its entity, or `at_ms` of itself."""

    def tamper(log: Log) -> Log:
        n = at(log, kind, which)
        key, event = log[n]
        if "at_ms" in changes:
            return [*log[:n], (key, replace(event, **changes)), *log[n + 1 :]]  # type: ignore[type-var]
        name = next(one for one in ENTITIES if hasattr(event, one))
        entity = getattr(event, name)
        new = {field: value(entity) if callable(value) else value for field, value in changes.items()}
        changed = replace(event, **{name: replace(entity, **new)})  # type: ignore[type-var]
        return [*log[:n], (key, changed), *log[n + 1 :]]

    return tamper


def twice(kind: type[Event]) -> Any:
    """The same event again."""

    def tamper(log: Log) -> Log:
        n = at(log, kind)
        return [*log[: n + 1], log[n], *log[n + 1 :]]

    return tamper


def without(which: Callable[[Event | None], bool]) -> Any:
    return lambda log: [line for line in log if not which(line[1])]


def scheduled(job_id: str, number: int) -> Callable[[Log], int]:
    def instant(log: Log) -> int:
        fired = [
            e.execution.scheduled_ms for _, e in log if isinstance(e, ExecutionFired) and is_of(e, job_id)
        ]
        return fired[number]

    return instant


def lose(job_id: str, number: int) -> Any:
    """An execution of a job is gone from the log."""

    def tamper(log: Log) -> Log:
        gone = scheduled(job_id, number)(log)
        return [
            line
            for line in log
            if not (
                isinstance(line[1], ExecutionEvent)
                and is_of(line[1], job_id)
                and line[1].execution.scheduled_ms == gone
            )
        ]

    return tamper


def of(job_id: str) -> Callable[[Any], bool]:
    return lambda event: is_of(event, job_id)


def skips(event: Any) -> bool:
    return bool(event.cursor.skips)


def more_skipped(cursor: Any) -> Any:
    return (replace(cursor.skips[0], count=cursor.skips[0].count + 1), *cursor.skips[1:])


def other_reason(reason: SkipReason) -> Any:
    return lambda cursor: (replace(cursor.skips[0], reason=reason), *cursor.skips[1:])


def redelivered(event: Any) -> bool:
    return bool(event.execution.delivery_count == 2)


def is_done(event: Event | None, job_id: str) -> bool:
    return isinstance(event, ExecutionCompleted) and is_of(event, job_id)


def first_of_group_stays(log: Log) -> Log:
    """The holder of the group's slot is not done when the next one gets it."""
    return [line for line in log if not is_done(line[1], "first")]


def one_place(log: Log) -> Log:
    n = at(log, TenantConfigured)
    event = log[n][1]
    assert isinstance(event, TenantConfigured)
    settings = replace(event.configured, max_running=1)
    return [*log[:n], (log[n][0], replace(event, configured=settings)), *log[n + 1 :]]


CASES = [
    (Kind.UNEXPLAINED, lose("once", 0)),
    (Kind.UNEXPLAINED, lose("every", 1)),
    (Kind.UNEXPLAINED, lose("local", 0)),
    (Kind.UNEXPLAINED, change(CursorMoved, skips, skips=())),
    (Kind.UNEXPLAINED, change(JobResumed, skips=())),
    (Kind.UNEXPLAINED, without(lambda e: is_of(e, "every") and not isinstance(e, JobRegistered))),
    (Kind.NOT_DUE, without(lambda e: isinstance(e, JobRegistered) and e.job.job_id == "once")),
    (Kind.NOT_DUE, change(ExecutionFired, of("every"), scheduled_ms=lambda e: e.scheduled_ms - 1)),
    (Kind.EARLY, change(ExecutionFired, of("once"), at_ms=1)),
    (Kind.EARLY, change(ExecutionClaimed, started_ms=lambda e: e.scheduled_ms - 1)),
    (Kind.JITTER, change(ExecutionFired, of("every"), due_ms=lambda e: e.scheduled_ms - 1)),
    (Kind.JITTER, change(ExecutionFired, of("every"), due_ms=lambda e: e.scheduled_ms + 5_001)),
    (Kind.JITTER, change(ExecutionFired, of("once"), due_ms=lambda e: e.scheduled_ms + 1)),
    (Kind.ACCEPTED_TWICE, twice(ExecutionCompleted)),
    (Kind.ACCEPTED_TWICE, twice(AttemptFailed)),
    (Kind.ACCEPTED_TWICE, change(ExecutionCompleted, worker_id="Z")),
    (Kind.ACCEPTED_TWICE, change(LeaseExtended, lease_epoch=7)),
    (Kind.EPOCH, change(ExecutionCompleted, lease_epoch=9)),
    (Kind.EPOCH, change(ExecutionClaimed, redelivered, lease_epoch=1)),
    (Kind.EPOCH, change(ExecutionClaimed, redelivered, lease_epoch=3)),
    (Kind.EPOCH, change(ExecutionClaimed, redelivered, fencing_token=1)),
    (Kind.OVERLAP, without(lambda e: is_done(e, "every"))),
    (Kind.EXCLUSION, first_of_group_stays),
    (Kind.CAP, one_place),
    (Kind.RETRY, change(AttemptFailed, attempt=3)),
    (Kind.RETRY, change(AttemptFailed, due_ms=lambda e: e.due_ms + 1)),
    (Kind.RETRY, change(ExecutionClaimed, redelivered, delivery_count=3)),
    (Kind.RETRY, change(LeaseExpired, delivery_count=0)),
    (Kind.LEASE, change(ExecutionClaimed, of("lost"), lease_until_ms=lambda e: e.lease_until_ms + 1)),
    (Kind.LEASE, change(LeaseExtended, until_ms=1 << 50)),
    (Kind.LEASE, change(LeaseExpired, of("lost"), at_ms=1)),
    (Kind.ALERT, without(lambda e: isinstance(e, AlertRaised) and e.alert.kind == "reaped")),
    (Kind.ALERT, without(lambda e: isinstance(e, AlertRaised) and e.alert.kind == "missed_window")),
    (Kind.ALERT, without(lambda e: isinstance(e, ExecutionDeadLettered))),
    (Kind.ALERT, change(AlertRaised, execution_id="another")),
    (Kind.ALERT, change(AlertRaised, lambda e: e.alert.kind == "missed_window", count=99)),
    (Kind.PAYLOAD, without(lambda e: isinstance(e, ContentKept))),
    (Kind.PAYLOAD, change(ContentKept, content=lambda kept: replace(kept.content, payload=b"other"))),
    (Kind.SKIP, change(CursorMoved, skips, skips=more_skipped)),
    (Kind.SKIP, change(CursorMoved, skips, skips=other_reason(SkipReason.PAUSED))),
    (Kind.SKIP, change(CursorMoved, skips, skips=other_reason(SkipReason.CANCELLED))),
    (Kind.SKIP, change(CursorMoved, skips, skips=other_reason(SkipReason.DEADLINE))),
    (Kind.SKIP, change(CursorMoved, skips, skips=other_reason(SkipReason.MISFIRE_POLICY))),
    (Kind.SKIP, change(CursorMoved, skips, skips=other_reason(SkipReason.MISFIRE_WINDOW))),
    (Kind.SKIP, change(CursorMoved, skips, skips=other_reason(SkipReason.MISFIRE_LIMIT))),
    (Kind.SKIP, change(JobResumed, skips=other_reason(SkipReason.OVERLAP))),
    (Kind.LIFE, change(ExecutionClaimed, redelivered, status=ExecutionStatus.PENDING)),
    (Kind.LIFE, change(LeaseExpired, of("lost"), waiting_for=WaitingFor.EXCLUSION)),
    (Kind.LIFE, change(ExecutionCompleted, scheduled_ms=5)),
    (Kind.LIFE, change(ExecutionFired, of("once"), start_deadline_ms=5)),
    (Kind.TIME, change(ExecutionCompleted, at_ms=1)),
    (Kind.UNFINISHED, lambda log: log[: at(log, ExecutionCompleted)]),
]


@pytest.mark.parametrize(("kind", "tamper"), CASES, ids=[f"{kind}-{n}" for n, (kind, _) in enumerate(CASES)])
def test_what_is_wrong_is_found(kind: Kind, tamper: Callable[[Log], Log]) -> None:
    world, log = told()
    report = judged(tamper(list(log)), world.now_ms, world.work, drained=True)
    assert report.found[kind] >= 1, report.violations


def test_a_good_log_is_good() -> None:
    """And every kind of thing is in it."""
    world, log = told()
    report = judged(log, world.now_ms, world.work, drained=True)
    assert report.violations == []
    assert report.good
    assert not report.unjudged
    assert report.due == report.fired + sum(report.skipped.values())
    assert (report.attempts_failed, report.redelivered, report.replayed) == (1, 3, 2)
    assert set(report.skipped) == {"OVERLAP", "MISFIRE_POLICY"}
    assert report.lateness.count > 10
    assert {kind.value: 0 for kind in Kind} == report.summary()["violations"]


def test_the_word_of_a_replaced_worker_is_found() -> None:
    """The log of events alone cannot tell: the worker's own record shows the lease that it had."""
    world, log = told()

    def stale(command: WorkCommand) -> WorkCommand:
        if not isinstance(command, Complete):
            return command
        return replace(command, items=tuple(replace(one, lease_epoch=0) for one in command.items))

    work = [(offset, stale(command)) for offset, command in world.work]
    assert judged(log, world.now_ms, work).found == {Kind.ACCEPTED_TWICE: 19}
    assert judged(log, world.now_ms).good


@pytest.mark.parametrize(("retryable", "kind"), [(False, Kind.RETRY), (True, None)])
def test_what_must_not_be_tried_again_is_not(retryable: bool, kind: Kind | None) -> None:
    world, log = told()

    def said(command: WorkCommand) -> WorkCommand:
        if not isinstance(command, Fail):
            return command
        return replace(command, items=tuple(replace(one, retryable=retryable) for one in command.items))

    work = [(offset, said(command)) for offset, command in world.work]
    assert set(judged(log, world.now_ms, work).found) == ({kind} if kind else set())


@pytest.mark.parametrize(
    ("newest", "ends", "changes"),
    [
        (ExecutionClaimed, "lease_until_ms", {}),
        (AttemptFailed, "due_ms", {}),
        (LeaseExpired, "due_ms", {"waiting_for": WaitingFor.REDELIVERY}),
        (ExecutionFired, "start_deadline_ms", {"start_deadline_ms": 1 << 42}),
    ],
)
def test_what_should_have_ended_long_ago_is_found(
    newest: type[Event], ends: str, changes: dict[str, Any]
) -> None:
    """A lease, a backoff, the wait of a redelivery, the last time to start: nobody looks at them any more."""
    log = told()[1]
    key, event = next(line for line in reversed(log) if isinstance(line[1], newest))
    assert isinstance(event, ExecutionEvent)
    execution = replace(event.execution, **changes)
    lone: Log = [(key, replace(event, execution=execution))]
    ends_ms = getattr(execution, ends)
    assert not judged(lone, ends_ms).found[Kind.UNFINISHED]
    assert judged(lone, ends_ms + 1).found[Kind.UNFINISHED] == 1


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ([], 0),
        ([(1, 0, 2)], 1),
        ([(1, 0, 2), (1, 0, 2)], 1),
        ([(2, 0, 4), (1, 0, 2)], 0),
        ([(1, 40, 2)], 0),  # perhaps not heard of everywhere
        ([(3, 40, 2)], 0),  # and what was before them is not known
        ([(1, 0, 5), (2, 40, 2)], 0),
        ([(1, 0, 5), (2, 10, 2)], 1),
        ([(1, 0, 2), (2, 10, 5)], 0),
    ],
)
def test_caps_are_held_as_far_as_partitions_may_know_them(
    settings: list[tuple[int, int, int]], found: int
) -> None:
    """Three run at once from second 60 on; settings are (version, since which second, maxRunning)."""
    world = World("2026-05-01T00:00:00Z")
    for job_id in ("a", "b", "c"):
        world.register(job_id, delay_sec=60)
    world.at(60)
    assert len(world.claim("A", 3)) == 3
    checker = Checker()
    for version, since_sec, most in settings:
        told = Tenant(tenant="acme", version=version, max_running=most)
        checker.configured(told, world.start_ms + since_sec * 1_000)
    for _, event in log_of(world):
        if event is not None:
            checker.take(0, event)
    assert checker.report.found[Kind.CAP] == found


def test_a_time_out_backs_off_by_the_policy() -> None:
    """What a worker may ask for, a time-out may not."""
    world, log = told()
    n = at(list(log), AttemptFailed)
    key, event = log[n]
    assert isinstance(event, AttemptFailed)
    deadline_ms = event.execution.deadline_ms
    late = replace(event, at_ms=deadline_ms, cause="time")
    for wait_ms, wrong in ((10_000, 0), (10_001, 1), (0, 1)):
        execution = replace(event.execution, due_ms=deadline_ms + wait_ms, lease_end=LeaseEnd.TIMEOUT)
        changed = [*log[:n], (key, replace(late, execution=execution)), *log[n + 1 :]]
        assert judged(changed, world.now_ms).found[Kind.RETRY] == wrong


def test_what_is_due_shortly_before_the_end_is_not_lost() -> None:
    world = World("2026-05-01T00:00:00Z")
    world.register(every_sec=10, overlap=OverlapPolicy.ALLOW)
    world.at(35)
    checker = Checker()
    for _, event in log_of(world):
        if event is not None:
            checker.take(0, event)
    report = checker.finish(world.start_ms + 65_000, grace_ms=15_000)
    assert (report.undecided, report.found[Kind.UNEXPLAINED]) == (2, 1)
    assert report.due == 6


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8, 1.0])
def test_what_compaction_took_is_not_held_against_the_engine(share: float) -> None:
    world = tell()
    cut = int(len(world.log) * share)
    log: Log = log_of(world)
    times = [event.at_ms for _, event in log[:cut] if event is not None]
    kept = compacted(world.log, cut)
    world.log = kept
    report = judged(log_of(world), world.now_ms, complete_since_ms=times[-1] + 1)
    assert report.violations == []
    # Said to be whole, it is not.
    assert not judged(log_of(world), world.now_ms).good


def test_a_compacted_log_is_still_judged_behind_the_compacted_part() -> None:
    world = tell()
    whole = log_of(world)
    last = max(n for n, (_, event) in enumerate(whole) if isinstance(event, ExecutionCompleted))
    cut = next(
        n
        for n, (_, event) in enumerate(whole)
        if event is not None and event.at_ms >= world.start_ms + 90_000
    )
    since_ms = world.start_ms + 90_000
    broken = [*whole[: last + 1], whole[last], *whole[last + 1 :]]
    assert cut < last
    newest = {key: n for n, (key, _) in enumerate(broken[:cut])}
    kept = [line for n, line in enumerate(broken) if n >= cut or newest[line[0]] == n]
    assert judged(kept, world.now_ms, complete_since_ms=since_ms).found == {Kind.ACCEPTED_TWICE: 1}


def test_promises() -> None:
    world, log = told()
    events = [event for _, event in log if event is not None]
    kept = [
        Promise(job_id="once", schedule={"delay_ms": 30_000}),
        Promise(job_id="every", schedule={"every_ms": 60_000}),
        *(Promise(job_id=job_id) for job_id in ("local", "lost", "first", "second")),
    ]
    for promises, wrong in (
        (kept, 0),
        ([*kept, Promise(job_id="never")], 1),
        (kept[1:], 1),
        ([Promise(job_id="once", schedule={"delay_ms": 1}), *kept[1:]], 1),
        ([Promise(job_id="once", ends={"FAILED"}), *kept[1:]], 1),
    ):
        report = judged(log, world.now_ms)
        check_promises(promises, events, report)
        assert report.found[Kind.PROMISE] == wrong, report.violations


@pytest.mark.parametrize("missed", MissedInPause)
def test_a_one_off_that_fell_into_a_pause_is_accounted_for(missed: MissedInPause) -> None:
    world = World()
    world.register("once", delay_sec=10)
    world.pause("once")
    world.at(60)
    world.resume("once", missed)
    world.at(70)
    for grant in world.claim("A", 5):
        world.complete(grant)
    report = judged(log_of(world), world.now_ms, drained=True)
    assert report.good, report.violations
    assert report.due == 1


def test_neither_skipped_nor_kept_is_what_has_an_execution() -> None:
    """Cancelled before its time, and come to again by another schedule: both were once let pass."""
    world = World()
    job = world.register("a", every_sec=60).job
    assert job is not None
    world.cancel(scheduled_execution_id("a", job.incarnation, job.first_next_ms))
    world.update(1, "a", cron="*/20 * * * * *")
    world.now_ms += 75_000
    world.run()
    log = log_of(world)
    assert judged(log, world.now_ms).good
    first_ms, last_ms = job.first_next_ms - 20_000, job.first_next_ms
    both = CatchUp(after_ms=first_ms - 1, after_local="", from_ms=first_ms, to_ms=last_ms, count=2)
    skip = Skip(from_ms=last_ms, to_ms=last_ms, count=1, reason=SkipReason.MISFIRE_LIMIT)
    for changes, told in (
        ({"catch_up": (both,)}, f"keeps {last_ms}, which has an execution"),
        ({"skips": (skip,)}, "1 of them were not due, or did run"),
    ):
        missed = at(log, CursorMoved, lambda event: bool(event.cursor.catch_up))
        key, event = log[missed]
        wrong = replace(event, cursor=replace(event.cursor, **changes))  # type: ignore[type-var,union-attr]
        found = judged([*log[:missed], (key, wrong), *log[missed + 1 :]], world.now_ms).violations
        assert any(one.detail.endswith(told) for one in found), found
