"""Time buckets alone: bounded memory, turns of priorities and tenants, restarts (architecture §4)."""

from __future__ import annotations

from collections import Counter

import pytest

from streams.core import keys, limits, timebuckets
from streams.core.priorities import ROUND
from streams.store.memory import MemoryStore
from streams.store.overlay import Overlay
from tests.unit.core.world import TENANT

LANE = keys.lane("NORMAL", TENANT)


def test_the_wheel_is_bounded_also_for_what_is_filed_while_it_turns() -> None:
    store = MemoryStore()
    kv = Overlay(store)
    buckets = timebuckets.TimeBuckets(kv, b"g")
    buckets.load_ahead(0)
    filed = [(n * 7_919) % 50_000 + 1 for n in range(20_000)]
    for at, due in enumerate(filed):
        buckets.add(due, LANE, f"k{at}")
        if at % 100 == 0:
            buckets.write()
            store.write(kv.take())
            buckets.written()
            assert sum(len(b.heap) for b in buckets._buckets.values()) <= 2 * limits.WHEEL_LANE_MAX + 100
    buckets.write()
    store.write(kv.take())
    buckets.written()
    popped: list[str] = []
    for now in range(0, 61_000, 500):
        while got := buckets.pop(now, 1_000):
            assert all(filed[int(key[1:])] <= now for key in got)
            popped += got
    assert sorted(popped) == sorted(f"k{at}" for at in range(20_000))


