"""Restoring: when the local store is used, what it may say of itself, and what stops a partition."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from schemas.topics import DAY_MS
from streams.core.keys import CHECKPOINT
from streams.runtime import recovery
from streams.runtime.inquiries import Inquiries
from streams.runtime.mark import read_mark, write_marked
from streams.runtime.partition import PartitionState
from streams.store.kv import Batch
from streams.store.memory import MemoryFolder
from streams.transport.log import TopicPartition
from tests.unit.runtime.applied import Applied
from tests.unit.runtime.installation import Installation, Process


def stopped_with_jobs(world: Installation, count: int = 5) -> MemoryFolder:
    process = world.live()
    for number in range(count):
        world.register(f"job-{number}")
    world.run(process, steps=10)
    process.processor.stop()
    return process.folder


def test_a_usable_store_is_not_replayed() -> None:
    world = Installation()
    folder = stopped_with_jobs(world)
    applied = Applied()
    again = world.live("a", folder, make_engine=applied)
    assert applied.count == 0
    assert again.digest(0) == world.replayed_digest()


def test_only_the_tail_is_replayed() -> None:
    world = Installation()
    folder = stopped_with_jobs(world)
    other = world.live("b")
    world.register("job-later")
    world.run(other)
    other.processor.stop()
    applied = Applied()
    again = world.live("a", folder, make_engine=applied)
    assert applied.count == 1
    assert again.digest(0) == world.replayed_digest()


def test_a_partition_that_waits_for_its_turn_is_not_held_back_by_a_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Looking for a dead predecessor takes a second: eight long replays at once were ten times slower."""
    world = Installation(partitions=4)
    world.shards = {"acme": 4}
    stopped_with_jobs(world, 20)
    monkeypatch.setattr(recovery, "READ_RECORDS", 1)
    asked: list[int] = []
    monkeypatch.setattr(Inquiries, "end_predecessor", lambda self, partition: asked.append(partition))
    again = world.start("b")
    world.until(lambda: len(again.running) == 4, again, ms=recovery.WAIT_MS)
    assert not asked


def wiped(world: Installation, folder: MemoryFolder) -> Process:
    applied, events = Applied(), len(world.events())
    again = world.live("a", folder, make_engine=applied)
    assert applied.count == events
    world.run(again)
    assert again.digest(0) == world.replayed_digest()
    return again


def test_str_009_a_store_older_than_the_log_is_wiped_once() -> None:
    world = Installation()
    folder = stopped_with_jobs(world)
    other = world.live("b")
    for number in range(4):
        world.cancel(f"job-{number}")
    world.run(other, steps=10)
    newest = world.events()[-1].offset
    other.processor.stop()
    world.log.trim(TopicPartition(world.topics.events, 0), newest - 1)
    again = wiped(world, folder)
    assert again.partition(0).mark.next_offset > newest
    assert again.metric("alerts_total", kind="partition_stopped") == 0


def test_a_store_of_another_topic_is_wiped() -> None:
    """Even one with the same events at the same offsets: nobody knows what lay behind them."""
    world = Installation()
    folder = stopped_with_jobs(world)
    store = folder.open(0)
    mark = read_mark(store)
    assert mark is not None
    write_marked(store, Batch(), replace(mark, topic_id="another"))
    store.close()
    wiped(world, folder)


def test_a_store_that_is_ahead_of_the_log_is_wiped() -> None:
    world = Installation()
    folder = stopped_with_jobs(world, count=9)
    other = Installation()
    stopped_with_jobs(other, count=2)
    wiped(other, folder)


def test_a_store_whose_last_event_differs_is_wiped() -> None:
    world = Installation()
    folder = stopped_with_jobs(world)
    other = Installation()
    other.time.pass_ms(1)
    stopped_with_jobs(other)
    wiped(other, folder)


def test_the_event_at_the_checkpoint_may_be_compacted_away() -> None:
    world = Installation()
    folder = stopped_with_jobs(world)
    other = world.live("b")
    world.cancel("job-4")
    world.run(other)
    world.time.pass_ms(61_000)
    world.run(other, steps=10)
    other.processor.stop()
    world.log.compact(world.topics.events, 0)
    applied = Applied()
    again = world.live("a", folder, make_engine=applied)
    assert applied.count < len(world.events())
    assert again.digest(0) == world.replayed_digest()


def test_a_store_that_may_have_missed_tombstones_is_wiped() -> None:
    world = Installation()
    folder = stopped_with_jobs(world)
    world.time.pass_ms(6 * DAY_MS + 1)
    wiped(world, folder)


def test_an_idle_store_stays_usable_while_its_process_lives() -> None:
    world = Installation()
    process = world.live()
    world.register("job-1", delay_sec=30 * 86_400)
    for _ in range(8):
        world.time.pass_ms(DAY_MS)
        world.run(process)
    folder = process.crash()
    process.evict()
    applied = Applied()
    world.live("a", folder, make_engine=applied)
    assert applied.count == 0


def test_str_011_a_restore_that_was_ended_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Installation()
    process = world.live()
    for number in range(500):
        world.register(f"job-{number}", delay_sec=600)
    world.run(process, steps=10)
    process.processor.stop()
    monkeypatch.setattr(recovery, "READ_RECORDS", 50)
    monkeypatch.setattr(recovery, "ROOM_BYTES", 1)
    folder = MemoryFolder()
    first = world.start("b", folder)
    world.run(first, steps=5)
    assert first.running == []
    assert first.partition(0).restore_remaining > 0
    assert first.metric("restore_remaining_records", partition="0") > 0
    first.processor.stop()
    store = folder.open(0)
    mark = read_mark(store)
    assert mark is not None
    done = sum(1 for _ in store.scan(b"ejob:", b"ejob;"))
    assert mark.next_offset <= 251
    assert done == sum(1 for each in world.events() if each.offset < mark.next_offset) - 1
    store.close()
    applied = Applied()
    again = world.live("b", folder, make_engine=applied)
    assert applied.count == len(world.events()) - done - 1
    assert again.digest(0) == world.replayed_digest()


def test_a_partition_that_cannot_be_restored_leaves_the_others_running() -> None:
    world = Installation(partitions=2)
    world.live().processor.stop()
    healthy = world.where("job-1")
    world.send(world.topics.events, 1 - healthy, b"broken")
    again = world.start("b")
    world.until(lambda: again.owned == [0, 1], again)
    broken = again.partition(1 - healthy)
    world.until(lambda: again.running == [healthy] and broken.state is PartitionState.STOPPED, again)
    command = world.register("job-1")
    world.until(lambda: world.answer(command) is not None, again)


def test_a_store_that_does_not_say_what_it_holds_is_wiped() -> None:
    world = Installation()
    folder = stopped_with_jobs(world)
    store = folder.open(0)
    store.write(Batch(puts={CHECKPOINT: b"?"}))
    store.close()
    wiped(world, folder)


def test_str_009_a_log_that_is_trimmed_again_and_again_does_not_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Installation()
    process = world.live()
    for number in range(400):
        world.register(f"job-{number}", delay_sec=600)
    world.run(process, steps=10)
    process.processor.stop()
    monkeypatch.setattr(recovery, "READ_RECORDS", 20)
    monkeypatch.setattr(recovery, "ROOM_BYTES", 1)
    again = world.start("b")
    tp = TopicPartition(world.topics.events, 0)
    for start in (100, 200):
        world.run(again, steps=3)
        assert again.partition(0).state is PartitionState.RESTORING
        world.log.trim(tp, start)
    world.until(lambda: again.partition(0).state is PartitionState.STOPPED, again)
    assert "does not fit the log again" in again.partition(0).reason
