"""One suite for every store: what `streams.store.kv` promises, on each implementation.

Owns: promises that hold for all of them. What needs files and processes is in `test_store_rocks.py`; undo,
hand-over and other things only the overlay has are in `tests/unit/test_overlay.py`.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from streams.store import rocks
from streams.store.kv import Batch, KeyValue, StoreFolder, check_range
from streams.store.memory import MemoryFolder
from streams.store.overlay import Overlay
from streams.store.rocks import RocksFolder

KINDS = ["memory", "rocks", "overlay-memory", "overlay-rocks"]


class Subject:
    """A store under test, and how to close it and have its content back."""

    def __init__(self, kind: str, path: Path) -> None:
        self.layered = kind.startswith("overlay-")
        self.folder: StoreFolder = MemoryFolder() if kind.endswith("memory") else RocksFolder(path, "test")
        self._open()

    def _open(self) -> None:
        self.base: KeyValue = self.folder.open(0)
        self.store: KeyValue = Overlay(self.base) if self.layered else self.base

    def settle(self) -> None:
        """Moves what an overlay holds down to its base."""
        if isinstance(self.store, Overlay):
            self.base.write(self.store.take())

    def reopen(self) -> None:
        self.settle()
        self.store.close()
        self._open()


@pytest.fixture(params=KINDS)
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    subject = Subject(request.param, tmp_path / "state")
    yield subject
    subject.folder.close()


@pytest.fixture
def store(subject: Subject) -> KeyValue:
    return subject.store


def put(store: KeyValue, *keys: bytes) -> None:
    store.write(Batch({key: b"v" + key for key in keys}))


def keys(store: KeyValue, start: bytes, end: bytes) -> list[bytes]:
    return [key for key, _ in store.scan(start, end)]


def test_gets_what_was_put_and_nothing_else(store: KeyValue) -> None:
    put(store, b"s1", b"t1", b"q1", b"b1")
    assert [store.get(key) for key in (b"s1", b"t1", b"q1", b"b1")] == [b"vs1", b"vt1", b"vq1", b"vb1"]
    assert store.get(b"s") is None
    assert store.get(b"s11") is None
    store.write(Batch({b"s1": b"new", b"t1": None, b"absent": None}))
    assert store.get(b"s1") == b"new"
    assert store.get(b"t1") is None


def test_gets_many_as_one_by_one(store: KeyValue) -> None:
    put(store, *(b"s%03d" % number for number in range(0, 200, 2)), b"q1", b"q3")
    wanted = [b"s%03d" % number for number in (7, 198, 4, 5, 0, 4, 199, 7)]
    assert store.get_many(wanted) == [store.get(key) for key in wanted]
    assert store.get_many(wanted)[1:4] == [b"vs198", b"vs004", None]
    assert store.get_many([b"q3", b"q2", b"q1"]) == [b"vq3", None, b"vq1"]
    assert store.get_many([]) == []
    store.write(Batch({b"s004": None, b"s005": b"new", b"s000": b""}, [(b"s1", b"s2")]))
    assert store.get_many(wanted) == [None, None, None, b"new", b"", None, None, None]


def test_many_of_several_families_are_refused(store: KeyValue) -> None:
    with pytest.raises(ValueError, match="families"):
        store.get_many([b"s1", b"q1"])


def test_an_empty_value_is_a_value(store: KeyValue) -> None:
    store.write(Batch({b"q1": b"", b"s1": b""}))
    assert store.get(b"q1") == b""
    assert list(store.scan(b"q", b"r")) == [(b"q1", b"")]
    assert list(store.scan(b"s", b"t")) == [(b"s1", b"")]


@pytest.mark.parametrize("family", [b"s", b"t", b"q", b"b", b"\x00", b"\xff"])
def test_scans_in_byte_order_with_an_open_end(store: KeyValue, family: bytes) -> None:
    ordered = (b"", b"\x00", b"\x00\xff", b"\x01", b"a", b"a\x00", b"ab", b"b", b"\x7f", b"\x80", b"\xff\xff")
    present = [family + tail for tail in ordered]
    put(store, *reversed(present))
    assert keys(store, family, family + b"\xff\xff\xff") == present
    assert keys(store, family + b"a", family + b"b") == [family + b"a", family + b"a\x00", family + b"ab"]
    assert keys(store, family + b"a\x00", family + b"ab") == [family + b"a\x00"]
    assert keys(store, family + b"b", family + b"a") == []
    assert keys(store, family + b"a", family + b"a") == []


def test_a_scan_stays_in_its_family(store: KeyValue) -> None:
    put(store, b"a1", b"b1", b"c1", b"p1", b"q1", b"r1", b"s1", b"t1", b"u1")
    for family in b"abcpqrstu":
        assert keys(store, bytes((family,)), bytes((family + 1,))) == [bytes((family,)) + b"1"]


@pytest.mark.parametrize(("start", "end"), [(b"s", b"t\x00"), (b"a", b"c"), (b"", b"a"), (b"a", b"")])
def test_a_range_across_families_is_refused(store: KeyValue, start: bytes, end: bytes) -> None:
    with pytest.raises(ValueError, match="range"):
        store.scan(start, end)
    with pytest.raises(ValueError, match="range"):
        store.write(Batch({b"s1": b""}, [(start, end)]))
    with pytest.raises(ValueError, match="range"):
        check_range(start, end)


def test_an_empty_key_is_refused_with_its_whole_batch(subject: Subject) -> None:
    with pytest.raises(ValueError, match="empty"):
        subject.base.write(Batch({b"s1": b"", b"": b""}))
    assert subject.base.get(b"s1") is None


def test_range_deletes_come_before_the_puts_of_their_batch(store: KeyValue) -> None:
    put(store, b"t1", b"t2", b"t3", b"t4", b"s2")
    store.write(Batch({b"t3": b"again", b"t5": b"new", b"t4": None}, [(b"t2", b"t4"), (b"t5", b"t5")]))
    assert list(store.scan(b"t", b"u")) == [(b"t1", b"vt1"), (b"t3", b"again"), (b"t5", b"new")]
    assert store.get(b"t2") is None
    assert store.get(b"t3") == b"again"
    assert store.get(b"s2") == b"vs2"


def test_a_range_delete_reaches_settled_and_fresh_entries(subject: Subject) -> None:
    put(subject.store, b"t1", b"t3", b"t5")
    subject.settle()
    put(subject.store, b"t2", b"t4")
    subject.store.write(Batch(range_deletes=[(b"t2", b"t5"), (b"t9", b"t1")]))
    assert keys(subject.store, b"t", b"u") == [b"t1", b"t5"]
    subject.reopen()
    assert keys(subject.store, b"t", b"u") == [b"t1", b"t5"]


def test_a_scan_may_stop_early_and_the_store_be_written(store: KeyValue) -> None:
    put(store, *(b"q%03d" % number for number in range(100)))
    for taken in range(100):
        head = next(store.scan(b"q", b"r"))
        assert head[0] == b"q%03d" % taken
        store.write(Batch({head[0]: None}))
    assert keys(store, b"q", b"r") == []
    put(store, b"q050")
    assert keys(store, b"q", b"r") == [b"q050"]
    put(store, b"q020")
    assert keys(store, b"q", b"r") == [b"q020", b"q050"]


def test_a_scan_goes_on_when_the_store_is_written_meanwhile(store: KeyValue) -> None:
    put(store, *(b"t%03d" % number for number in range(100)))
    seen = []
    for key, _ in store.scan(b"t", b"u"):
        seen.append(key)
        store.write(Batch({key: None, b"s" + key: b""}))
    assert seen == [b"t%03d" % number for number in range(100)]
    assert keys(store, b"t", b"u") == []


def test_many_scans_at_once_keep_their_own_bounds(store: KeyValue) -> None:
    put(store, *(b"q%04d" % number for number in range(400)))
    scans = [store.scan(b"q%04d" % low, b"q%04d" % (low + 4)) for low in range(0, 400, 4)]
    rows = [list(islice(scan, 2)) + list(scan) for scan in scans]
    assert [key for row in rows for key, _ in row] == [b"q%04d" % number for number in range(400)]


def test_what_was_written_is_there_after_a_reopen(subject: Subject) -> None:
    put(subject.store, b"s1", b"t1", b"q1", b"b1", b"t2")
    subject.store.write(Batch({b"t2": None}))
    subject.reopen()
    assert [subject.store.get(key) for key in (b"s1", b"t1", b"q1", b"b1")] == [
        b"vs1",
        b"vt1",
        b"vq1",
        b"vb1",
    ]
    assert keys(subject.store, b"t", b"u") == [b"t1"]


def test_many_keys(subject: Subject) -> None:
    expected = [b"t" + number.to_bytes(4, "big") for number in range(20_000)]
    shuffled = sorted(expected, key=lambda key: key[::-1])
    for at in range(0, len(shuffled), 1_000):
        put(subject.store, *shuffled[at : at + 1_000])
    assert keys(subject.store, b"t", b"u") == expected
    subject.store.write(Batch(dict.fromkeys(shuffled[:10_000])))
    subject.reopen()
    assert keys(subject.store, b"t", b"u") == sorted(shuffled[10_000:])


def test_close_is_idempotent_and_ends_open_scans(subject: Subject) -> None:
    put(subject.store, b"s1", b"s2")
    subject.settle()
    forgotten = subject.store.scan(b"s", b"t")
    next(forgotten)
    subject.store.close()
    subject.store.close()
    subject.folder.open(0)


def test_a_partition_opens_once_and_wipes_only_when_closed(subject: Subject) -> None:
    put(subject.store, b"s1")
    subject.settle()
    with pytest.raises(ValueError, match="open"):
        subject.folder.open(0)
    with pytest.raises(ValueError, match="open"):
        subject.folder.wipe(0)
    other = subject.folder.open(1)
    put(other, b"s2")
    subject.store.close()
    subject.folder.wipe(0)
    subject.folder.wipe(7)
    assert subject.folder.open(0).get(b"s1") is None
    assert other.get(b"s2") == b"vs2"


# --- against a model ---------------------------------------------------------------------------------------

FAMILIES = st.sampled_from([b"t", b"q", b"s"])
TAILS = st.binary(max_size=2)
KEYS = st.builds(lambda family, tail: family + tail, FAMILIES, TAILS)
RANGES = st.builds(
    lambda family, one, two: (family + min(one, two), family + max(one, two)), FAMILIES, TAILS, TAILS
)


class StoreMachine(RuleBasedStateMachine):
    kind = ""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(prefix="horarium-store-"))
        self.subject = Subject(self.kind, self.path)
        self.model: dict[bytes, bytes] = {}

    def expected(self, start: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        return sorted((key, value) for key, value in self.model.items() if start <= key < end)

    @rule(
        puts=st.dictionaries(KEYS, st.none() | st.binary(max_size=3), max_size=40),
        deletes=st.lists(RANGES, max_size=2),
    )
    def write(self, puts: dict[bytes, bytes | None], deletes: list[tuple[bytes, bytes]]) -> None:
        self.subject.store.write(Batch(dict(puts), list(deletes)))
        for start, end in deletes:
            for key, _ in self.expected(start, end):
                del self.model[key]
        for key, value in puts.items():
            if value is None:
                self.model.pop(key, None)
            else:
                self.model[key] = value

    @rule(bounds=RANGES)
    def scan(self, bounds: tuple[bytes, bytes]) -> None:
        assert list(self.subject.store.scan(*bounds)) == self.expected(*bounds)

    @rule(family=FAMILIES, count=st.integers(1, 30))
    def take_from_the_head(self, family: bytes, count: int) -> None:
        end = bytes((family[0] + 1,))
        head = list(islice(self.subject.store.scan(family, end), count))
        assert head == self.expected(family, end)[:count]
        self.write({key: None for key, _ in head}, [])

    @rule(key=KEYS)
    def get(self, key: bytes) -> None:
        assert self.subject.store.get(key) == self.model.get(key)

    @rule(family=FAMILIES, wanted=st.lists(KEYS))
    def get_many(self, family: bytes, wanted: list[bytes]) -> None:
        wanted = [family + key[1:] for key in wanted]
        assert self.subject.store.get_many(wanted) == [self.model.get(key) for key in wanted]

    @rule()
    def settle(self) -> None:
        self.subject.settle()

    @rule()
    def reopen(self) -> None:
        self.subject.reopen()

    @invariant()
    def families_are_equal(self) -> None:
        for family in (b"q", b"s", b"t"):
            end = bytes((family[0] + 1,))
            assert list(self.subject.store.scan(family, end)) == self.expected(family, end)

    def teardown(self) -> None:
        self.subject.folder.close()
        shutil.rmtree(self.path)


@pytest.mark.parametrize("kind", KINDS)
def test_behaves_like_a_sorted_dict(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocks, "HEADS", 2)  # so that heads are forgotten in these short runs too
    machine: type[StoreMachine] = type("Machine", (StoreMachine,), {"kind": kind})
    runs = 25 if kind.endswith("rocks") else 100
    case: Callable[[], Any] = machine.TestCase
    case.settings = settings(max_examples=runs, stateful_step_count=20, deadline=None)  # type: ignore[attr-defined]
    case().runTest()
