"""Workers that die, a flood of registrations over running executions, a herd due in one second."""

import asyncio
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from horarium import App, Beat, Context, Delay, JobSpec, Outcome

from dev import processes
from schemas import codec
from schemas.commands import RegisterJob, RegisterMode, ScheduleSpec
from schemas.entities import Content, Policies
from schemas.entities import ExecutionStatus as E
from schemas.events import ExecutionClaimed, LeaseExpired, LeaseExtended
from schemas.ids import job_id_of
from schemas.topics import partition_of
from streams.ambient import monotonic_ms, new_id, wall_ms
from streams.transport.log import LogRetriable, Outgoing
from tests.e2e.scene import KEY, SMALL, SMALL_KEY, Scene, accepted, after, at, lateness, opened
from tests.e2e.workers import worker_processes, working

# All of it takes minutes: HORARIUM_E2E_FLOOD=200000 is what the scheduler must stand.
FLOOD = int(os.environ.get("HORARIUM_E2E_FLOOD", "30000"))
FLOOD_SEC = 60 + FLOOD / 200
HERD = 10_000
HERD_SEC = 150.0
BATCH = 1_000


@pytest.fixture(scope="module")
def scene(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with opened(tmp_path_factory.mktemp("load"), kafka) as scene:
        yield scene


def test_a_worker_killed_while_it_holds_leases_is_replaced_and_its_late_outcome_refused(
    scene: Scene, pool: str, tmp_path: Path
) -> None:
    lease_sec, count = 2, 4
    with (
        scene.client() as client,
        worker_processes(scene.url, KEY, pool, ["doomed"], slots=count, folder=tmp_path) as workers,
    ):
        jobs = [
            JobSpec(schedule=Delay(0), pool=pool, task="work", payload={"sec": 600}, lease_sec=lease_sec)
            for _ in range(count)
        ]
        plans = accepted(client.create_jobs(jobs), after(0))
        # It beats, so it holds them: a grant not read yet would be handed back, which is no delivery.
        scene.until(lambda: beaten(scene) >= {plan.job_id for plan in plans})
        processes.kill(workers["doomed"])
        heirs: dict[str, int] = {}
        while len(heirs) < count:
            for each in client.claim(pool, "heir", max=count, wait_sec=10, lease_sec=60).executions:
                assert each.execution_id not in heirs
                # One that the heir's claim had no room for was handed back in between: no delivery either.
                assert each.lease_epoch >= 2
                assert each.delivery_count == 2
                assert each.attempt == 1
                heirs[each.execution_id] = each.lease_epoch
        late = [Outcome(execution_id=each, lease_epoch=1, worker_id="doomed", result=1) for each in heirs]
        refused = [(409, "lease_lost")] * count
        assert [(answer.status, answer.code) for answer in client.outcomes(late)] == refused
        beats = client.heartbeats("doomed", [Beat(execution_id=each, lease_epoch=1) for each in heirs])
        assert [(answer.status, answer.code) for answer in beats] == refused
        done = [
            Outcome(execution_id=each, lease_epoch=epoch, worker_id="heir", result=2)
            for each, epoch in heirs.items()
        ]
        assert [answer.status for answer in client.outcomes(done)] == [200] * count
        assert [answer.status for answer in client.outcomes(late)] == [409] * count
        scene.until_over(pool, plans)
    verdict = scene.all_well(pool, plans)
    assert verdict.completed == count
    assert verdict.redelivered >= count
    assert len(scene.events(pool, LeaseExpired)) == count
    assert {each.result for each in scene.executions(pool).values()} == {b"2"}
    # No lease was taken from its holder before it ended.
    until = {each.execution.execution_id: each.execution.lease_until_ms for each in claims(scene, pool, 1)}
    for event in scene.events(pool, LeaseExpired):
        assert event.at_ms >= until[event.execution.execution_id]


def beaten(scene: Scene) -> set[str]:
    """Jobs with an execution whose lease was extended."""
    with scene.book.lock:
        beats = [
            event.lease.execution_id for _, event in scene.book.lines if isinstance(event, LeaseExtended)
        ]
    return {job_id for each in beats if (job_id := job_id_of(each)) is not None}


def claims(scene: Scene, pool: str, epoch: int) -> list[ExecutionClaimed]:
    return [event for event in scene.events(pool, ExecutionClaimed) if event.execution.lease_epoch == epoch]


def test_workers_killed_in_the_middle_of_a_steady_load_lose_nothing(
    scene: Scene, pool: str, tmp_path: Path
) -> None:
    names = ["a", "b", "c"]
    with (
        scene.client() as client,
        worker_processes(scene.url, KEY, pool, names, slots=8, folder=tmp_path) as workers,
    ):
        jobs = [
            JobSpec(schedule=Delay(number % 5), pool=pool, task="work", payload={"sec": 0.3}, lease_sec=3)
            for number in range(150)
        ]
        answers = client.create_jobs(jobs)
        plans = [
            plan for number, answer in enumerate(answers) for plan in accepted([answer], after(number % 5))
        ]
        for name, done in (("a", 20), ("b", 70)):
            scene.until(
                lambda name=name, done=done: (  # type: ignore[misc]
                    scene.count(pool, E.COMPLETED) >= done and running_on(scene, pool, name)
                )
            )
            processes.kill(workers[name])
        scene.until_over(pool, plans)
    assert scene.all_well(pool, plans).completed == len(plans)


def running_on(scene: Scene, pool: str, worker_id: str) -> bool:
    return any(
        each.status is E.RUNNING and each.worker_id == worker_id for each in scene.executions(pool).values()
    )


def test_a_flood_of_registrations_costs_no_running_execution_its_lease(
    scene: Scene, pool: str, tell: Callable[[str], None]
) -> None:
    count = 20
    program = App(scene.url, SMALL_KEY, pool=pool, slots=count, worker_id="w", wait_sec=5)
    over = asyncio.Event()

    @program.handler("work")
    async def work(ctx: Context[Any]) -> None:
        await over.wait()

    flood_pool = f"{pool}-flood"
    scene.book.only_counted.add(flood_pool)
    flood = list(registrations(flood_pool))
    partition = partition_of(SMALL, "", 1, 8)
    with scene.client(SMALL_KEY) as client, working(program) as crew:
        jobs = [JobSpec(schedule=Delay(0), pool=pool, task="work", lease_sec=3) for _ in range(count)]
        plans = accepted(client.create_jobs(jobs), after(0))
        scene.until(lambda: scene.count(pool, E.RUNNING) == count)
        began = monotonic_ms()
        for value in flood:
            send(scene, Outgoing(scene.topics.commands, partition, SMALL.encode(), value))
        scene.until(lambda: scene.book.registered[flood_pool] >= FLOOD, FLOOD_SEC)
        decided = monotonic_ms()
        crew.call(over.set)
        scene.until_over(pool, plans)
    # A lease of 3 s must have been renewed in the flood, or it proves nothing.
    assert decided - began > 3_000, "the flood was too short: raise HORARIUM_E2E_FLOOD"
    assert scene.book.registered[flood_pool] == FLOOD
    assert not scene.events(pool, LeaseExpired)
    verdict = scene.all_well(pool, plans)
    assert verdict.redelivered == 0
    tell(
        f"flood: {FLOOD} registrations in one partition decided in {decided - began} ms; "
        f"{count} leases of 3 s kept"
    )


def registrations(pool: str) -> Iterator[bytes]:
    for number in range(FLOOD):
        yield codec.encode(
            RegisterJob(
                command_id=new_id(),
                tenant=SMALL,
                actor="service:e2e",
                job_id=f"{pool}-{number}",
                mode=RegisterMode.PUT,
                schedule=ScheduleSpec(delay_sec=86_400),
                pool=pool,
                content=Content(name="flood", task="work"),
                policies=Policies(),
            )
        )


def send(scene: Scene, record: Outgoing) -> None:
    while True:
        try:
            scene.writer.send(record)
        except LogRetriable:
            scene.writer.flush(1.0)
        else:
            return


def test_ten_thousand_jobs_due_in_one_second_all_run_and_none_early(
    scene: Scene, pool: str, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    names = ["a", "b"]
    with (
        scene.client() as client,
        worker_processes(scene.url, KEY, pool, names, slots=500, folder=tmp_path),
    ):
        began = monotonic_ms()
        client.create_jobs([JobSpec(schedule=Delay(86_400), pool=f"{pool}-warm")] * BATCH)
        # As long as this machine will need to take them all, and as much again.
        lead_ms = (monotonic_ms() - began) * (HERD // BATCH) * 2 + 5_000
        due_ms = (wall_ms() + lead_ms) // 1_000 * 1_000
        plans = []
        for first in range(0, HERD, BATCH):
            instants = [due_ms + number * 1_000 // HERD for number in range(first, first + BATCH)]
            answers = client.create_jobs(
                [JobSpec(schedule=at(instant)[0], pool=pool, task="work") for instant in instants]
            )
            for instant, answer in zip(instants, answers, strict=True):
                plans += accepted([answer], {"run_at_ms": instant})
        assert wall_ms() < due_ms, "the herd was not registered in time: this machine is too slow"
        scene.until_over(pool, plans, HERD_SEC)
    verdict = scene.all_well(pool, plans)
    assert verdict.completed == HERD
    assert verdict.redelivered == 0
    finished = Counter((each.finished_ms - due_ms) // 1_000 for each in scene.executions(pool).values())
    tell(f"herd: {HERD} due in one second: {lateness(verdict)}")
    tell(f"herd: finished in each second after that: {json.dumps(dict(sorted(finished.items())))}")
