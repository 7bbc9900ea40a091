"""The jobs of the demo: what is registered, through which door, and what must become of it.

Each has its schedule twice: as the request that the scheduler gets, and as what the log must make of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from horarium import At, Cron, Delay, Every, JobSpec, RetryPolicy

from projections.checker.promises import Promise

POOL = "demo"
HERD = 25

# Steps of the play find their job by these.
KILLED, CANCELLED, CANCELLED_RUNNING, BY_KAFKA, SHORT_FORM = (
    "worker-killed",
    "cancelled-early",
    "cancelled-run",
    "through-kafka",
    "short-form",
)

# The demo is over in a minute, so nobody waits long for another try.
RETRY = RetryPolicy(max_attempts=4, backoff_base_sec=1, backoff_factor=1, backoff_max_sec=1, jitter="none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One job. `title` is its row in the table; `ends` what its executions must have come to."""

    job_id: str
    title: str
    says: str
    schedule: Mapping[str, object]
    spec: JobSpec
    ends: frozenset[str] = field(default=frozenset({"COMPLETED"}))
    recurring: bool = False

    @property
    def promise(self) -> Promise:
        """What the registration's answer says."""
        return Promise(job_id=self.job_id, schedule=self.schedule, ends=self.ends)


def _once(job_id: str, seconds: int, task: str = "quick", **more: object) -> Planned:
    ends = more.pop("ends", "COMPLETED")
    spec = _spec(Delay(seconds), task, job_id, **more)
    return Planned(
        job_id=job_id,
        title=job_id,
        says=f"in {seconds} s",
        schedule={"delay_ms": seconds * 1_000},
        spec=spec,
        ends=frozenset({str(ends)}),
    )


def _spec(schedule: object, task: str, name: str, **more: object) -> JobSpec:
    members = {"name": name, "pool": POOL, "task": task, "retry_policy": RETRY, "lease_sec": 10, **more}
    return JobSpec(schedule=schedule, **members)  # type: ignore[arg-type]


def _cron(job_id: str, expression: str, zone: str) -> Planned:
    return Planned(
        job_id=job_id,
        title=job_id,
        says=f"sec {expression.split()[0]} {zone.split('/')[-1]}",
        schedule={"cron": expression, "time_zone": zone},
        spec=_spec(Cron(expression, zone), "quick", job_id),
        recurring=True,
    )


def one_off(now_ms: int) -> Planned:
    """At an instant a few seconds from now."""
    at_ms = now_ms + 4_000
    when = datetime.fromtimestamp(at_ms / 1000, UTC)
    return Planned(
        job_id="one-off",
        title="one-off",
        says=f"at {when:%H:%M:%S}",
        schedule={"run_at_ms": at_ms},
        spec=_spec(At(when), "quick", "one-off"),
    )


def single_jobs() -> list[Planned]:
    """Those that are put over HTTP under ids of their own."""
    return [
        _once("delayed", 6),
        _cron("cron-utc", "*/5 * * * * *", "UTC"),
        _cron("cron-kolkata", "*/7 * * * * *", "Asia/Kolkata"),
        _cron("cron-new-york", "3-58/11 * * * * *", "America/New_York"),
        _cron("cron-lord-howe", "0,20,40 * * * * *", "Australia/Lord_Howe"),
        Planned(
            job_id="interval",
            title="interval",
            says="every 4 s",
            schedule={"every_ms": 4_000},
            spec=_spec(Every(4), "quick", "interval"),
            recurring=True,
        ),
        _once("fails-twice", 3, "flaky"),
        _once("always-fails", 4, "hopeless", ends="FAILED"),
        _once(KILLED, 5, "long", lease_sec=3),
        _once(CANCELLED, 30, ends="CANCELLED"),
        _once(CANCELLED_RUNNING, 5, "patient", lease_sec=3, ends="CANCELLED"),
    ]


def by_kafka() -> Planned:
    """Registered by a record on the commands topic."""
    return _once(BY_KAFKA, 7)


def herd() -> list[Planned]:
    """Registered in one batch, due together."""
    return [
        Planned(
            job_id=f"herd-{number:02}",
            title=f"herd of {HERD}",
            says="in 9 s, one batch",
            schedule={"delay_ms": 9_000},
            spec=_spec(Delay(9), "quick", f"herd-{number:02}"),
        )
        for number in range(HERD)
    ]


def short_form(job_id: str, at_ms: int) -> Planned:
    """What the short form of the API made."""
    spec = _spec(At(datetime.fromtimestamp(at_ms / 1000, UTC)), "quick", SHORT_FORM)
    return Planned(
        job_id=job_id, title=SHORT_FORM, says="at an instant", schedule={"run_at_ms": at_ms}, spec=spec
    )
