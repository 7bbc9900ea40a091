"""Processors that are killed, added, stopped and robbed of their state, under a load that goes on."""

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from horarium import Client, Every, JobSpec

from dev import programs
from dev.demo.mix import Planned
from dev.server import PROCESSOR, ROOT
from schemas.entities import ExecutionStatus as E
from schemas.events import LeaseExpired
from streams.ambient import Chance, wall_ms
from tests.e2e.scene import (
    KEY,
    LARGE,
    OPERATOR_KEY,
    Scene,
    accepted,
    at,
    insist,
    lateness,
    opened,
    promised,
)
from tests.e2e.workers import app, working

PARTITIONS = 8
ROUNDS = 3
EVERY_SEC = 0.25
AT_ONCE = 4  # registrations in each of these moments
RECURRING = 8


@pytest.fixture(scope="module")
def scene(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("processors")
    with opened(folder, kafka, partitions=PARTITIONS, processors=2) as scene:
        yield scene


class Load:
    """One-off jobs, a few every moment and each due a little later, and some that recur every second."""

    def __init__(self, scene: Scene, pool: str) -> None:
        self.plans: list[Planned] = []
        self._pool = pool
        self._client = scene.client()
        self._chance = Chance(7)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._failure: BaseException | None = None
        for number in range(RECURRING):
            spec = JobSpec(schedule=Every(1), pool=pool, task="work")
            job = self._client.put_job(f"{pool}-{number}", spec)
            self.plans.append(promised(job, {"every_ms": 1_000}, recurring=True))

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """No more registrations; what recurs is cancelled."""
        self._stopping.set()
        self._thread.join(120)
        assert not self._thread.is_alive()
        if self._failure is not None:
            raise self._failure
        for plan in self.plans:
            if plan.recurring:
                self._client.cancel_job(plan.job_id)
        self._client.close()

    def _run(self) -> None:
        try:
            while not self._stopping.wait(EVERY_SEC):
                self.plans += some(self._client, self._pool, wall_ms() + self._chance.randrange(3_000))
        except BaseException as error:
            self._failure = error


def some(client: Client, pool: str, due_ms: int) -> list[Planned]:
    schedule, rule = at(due_ms)
    spec = JobSpec(schedule=schedule, pool=pool, task="work", payload={"sec": 0.2}, lease_sec=30)
    return accepted(insist(client, [spec] * AT_ONCE), rule)


@contextmanager
def under_load(scene: Scene, pool: str) -> Iterator[list[Planned]]:
    """The load and two workers; at the end everything that was promised is awaited."""
    load = Load(scene, pool)
    with working(*(app(scene.url, KEY, pool, name, 16) for name in ("one", "two"))):
        load.start()
        try:
            yield load.plans
        finally:
            load.end()
        scene.until_over(pool, load.plans)


def owners(scene: Scene) -> dict[int, str]:
    """Who runs what, as operators see it."""
    with scene.client(OPERATOR_KEY) as client:
        return {each.partition: each.owner or "" for each in client.partitions() if each.state == "RUNNING"}


def until_shared_by(scene: Scene, *names: str) -> None:
    scene.until(lambda: len(found := owners(scene)) == PARTITIONS and set(found.values()) == set(names))


def more_done(scene: Scene, pool: str, count: int = 10) -> None:
    """The load goes on."""
    before = scene.count(pool, E.COMPLETED)
    scene.until(lambda: scene.count(pool, E.COMPLETED) >= before + count)


def test_processors_killed_at_random_moments_under_load_lose_and_double_nothing(
    scene: Scene, pool: str, tell: Callable[[str], None]
) -> None:
    chance = Chance(3)
    until_shared_by(scene, "p0", "p1")
    with under_load(scene, pool) as plans:
        for _ in range(ROUNDS):
            more_done(scene, pool, 5)
            victim = chance.choice(["p0", "p1"])
            threading.Event().wait(chance.uniform(0, 0.5))
            scene.server.kill(victim)
            # Its partitions go on in the other one, then it comes back.
            other = "p1" if victim == "p0" else "p0"
            until_shared_by(scene, other)
            more_done(scene, pool)
            scene.server.restart(victim)
            until_shared_by(scene, "p0", "p1")
    verdict = scene.all_well(pool, plans)
    assert verdict.completed > ROUNDS * 20
    tell(f"{ROUNDS} processors killed under load: {lateness(verdict)}, {verdict.redelivered} delivered again")


def test_a_processor_is_added_and_another_stopped_under_load(scene: Scene, pool: str) -> None:
    until_shared_by(scene, "p0", "p1")
    with under_load(scene, pool) as plans:
        more_done(scene, pool)
        scene.add("p2", PROCESSOR, HORARIUM_INSTANCE="p2")
        until_shared_by(scene, "p0", "p1", "p2")
        more_done(scene, pool)
        assert scene.server.stop_part("p1")
        until_shared_by(scene, "p0", "p2")
        more_done(scene, pool)
        assert scene.server.stop_part("p2")
        scene.server.restart("p1")
        until_shared_by(scene, "p0", "p1")
    verdict = scene.all_well(pool, plans)
    # Handing over costs no lease.
    assert not scene.events(pool, LeaseExpired)
    assert verdict.redelivered == 0


def test_the_loss_of_all_state_directories_is_made_good_by_the_log(scene: Scene, pool: str) -> None:
    state = scene.server.data_dir / "state"
    with scene.client() as client, under_load(scene, pool) as plans:
        kept = JobSpec(schedule=Every(3600), pool=f"{pool}-kept")
        first = client.create_job(kept, idempotency_key=f"{pool}-kept")
        # Held through all of it: leases are state, too.
        client.create_job(JobSpec(schedule={"delaySec": 0}, pool=f"{pool}-held", lease_sec=120))
        [held] = client.claim(f"{pool}-held", "holder", wait_sec=15).executions
        more_done(scene, pool)
        for name in ("p0", "p1"):
            scene.server.kill(name)
        folders = sorted(each.name for each in state.iterdir())
        assert folders[:2] == ["p0", "p1"]
        shutil.rmtree(state)
        for name in ("p0", "p1"):
            scene.server.restart(name)
        until_shared_by(scene, "p0", "p1")
        more_done(scene, pool)
        again = client.create_job(kept, idempotency_key=f"{pool}-kept")
        assert (again.job_id, again.next_run_at) == (first.job_id, first.next_run_at)
        client.heartbeat(held.execution_id, "holder", held.lease_epoch)
        client.complete(held.execution_id, "holder", held.lease_epoch)
        client.cancel_job(first.job_id)
    scene.all_well(pool, plans)
    assert scene.book.registered[f"{pool}-kept"] == 1
    [execution] = scene.executions(f"{pool}-held").values()
    assert (execution.status, execution.lease_epoch) == (E.COMPLETED, 1)
    assert execution.tenant == LARGE


def test_the_checker_for_users_finds_nothing_wrong(scene: Scene) -> None:
    """With all that the tests before did to the processors, read from the live log by its own command."""
    done = subprocess.run(
        [sys.executable, "-m", "projections.checker", "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**programs.environment(), **scene.server.environment()},
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["good"]
    assert report["events"] > 100
    assert report["occurrences"]["due"] >= report["occurrences"]["fired"] > 0
