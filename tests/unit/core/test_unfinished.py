"""The unfinished executions of a job are known, whatever happens to it: a one-off's own one by its id, all
others by their entries, which follow from the entities in any order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import pytest

from schemas import codec
from schemas.commands import Complete, Completion, JobCommand, MissedInPause, RegisterMode, WorkCommand
from schemas.entities import OverlapPolicy, WaitingFor
from schemas.replies import Grant
from streams.core.engine import Engine
from streams.core.state import first_execution_id
from streams.store.kv import Batch
from streams.store.memory import MemoryStore
from tests.unit.core.derived import check_unfinished, in_any_order, indexes
from tests.unit.core.world import NO_RETRY, TENANT, World, compacted, rebuild, ref

PUT = RegisterMode.PUT
JOB = "job-1"


class Checked(World):
    """Looks at all that is unfinished after each transaction."""

    def one(self, settled_ms: int, limit: int, commands: Sequence[JobCommand | WorkCommand] = ()) -> bool:
        more = super().one(settled_ms, limit, commands)
        check_unfinished(self, [JOB])
        return more


def running(world: World, **kw: Any) -> Grant:
    """A one-off that runs."""
    world.register(delay_sec=10, retry=NO_RETRY, **kw)
    world.at(10)
    (grant,) = world.claim("A")
    return grant


def finish(world: World) -> None:
    """All that is open ends, one after the other."""
    while grants := world.claim("A", 10):
        for grant in grants:
            world.complete(grant)
    assert not world.engine.state.has_open(TENANT, JOB)


def completed(world: World) -> None:
    world.complete(running(world))


def retried(world: World) -> None:
    world.register(delay_sec=10)
    world.at(10)
    (grant,) = world.claim("A")
    world.fail(grant, retry_after_sec=5)
    world.at(20)


def in_an_exclusion_group(world: World) -> None:
    world.register("other", delay_sec=5, exclusion_group="g")
    world.at(5)
    (grant,) = world.claim("A")
    world.register(delay_sec=5, exclusion_group="g")
    world.at(10)
    assert world.execution_of(JOB).waiting_for is WaitingFor.EXCLUSION
    world.complete(grant)


def triggered_while_it_runs(world: World) -> None:
    grant = running(world)
    world.trigger()
    world.trigger(overlap=OverlapPolicy.ALLOW)
    world.complete(grant)


def fired_behind_a_trigger(world: World) -> None:
    """Its own execution waits in line, and is then active."""
    world.register(delay_sec=10)
    world.trigger()
    (grant,) = world.claim("A")
    world.at(10)
    assert waits_for_overlap(world)
    world.complete(grant)
    assert not waits_for_overlap(world)


def waits_for_overlap(world: World) -> bool:
    return any(e.waiting_for is WaitingFor.OVERLAP for e in world.executions())


def skipped_for_a_trigger(world: World) -> None:
    world.register(delay_sec=10, overlap=OverlapPolicy.SKIP)
    world.trigger()
    world.at(10)


def stopped_by_a_trigger(world: World) -> None:
    grant = running(world, overlap=OverlapPolicy.CANCEL_RUNNING)
    world.trigger()
    assert world.complete(grant).code == "cancelled"


def backfilled(world: World) -> None:
    grant = running(world)
    world.backfill("2026-05-01T00:00:10Z")
    world.complete(grant)


def replayed(world: World) -> None:
    grant = running(world)
    world.fail(grant)
    world.replay(grant.execution.execution_id)


def replayed_behind_a_trigger(world: World) -> None:
    grant = running(world)
    world.trigger()
    world.fail(grant)
    world.replay(grant.execution.execution_id)
    assert waits_for_overlap(world)


def replayed_when_its_job_is_gone(world: World) -> None:
    grant = running(world)
    world.fail(grant)
    world.at(2 * 86_400)
    assert not world.knows_job(JOB)
    world.replay(grant.execution.execution_id)


def replayed_after_its_job_was_made_anew(world: World) -> None:
    grant = running(world)
    world.fail(grant)
    world.register(delay_sec=10, mode=PUT)
    world.replay(grant.execution.execution_id)
    world.at(30)


def made_anew_while_it_runs(world: World) -> None:
    """Two executions that were each its job's own, and one of them is no more."""
    grant = running(world)
    world.cancel_job()
    world.register(delay_sec=10, mode=PUT)
    world.at(20)
    assert len(world.engine.state.open_executions(TENANT, JOB, 10)) == 2
    world.complete(grant)


def made_anew_twice_while_it_runs(world: World) -> None:
    grant = running(world)
    for _ in range(2):
        world.cancel_job()
        world.register(every_sec=5, mode=PUT, overlap=OverlapPolicy.ALLOW, max_concurrent=3)
    world.at(22)
    world.cancel_job()
    world.complete(grant)


