"""The demo's judge finds what it is there to find, and its reckoning agrees with the scheduler's."""

from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from dev.demo import mix, reckoning
from dev.demo.judge import Verdict, judge, percentile
from dev.demo.mix import Planned
from schemas.entities import (
    Content,
    Cursor,
    Execution,
    ExecutionKind,
    ExecutionStatus,
    Job,
    JobStatus,
    Policies,
    Priority,
    Schedule,
    ScheduleKind,
    Skip,
    SkipReason,
)
from schemas.events import (
    AttemptFailed,
    CursorMoved,
    EngineEvent,
    ExecutionClaimed,
    ExecutionCompleted,
    ExecutionDeadLettered,
    JobCancelled,
    JobRegistered,
    LeaseExpired,
)
from streams.core.cron import parse_cron
from streams.core.schedule import CronSchedule, occurrences
from streams.core.zones import get_zone

BORN_MS = 1_790_000_000_500
FIRST_MS, SECOND_MS = 1_790_000_000_000 + 4_500, 1_790_000_000_000 + 8_500
END_MS = SECOND_MS + 2_000
PLAN = next(plan for plan in mix.single_jobs() if plan.job_id == "interval")


def born() -> JobRegistered:
    job = Job(
        tenant="t",
        job_id="interval",
        incarnation=BORN_MS,
        version=1,
        pool="demo",
        schedule=Schedule(kind=ScheduleKind.EVERY),
        content=Content(name="interval", task="quick"),
        policies=Policies(),
        created_ms=BORN_MS,
        created_by="me",
        request_key="",
        body_hash="",
        first_next_ms=FIRST_MS,
    )
    return JobRegistered(at_ms=BORN_MS, actor="me", cause="commands@0#1", job=job)


def execution(scheduled_ms: int, **more: object) -> Execution:
    made = Execution(
        tenant="t",
        execution_id=f"interval.1.{scheduled_ms}.s",
        job_version=1,
        kind=ExecutionKind.SCHEDULE,
        pool="demo",
        priority=Priority.NORMAL,
        scheduled_ms=scheduled_ms,
        due_ms=scheduled_ms,
        fired_ms=scheduled_ms,
        status=ExecutionStatus.RUNNING,
        delivery_count=1,
        lease_epoch=1,
        started_ms=scheduled_ms + 10,
    )
    return replace(made, **more)


def claimed(scheduled_ms: int, **more: object) -> ExecutionClaimed:
    return ExecutionClaimed(at_ms=0, actor="time", cause="time", execution=execution(scheduled_ms, **more))


def completed(scheduled_ms: int, **more: object) -> ExecutionCompleted:
    ended = execution(scheduled_ms, **{"status": ExecutionStatus.COMPLETED, **more})
    return ExecutionCompleted(at_ms=0, actor="w", cause="work@0#1", execution=ended)


def cursor(kind: Callable[..., EngineEvent], at_ms: int, *skips: Skip) -> EngineEvent:
    now = Cursor(tenant="t", job_id="interval", incarnation=BORN_MS, status=JobStatus.ACTIVE, skips=skips)
    return kind(at_ms=at_ms, actor="time", cause="time", cursor=now)


GOOD: list[EngineEvent] = [
    born(),
    claimed(FIRST_MS),
    completed(FIRST_MS),
    claimed(SECOND_MS),
    completed(SECOND_MS),
]


def judged(
    events: Sequence[EngineEvent], end_ms: int = END_MS, plans: Sequence[Planned] = (PLAN,)
) -> Verdict:
    return judge(plans, events, end_ms)


def test_a_good_log() -> None:
    verdict = judged(GOOD)
    assert verdict.good
    assert verdict.complaints == []
    assert verdict.summary() == {
        "registered": 1,
        "executed": 2,
        "retried": 0,
        "deadLettered": 0,
        "redelivered": 0,
        "cancelled": 0,
        "skipped": 0,
        "lost": 0,
        "early": 0,
        "duplicatesAccepted": 0,
        "unexpected": 0,
        "latenessMs": {"p50": 10, "p99": 10},
    }


@pytest.mark.parametrize(
    ("events", "lost"),
    [
        (GOOD[:3], 1),  # the second never came
        (GOOD[:4], 1),  # it was begun and has no end
        (GOOD[:1], 2),
        ([], 1),  # acknowledged, and not there
    ],
)
def test_what_is_lost_is_found(events: list[EngineEvent], lost: int) -> None:
    verdict = judged(events)
    assert not verdict.good
    assert verdict.lost == lost
    assert len(verdict.complaints) == lost


