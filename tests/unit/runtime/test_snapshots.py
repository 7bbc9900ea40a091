"""Snapshots: when they are taken, and what is kept."""

from __future__ import annotations

import pytest

from streams.store.memory import MemoryFolder
from tests.unit.runtime.installation import Installation
from tests.unit.runtime.snapshotted import (
    SNAPSHOT_MS,
    Failing,
    Kept,
    died_with_two_snapshots,
    register,
    snapshot,
    taken_over,
)


def test_one_is_taken_every_period_while_the_partition_runs(world: Installation, kept: Kept) -> None:
    process = world.live()
    register(world, process, 0, 5)
    assert not kept.contents
    snapshot(world, process)
    (path,) = kept.manifests()
    manifest = kept.read(path)
    assert (manifest.namespace, manifest.partition, manifest.instance) == ("unit", 0, "a")
    assert manifest.mark == process.partition(0).mark
    assert manifest.mark.next_offset == world.events()[-1].offset + 1
    command = world.register("job-while", delay_sec=60_000)
    world.until(lambda: world.answer(command) is not None, process)


def test_a_partition_decides_while_one_is_carried(world: Installation, kept: Kept) -> None:
    process = world.live()
    register(world, process, 0, 5)
    world.time.pass_ms(SNAPSHOT_MS)
    world.until(lambda: bool(kept.files()), process, ms=300)
    assert not kept.manifests()
    reached = process.partition(0).mark.next_offset
    command = world.register("job-while", delay_sec=60_000)
    process.step()
    assert world.answer(command) is not None
    assert not kept.manifests()
    world.until(lambda: bool(kept.manifests()), process)
    assert kept.read(kept.manifests()[0]).mark.next_offset == reached


def test_the_two_newest_are_kept_and_nothing_that_they_do_not_name(world: Installation, kept: Kept) -> None:
    process = world.live()
    for number in range(5):
        register(world, process, number, 1)
        snapshot(world, process)
    newest = [kept.read(path) for path in kept.manifests()]
    assert [each.mark.next_offset for each in newest] == sorted({each.mark.next_offset for each in newest})
    assert len(newest) == 2
    named = {file.digest for each in newest for file in each.files}
    assert {path.rpartition("/")[2] for path in kept.files()} == named


def test_a_file_that_is_there_is_not_carried_again(world: Installation, kept: Kept) -> None:
    """A registered job changes one of the two files of the in-memory store only if it is not due soon."""
    process = world.live()
    register(world, process, 0, 5)
    snapshot(world, process)
    first = kept.read(kept.manifests()[0])
    carried = process.metric("snapshot_bytes_total")
    assert carried == first.size
    command = world.cancel("job-none")
    world.until(lambda: world.answer(command) is not None, process)
    world.time.pass_ms(2 * 3_600_000)
    snapshot(world, process)
    second = kept.read(kept.manifests()[1])
    again = process.metric("snapshot_bytes_total") - carried
    shared = {each.digest for each in first.files} & {each.digest for each in second.files}
    assert again == sum(each.size for each in second.files if each.digest not in shared)
    assert shared


def test_nothing_new_is_taken_once_an_hour(world: Installation, kept: Kept) -> None:
    process = world.live()
    register(world, process, 0, 1)
    snapshot(world, process)
    for _ in range(50):
        world.time.pass_ms(SNAPSHOT_MS)
        world.run(process, steps=3)
    assert process.metric("snapshots_total", outcome="taken") == 1
    for _ in range(30):
        world.time.pass_ms(SNAPSHOT_MS)
        world.run(process, steps=3)
        world.time.pass_ms(1_000)
        world.run(process, steps=20)
    assert process.metric("snapshots_total", outcome="taken") == 2


def test_zero_seconds_takes_none_but_uses_those_there_are(world: Installation, kept: Kept) -> None:
    died_with_two_snapshots(world)
    before = dict(kept.contents)
    world.snapshot_sec = 0
    process, applied = taken_over(world)
    assert applied < len(world.events()) - 5
    for _ in range(5):
        world.time.pass_ms(SNAPSHOT_MS)
        world.run(process)
    assert kept.contents == before


def test_partitions_take_turns(kept: Kept) -> None:
    world = Installation(partitions=3)
    world.objects = kept
    process = world.live()
    world.time.pass_ms(SNAPSHOT_MS)
    world.until(lambda: process.metric("snapshots_total", outcome="taken") == 3, process, ms=300, steps=500)
    assert sorted(kept.read(path).partition for path in kept.manifests()) == [0, 1, 2]


def test_age_and_tail_are_shown_and_end_with_the_ownership(world: Installation, kept: Kept) -> None:
    process = world.live()
    register(world, process, 0, 2)
    snapshot(world, process)
    register(world, process, 2, 7)
    world.time.pass_ms(5_000)
    world.run(process)
    tail = process.partition(0).mark.next_offset - kept.read(kept.manifests()[0]).mark.next_offset
    assert process.metric("snapshot_tail_records", partition="0") == tail >= 7
    assert 5 <= process.metric("snapshot_age_seconds", partition="0") < 8
    process.processor.stop()
    sample = process.telemetry.registry.get_sample_value
    assert sample("horarium_snapshot_age_seconds", {"partition": "0"}) is None


@pytest.mark.parametrize("refuses", ["put", "list"])
def test_a_place_that_fails_does_not_harm_the_partition(world: Installation, refuses: str) -> None:
    world.objects = failing = Failing()
    failing.refuses = frozenset({refuses})
    process = world.live()
    register(world, process, 0, 3)
    world.time.pass_ms(SNAPSHOT_MS)
    world.until(lambda: process.metric("snapshots_total", outcome="failed") == 1, process, ms=300)
    command = world.register("job-after", delay_sec=60_000)
    world.until(lambda: world.answer(command) is not None, process)
    failing.refuses = frozenset()
    snapshot(world, process)
    assert len(failing.manifests()) == 1


@pytest.mark.parametrize("failing", ["flush", "freeze"])
def test_a_store_that_cannot_be_frozen_does_not_harm_the_partition(
    world: Installation, kept: Kept, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: MemoryFolder, partition: int) -> None:
        raise OSError("no space left on device")

    process = world.live()
    register(world, process, 0, 3)
    with monkeypatch.context() as broken:
        broken.setattr(MemoryFolder, failing, full)
        world.time.pass_ms(SNAPSHOT_MS)
        world.until(lambda: process.metric("snapshots_total", outcome="failed") == 1, process, ms=300)
        command = world.register("job-after", delay_sec=60_000)
        world.until(lambda: world.answer(command) is not None, process)
    snapshot(world, process)
    assert len(kept.manifests()) == 1


def test_old_snapshots_that_cannot_be_deleted_go_with_the_next_one(world: Installation) -> None:
    world.objects = failing = Failing()
    process = world.live()
    for number in range(4):
        failing.refuses = frozenset({"delete"} if number == 2 else ())
        register(world, process, number, 1)
        snapshot(world, process)
    assert len(failing.manifests()) == 2


@pytest.mark.parametrize("refuses", ["get", "list"])
def test_a_place_that_fails_at_a_take_over_leaves_the_log(world: Installation, refuses: str) -> None:
    world.objects = failing = Failing()
    died_with_two_snapshots(world)
    failing.refuses = frozenset({refuses})
    _, applied = taken_over(world)
    assert applied == len(world.events())