def updated_to_cron_and_back(world: World) -> None:
    grant = running(world)
    assert world.update(1, every_sec=5, overlap=OverlapPolicy.ALLOW).status == 200
    world.at(17)
    assert len(world.engine.state.open_executions(TENANT, JOB, 10)) == 2
    assert world.update(2, delay_sec=5, overlap=OverlapPolicy.ALLOW).status == 200
    world.at(30)
    world.complete(grant)


def updated_to_another_instant(world: World) -> None:
    grant = running(world)
    assert world.update(1, delay_sec=5).status == 200
    world.at(16)
    assert waits_for_overlap(world)
    world.complete(grant)


def paused_and_resumed(world: World) -> None:
    grant = running(world)
    world.pause()
    world.resume()
    world.release(grant, 3)
    world.at(20)


def cancelled(world: World) -> None:
    grant = running(world)
    world.trigger()
    world.cancel_job()
    assert world.execution(grant.execution.execution_id).cancel_requested_ms
    world.complete(grant)


def cancelled_before_it_is_due(world: World) -> None:
    world.register(delay_sec=10)
    job = world.engine.state.job(TENANT, JOB)
    assert job is not None
    world.cancel(first_execution_id(job))


STORIES = [
    completed,
    retried,
    in_an_exclusion_group,
    triggered_while_it_runs,
    fired_behind_a_trigger,
    skipped_for_a_trigger,
    stopped_by_a_trigger,
    backfilled,
    replayed,
    replayed_behind_a_trigger,
    replayed_when_its_job_is_gone,
    replayed_after_its_job_was_made_anew,
    made_anew_while_it_runs,
    made_anew_twice_while_it_runs,
    updated_to_cron_and_back,
    updated_to_another_instant,
    paused_and_resumed,
    cancelled,
    cancelled_before_it_is_due,
]


@pytest.mark.parametrize("story", STORIES)
def test_what_is_unfinished_is_known_at_every_step(story: Callable[[World], None]) -> None:
    world = Checked()
    story(world)
    check_replays(world)
    finish(world)
    check_replays(world)


def check_replays(world: World) -> None:
    """From every point of the log, whole and compacted, and of its newest records in any order."""
    expected = indexes(world.store)
    cuts = (compacted(world.log, cut) for cut in range(len(world.log) + 1))
    for log in (*cuts, *(in_any_order(world.log, seed) for seed in range(20))):
        assert indexes(rebuild(log).state.kv) == expected


def test_it_goes_on_from_the_store() -> None:
    world = Checked()
    grant = running(world)
    world.engine = Engine(0, world.store, codec, world.router)
    world.trigger()
    world.complete(grant)
    finish(world)


def test_an_error_changes_nothing_of_it() -> None:
    """The transaction goes back to the savepoint before the timer, or the command."""
    world = Checked()
    world.register(delay_sec=10)
    with patch("streams.core.engine.vacate", side_effect=RuntimeError("broken")):
        world.at(10)
    assert "ExecutionFired" not in world.types
    world.resume(missed=MissedInPause.FIRE_ALL)
    world.at(20)
    (grant,) = world.claim("A")
    with patch("streams.core.engine.vacate", side_effect=RuntimeError("broken")):
        world.run(Complete(**world._envelope(), items=(Completion(**ref(grant)),)))
    assert len(world.quarantined) == 1
    assert world.engine.state.has_open(TENANT, JOB)
    world.complete(grant)
    finish(world)
    check_replays(world)


def test_a_transaction_that_is_aborted_leaves_it_as_it_was() -> None:
    world = Checked()
    world.register(delay_sec=10)
    world.now_ms += 10_000
    world.engine.begin(world.now_ms, world.chance.random)
    world.engine.fire(world.now_ms, 10)
    assert world.engine.state.has_open(TENANT, JOB)
    world.engine.abort()
    check_unfinished(world, [JOB])
    world.run()
    finish(world)


class Counted(MemoryStore):
    """Counts what is written under each family of keys."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: Counter[str] = Counter()

    def write(self, batch: Batch) -> None:
        self.writes.update(chr(key[0]) for key in batch.puts)
        super().write(batch)


def test_a_one_off_writes_itself_and_its_place_in_the_queue_and_no_more() -> None:
    """Each step in a transaction of its own; `r`, `n`, `f`, `j` and the like are shared by a herd."""
    world = Checked()
    store = world.store = Counted()
    world.engine = Engine(0, store, codec, world.router)
    completed(world)
    assert {family: store.writes[family] for family in "eoaqb"} == {"e": 4, "o": 0, "a": 0, "q": 2, "b": 0}
