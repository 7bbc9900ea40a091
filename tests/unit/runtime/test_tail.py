"""What is read of the log before it is applied: of each key the newest, in log order, in whole chunks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.runtime import recovery
from streams.runtime.mark import read_mark
from streams.runtime.tail import RECORD_BYTES, Tail
from streams.store.memory import MemoryFolder
from streams.transport.log import Record
from tests.unit.runtime.applied import Applied
from tests.unit.runtime.installation import Installation, Process

KEYS = st.sampled_from([b"a", b"b", b"c"])
VALUES = st.none() | st.binary(min_size=1, max_size=3)


def record(offset: int, key: bytes, value: bytes | None) -> Record:
    return Record("events", 0, offset, 0, key, value, {})


@given(st.lists(st.tuples(KEYS, VALUES), min_size=1), st.integers(1, 4), st.integers(1, 5))
def test_a_chunk_is_what_compaction_would_leave(
    changes: list[tuple[bytes, bytes | None]], at_once: int, taken: int
) -> None:
    records = [record(offset, key, value) for offset, (key, value) in enumerate(changes)]
    tail = Tail()
    for start in range(0, len(records), at_once):
        tail.read(records[start : start + at_once])
    left = [
        each for each in records if not any(o.key == each.key and o.offset > each.offset for o in records)
    ]
    assert tail.bytes == sum(RECORD_BYTES + 1 + len(each.value or b"") for each in left)
    tail.cut()
    found: list[Record] = []
    while tail.is_cut:
        found += tail.take(taken)
    assert found == left
    assert tail.last == records[-1]
    assert tail.last_event == next((each.value for each in reversed(records) if each.value is not None), None)
    tail.clear()
    assert not tail
    assert not tail.bytes


def ended_runs(count: int) -> tuple[Installation, int]:
    """A log of runs that began and ended, and how many keys it has."""
    world = Installation()
    process = world.live()
    for number in range(count):
        world.register(f"job-{number}", delay_sec=0)
    world.request(credit=count)
    world.until(lambda: len(world.grants()) == count, process)
    for grant in world.grants():
        world.complete(grant.execution)
    world.until(lambda: world.types().count("ExecutionCompleted") == count, process)
    process.processor.stop()
    return world, len({each.key for each in world.events()})


def restored(world: Installation, folder: MemoryFolder | None = None) -> tuple[Process, int]:
    applied = Applied()
    process = world.live("b", folder, make_engine=applied)
    assert process.digest(0) == world.replayed_digest()
    return process, applied.count


def test_what_a_later_event_replaced_is_not_applied() -> None:
    world, keys = ended_runs(10)
    assert keys < len(world.events())
    assert restored(world)[1] == keys


def test_with_less_room_more_is_applied_and_the_state_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    world, keys = ended_runs(10)
    monkeypatch.setattr(recovery, "READ_RECORDS", 7)
    monkeypatch.setattr(recovery, "ROOM_BYTES", 1)
    assert restored(world)[1] > keys


def test_a_chunk_that_was_left_half_applied_is_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    world, keys = ended_runs(10)
    monkeypatch.setattr(recovery, "APPLIED_RECORDS", 3)
    folder, applied = MemoryFolder(), Applied()
    first = world.start("b", folder, make_engine=applied)
    world.until(lambda: 0 < applied.count < keys, first, ms=1)
    first.processor.stop()
    store = folder.open(0)
    assert read_mark(store) is None
    store.close()
    assert restored(world, folder)[1] == keys
