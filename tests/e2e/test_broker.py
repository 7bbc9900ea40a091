"""The broker dies under load and comes back: the server waits, says so, and goes on by itself."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from horarium import JobSpec

from dev.broker import CLUSTER_SETTINGS, LocalKafka
from dev.demo.mix import Planned
from schemas.entities import ExecutionStatus as E
from streams.ambient import wall_ms
from tests.e2e.scene import KEY, Scene, accepted, at, insist, lateness, opened
from tests.e2e.workers import app, working

PARTITIONS = 4
AT_ONCE = 4
EVERY_SEC = 0.3
RECOVERY_SEC = 120.0  # the broker alone takes some twelve seconds


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """One of our own: it is killed. As in a cluster it is soon let in again, here by its own controller."""
    with LocalKafka(tmp_path_factory.mktemp("own-broker"), settings=CLUSTER_SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="module")
def scene(broker: LocalKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with opened(tmp_path_factory.mktemp("broker"), broker.bootstrap, partitions=PARTITIONS) as scene:
        yield scene


def read(scene: Scene, path: str) -> httpx2.Response:
    return httpx2.get(f"{scene.url}{path}", headers={"Authorization": f"Bearer {KEY}"}, timeout=10)


def write(scene: Scene, pool: str, key: str) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {KEY}", "Idempotency-Key": key}
    body = {"schedule": {"everySec": 3600}, "target": {"pool": pool}}
    return httpx2.post(f"{scene.url}/v1/jobs", json=body, headers=headers, timeout=30)


def test_a_broker_killed_under_load_costs_nothing_but_time(
    scene: Scene, broker: LocalKafka, pool: str, tell: Callable[[str], None]
) -> None:
    plans: list[Planned] = []
    stopping = threading.Event()

    def load() -> None:
        with scene.client() as client:
            while not stopping.wait(EVERY_SEC):
                schedule, rule = at(wall_ms() + 1_000)
                spec = JobSpec(schedule=schedule, pool=pool, task="work", payload={"sec": 0.2}, lease_sec=60)
                plans.extend(accepted(insist(client, [spec] * AT_ONCE), rule))

    pids = {name: scene.pid(name) for name in scene.server.parts}
    crew = working(*(app(scene.url, KEY, pool, name, 8) for name in ("one", "two")))
    with crew, ThreadPoolExecutor(max_workers=1) as loader:
        loading = loader.submit(load)
        try:
            scene.until(lambda: scene.count(pool, E.COMPLETED) >= 10)
            broker.kill()
            reads_go_on_and_writes_say_so(scene, pool)
            broker.start()
            began = time.monotonic()
            scene.until(lambda: write(scene, f"{pool}-first", "first").status_code == 201, RECOVERY_SEC)
            recovered_sec = time.monotonic() - began
            before = scene.count(pool, E.COMPLETED)
            scene.until(lambda: scene.count(pool, E.COMPLETED) >= before + 20, RECOVERY_SEC)
        finally:
            stopping.set()
        loading.result(RECOVERY_SEC)
        scene.until_over(pool, plans, RECOVERY_SEC)
    verdict = scene.all_well(pool, plans)
    # Nobody started anything again.
    assert {name: scene.pid(name) for name in scene.server.parts} == pids
    assert all(part.running for part in scene.server.parts.values())
    # What was refused without a broker was not done later on either.
    assert scene.book.registered[f"{pool}-refused"] <= 1
    assert scene.book.registered[f"{pool}-first"] == 1
    tell(
        f"broker killed under load: first write {recovered_sec:.1f} s after it ran again; {lateness(verdict)}"
    )


def reads_go_on_and_writes_say_so(scene: Scene, pool: str) -> None:
    """While there is no broker."""
    for path in ("/v1/jobs", f"/v1/executions?pool={pool}", "/v1/dead-letters"):
        began = time.monotonic()
        answer = read(scene, path)
        assert answer.status_code == 200, answer.text
        assert time.monotonic() - began < 20
    assert read(scene, f"/v1/executions?pool={pool}").json()["executions"]
    # The first ones may be on their way for as long as an answer is waited for; then it is known.
    scene.until(lambda: refused_at_once(scene, pool), 30)
    assert httpx2.get(f"{scene.url}/livez", timeout=10).status_code == 200


def refused_at_once(scene: Scene, pool: str) -> bool:
    began = time.monotonic()
    answer = write(scene, f"{pool}-refused", "refused")
    assert answer.status_code == 503, answer.text
    assert int(answer.headers["Retry-After"]) >= 1
    assert answer.json()["code"] in {"outcome_unknown", "log_unavailable"}
    return answer.json()["code"] == "log_unavailable" and time.monotonic() - began < 1.0


def test_a_restart_of_broker_and_server_forgets_no_registration(
    scene: Scene, broker: LocalKafka, pool: str
) -> None:
    first = write(scene, pool, pool)
    assert first.status_code == 201
    for part in ("api", "projections", "p0"):
        scene.server.kill(part)
    broker.kill()
    broker.start()
    scene.start_again("p0", "projections", "api")
    again = write(scene, pool, pool)
    assert (again.status_code, again.text) == (201, first.text)
    assert again.headers["Idempotent-Replayed"] == "true"
    scene.until(lambda: read(scene, f"/v1/jobs/{first.json()['jobId']}").status_code == 200)
    assert scene.follower.reached_the_end()
    assert scene.book.registered[pool] == 1
