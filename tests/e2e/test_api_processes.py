"""kill -9 of the API in the middle of requests; the same request twice, at once, and after a restart of all;
two API processes side by side.

What was decided is in the log whatever becomes of the API: a caller that repeats with the same key, claim
id or lease gets what the first request did, and nothing is done twice.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from horarium import Client, Delay, JobSpec, Outcome

from dev.broker import HOST, free_port
from dev.server import API
from schemas.entities import ExecutionStatus as E
from streams.ambient import Chance, wall_ms
from tests.e2e.scene import KEY, Scene, accepted, after, at, each, opened, promised
from tests.e2e.workers import app, working

BATCH = 200
ROUNDS = 3
JOBS = 20


@pytest.fixture(scope="module")
def scene(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with opened(tmp_path_factory.mktemp("api"), kafka) as scene:
        yield scene


@contextmanager
def frozen(scene: Scene, part: str) -> Iterator[None]:
    """The part does nothing meanwhile, and knows nothing of it."""
    pid = scene.pid(part)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass  # the test killed it


def sent_and_killed(scene: Scene, topic: str, request: Callable[[], object]) -> None:
    """The request is in the log, nothing is decided yet, and the API dies: its answer is lost."""
    with ThreadPoolExecutor(max_workers=1) as callers, frozen(scene, "p0"):
        before = scene.written(topic)
        asked: Future[object] = callers.submit(request)
        scene.until(lambda: scene.written(topic) > before, 30)
        scene.server.kill("api")
        assert asked.exception(30) is not None
    scene.start_again("api")


def post(scene: Scene, body: Any, key: str, path: str = "/v1/jobs") -> httpx2.Response:
    headers = {"Authorization": f"Bearer {KEY}", "Idempotency-Key": key}
    return httpx2.post(f"{scene.url}{path}", json=body, headers=headers, timeout=20)


def test_a_batch_cut_off_by_kill_9_at_random_moments_and_repeated_makes_each_job_once(
    scene: Scene, pool: str
) -> None:
    chance = Chance(1)
    run_at, rule = at(wall_ms() + 1_000)
    specs = [JobSpec(schedule=run_at, pool=pool, task="work") for _ in range(BATCH)]
    plans = []
    with scene.client() as client, ThreadPoolExecutor() as callers:
        for number in range(ROUNDS):
            key = f"{pool}-{number}"
            batch = callers.submit(client.create_jobs, specs, idempotency_key=key)
            # Anywhere between connecting and answering: the moment is what is tried.
            threading.Event().wait(chance.uniform(0.0, 0.15))
            scene.server.kill("api")
            scene.start_again("api")
            plans += accepted(batch.result(), rule)
            again = client.create_jobs(specs, idempotency_key=key)
            assert [each.job.job_id for each in again if each.job] == [plan.job_id for plan in plans[-BATCH:]]
    with working(app(scene.url, KEY, pool, "w", 100)):
        scene.until_over(pool, plans)
    assert scene.all_well(pool, plans).completed == ROUNDS * BATCH


def test_a_registration_whose_answer_was_lost_is_found_by_its_repeat(scene: Scene, pool: str) -> None:
    body = {"schedule": {"delaySec": 1}, "target": {"pool": pool, "task": "work"}, "payload": {"sec": 0}}
    sent_and_killed(scene, scene.topics.commands, lambda: post(scene, body, pool))
    # The first one is decided when the processor goes on; it is this one's answer.
    found = post(scene, body, pool)
    assert found.status_code == 201, found.text
    assert found.headers["Idempotent-Replayed"] == "true"
    other = post(scene, body | {"payload": {"sec": 0.1}}, pool)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    with scene.client() as client, working(app(scene.url, KEY, pool, "w", 1)):
        plans = [promised(client.get_job(found.json()["jobId"]), after(1))]
        scene.until_over(pool, plans)
    scene.all_well(pool, plans)


def test_a_claim_whose_grants_were_lost_with_the_api_gets_them_by_its_claim_id(
    scene: Scene, pool: str
) -> None:
    with scene.client() as client, ThreadPoolExecutor(max_workers=1) as callers:
        once = scene.at_once()
        before = scene.written(scene.topics.work)
        claim = callers.submit(once.claim, pool, "w", max=JOBS, wait_sec=20, claim_id="lost")
        scene.until(lambda: scene.written(scene.topics.work) > before, 30)
        jobs = [JobSpec(schedule=Delay(2), pool=pool, task="work", lease_sec=60) for _ in range(JOBS)]
        plans = accepted(client.create_jobs(jobs), after(2))
        with frozen(scene, "api"):
            # Granted to the claim that waits; the grants reach nobody.
            scene.until(lambda: scene.count(pool, E.RUNNING) > 0)
            scene.server.kill("api")
        assert claim.exception(30) is not None
        once.close()
        scene.start_again("api")
        held: dict[str, int] = {}
        while len(held) < JOBS:
            # What the lost claim holds comes again under its id, then the rest under others.
            claim_id = f"next-{len(held)}" if held else "lost"
            grants = client.claim(pool, "w", max=JOBS, wait_sec=10, claim_id=claim_id)
            assert grants.executions
            for execution in grants.executions:
                assert execution.execution_id not in held
                assert execution.delivery_count == 1
                # Held since before the crash; others may have been handed back in between.
                assert execution.lease_epoch == 1 or claim_id != "lost"
                held[execution.execution_id] = execution.lease_epoch
        assert {answer.status for answer in client.outcomes(completed(held))} == {200}
        scene.until_over(pool, plans)
    assert scene.all_well(pool, plans).redelivered == 0


def completed(held: dict[str, int]) -> list[Outcome]:
    """Of everything that the worker w holds."""
    return [
        Outcome(execution_id=each, lease_epoch=epoch, worker_id="w", result={"of": each})
        for each, epoch in held.items()
    ]


def test_outcomes_whose_answer_was_lost_are_accepted_once(scene: Scene, pool: str) -> None:
    with scene.client() as client:
        jobs = [JobSpec(schedule=Delay(0), pool=pool, task="work", lease_sec=60) for _ in range(JOBS)]
        plans = accepted(client.create_jobs(jobs), after(0))
        held = claim_all(client, pool, JOBS)
        outcomes = completed(held)
        once = scene.at_once()
        sent_and_killed(scene, scene.topics.work, lambda: once.outcomes(outcomes))
        once.close()
        for _ in range(2):
            assert [answer.status for answer in client.outcomes(outcomes)] == [200] * JOBS
        [first, *_] = held
        late = client.outcomes([Outcome(execution_id=first, lease_epoch=1, worker_id="w", error="no")])
        assert [(answer.status, answer.code) for answer in late] == [(409, "already_finished")]
        scene.until_over(pool, plans)
    assert scene.all_well(pool, plans).completed == JOBS


def claim_all(client: Client, pool: str, count: int) -> dict[str, int]:
    """Until so many executions are held: epoch by id."""
    held: dict[str, int] = {}
    while len(held) < count:
        grants = client.claim(pool, "w", max=count - len(held), wait_sec=10)
        assert grants.executions
        held |= {each.execution_id: each.lease_epoch for each in grants.executions}
    return held


def test_the_same_registration_at_once_and_after_a_restart_of_everything_is_one_job(
    scene: Scene, pool: str
) -> None:
    body = {"schedule": {"everySec": 1}, "target": {"pool": pool, "task": "work"}, "payload": {"sec": 0}}
    with ThreadPoolExecutor(max_workers=8) as callers:
        answers = list(callers.map(lambda _: post(scene, body, pool), range(8)))
    assert [answer.status_code for answer in answers] == [201] * 8
    assert len({answer.text for answer in answers}) == 1
    made = [answer for answer in answers if "Idempotent-Replayed" not in answer.headers]
    assert len(made) == 1
    with scene.client() as client, working(app(scene.url, KEY, pool, "w", 4)):
        plans = [promised(client.get_job(answers[0].json()["jobId"]), each(1), recurring=True)]
        scene.until(lambda: scene.count(pool, E.COMPLETED) >= 2)
        for part in ("api", "projections", "p0"):
            scene.server.kill(part)
        scene.start_again("p0", "projections", "api")
        again = post(scene, body, pool)
        assert (again.status_code, again.text) == (201, answers[0].text)
        assert again.headers["Idempotent-Replayed"] == "true"
        before = scene.count(pool, E.COMPLETED)
        scene.until(lambda: scene.count(pool, E.COMPLETED) >= before + 2)
        client.cancel_job(plans[0].job_id)
        scene.until(lambda: not scene.count(pool, E.SCHEDULED, E.PENDING, E.RUNNING))
    scene.all_well(pool, plans)


# -- two API processes


@pytest.fixture(scope="module")
def second(scene: Scene) -> str:
    """Where another API process of the same installation listens."""
    port = free_port()
    url = f"http://{HOST}:{port}"
    scene.add("api2", API, HORARIUM_HTTP_PORT=str(port))
    scene.until(lambda: answers(f"{url}/readyz"))
    return url


def answers(url: str) -> bool:
    try:
        return httpx2.get(url).status_code == 200
    except httpx2.HTTPError:
        return False


def position_of(answer: httpx2.Response) -> dict[str, str]:
    """The header that makes a read include the write."""
    return {"Authorization": f"Bearer {KEY}", "Horarium-Position": answer.headers["Horarium-Position"]}


def test_reads_of_either_process_include_a_write_at_once(scene: Scene, second: str, pool: str) -> None:
    body = {"schedule": {"everySec": 3600}, "target": {"pool": pool}}
    for number in range(10):
        here, there = (scene.url, second) if number % 2 else (second, scene.url)
        made = httpx2.post(f"{here}/v1/jobs", json=body, headers={"Authorization": f"Bearer {KEY}"})
        assert made.status_code == 201, made.text
        job = f"/v1/jobs/{made.json()['jobId']}"
        # By position through the other process, by nothing but its key through the same one.
        for url, headers in ((there, position_of(made)), (here, {"Authorization": f"Bearer {KEY}"})):
            read = httpx2.get(url + job, headers=headers)
            assert (read.status_code, read.json()["status"]) == (200, "ACTIVE")
            listed = httpx2.get(f"{url}/v1/jobs", params={"pool": pool, "pageSize": 100}, headers=headers)
            assert made.json()["jobId"] in {each["jobId"] for each in listed.json()["jobs"]}
        cancelled = httpx2.delete(there + job, headers={"Authorization": f"Bearer {KEY}"})
        assert cancelled.status_code == 200
        read = httpx2.get(here + job, headers=position_of(cancelled))
        assert read.json()["status"] == "CANCELLED"


def test_an_outcome_is_read_at_once_through_the_other_process(scene: Scene, second: str, pool: str) -> None:
    auth = {"Authorization": f"Bearer {KEY}"}
    with scene.client() as client, scene.client(url=second) as other:
        client.create_job(JobSpec(schedule=Delay(0), pool=pool))
        # Registered through the one, claimed through the other, reported through the one again.
        [execution] = other.claim(pool, "w", wait_sec=10).executions
    path = f"/v1/executions/{execution.execution_id}"
    lease = {"workerId": "w", "leaseEpoch": execution.lease_epoch}
    done = httpx2.post(f"{scene.url}{path}/complete", json=lease | {"result": 7}, headers=auth)
    assert done.status_code == 200, done.text
    read = httpx2.get(second + path, headers=position_of(done)).json()
    assert (read["status"], read["result"]) == ("COMPLETED", 7)


def test_without_projections_a_read_of_an_own_write_says_that_it_is_behind(
    scene: Scene, second: str, pool: str
) -> None:
    scene.server.kill("projections")
    try:
        made = post(scene, {"schedule": {"everySec": 3600}, "target": {"pool": pool}}, pool)
        assert made.status_code == 201
        job = f"/v1/jobs/{made.json()['jobId']}"
        for url in (scene.url, second):
            began = time.monotonic()
            behind = httpx2.get(url + job, headers=position_of(made), timeout=20)
            assert (behind.status_code, behind.json()["code"]) == (503, "projection_behind")
            assert int(behind.headers["Retry-After"]) >= 1
            assert time.monotonic() - began < 20
            # What asks for nothing newer goes on.
            listed = httpx2.get(f"{url}/v1/jobs", headers={"Authorization": f"Bearer {KEY}"}, timeout=20)
            assert listed.status_code == 200
    finally:
        scene.server.restart("projections")
    scene.until(lambda: httpx2.get(second + job, headers=position_of(made)).status_code == 200)


def test_workers_of_both_processes_share_a_pool(scene: Scene, second: str, pool: str) -> None:
    with scene.client() as client:
        jobs = [JobSpec(schedule=Delay(1), pool=pool, task="work", payload={"sec": 0.1}) for _ in range(40)]
        plans = accepted(client.create_jobs(jobs), after(1))
    with working(app(scene.url, KEY, pool, "one", 2), app(second, KEY, pool, "two", 2)):
        scene.until_over(pool, plans)
    scene.all_well(pool, plans)
    assert {each.worker_id for each in scene.executions(pool).values()} == {"one", "two"}
