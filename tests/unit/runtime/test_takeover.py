"""Take-over: no snapshot is used which is not whole, right and fresh, and the newest that is, is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from schemas.topics import DAY_MS, catalogue
from streams.core.keys import CHECKPOINT
from streams.runtime import starting
from streams.runtime.partition import PartitionState
from streams.store.kv import Batch
from streams.store.memory import MemoryFolder
from streams.transport.log import TopicPartition
from tests.unit.runtime.applied import Applied
from tests.unit.runtime.installation import Installation, Process
from tests.unit.runtime.snapshotted import (
    SNAPSHOT_MS,
    Failing,
    Kept,
    died_with_two_snapshots,
    register,
    snapshot,
    taken_over,
)


def test_only_the_tail_behind_the_newest_snapshot_is_replayed(world: Installation) -> None:
    died_with_two_snapshots(world)
    process, applied = taken_over(world)
    assert applied == 2
    assert 2 <= process.metric("takeover_tail_records", partition="0") < 6  # offsets, commit markers too
    assert process.metric("restore_remaining_records", partition="0") == 0
    command = world.register("job-1", delay_sec=80_000)
    world.until(lambda: world.answer(command) is not None, process)
    answer = world.answer(command)
    assert answer is not None
    assert answer.replayed
    snapshot(world, process)


def test_a_local_store_with_a_short_tail_is_used_and_nothing_is_fetched(
    world: Installation, kept: Kept
) -> None:
    process = died_with_two_snapshots(world)
    world.objects = failing = Failing()
    failing.refuses = frozenset({"list", "get"})
    _, applied = taken_over(world, process.folder.copy())
    assert applied == 0


def test_the_newer_of_local_store_and_snapshot(world: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "NEAR_EVENTS", 0)
    process = world.live()
    register(world, process, 0, 3)
    early = process.folder.copy()
    register(world, process, 3, 3)
    snapshot(world, process)
    register(world, process, 6, 2)
    late = process.folder.copy()
    register(world, process, 8, 1)
    process.crash()
    process.evict()
    second, applied = taken_over(world, early)
    assert applied == 3
    second.evict()
    _, applied = taken_over(world, late)
    assert applied == 1


def test_a_local_store_is_kept_until_a_snapshot_is_whole(
    world: Installation, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was put aside for one that goes further, and that one turned out to be damaged."""
    monkeypatch.setattr(starting, "NEAR_EVENTS", 0)
    process = world.live()
    register(world, process, 0, 3)
    early = process.folder.copy()
    register(world, process, 3, 3)
    snapshot(world, process)
    process.crash()
    process.evict()
    for path in kept.files():
        kept.contents[path] = _flip(kept.contents[path])
    process, applied = taken_over(world, early)
    assert applied == 3
    assert process.metric("snapshots_total", outcome="refused") == 1


def test_a_snapshot_is_used_instead_of_a_local_store_that_is_not_usable(world: Installation) -> None:
    process = died_with_two_snapshots(world)
    folder = process.folder.copy()
    store = folder.open(0)
    store.write(Batch({CHECKPOINT: b"?"}))
    store.close()
    _, applied = taken_over(world, folder)
    assert applied == 2


@dataclass(frozen=True)
class Tampering:
    """What is done to a snapshot, given its manifest's path; and what the refusal says."""

    name: str
    do: Callable[[Kept, str], None]


def _mark(**changes: Any) -> Callable[[Kept, str], None]:
    def do(kept: Kept, path: str) -> None:
        kept.change(path, mark=msgspec.structs.replace(kept.read(path).mark, **changes))

    return do


def _manifest(**changes: Any) -> Callable[[Kept, str], None]:
    return lambda kept, path: kept.change(path, **changes)


def _bytes(change: Callable[[bytes], bytes]) -> Callable[[Kept, str], None]:
    def do(kept: Kept, path: str) -> None:
        kept.contents[path] = change(kept.contents[path])

    return do


def _own_file(change: Callable[[bytes], bytes | None]) -> Callable[[Kept, str], None]:
    """To a file that the other snapshot does not have."""

    def do(kept: Kept, path: str) -> None:
        victim = kept.own_files(path)[0]
        changed = change(kept.contents.pop(victim))
        if changed is not None:
            kept.contents[victim] = changed

    return do


