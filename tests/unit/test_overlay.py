"""What only the overlay has: undo, hand-over, scans that do not see later changes.

Owns: the overlay over a memory store. What it shares with other stores is in the conformance suite.
"""

from collections.abc import Iterator
from itertools import islice

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from streams.store.kv import Batch
from streams.store.memory import MemoryFolder, MemoryStore
from streams.store.overlay import Overlay
from streams.store.sorted_keys import BLOCK_KEYS, SortedKeys


class CountingStore(MemoryStore):
    """Counts the entries scans read: what the overlay makes its base do."""

    steps = 0

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        for entry in super().scan(start, end):
            self.steps += 1
            yield entry


@pytest.fixture
def base() -> CountingStore:
    store = CountingStore()
    store.write(Batch({b"q%03d" % number: b"old" for number in range(200)}))
    return store


@pytest.fixture
def overlay(base: CountingStore) -> Overlay:
    return Overlay(base)


def keys(overlay: Overlay, start: bytes = b"q", end: bytes = b"r") -> list[bytes]:
    return [key for key, _ in overlay.scan(start, end)]


def test_nothing_reaches_the_base_before_it_is_taken(base: CountingStore, overlay: Overlay) -> None:
    overlay.put(b"q000", b"new")
    overlay.delete(b"q001")
    overlay.put(b"s1", b"new")
    assert overlay.get(b"q000") == b"new"
    assert overlay.get(b"q001") is None
    assert base.get(b"q000") == base.get(b"q001") == b"old"
    batch = overlay.take()
    assert batch == Batch({b"q000": b"new", b"q001": None, b"s1": b"new"})
    assert overlay.get(b"q000") == b"old"
    assert not overlay.take()
    base.write(batch)
    assert overlay.get(b"q001") is None
    assert next(overlay.scan(b"q", b"r")) == (b"q000", b"new")


def test_cleared_changes_are_gone(overlay: Overlay) -> None:
    overlay.put(b"q000", b"new")
    overlay.delete_range(b"q001", b"q999")
    assert keys(overlay) == [b"q000"]
    overlay.clear()
    assert overlay.get(b"q000") == b"old"
    assert len(keys(overlay)) == 200
    assert not overlay.take()


def test_rollback_undoes_what_came_after_its_savepoint(overlay: Overlay) -> None:
    overlay.put(b"s1", b"one")
    first = overlay.savepoint()
    overlay.put(b"s1", b"two")
    overlay.put(b"s2", b"two")
    assert keys(overlay, b"s", b"t") == [b"s1", b"s2"]
    second = overlay.savepoint()
    overlay.delete(b"s1")
    overlay.put(b"s0", b"three")
    overlay.delete_range(b"q", b"q199")
    assert keys(overlay, b"s", b"t") == [b"s0", b"s2"]
    assert keys(overlay) == [b"q199"]
    overlay.rollback(second)
    assert list(overlay.scan(b"s", b"t")) == [(b"s1", b"two"), (b"s2", b"two")]
    assert len(keys(overlay)) == 200
    overlay.rollback(first)
    assert list(overlay.scan(b"s", b"t")) == [(b"s1", b"one")]
    overlay.put(b"s3", b"again")
    overlay.rollback(first)
    assert overlay.take() == Batch({b"s1": b"one"})


def test_a_range_delete_needs_no_point_deletes(overlay: Overlay) -> None:
    overlay.put(b"t1", b"fired in the transaction that filed it")
    overlay.delete(b"t2")
    overlay.delete(b"t5")
    overlay.delete_range(b"t1", b"t4")
    overlay.put(b"t3", b"filed again")
    assert overlay.take() == Batch({b"t3": b"filed again", b"t5": None}, [(b"t1", b"t4")])


def test_a_scan_does_not_see_changes_made_while_it_goes_on(overlay: Overlay) -> None:
    overlay.put(b"q001", b"pending")
    overlay.put(b"q003", b"pending")
    overlay.put(b"q0035", b"pending")
    seen = []
    for key, value in overlay.scan(b"q", b"q006"):
        seen.append((key, value))
        if key == b"q000":
            overlay.put(b"q001", b"changed")
            overlay.delete(b"q002")
            overlay.delete(b"q003")
            overlay.delete(b"q003")
            overlay.put(b"q0025", b"added")
            overlay.delete_range(b"q004", b"q005")
    assert seen == [
        (b"q000", b"old"),
        (b"q001", b"pending"),
        (b"q002", b"old"),
        (b"q003", b"pending"),
        (b"q0035", b"pending"),
        (b"q004", b"old"),
        (b"q005", b"old"),
    ]
    assert keys(overlay, b"q", b"q006") == [b"q000", b"q001", b"q0025", b"q0035", b"q005"]


def test_takers_of_a_queue_do_not_walk_over_each_others_deletions(
    base: CountingStore, overlay: Overlay
) -> None:
    for number in range(200):
        head, _ = next(overlay.scan(b"q", b"r"))
        assert head == b"q%03d" % number
        overlay.delete(head)
    assert base.steps < 800  # 20 100 without the remembered head
    assert keys(overlay) == []