def test_a_recorded_skip_is_not_lost() -> None:
    skip = Skip(from_ms=SECOND_MS, to_ms=SECOND_MS, count=1, reason=SkipReason.OVERLAP)
    verdict = judged([*GOOD[:3], cursor(CursorMoved, SECOND_MS, skip)])
    assert (verdict.good, verdict.skipped) == (True, 1)
    verdict = judged([*GOOD[:3], cursor(CursorMoved, SECOND_MS, replace(skip, count=0))])
    assert verdict.lost == 1


def test_nothing_is_due_after_a_cancel() -> None:
    assert judged([*GOOD[:3], cursor(JobCancelled, SECOND_MS - 1)]).good
    assert judged([*GOOD[:3], cursor(JobCancelled, SECOND_MS)]).lost == 1


def test_early_is_found() -> None:
    verdict = judged([*GOOD[:3], claimed(SECOND_MS, started_ms=SECOND_MS - 1), GOOD[4]])
    assert (verdict.early, verdict.lost) == (1, 0)


def test_a_retry_before_its_backoff_is_early() -> None:
    failed = execution(SECOND_MS, status=ExecutionStatus.SCHEDULED, due_ms=SECOND_MS + 1_000, attempt=2)
    failure = AttemptFailed(at_ms=0, actor="w", cause="work@0#2", execution=failed)
    again = {"attempt": 2, "lease_epoch": 2}
    for started_ms, early in ((SECOND_MS + 999, 1), (SECOND_MS + 1_000, 0)):
        retry = claimed(SECOND_MS, started_ms=started_ms, **again)
        verdict = judged([*GOOD[:4], failure, retry, completed(SECOND_MS, **again)])
        assert (verdict.early, verdict.retried, verdict.executed) == (early, 1, 2)


def test_a_redelivery_is_counted_and_a_second_acceptance_found() -> None:
    expired = LeaseExpired(at_ms=0, actor="time", cause="time", execution=execution(SECOND_MS))
    again = claimed(SECOND_MS, lease_epoch=2, delivery_count=2)
    good = [*GOOD[:4], expired, again, completed(SECOND_MS, lease_epoch=2)]
    verdict = judged(good)
    assert (verdict.good, verdict.redelivered) == (True, 1)
    # The worker that was replaced is heard as well.
    verdict = judged([*good, completed(SECOND_MS, lease_epoch=1)])
    assert verdict.duplicates == 2
    assert not verdict.good


@pytest.mark.parametrize("more", [[completed(SECOND_MS)], [claimed(SECOND_MS)]], ids=["outcome", "grant"])
def test_twice_under_one_epoch_is_found(more: list[EngineEvent]) -> None:
    assert judged([*GOOD, *more]).duplicates >= 1


def test_what_was_not_due_is_found() -> None:
    assert judged([*GOOD, claimed(SECOND_MS + 1), completed(SECOND_MS + 1)]).unexpected == 1
    assert judged(GOOD, plans=[]).unexpected == 1
    dead = execution(SECOND_MS, status=ExecutionStatus.FAILED)
    verdict = judged([*GOOD[:4], ExecutionDeadLettered(at_ms=0, actor="w", cause="", execution=dead)])
    assert (verdict.unexpected, verdict.dead_lettered) == (1, 1)


@pytest.mark.parametrize("plan", [plan for plan in mix.single_jobs() if plan.job_id.startswith("cron")])
@pytest.mark.parametrize(
    "from_ms", [BORN_MS, 1_791_041_340_000, 1_775_314_740_000], ids=["day", "gap-of-lord-howe", "its-fold"]
)
def test_reckoning_agrees_with_the_scheduler(plan: Planned, from_ms: int) -> None:
    assert isinstance(plan.rule, reckoning.Cron)
    until_ms = from_ms + 180_000
    schedule = CronSchedule(cron=parse_cron(plan.rule.expression), zone=get_zone(plan.rule.zone))
    theirs = []
    for occurrence in occurrences(schedule, from_ms):
        if occurrence.utc_ms > until_ms:
            break
        theirs.append(occurrence.utc_ms)
    assert list(plan.rule.instants(from_ms, until_ms)) == theirs
    assert len(theirs) >= 9


def test_percentiles() -> None:
    assert percentile([], 50) == 0
    assert percentile([3, 1, 2], 50) == 2
    assert percentile(list(range(1, 101)), 99) == 99
    assert percentile([7], 99) == 7
