"""Replies that a dead process owes are sent by its successor, from the log alone (architecture §4)."""

from __future__ import annotations

import pytest

from schemas.commands import CancelExecution, TriggerJob
from schemas.ids import scheduled_execution_id
from schemas.replies import CommandDone, WorkDone
from streams.runtime import late
from streams.runtime.checkpoint import Step
from streams.transport.memory import MemoryReader
from tests.unit.runtime.installation import Crash, Installation, Process


def dies_before_replying(world: Installation, process: Process) -> Process:
    """After the commit; its successor is another instance, without its folder."""
    process.crash_at = Step.COMMITTED
    with pytest.raises(Crash):
        world.run(process)
    process.evict()
    world.time.pass_ms(6_500)
    successor = world.live("b")
    world.run(successor)
    return successor


def test_a_registration_is_answered_late_as_it_would_have_been() -> None:
    expected = Installation()
    other = expected.live()
    same = expected.register("job-1", delay_sec=60)
    expected.run(other)
    world = Installation()
    command = world.register("job-1", delay_sec=60)
    process = world.start("a")
    # The opening of the partition is the transaction that also holds the command.
    taker = dies_before_replying(world, process)
    world.run(taker)
    (answer,) = world.answers(command)
    (normal,) = expected.answers(same)
    assert (answer.status, answer.replayed, answer.code) == (201, False, "")
    assert answer.job is not None
    assert normal.job is not None
    assert answer.job.content.payload == b""
    assert answer.cursor is not None
    assert answer.cursor.next_ms == answer.job.first_next_ms
    assert (answer.job.schedule.kind, answer.partition) == (normal.job.schedule.kind, normal.partition)
    assert answer.offset == world.events()[-1].offset


def test_it_is_the_very_answer_that_was_lost() -> None:
    world = Installation()
    process = world.live("a")
    command = world.register("job-1")
    process.crash_at = Step.REPLIED
    with pytest.raises(Crash):
        process.step()
    process.evict()
    world.time.pass_ms(6_500)
    world.run(world.live("b"))
    both = [each for each in world.replies() if isinstance(each, CommandDone) and each.command_id == command]
    assert len(both) == 2
    assert both[0] == both[1]


def test_outcomes_are_answered_if_every_item_was_accepted() -> None:
    world = Installation()
    process = world.live("a")
    world.register("job-1", delay_sec=0, lease_sec=600)
    world.register("job-2", delay_sec=0, lease_sec=600)
    world.request()
    world.until(lambda: len(world.grants()) == 2, process)
    first, second = world.grants()
    done, beat = world.complete(first.execution), world.beat(second.execution)
    dies_before_replying(world, process)
    answers = {each.command_id: each for each in world.replies() if isinstance(each, WorkDone)}
    assert [each.status for each in answers[done].results] == [200]
    (result,) = answers[beat].results
    assert result.extend_until_ms > second.execution.lease_until_ms - 600_000


def test_an_outcome_that_was_refused_is_not_answered_late() -> None:
    world = Installation()
    process = world.live("a")
    world.register("job-1", delay_sec=0)
    world.request()
    world.until(lambda: len(world.grants()) == 1, process)
    (grant,) = world.grants()
    world.complete(grant.execution)
    world.run(process)
    world.time.pass_ms(1)
    repeated = world.complete(grant.execution)
    dies_before_replying(world, process)
    assert not [each for each in world.replies() if getattr(each, "command_id", "") == repeated]


def test_triggers_and_cancels_of_an_execution_are_answered() -> None:
    world = Installation()
    process = world.live("a")
    registered = world.register("job-1", delay_sec=600)
    world.run(process)
    (answer,) = world.answers(registered)
    assert answer.job is not None
    trigger = world.command(TriggerJob(**world._who(), job_id="job-1"), 0)
    next_id = scheduled_execution_id("job-1", answer.job.incarnation, answer.job.first_next_ms)
    cancel = world.command(CancelExecution(**world._who(), execution_id=next_id), 0)
    dies_before_replying(world, process)
    (triggered,) = world.answers(trigger)
    (cancelled,) = world.answers(cancel)
    assert triggered.execution is not None
    assert cancelled.execution is not None
    assert (triggered.status, triggered.execution.kind.value) == (202, "MANUAL")
    assert (cancelled.status, cancelled.execution.execution_id) == (202, next_id)


def test_nobody_waits_longer_than_a_minute() -> None:
    world = Installation()
    process = world.live("a")
    command = world.register("job-1", delay_sec=600)
    process.crash_at = Step.COMMITTED
    with pytest.raises(Crash):
        process.step()
    process.evict()
    world.time.pass_ms(61_000)
    world.run(world.live("b"))
    assert world.answers(command) == []


def successor_of_one_that_owes(world: Installation, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Process]:
    """It runs, and the log gives nothing to whoever reads what may have to be answered."""
    process = world.live("a")
    command = world.register("job-1", delay_sec=600)
    process.crash_at = Step.COMMITTED
    with pytest.raises(Crash):
        world.run(process)
    process.evict()
    world.time.pass_ms(6_500)
    poll = MemoryReader.poll
    monkeypatch.setattr(
        MemoryReader,
        "poll",
        lambda self, count, sec: [] if count == late.READ_RECORDS else poll(self, count, sec),
    )
    return command, world.live("b")


def test_a_log_that_gives_nothing_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Installation()
    command, successor = successor_of_one_that_owes(world, monkeypatch)
    other = world.register("job-2", delay_sec=600)
    world.until(lambda: world.answer(other) is not None, successor)
    assert world.answer(command) is None
    monkeypatch.undo()
    world.until(lambda: world.answer(command) is not None, successor)


def test_after_the_askers_patience_nothing_is_read_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Installation()
    command, successor = successor_of_one_that_owes(world, monkeypatch)
    world.time.pass_ms(late.PATIENCE_MS)
    world.run(successor)
    monkeypatch.undo()
    world.run(successor, steps=20)
    assert world.answer(command) is None
