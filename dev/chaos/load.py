"""The load of the chaos: jobs of every kind, registered all the time; what was acknowledged is promised."""

import threading
from collections.abc import Mapping
from datetime import UTC, datetime

from horarium import At, Client, Cron, Every, HorariumError, JobSpec
from horarium import RetryPolicy as Retry

from dev.chaos.stage import POOL, SMALL_KEY, Stage, StageError
from projections.checker.promises import Promise
from streams.ambient import Chance, monotonic_ms, new_id, wall_ms

EVERY_SEC = 0.25
AT_ONCE = 3
DUE_WITHIN_MS = 3_000
LEASE_SEC = 6
INSIST_MS = 240_000
QUICK = Retry(max_attempts=5, backoff_base_sec=1, backoff_factor=1, backoff_max_sec=1, jitter="none")
# Executions of a job that always fails its first attempt have a second one.
FLAKY_SHARE = 0.2

RECURRING: Mapping[str, tuple[JobSpec, Mapping[str, object]]] = {
    "every": (
        JobSpec(schedule=Every(1), pool=POOL, task="work", lease_sec=LEASE_SEC, overlap_policy="allow"),
        {"every_ms": 1_000},
    ),
    "queue": (
        JobSpec(schedule=Every(2), pool=POOL, task="work", lease_sec=LEASE_SEC, payload={"sec": 1.5}),
        {"every_ms": 2_000},
    ),
    "skip": (
        JobSpec(
            schedule=Cron("*/3 * * * * *", "Asia/Kolkata"),
            pool=POOL,
            task="work",
            lease_sec=LEASE_SEC,
            overlap_policy="skip",
            payload={"sec": 4},
        ),
        {"cron": "*/3 * * * * *", "time_zone": "Asia/Kolkata"},
    ),
    "newest": (
        JobSpec(
            schedule=Every(5),
            pool=POOL,
            task="work",
            lease_sec=LEASE_SEC,
            overlap_policy="cancel_running",
            misfire_policy="fire_once",
            payload={"sec": 1},
        ),
        {"every_ms": 5_000},
    ),
}


class Load:
    """A thread that registers one-offs until told to end; recurring jobs run meanwhile."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.promises: list[Promise] = []
        self.repeated = 0
        self._chance = Chance(seed)
        self._client = stage.client()
        self._small = stage.client(SMALL_KEY)
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="chaos-load", daemon=True)

    def start(self) -> None:
        """Registers what recurs, then goes on by itself."""
        for name, (spec, schedule) in RECURRING.items():
            self._client.put_job(f"large-{name}", spec)
            self.promises.append(Promise(job_id=f"large-{name}", schedule=schedule))
        for number in range(2):
            job_id = f"small-group-{number}"
            spec = JobSpec(
                schedule=Every(2), pool=POOL, task="work", lease_sec=LEASE_SEC, exclusion_group="one"
            )
            self._small.put_job(job_id, spec)
            self.promises.append(Promise(job_id=job_id, schedule={"every_ms": 2_000}))
        self._thread.start()

    def end(self) -> None:
        """No more registrations; what recurs is cancelled. Raises what ended the load."""
        self._stopping.set()
        self._thread.join(300)
        if self._failure is not None:
            raise self._failure
        for promise in self.promises:
            if promise.job_id.startswith("large-"):
                self._client.cancel_job(promise.job_id)
            elif promise.job_id.startswith("small-"):
                self._small.cancel_job(promise.job_id)
        self._client.close()
        self._small.close()

    @property
    def job_ids(self) -> list[str]:
        return [promise.job_id for promise in self.promises]

    def _run(self) -> None:
        try:
            while not self._stopping.wait(EVERY_SEC):
                self._register(self._client)
        except BaseException as error:
            self._failure = error

    def _register(self, client: Client) -> None:
        due_ms = wall_ms() + self._chance.randrange(DUE_WITHIN_MS)
        flaky = self._chance.random() < FLAKY_SHARE
        spec = JobSpec(
            schedule=At(datetime.fromtimestamp(due_ms / 1000, UTC)),
            pool=POOL,
            task="flaky" if flaky else "work",
            retry_policy=QUICK,
            lease_sec=LEASE_SEC,
            payload={"sec": self._chance.choice([0.05, 0.3, 1])},
        )
        key = new_id()
        deadline_ms = monotonic_ms() + INSIST_MS
        # Until each of them is answered: what the log may hold must be known to be promised.
        while True:
            try:
                answers = client.create_jobs([spec] * AT_ONCE, idempotency_key=key)
                job_ids = [answer.job.job_id for answer in answers if answer.job is not None]
                if len(job_ids) == AT_ONCE:
                    self.promises += [Promise(job_id=one, schedule={"run_at_ms": due_ms}) for one in job_ids]
                    return
                error: object = answers
            except HorariumError as failure:
                error = failure
            self.repeated += 1
            if monotonic_ms() > deadline_ms:
                raise StageError(f"a registration was not taken within {INSIST_MS} ms: {error}")