def test_what_comes_back_before_a_remembered_head_is_found(overlay: Overlay) -> None:
    for number in range(50):
        overlay.delete(b"q%03d" % number)
    assert next(overlay.scan(b"q", b"r"))[0] == b"q050"
    before = overlay.savepoint()
    overlay.put(b"q007", b"back")
    overlay.put(b"q003", b"back and gone")
    overlay.delete(b"q003")
    assert next(overlay.scan(b"q", b"r"))[0] == b"q007"
    overlay.delete(b"q007")
    assert next(overlay.scan(b"q", b"r"))[0] == b"q050"
    overlay.rollback(before)
    assert next(overlay.scan(b"q", b"r"))[0] == b"q050"
    overlay.rollback(0)
    assert next(overlay.scan(b"q", b"r"))[0] == b"q000"


def test_an_overlay_stacks_on_another(base: CountingStore, overlay: Overlay) -> None:
    upper = Overlay(overlay)
    overlay.delete(b"q000")
    upper.delete(b"q001")
    upper.put(b"q000", b"upper")
    assert [key for key, _ in islice(upper.scan(b"q", b"r"), 2)] == [b"q000", b"q002"]
    overlay.write(upper.take())
    base.write(overlay.take())
    assert base.get(b"q000") == b"upper"
    assert base.get(b"q001") is None


def test_a_copied_folder_is_what_a_crash_leaves(base: CountingStore) -> None:
    folder = MemoryFolder()
    store = folder.open(3)
    store.write(Batch({b"s1": b"before"}))
    crashed = folder.copy()
    store.write(Batch({b"s1": b"after"}))
    assert crashed.open(3).get(b"s1") == b"before"
    assert store.get(b"s1") == b"after"


def test_sorted_keys_split_and_shrink() -> None:
    some = SortedKeys(b"%05d" % number for number in range(0, 3 * BLOCK_KEYS, 2))
    for number in range(1, 3 * BLOCK_KEYS, 2):
        some.add(b"%05d" % number)
    assert some.between(b"0", b"1") == [b"%05d" % number for number in range(3 * BLOCK_KEYS)]
    for number in range(3 * BLOCK_KEYS - 1):
        some.remove(b"%05d" % number)
    last = b"%05d" % (3 * BLOCK_KEYS - 1)
    assert some.between(b"0", b"1") == some.between(last, b"1") == [last]
    some.remove(last)
    assert some.between(b"0", b"1") == []
    some.add(b"5")
    some.add(b"4")
    assert some.between(b"4", b"5") == [b"4"]


KEYS = st.builds(lambda family, tail: family + tail, st.sampled_from([b"q", b"s"]), st.binary(max_size=1))
Model = dict[bytes, bytes]


class OverlayMachine(RuleBasedStateMachine):
    """Savepoints, rollbacks, scans left half-way and commits in any order, against a plain dict."""

    def __init__(self) -> None:
        super().__init__()
        self.base = MemoryStore()
        self.overlay = Overlay(self.base)
        self.model: Model = {}
        self.committed: Model = {}
        self.history: dict[int, Model] = {}

    def expected(self, start: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        return sorted((key, value) for key, value in self.model.items() if start <= key < end)

    @rule(changes=st.dictionaries(KEYS, st.none() | st.binary(max_size=2), max_size=30))
    def change(self, changes: dict[bytes, bytes | None]) -> None:
        for key, value in changes.items():
            self.overlay.put(key, value)
            self.model.pop(key, None)
            if value is not None:
                self.model[key] = value

    @rule(low=st.binary(max_size=1), high=st.binary(max_size=1))
    def delete_range(self, low: bytes, high: bytes) -> None:
        self.overlay.delete_range(b"q" + low, b"q" + high)
        for key, _ in self.expected(b"q" + low, b"q" + high):
            del self.model[key]

    @rule(family=st.sampled_from([b"q", b"s"]), low=st.binary(max_size=1), stop=st.integers(1, 9))
    def scan_while_changing(self, family: bytes, low: bytes, stop: int) -> None:
        end = bytes((family[0] + 1,))
        before = self.expected(family + low, end)
        seen = []
        for key, value in islice(self.overlay.scan(family + low, end), stop):
            seen.append((key, value))
            self.change({key: None, key + b"+": b"added", family + b"\xf0": b"moved"})
        assert seen == before[:stop]

    @rule()
    def remember(self) -> None:
        self.history[self.overlay.savepoint()] = dict(self.model)

    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        point = data.draw(st.sampled_from([0, *sorted(self.history)]))
        self.overlay.rollback(point)
        self.model = dict(self.history.get(point, self.committed))
        self.history = {at: model for at, model in self.history.items() if at <= point}

    @rule()
    def commit(self) -> None:
        self.base.write(self.overlay.take())
        self.committed = dict(self.model)
        self.history.clear()

    @rule()
    def abort(self) -> None:
        self.overlay.clear()
        self.model = dict(self.committed)
        self.history.clear()

    @invariant()
    def all_is_as_expected(self) -> None:
        for start, end in ((b"q", b"r"), (b"s", b"t"), (b"q\x40", b"q\xc0")):
            assert list(self.overlay.scan(start, end)) == self.expected(start, end)
        for key in (b"q", b"s", b"q\x00", b"q\xf0"):
            assert self.overlay.get(key) == self.model.get(key)


TestOverlayMachine = OverlayMachine.TestCase
TestOverlayMachine.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
