"""From a job's schedule to occurrences: resolves what a caller wrote, and asks `schedule` what comes next."""

from __future__ import annotations

from functools import lru_cache

from msgspec.structs import replace

from schemas.commands import ScheduleSpec
from schemas.entities import Job, Schedule, ScheduleKind
from schemas.replies import FieldProblem
from streams.core import schedule as occurrences
from streams.core.cron import parse_cron, uses_hash
from streams.core.instants import parse_instant, parse_local
from streams.core.limits import HORIZON_MS, PAST_MS_MAX
from streams.core.schedule import Occurrence
from streams.core.zones import get_zone, resolve_local


def resolve(
    spec: ScheduleSpec, seed: str, now_ms: int, default_jitter_sec: int = 0, former: Schedule | None = None
) -> Schedule | FieldProblem:
    """The schedule that a (well-formed) spec means now, or why it cannot be taken now.

    `former`: the schedule that an update replaces; an interval keeps its anchor unless it changes.
    """
    plain = _kind(spec, seed, now_ms, former)
    if isinstance(plain, FieldProblem):
        return plain
    start_at_ms = parse_instant(spec.start_at, "schedule.startAt") if spec.start_at is not None else 0
    end_at_ms = parse_instant(spec.end_at, "schedule.endAt") if spec.end_at is not None else 0
    if end_at_ms and end_at_ms < start_at_ms:
        return FieldProblem(field="schedule.endAt", detail="is before schedule.startAt")
    jitter_sec = spec.jitter_sec
    if jitter_sec is None:
        # A tenant's default spreads its minute-based herds; six fields ask for a second.
        jitter_sec = default_jitter_sec if spec.cron is not None and len(spec.cron.split()) == 5 else 0
    return replace(
        plain,
        start_at_ms=start_at_ms,
        end_at_ms=end_at_ms,
        max_runs=spec.max_runs or 0,
        jitter_ms=jitter_sec * 1000,
    )


def _kind(spec: ScheduleSpec, seed: str, now_ms: int, former: Schedule | None) -> Schedule | FieldProblem:
    if spec.cron is not None:
        cron = parse_cron(spec.cron, seed)
        return Schedule(
            kind=ScheduleKind.CRON,
            cron=spec.cron,
            cron_expanded=cron.expanded,
            time_zone=spec.time_zone or "UTC",
        )
    if spec.every_sec is not None:
        return Schedule(
            kind=ScheduleKind.EVERY,
            every_ms=spec.every_sec * 1000,
            anchor_ms=_anchor(spec, spec.every_sec * 1000, now_ms, former),
        )
    if spec.delay_sec is not None:
        return Schedule(kind=ScheduleKind.ONCE, run_at_ms=now_ms + spec.delay_sec * 1000)
    return _one_off(spec, now_ms)


def _anchor(spec: ScheduleSpec, every_ms: int, now_ms: int, former: Schedule | None) -> int:
    if spec.start_at is not None:
        return parse_instant(spec.start_at, "schedule.startAt")
    if former is not None and former.kind is ScheduleKind.EVERY and former.every_ms == every_ms:
        return former.anchor_ms
    return now_ms


def _one_off(spec: ScheduleSpec, now_ms: int) -> Schedule | FieldProblem:
    field = "schedule.runAt"
    if spec.time_zone is None:
        run_at_ms = parse_instant(spec.run_at, field)
    else:
        run_at_ms = resolve_local(get_zone(spec.time_zone), parse_local(spec.run_at, field))
    if run_at_ms > now_ms + HORIZON_MS:
        return FieldProblem(field=field, detail="is more than 100 years ahead")
    if run_at_ms <= 0:
        return FieldProblem(field=field, detail="is before 1970")
    if run_at_ms < now_ms - PAST_MS_MAX and not spec.allow_past:
        detail = "is more than 24 hours past; send schedule.allowPast if it is meant"
        return FieldProblem(field=field, detail=detail)
    return Schedule(kind=ScheduleKind.ONCE, run_at_ms=run_at_ms, time_zone=spec.time_zone or "UTC")


@lru_cache(maxsize=100_000)
def _built(schedule: Schedule, seed: str, past: bool) -> occurrences.CronSchedule | occurrences.Every:
    start_at_ms = schedule.start_at_ms or None
    end_at_ms = schedule.end_at_ms or None
    if schedule.kind is ScheduleKind.CRON:
        return occurrences.CronSchedule(
            cron=parse_cron(schedule.cron, seed),
            zone=get_zone(schedule.time_zone),
            start_at_ms=start_at_ms,
            end_at_ms=end_at_ms,
        )
    if start_at_ms is None and not past:
        # The anchor is the registration itself: the first occurrence is one interval later.
        start_at_ms = schedule.anchor_ms + schedule.every_ms
    return occurrences.Every(
        every_ms=schedule.every_ms,
        anchor_ms=schedule.anchor_ms,
        start_at_ms=start_at_ms,
        end_at_ms=end_at_ms,
    )


def plan(schedule: Schedule, seed: str, *, past: bool = False) -> occurrences.Schedule:
    """The schedule as `streams.core.schedule` computes with it; jobs that share an expression share it.

    `seed` is `<tenant>/<jobId>`. `past`: also what it would have yielded before its registration (backfill).
    """
    if schedule.kind is ScheduleKind.ONCE:
        # Few share an instant, and it is made in less time than it is found.
        return occurrences.Once(
            run_at_ms=schedule.run_at_ms,
            start_at_ms=schedule.start_at_ms or None,
            end_at_ms=schedule.end_at_ms or None,
        )
    return _built(replace(schedule, max_runs=0, jitter_ms=0), seed if uses_hash(schedule.cron) else "", past)


def seed_of(job: Job) -> str:
    """What hashed fields and jitter are drawn from."""
    return f"{job.tenant}/{job.job_id}"


def plan_of(job: Job) -> occurrences.Schedule:
    return plan(job.schedule, seed_of(job))


def first_occurrence(schedule: Schedule, seed: str, now_ms: int) -> Occurrence | None:
    """The first occurrence after the registration; a one-off's instant even if it is past."""
    after_ms = schedule.run_at_ms - 1 if schedule.kind is ScheduleKind.ONCE else now_ms
    return occurrences.next_occurrence(plan(schedule, seed), after_ms)


def jittered_ms(schedule: Schedule, seed: str, occurrence: Occurrence) -> int:
    """When an occurrence is due: a deterministic delay after its scheduled time, never past the next one."""
    if not schedule.jitter_ms:
        return occurrence.utc_ms
    following = occurrences.next_occurrence(plan(schedule, seed), occurrence.utc_ms, occurrence.local)
    next_ms = following.utc_ms if following is not None else None
    return occurrence.utc_ms + occurrences.jitter_ms(
        seed, schedule.jitter_ms // 1000, occurrence.utc_ms, next_ms
    )


def due_ms(job: Job, occurrence: Occurrence) -> int:
    """When an occurrence of the job is due."""
    return jittered_ms(job.schedule, seed_of(job), occurrence)