def _file_named(name: str) -> Callable[[Kept, str], None]:
    def do(kept: Kept, path: str) -> None:
        first, *rest = kept.read(path).files
        kept.change(path, files=(msgspec.structs.replace(first, name=name), *rest))

    return do


def _flip(content: bytes) -> bytes:
    at = len(content) // 2
    return content[:at] + bytes((content[at] ^ 1,)) + content[at + 1 :]


TAMPERINGS = [
    Tampering("another topic", _mark(topic_id="another")),
    Tampering("another partition", _manifest(partition=1)),
    Tampering("another namespace", _manifest(namespace="other")),
    Tampering("another key format", _mark(format=999)),
    Tampering("ahead of the log", _mark(last_offset=10_000)),
    Tampering("further than its store", _mark(last_crc=1)),
    Tampering("older than tombstones live", _mark(complete_ms=0)),
    Tampering("manifest cut short", _bytes(lambda content: content[: len(content) // 2])),
    Tampering("manifest empty", _bytes(lambda content: b"")),
    Tampering("manifest of another kind", _bytes(lambda content: b"[1, 2]")),
    Tampering("manifest without files", _manifest(files=())),
    Tampering("manifest without end", _bytes(lambda content: b" " * 5_000_000 + content)),
    Tampering("file missing", _own_file(lambda content: None)),
    Tampering("file cut short", _own_file(lambda content: content[:-1])),
    Tampering("file empty", _own_file(lambda content: b"")),
    Tampering("file longer", _own_file(lambda content: content + b"x")),
    Tampering("file of another content", _own_file(_flip)),
    Tampering("file of another name", _file_named("other")),
    Tampering("file name that leads out", _file_named("../../p000")),
]


@pytest.mark.parametrize("tampering", TAMPERINGS, ids=lambda each: each.name)
def test_a_snapshot_that_is_not_right_is_never_used(
    world: Installation, kept: Kept, tampering: Tampering
) -> None:
    """First the newest alone is spoilt, and the one before it is used; then that too, and the log is."""
    died_with_two_snapshots(world)
    _, newest = kept.manifests()
    tampering.do(kept, newest)
    world.snapshot_sec = 0
    process, applied = taken_over(world)
    assert applied == 6
    assert process.metric("snapshots_total", outcome="refused") == 1
    process.evict()
    kept.contents.pop(newest)
    tampering.do(kept, kept.manifests()[0])
    process, applied = taken_over(world)
    assert applied == len(world.events())
    assert process.metric("snapshots_total", outcome="refused") == 1


def test_one_that_begins_before_the_log_does_is_not_used(world: Installation, kept: Kept) -> None:
    died_with_two_snapshots(world)
    first, second = (kept.read(path).mark for path in kept.manifests())
    world.log.compact(world.topics.events, 0)
    world.log.trim(TopicPartition(world.topics.events, 0), first.next_offset + 1)
    process = world.live("b", MemoryFolder(), make_engine=(counting := Applied()))
    assert counting.count == 2
    process.evict()
    world.log.trim(TopicPartition(world.topics.events, 0), second.next_offset + 1)
    events = len(world.events())
    process = world.live("c", MemoryFolder(), make_engine=(counting := Applied()))
    assert counting.count == events > 0
    assert process.metric("snapshots_total", outcome="refused") == 2


def test_old_ones_may_have_missed_tombstones(world: Installation) -> None:
    died_with_two_snapshots(world)
    world.time.pass_ms(6 * DAY_MS + 120_000)
    events = len(world.events())
    process, applied = taken_over(world)
    assert applied == events
    assert process.metric("snapshots_total", outcome="refused") == 2


@pytest.mark.parametrize("local", ["none", "unusable"])
def test_one_whose_last_event_differs_is_thrown_away_for_the_one_before(
    world: Installation, kept: Kept, local: str
) -> None:
    """Whole in itself, at a fitting offset: only the event there tells that it is of another history. A local
    store that had to be thrown away before does not count."""
    other = Installation()
    other.objects = strange = Kept()
    other.time.pass_ms(1)
    died_with_two_snapshots(world)
    died_with_two_snapshots(other)
    kept.contents.pop(kept.manifests()[1])
    (mine,) = kept.manifests()
    newest = strange.manifests()[1]
    kept.contents |= {path: each for path, each in strange.contents.items() if "/files/" in path}
    kept.contents[newest] = strange.contents[newest]
    assert newest > mine
    folder = MemoryFolder()
    if local == "unusable":
        store = folder.open(0)
        store.write(Batch({CHECKPOINT: b"?", b"ejob:x": b"?"}))
        store.close()
    process, applied = taken_over(world, folder)
    assert applied == 6
    assert process.partition(0).state is PartitionState.RUNNING


def test_what_is_left_of_another_topic_of_the_name_is_not_met(world: Installation, kept: Kept) -> None:
    died_with_two_snapshots(world)
    before = dict(kept.contents)
    anew = Installation()
    anew.log.delete_topic(anew.topics.events)
    anew.log.create_topics(catalogue(anew.topics.namespace, 1, 1))
    anew.objects = kept
    process = anew.live()
    snapshot(anew, process)
    assert process.metric("snapshots_total", outcome="refused") == 0
    assert before.items() <= kept.contents.items()


def test_killed_between_any_two_slices_leaves_nothing_that_is_used(world: Installation, kept: Kept) -> None:
    process = world.live()
    register(world, process, 0, 4)
    snapshot(world, process)
    whole = dict(kept.contents)
    register(world, process, 4, 3)
    world.time.pass_ms(SNAPSHOT_MS)
    seen: list[dict[str, bytes]] = []
    for _ in range(40):
        process.step()
        world.time.pass_ms(300)
        if kept.contents != (seen[-1] if seen else whole):
            seen.append(dict(kept.contents))
    assert len(seen) >= 3
    process.crash()
    process.evict()
    world.snapshot_sec = 0
    for state in seen:
        manifests = [path for path in state if path.endswith(".json")]
        kept.contents = dict(state)
        process, applied = taken_over(world)
        assert applied == (3 if len(manifests) == 1 else 0)
        process.evict()
    world.snapshot_sec = 60
    kept.contents = dict(seen[0])
    process, _ = taken_over(world)
    register(world, process, 7, 1)
    snapshot(world, process)
    named = {file.digest for path in kept.manifests() for file in kept.read(path).files}
    assert {path.rpartition("/")[2] for path in kept.files()} == named


def test_a_restore_shows_how_far_it_is(world: Installation) -> None:
    died_with_two_snapshots(world)
    process = world.start("b", MemoryFolder())
    texts = []
    for _ in range(30):
        process.step()
        partition = process.processor.ownership.get(0)
        if partition is not None and not partition.running:
            texts.append((partition.reason, partition.restore_remaining))
        world.time.pass_ms(5_001)
    assert process.running == [0]
    assert any("looking for a snapshot" in text for text, _ in texts)
    assert any("fetching a snapshot: 0 of 0 MiB" in text for text, _ in texts)
    assert max(remaining for _, remaining in texts) > 2
    assert process.partition(0).reason == ""
    statuses = [each for each in world.statuses() if each.owner == "b"]
    assert any("fetching" in each.reason and each.restore_remaining > 0 for each in statuses)
    assert statuses[-1].reason == ""


def test_a_partition_that_goes_away_while_its_snapshot_is_fetched(world: Installation) -> None:
    died_with_two_snapshots(world)
    folder = MemoryFolder()
    process = world.start("b", folder)
    world.until(lambda: "fetching" in _logged(process), process)
    process.processor.stop()
    _, applied = taken_over(world, folder)
    assert applied == 2


def _logged(process: Process) -> str:
    partition = process.processor.ownership.get(0)
    recovery = process.processor._recovery
    restore = None if partition is None else recovery._restores.get(0)
    return "" if restore is None or restore.fetch is None else restore.awaits


def test_a_partition_that_is_lost_while_its_snapshot_is_taken(world: Installation, kept: Kept) -> None:
    process = world.live()
    register(world, process, 0, 5)
    world.time.pass_ms(SNAPSHOT_MS)
    world.until(lambda: bool(kept.files()), process, ms=300)
    process.processor.stop()
    assert not kept.manifests()
    _, applied = taken_over(world)
    assert applied == len(world.events())
