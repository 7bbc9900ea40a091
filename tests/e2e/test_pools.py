"""Ten workers with one slot each, in the pool of a tenant on all of 64 partitions."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from horarium import JobSpec

from dev.demo.mix import Planned
from schemas.entities import Execution
from schemas.events import ExecutionClaimed, ExecutionEvent
from schemas.ids import derived_job_id
from schemas.topics import partition_of
from streams.ambient import Chance, wall_ms
from tests.e2e.scene import KEY, LARGE, Scene, accepted, at, lateness, opened
from tests.e2e.workers import app, working

PARTITIONS = 64
WORKERS = 10
EACH = 2  # jobs of every partition in the trickle
APART_MS = 80
BURST = 30  # due together in one partition
PATIENCE_MS = 15_000
"""Generous, for a machine that runs other things, too; the second that is promised is held in virtual time by
`tests/unit/api/test_asker_simulation.py`, and what it was here is told."""
TURNAROUND_MS = 200  # from the end of a run to the next claim: the log does not show when a worker asks


@pytest.fixture(scope="module")
def scene(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with opened(tmp_path_factory.mktemp("pools"), kafka, partitions=PARTITIONS) as scene:
        yield scene


@dataclass(frozen=True, slots=True)
class Run:
    """A grant, from the moment it could have been given to the end of its lease."""

    worker_id: str
    due_ms: int
    started_ms: int
    ended_ms: int


def test_no_work_is_stranded_while_a_worker_is_idle(
    scene: Scene, pool: str, tell: Callable[[str], None]
) -> None:
    plans: list[Planned] = []
    with (
        scene.client() as client,
        working(*(app(scene.url, KEY, pool, f"w{number}", 1) for number in range(WORKERS))),
    ):
        began_ms = wall_ms() + 10_000
        specs, instants = schedule(pool, began_ms)
        for first in range(0, len(specs), 500):
            answers = client.create_jobs(specs[first : first + 500])
            for answer, instant in zip(answers, instants[first : first + 500], strict=True):
                plans += accepted([answer], {"run_at_ms": instant})
        assert wall_ms() < began_ms, "registered too late: this machine is too slow"
        scene.until_over(pool, plans)
    assert {plan_partition(plan) for plan in plans} == set(range(PARTITIONS))
    verdict = scene.all_well(pool, plans)
    history = runs(scene, pool)
    for worker_id in {run.worker_id for run in history}:
        assert most_at_once([run for run in history if run.worker_id == worker_id]) == 1, worker_id
    busy = busy_times(history)
    waits = [(longest_wait_beside_an_idle_worker(run, busy), run) for run in history]
    longest, run = max(waits, key=lambda each: each[0])
    assert longest <= PATIENCE_MS, f"{longest} ms beside an idle worker: {run}"
    tell(
        f"{WORKERS} workers on {PARTITIONS} partitions: longest wait beside an idle one {longest} ms; "
        + lateness(verdict)
    )


def plan_partition(plan: Planned) -> int:
    return partition_of(LARGE, plan.job_id, PARTITIONS, PARTITIONS)


def schedule(pool: str, began_ms: int) -> tuple[list[JobSpec], list[int]]:
    """A job every moment, each partition as often as any other; and now and then many at once in one."""
    keys: dict[int, list[str]] = {number: [] for number in range(PARTITIONS)}
    number = 0
    while any(len(found) < EACH + BURST for found in keys.values()):
        key = f"{pool}-{number}"
        number += 1
        found = keys[partition_of(LARGE, derived_job_id(LARGE, key), PARTITIONS, PARTITIONS)]
        found.append(key)
    chance = Chance(5)
    order = [partition for partition in range(PARTITIONS) for _ in range(EACH)]
    chance.shuffle(order)
    planned = [
        (began_ms + place * APART_MS, keys[partition].pop(), 0.2) for place, partition in enumerate(order)
    ]
    length_ms = len(order) * APART_MS
    for place in (1, 2, 3):
        partition = chance.randrange(PARTITIONS)
        due_ms = began_ms + place * length_ms // 4
        planned += [(due_ms, keys[partition].pop(), 0.1) for _ in range(BURST)]
    specs = [
        JobSpec(schedule=at(due_ms)[0], pool=pool, task="work", payload={"sec": sec}, request_key=key)
        for due_ms, key, sec in planned
    ]
    return specs, [due_ms for due_ms, _, _ in planned]


def runs(scene: Scene, pool: str) -> list[Run]:
    """Every grant of the pool, by its start."""
    claimed: dict[tuple[str, int], Execution] = {}
    found: list[Run] = []
    ready: dict[str, int] = {}
    for event in scene.events(pool, ExecutionEvent):
        execution = event.execution
        key = (execution.execution_id, execution.lease_epoch)
        if isinstance(event, ExecutionClaimed):
            claimed[key] = execution
            continue
        grant = claimed.pop(key, None)
        if grant is not None:
            due_ms = max(grant.due_ms, ready.get(grant.execution_id, 0))
            found.append(Run(grant.worker_id, due_ms, grant.started_ms, event.at_ms))
            # Handed back or ended without a word: from then on it waits again.
            ready[grant.execution_id] = event.at_ms
    assert not claimed
    return sorted(found, key=lambda run: run.started_ms)


def most_at_once(history: list[Run]) -> int:
    """An end comes before a beginning of the same millisecond."""
    steps = sorted([(run.ended_ms, -1) for run in history] + [(run.started_ms, 1) for run in history])
    held = most = 0
    for _, step in steps:
        held += step
        most = max(most, held)
    return most


def busy_times(history: list[Run]) -> list[tuple[int, int]]:
    """When each worker was not idle: it holds something, or is about to report it and to ask again."""
    by_worker: dict[str, list[Run]] = {}
    for run in history:
        by_worker.setdefault(run.worker_id, []).append(run)
    found = []
    for own in by_worker.values():
        starts = [run.started_ms for run in own[1:]] + [own[-1].ended_ms + TURNAROUND_MS]
        found += [
            (run.started_ms, min(run.ended_ms + TURNAROUND_MS, start))
            for run, start in zip(own, starts, strict=True)
        ]
    return found


def longest_wait_beside_an_idle_worker(run: Run, busy: list[tuple[int, int]]) -> int:
    """The longest time without a break in which the work was due and some worker was idle."""
    steps = sorted([(end, -1) for _, end in busy] + [(start, 1) for start, _ in busy])
    held, since, longest = 0, run.due_ms, 0
    for at_ms, step in steps:
        if at_ms >= run.started_ms:
            break
        if held < WORKERS:
            longest = max(longest, at_ms - max(since, run.due_ms))
        before, held = held, held + step
        if before >= WORKERS > held:
            since = at_ms
    if held < WORKERS:
        longest = max(longest, run.started_ms - max(since, run.due_ms))
    return longest
