"""Decoded entities are kept within a process's room, the least recently used go first, and none is wrong."""

from __future__ import annotations

import gc

import pytest

from schemas.entities import Entity, PartitionMeta
from streams.core.decoded import BYTES_EACH, BYTES_PER_ENCODED, ENCODED_MAX, Decoded
from streams.core.kept import Sized
from streams.core.room import Room

SIZE = 100
EACH = BYTES_EACH + BYTES_PER_ENCODED * SIZE


def entity(number: int) -> Entity:
    return PartitionMeta(partition=number, partition_count=8, tz_version="2026a")


def _found(kept: Decoded, key: str) -> Entity:
    found = kept.get(key)
    assert found is not None
    return found


class Store:
    """What is read, and how often."""

    def __init__(self) -> None:
        self.reads: list[str] = []

    def read(self, key: str) -> Sized:
        self.reads.append(key)
        return entity(int(key)), SIZE


def test_what_is_kept_is_not_read_again() -> None:
    store = Store()
    kept = Decoded(Room(), store.read)
    kept.keep("1", entity(5), SIZE)
    kept.keep("2", None, 0)
    assert [kept.get("1"), kept.get("2"), kept.get("3"), kept.get("3")] == [
        entity(5), None, entity(3), entity(3)
    ]  # fmt: skip
    assert store.reads == ["3"]


def test_a_process_keeps_no_more_than_its_room_in_whichever_partition() -> None:
    room = Room(20 * EACH)
    kept = [Decoded(room, Store().read) for _ in range(4)]
    for number in range(1_000):
        kept[number // 10 % 4].get(str(number))
        assert sum(len(one._kept.newer) + len(one._kept.older) for one in kept) <= 20
    busy = Store()
    one = Decoded(room, busy.read)
    for _ in range(3):
        for number in range(10):
            one.get(str(number))
    assert len(busy.reads) == 10, "a busy partition may have the room of idle ones"


def test_what_is_used_stays_and_what_is_not_goes() -> None:
    store = Store()
    kept = Decoded(Room(20 * EACH), store.read)
    for number in range(100):
        kept.get("7")
        kept.get(str(1_000 + number))
    assert store.reads.count("7") == 1
    kept.get("1000")
    assert store.reads.count("1000") == 2


def test_growth_counts() -> None:
    room = Room(20 * EACH)
    kept = Decoded(room, Store().read)
    for number in range(100):
        kept.keep(str(number), None, 0)  # as registrations do: it is not there, and then it is
        kept.keep(str(number), entity(number), SIZE)
        assert sum(one.size == SIZE for one in (*kept._kept.newer.values(), *kept._kept.older.values())) <= 21


def test_a_large_one_is_not_kept_nor_what_stood_there_before() -> None:
    store = Store()
    room = Room(20 * EACH)
    kept = Decoded(room, store.read)
    kept.keep("1", entity(5), SIZE)
    kept._kept.age()
    kept.keep("1", entity(6), ENCODED_MAX + 1)
    assert kept.get("1") == entity(1)
    assert store.reads == ["1"]


def test_a_newer_value_hides_the_older_generation_s() -> None:
    kept = Decoded(Room(), Store().read)
    kept.keep("1", entity(5), SIZE)
    kept._kept.age()
    kept.keep("1", None, 0)
    assert kept.get("1") is None
    kept.clear()
    assert kept.get("1") == entity(1)


def test_what_is_bare_stays_so_until_it_is_told_otherwise() -> None:
    """Through changes of the entity and generations, if it is the one that was asked for last."""
    kept = Decoded(Room(), Store().read)
    kept.keep("1", None, 0)
    kept.mark("1", bare=True)
    for number in (5, 6):
        kept.keep("1", entity(number), SIZE)
        kept._kept.age()
        found = _found(kept, "1")
        assert found == entity(number)
        assert kept.is_bare(found)
        assert not kept.is_bare(entity(number)), "it is another one"
    kept.get("2")
    assert not kept.is_bare(found)
    kept._kept.age()  # the mark of an older generation goes, too
    kept.mark("1", bare=False)
    assert not kept.is_bare(_found(kept, "1"))


@pytest.mark.parametrize("loses", ["clear", "grow", "leave"])
def test_what_is_not_kept_is_not_known_to_be_bare(loses: str) -> None:
    kept = Decoded(Room(2 * EACH), Store().read)
    kept.keep("1", entity(5), SIZE)
    kept.mark("1", bare=True)
    match loses:
        case "clear":
            kept.clear()
        case "grow":
            kept.keep("1", entity(5), ENCODED_MAX + 1)
        case _:
            for number in range(2, 5):
                kept.get(str(number))
    found = _found(kept, "1")
    assert found == entity(1), "it was read again"
    assert not kept.is_bare(found)


def test_the_room_forgets_partitions_that_are_gone() -> None:
    room = Room()
    kept = Decoded(room, Store().read)
    assert len(room._partitions) == 1
    del kept
    gc.collect()
    assert len(room._partitions) == 0