class Timers:
    """Time buckets on a store of their own."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.reopen()

    def reopen(self) -> None:
        self.kv = Overlay(self.store)
        self.buckets = timebuckets.TimeBuckets(self.kv, b"g")

    def add(self, due_ms: int, lane: keys.Lane, key: str) -> None:
        self.buckets.add(due_ms, lane, key)

    def write(self) -> None:
        self.buckets.write()
        self.store.write(self.kv.take())
        self.buckets.written()

    def pop(self, now_ms: int, limit: int) -> list[str]:
        taken = self.buckets.pop(now_ms, limit)
        self.write()
        return taken

    def in_memory(self) -> int:
        return sum(len(bucket.heap) for bucket in self.buckets._buckets.values())


def test_a_tenant_with_many_minutes_overdue_holds_up_nobody() -> None:
    timers = Timers()
    for minute in range(120):
        for n in range(100):
            timers.add(minute * 60_000 + n, keys.lane("NORMAL", "big"), f"{minute}-{n}")
    timers.add(120 * 60_000, keys.lane("NORMAL", "small"), "the-one")
    timers.write()
    assert "the-one" in timers.pop(121 * 60_000, 1_000)


def test_a_tenant_with_a_herd_in_one_minute_holds_up_nobody() -> None:
    timers = Timers()
    for n in range(1_500):
        timers.add(n, keys.lane("NORMAL", "big"), f"{n}")
    timers.add(2_000, keys.lane("NORMAL", "small"), "the-one")
    timers.write()
    first = timers.pop(2_000, 1_000)
    assert (len(first), "the-one" in first) == (1_000, True)


def test_what_is_filed_behind_the_loaded_part_comes_once() -> None:
    timers = Timers()
    for n in range(limits.WHEEL_LANE_MAX + 500):
        timers.add(1_000 + 2 * n, LANE, f"k{n}")
    timers.write()
    timers.buckets.load_ahead(0)
    timers.add(5_555, LANE, "behind")
    timers.add(1_555, LANE, "within")
    timers.write()
    popped: list[str] = []
    for now in range(0, 20_000, 500):
        while got := timers.pop(now, 100):
            popped += got
    assert len(popped) == len(set(popped)) == limits.WHEEL_LANE_MAX + 502


def test_tenants_take_turns_over_passes() -> None:
    timers = Timers()
    for tenant in range(30):
        for n in range(400):
            timers.add(n, keys.lane("NORMAL", f"t{tenant:02}"), f"{tenant}-{n}")
    timers.add(30_000, keys.lane("NORMAL", "t99"), "the-one")
    timers.write()
    passes = [timers.pop(40_000, 640) for _ in range(4)]
    assert "the-one" in [key for keys in passes for key in keys]
    while got := timers.pop(40_000, 640):
        passes.append(got)
    everything = [key for keys in passes for key in keys]
    assert len(everything) == len(set(everything)) == 30 * 400 + 1


def test_what_fell_due_in_an_outage_does_not_fill_the_memory() -> None:
    timers = Timers()
    for minute in range(100):
        for n in range(300):
            timers.add(minute * 60_000 + n, LANE, f"{minute}-{n}")
    timers.write()
    popped = timers.pop(10_000_000, 1)
    assert timers.in_memory() <= 100 * timebuckets.SHARE
    while got := timers.pop(10_000_000, 1_000):
        popped += got
        assert timers.in_memory() <= 100 * timebuckets.SHARE
    assert len(popped) == len(set(popped)) == 30_000


def test_a_restart_begins_behind_what_was_handled_and_files_nothing_there() -> None:
    timers = Timers()
    for n in range(100):
        timers.add(1_000 + n, LANE, f"k{n}")
    timers.write()
    timers.buckets.advance_floor(1_049)
    first = timers.pop(1_049, 1_000)
    timers.reopen()
    timers.add(1_010, LANE, "late")  # as a replay would
    timers.write()
    assert first == [f"k{n}" for n in range(50)]
    assert sorted(timers.pop(2_000, 1_000)) == sorted(["late", *[f"k{n}" for n in range(50, 100)]])


def test_priorities_have_their_turns_also_over_short_passes() -> None:
    timers = Timers()
    for priority in keys.PRIORITIES:
        for n in range(4_000):
            timers.add(n, keys.lane(priority, TENANT), f"{priority}-{n}")
    timers.write()
    popped = [key for _ in range(21 * 4) for key in timers.pop(10_000, timebuckets.SHARE // 2)]
    counted = Counter(key.partition("-")[0] for key in popped)
    assert counted == {"HIGH": 64 * 32, "NORMAL": 16 * 32, "LOW": 4 * 32}


@pytest.mark.parametrize("flood", keys.PRIORITIES)
@pytest.mark.parametrize("drop", keys.PRIORITIES)
def test_a_flood_in_one_lane_delays_another_by_a_round_at_most(flood: str, drop: str) -> None:
    timers = Timers()
    for n in range(5_000):
        timers.add(n, keys.lane(flood, "big"), f"{n}")
    timers.add(5_000, keys.lane(drop, "small"), "the-one")
    timers.write()
    popped: list[str] = []
    while "the-one" not in popped:
        popped += timers.pop(6_000, 100)
    assert len(popped) <= (len(ROUND) + 1) * timebuckets.SHARE + 100


def test_memory_is_bounded_in_each_lane() -> None:
    timers = Timers()
    lanes = [keys.lane(priority, tenant) for priority in keys.PRIORITIES for tenant in ("a", "b")]
    for lane in lanes:
        for n in range(3 * limits.WHEEL_LANE_MAX):
            timers.add(n, lane, f"{lane}-{n}")
    timers.write()
    timers.reopen()
    popped = len(timers.pop(10_000, 1))
    assert timers.in_memory() <= len(lanes) * limits.WHEEL_LANE_MAX
    while got := timers.pop(10_000, 1_000):
        popped += len(got)
    assert popped == len(lanes) * 3 * limits.WHEEL_LANE_MAX


def test_what_is_filed_together_for_one_instant_shares_entries_and_comes_once() -> None:
    """None is lost or comes twice over a restart, whatever was filed for the same instant before or after."""
    timers = Timers()
    herd = [f"k{n:03}" for n in range(100)]
    for key in (*herd, herd[0]):
        timers.add(1_000, LANE, key)
    timers.write()
    assert len(list(timers.store.scan(b"t", b"u"))) == -(-100 // timebuckets.ENTRY_MAX)
    for key in (herd[0], "other"):
        timers.add(1_000, LANE, key)
    timers.write()
    first = timers.pop(1_000, 10)
    assert 10 <= len(first) < 10 + timebuckets.ENTRY_MAX
    timers.reopen()
    popped = Counter([*first, *timers.pop(1_000, 1_000)])
    assert popped == Counter([*herd, herd[0], "other"])
    assert timers.pop(2_000, 1_000) == []


def test_a_rollback_takes_back_what_was_filed_since() -> None:
    timers = Timers()
    timers.add(1_000, LANE, "kept")
    before = timers.buckets.savepoint()
    timers.add(1_000, LANE, "undone")
    timers.buckets.rollback(before)
    timers.write()
    assert timers.pop(1_000, 10) == ["kept"]
    timers.reopen()
    assert timers.pop(1_000, 10) == []
