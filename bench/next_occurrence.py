"""What the next occurrence costs: `python -m bench.next_occurrence`.

The engine's own functions on jobs in memory, nothing else. `herd`: jobs at midnight that share a few
expressions and zones, each moved on by one occurrence, as firing does it. `cold`: expressions nobody asked
for before. `hashed`: distinct `H` jobs, more than any cache holds, each asked once and then once more; memory
is what the process grew by.
"""

from __future__ import annotations

import argparse
import random  # noqa: TID251  # seeded: every run asks for the same
import resource
import time
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice

from bench import report
from schemas.entities import Content, Job, Policies, Schedule, ScheduleKind
from streams.core.cron import parse_cron
from streams.core.instants import parse_instant
from streams.core.planning import due_ms, plan_of
from streams.core.schedule import Occurrence, next_occurrence

MIDNIGHT_MS = parse_instant("2026-06-15T00:00:00Z", "midnight")
EXPRESSIONS = ("0 0 * * *", "0 0 * * MON-FRI", "0 * * * *", "*/15 * * * *", "0 0 1 * *", "* * * * *")
ZONES = ("UTC", "Europe/London", "America/New_York", "Asia/Tokyo", "Australia/Lord_Howe", "America/Santiago")
CHUNK = 1_000
CONTENT = Content(name="n", task="t")


def measure(options: argparse.Namespace) -> report.Figures:
    """All three, on one core."""
    herd = _timed(_herd(options.herd))
    cold = _timed(_cold(options.cold))
    before = _resident_mib()
    hashed = _timed(_hashed(options.hashed))
    grown = _resident_mib() - before
    again = _timed(_hashed(options.hashed))
    return {
        "herdUs": herd,
        "coldUs": cold,
        "hashedFirstUs": hashed,
        "hashedAgainUs": again,
        "hashedGrewMiB": round(grown, 1),
        "valid": herd <= options.herd_limit and max(cold, hashed) <= options.cold_limit,
    }


def _timed(jobs: Iterable[Job]) -> float:
    """CPU microseconds a job (other processes do not count); making the jobs is not counted."""
    spent, count = 0.0, 0
    pending = iter(jobs)
    while chunk := list(islice(pending, CHUNK)):
        began = time.process_time()
        for job in chunk:
            _move(job)
        spent += time.process_time() - began
        count += len(chunk)
    return round(1e6 * spent / count, 2)


def _move(job: Job) -> tuple[Occurrence, int] | None:
    """What moving a cursor by one occurrence asks for."""
    following = next_occurrence(plan_of(job), MIDNIGHT_MS)
    return None if following is None else (following, due_ms(job, following))


def _herd(count: int) -> Iterator[Job]:
    for number in range(count):
        cron = EXPRESSIONS[number % len(EXPRESSIONS)]
        yield _job(number, cron, ZONES[number // len(EXPRESSIONS) % len(ZONES)])


def _cold(count: int) -> Iterator[Job]:
    """Lists of minutes and hours drawn by chance: no two are alike."""
    chance = random.Random(1)
    for number in range(count):
        minutes = ",".join(map(str, sorted(chance.sample(range(60), 8))))
        hours = ",".join(map(str, sorted(chance.sample(range(24), 4))))
        yield _job(number, f"{minutes} {hours} * * {number % 7}", ZONES[number % len(ZONES)])


def _hashed(count: int) -> Iterator[Job]:
    for number in range(count):
        yield _job(number, "H H * * *", ZONES[number % len(ZONES)])


def _job(number: int, cron: str, zone: str) -> Job:
    schedule = Schedule(kind=ScheduleKind.CRON, cron=cron, cron_expanded="", time_zone=zone)
    return Job(
        tenant="bench",
        job_id=f"job-{number}",
        incarnation=1,
        version=1,
        pool="default",
        schedule=schedule,
        content=CONTENT,
        policies=Policies(),
        created_ms=0,
        created_by="bench",
        request_key="",
        body_hash="",
        first_next_ms=MIDNIGHT_MS,
    )


def _resident_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = report.arguments(__doc__ or "")
    parser.add_argument("--herd", type=int, default=100_000, help="jobs that share their expressions")
    parser.add_argument("--cold", type=int, default=10_000, help="expressions never seen before")
    parser.add_argument("--hashed", type=int, default=1_000_000, help="distinct H jobs")
    parser.add_argument("--herd-limit", type=float, default=20.0, help="valid up to so many µs")
    parser.add_argument("--cold-limit", type=float, default=200.0, help="valid up to so many µs")
    options = parser.parse_args()
    parse_cron(EXPRESSIONS[0])  # tables of days are made once a process
    report.run("next-occurrence", options, partial(measure, options), processors=False)


if __name__ == "__main__":
    main()
