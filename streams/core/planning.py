"""From a job's schedule to occurrences: resolves what a caller wrote, and asks `schedule` what comes next."""

from __future__ import annotations

from functools import lru_cache

from schemas.commands import ScheduleSpec
from schemas.entities import Job, Schedule, ScheduleKind
from schemas.replies import FieldProblem
from streams.core import schedule as occurrences
from streams.core.cron import parse_cron, uses_hash
from streams.core.instants import parse_instant, parse_local
from streams.core.limits import HORIZON_MS, PAST_MS_MAX
from streams.core.schedule import Occurrence
from streams.core.zones import get_zone, resolve_local


def resolve(spec: ScheduleSpec, seed: str, now_ms: int) -> Schedule | FieldProblem:
    """The schedule that a (well-formed) spec means now, or why it cannot be taken now."""
    if spec.cron is not None:
        cron = parse_cron(spec.cron, seed)
        return Schedule(
            kind=ScheduleKind.CRON,
            cron=spec.cron,
            cron_expanded=cron.expanded,
            time_zone=spec.time_zone or "UTC",
        )
    if spec.every_sec is not None:
        return Schedule(kind=ScheduleKind.EVERY, every_ms=spec.every_sec * 1000, anchor_ms=now_ms)
    if spec.delay_sec is not None:
        return Schedule(kind=ScheduleKind.ONCE, run_at_ms=now_ms + spec.delay_sec * 1000)
    return _one_off(spec, now_ms)


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
def _built(schedule: Schedule, seed: str) -> occurrences.Schedule:
    match schedule.kind:
        case ScheduleKind.CRON:
            cron = parse_cron(schedule.cron, seed)
            return occurrences.CronSchedule(cron=cron, zone=get_zone(schedule.time_zone))
        case ScheduleKind.EVERY:
            # The anchor itself is the registration: the first occurrence is one interval later.
            return occurrences.Every(
                every_ms=schedule.every_ms,
                anchor_ms=schedule.anchor_ms,
                start_at_ms=schedule.anchor_ms + schedule.every_ms,
            )
        case ScheduleKind.ONCE:
            return occurrences.Once(run_at_ms=schedule.run_at_ms)


def plan(schedule: Schedule, tenant: str, job_id: str) -> occurrences.Schedule:
    """The schedule as `streams.core.schedule` computes with it; jobs that share an expression share it."""
    return _built(schedule, f"{tenant}/{job_id}" if uses_hash(schedule.cron) else "")


def plan_of(job: Job) -> occurrences.Schedule:
    return plan(job.schedule, job.tenant, job.job_id)


def first_occurrence(schedule: Schedule, tenant: str, job_id: str, now_ms: int) -> Occurrence | None:
    """The first occurrence after the registration; a one-off's instant even if it is past."""
    planned = plan(schedule, tenant, job_id)
    after_ms = schedule.run_at_ms - 1 if schedule.kind is ScheduleKind.ONCE else now_ms
    return occurrences.next_occurrence(planned, after_ms)
