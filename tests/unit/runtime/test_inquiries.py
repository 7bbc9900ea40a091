"""What a take-over waits for holds up nobody: offsets of a dead predecessor's transaction, and its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from streams.runtime import recovery
from streams.runtime.background import Slices
from streams.runtime.checkpoint import Step
from streams.runtime.predecessor import Predecessors
from streams.store.kv import KeyValue
from streams.store.memory import MemoryFolder
from streams.transport.log import LogRetriable, TopicPartition
from streams.transport.memory import TRANSACTION_TIMEOUT_MS
from tests.unit.runtime.installation import NAMESPACE, Crash, Installation, Process

PARTITIONS = 8


class Elsewhere(Slices):
    """Stands for threads that get nowhere while `held`: the broker does not answer them."""

    held = False
    at_work = False

    def step(self) -> None:
        if self.held:
            return
        Elsewhere.at_work = True
        super().step()
        Elsewhere.at_work = False


@pytest.fixture
def world() -> Installation:
    world = Installation(PARTITIONS)
    world.shards = {"acme": PARTITIONS}
    return world


def job_of(world: Installation, number: int, nth: int = 0) -> str:
    return [name for name in (f"job-{n}" for n in range(500)) if world.where(name) == number][nth]


def pair(world: Installation) -> tuple[Process, Process]:
    """A survivor and a victim that share the partitions."""
    survivor, victim = world.start("a"), world.start("b")
    share(world, survivor, victim)
    return survivor, victim


def share(world: Installation, *two: Process) -> None:
    half = PARTITIONS // 2
    world.until(lambda: [len(each.running) for each in two] == [half, half], *two)


def die_within_a_transaction(world: Installation, victim: Process, numbers: Sequence[int]) -> None:
    """Its transaction holds offsets of these partitions; its group misses it six seconds later."""
    for number in numbers:
        world.register(job_of(world, number))
    victim.crash_at = Step.OFFSETS_SENT
    with pytest.raises(Crash):
        victim.step()
    victim.evict()
    world.time.pass_ms(6_000)


def test_partitions_that_run_go_on_whatever_a_take_over_waits_for(
    world: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.background = Elsewhere
    survivor, victim = pair(world)
    ours, lost = survivor.running, victim.running
    in_loop: list[str] = []

    def watch(name: str) -> None:
        call = getattr(world.log, name)

        def watched(*arguments: Any) -> Any:
            if not Elsewhere.at_work:
                in_loop.append(name)
            return call(*arguments)

        monkeypatch.setattr(world.log, name, watched)

    watch("committed")
    watch("transactional_writer")
    die_within_a_transaction(world, victim, lost)
    monkeypatch.setattr(Elsewhere, "held", True)
    world.until(lambda: len(survivor.owned) == PARTITIONS, survivor)
    for nth in range(3):
        commands = [world.register(job_of(world, number, nth)) for number in ours]
        survivor.step()
        world.time.pass_ms(500)
        assert all(world.answer(command) is not None for command in commands)
    assert survivor.running == ours
    monkeypatch.setattr(Elsewhere, "held", False)
    world.until(lambda: len(survivor.running) == PARTITIONS, survivor)
    world.run(survivor)
    assert in_loop == []
    for number in lost:
        assert world.types(number).count("JobRegistered") == 1
        assert survivor.digest(number) == world.replayed_digest(number)


def test_a_partition_goes_on_as_soon_as_its_own_offsets_are_stable(
    world: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question may take a while: one in a turn at most, and none waits for the others' answers."""
    survivor, victim = pair(world)
    lost = victim.running
    unstable = set(lost[:3])
    asked: list[set[int]] = []
    committed = world.log.committed

    def some_are_unstable(group: str, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        numbers = {tp.partition for tp in tps}
        asked.append(numbers)
        if numbers & unstable:
            raise LogRetriable("a transaction is open")
        return committed(group, tps)

    victim.crash()
    victim.evict()
    monkeypatch.setattr(world.log, "committed", some_are_unstable)
    turns = 0
    while not set(lost[3:]) <= set(survivor.running):
        before = len(asked)
        world.run(survivor, steps=1)
        turns += 1
        assert len(asked) <= before + 1
        assert turns < 50
    assert not unstable & set(survivor.running)
    assert all(len(numbers) == 1 for numbers in asked)
    unstable.clear()
    world.until(lambda: len(survivor.running) == PARTITIONS, survivor)


def test_a_dead_one_is_ended_once_for_all_its_partitions_and_again_when_it_dies_again(
    world: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    survivor, victim = pair(world)
    taken: Counter[str] = Counter()
    make = world.log.transactional_writer

    def counted(transactional_id: str) -> Any:
        taken[transactional_id] += 1
        return make(transactional_id)

    for life in (1, 2):
        monkeypatch.setattr(world.log, "transactional_writer", counted)
        since_ms = world.time.wall_ms
        die_within_a_transaction(world, victim, victim.running)
        world.until(lambda: len(survivor.running) == PARTITIONS, survivor)
        assert world.time.wall_ms - since_ms < TRANSACTION_TIMEOUT_MS
        assert taken[f"{NAMESPACE}.b.0"] == life
        monkeypatch.setattr(world.log, "transactional_writer", make)
        victim = world.start("b")
        share(world, survivor, victim)


def test_stores_are_opened_a_few_in_a_turn(world: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes tens of milliseconds each: partitions that run do not wait for all of them."""
    opening_ms = 30
    opened: list[int] = []
    open_store = MemoryFolder.open

    def slowly(self: MemoryFolder, partition: int) -> KeyValue:
        world.time.pass_ms(opening_ms)
        opened.append(partition)
        return open_store(self, partition)

    monkeypatch.setattr(MemoryFolder, "open", slowly)
    process = world.start("a")
    most = 0
    while len(process.running) < PARTITIONS:
        before = len(opened)
        world.run(process, steps=1)
        most = max(most, len(opened) - before)
        assert world.time.monotonic_ms < 60_000
    assert opened == list(range(PARTITIONS))
    assert most <= recovery.OPEN_MS // opening_ms + 1


def test_an_answer_of_before_a_partition_was_lost_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was on its way; another owner has gone on since."""
    world = Installation()
    world.background = Elsewhere
    monkeypatch.setattr(Elsewhere, "held", True)
    first = world.start("a")
    world.run(first)
    asking = first.processor._recovery
    question = asking._restores[0].question
    assert question is not None
    answer = asking._inquiries._standing(0)
    world.background = Slices
    first.evict()
    second = world.live("b")
    command = world.register()
    world.run(second)
    second.processor.stop()
    world.run(first)
    question.answer = answer
    assert not question.wanted
    world.run(first)
    assert (first.owned, first.running) == ([0], [])
    monkeypatch.setattr(Elsewhere, "held", False)
    world.until(lambda: first.running == [0], first)
    world.run(first)
    assert first.partition(0).positions.commands == world.committed()[0] == 1
    assert len(world.answers(command)) == 1


@pytest.mark.parametrize("broken", ["transactional_writer", "reader"])
def test_a_take_over_goes_on_whatever_fails_beside_it(
    world: Installation, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """A client that cannot be made, say: without it the broker ends the transaction, only later."""
    world.background = Elsewhere
    survivor, victim = pair(world)
    ours, lost = survivor.running, victim.running
    die_within_a_transaction(world, victim, lost)
    make = getattr(world.log, broken)
    failed: list[str] = []

    def fails(*arguments: Any) -> Any:
        if Elsewhere.at_work:
            failed.append(broken)
            raise RuntimeError("no more threads")
        return make(*arguments)

    monkeypatch.setattr(world.log, broken, fails)
    world.until(lambda: len(failed) > 0, survivor)
    for nth in range(1, 3):
        commands = [world.register(job_of(world, number, nth)) for number in ours]
        world.run(survivor)
        assert all(world.answer(command) is not None for command in commands)
    world.time.pass_ms(TRANSACTION_TIMEOUT_MS)
    world.until(lambda: len(survivor.running) == PARTITIONS, survivor)


def test_nobody_is_ended_for_a_partition_that_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Installation()
    first = world.start("a")
    inquiries = first.processor._recovery._inquiries
    ended: list[int] = []
    end = Predecessors.end_transactions

    def watched(self: Predecessors, partitions: Sequence[int], now_ms: int) -> Any:
        ended.extend(partitions)
        return end(self, partitions, now_ms)

    def unstable(*_: object) -> Any:
        raise LogRetriable("a transaction is open")

    monkeypatch.setattr(Predecessors, "end_transactions", watched)
    with monkeypatch.context() as patch:
        patch.setattr(world.log, "committed", unstable)
        while not inquiries._held_back:
            world.run(first, steps=1)
            assert world.time.monotonic_ms < 60_000
        first.evict()
        world.run(first, steps=1)
    world.until(lambda: first.running == [0], first)
    assert ended == []
