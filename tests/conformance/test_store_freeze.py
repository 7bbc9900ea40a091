"""Frozen stores and received files: what `streams.store.kv` promises, on each implementation."""

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.store.kv import Batch, Frozen, KeyValue, StoreFolder
from streams.store.memory import MemoryFolder
from streams.store.rocks import RocksFolder

EVERYTHING = [(b"b", b"c"), (b"e", b"f"), (b"q", b"r"), (b"t", b"u")]


@pytest.fixture(params=["memory", "rocks"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreFolder]:
    folder: StoreFolder = MemoryFolder() if request.param == "memory" else RocksFolder(tmp_path / "s", "test")
    yield folder
    folder.close()


def content(store: KeyValue) -> list[tuple[bytes, bytes]]:
    return [entry for start, end in EVERYTHING for entry in store.scan(start, end)]


def fill(store: KeyValue, first: int, count: int) -> None:
    puts = {
        family + b"%06d" % n: b"%d" % n
        for family in (b"b", b"e", b"q", b"t")
        for n in range(first, first + count)
    }
    store.write(Batch(dict(puts)))


def carry(frozen: Frozen, folder: StoreFolder, partition: int) -> None:
    incoming = folder.receive(partition)
    for name in frozen.files():
        with frozen.read(name) as file:
            incoming.write(name, iter(lambda: file.read(1000), b""))
    folder.install(partition, incoming)


def test_a_frozen_store_holds_what_was_written_before_it_and_nothing_later(folder: StoreFolder) -> None:
    store = folder.open(0)
    fill(store, 0, 3_000)
    store.write(Batch({b"t000000": None}, [(b"t000001", b"t000100")]))
    before = content(store)
    folder.flush(0)
    fill(store, 3_000, 10)
    store.write(Batch(dict.fromkeys([b"e003000", b"q003000"])))
    now = content(store)
    assert now != before
    frozen = folder.freeze(0)
    fill(store, 5_000, 2_000)
    store.write(Batch(range_deletes=[(b"e", b"f")]))
    carry(frozen, folder, 1)
    frozen.close()
    assert content(folder.open(1)) == now
    assert content(store)[-1][0] == b"t006999"


def test_an_installed_store_is_written_to_and_frozen_like_any_other(folder: StoreFolder) -> None:
    fill(folder.open(0), 0, 10)
    carry(folder.freeze(0), folder, 1)
    second = folder.open(1)
    fill(second, 10, 10)
    carry(folder.freeze(1), folder, 2)
    second.close()
    assert content(folder.open(1)) == content(folder.open(2))
    assert folder.open(3).get(b"e000000") is None


def test_files_have_the_sizes_they_say(folder: StoreFolder) -> None:
    fill(folder.open(0), 0, 100)
    frozen = folder.freeze(0)
    sizes = {}
    for name in frozen.files():
        with frozen.read(name) as file:
            sizes[name] = len(file.read())
    assert sizes == dict(frozen.files())
    assert len(sizes) > 1
    frozen.close()
    frozen.close()


def test_a_store_of_which_a_file_is_missing_or_empty_does_not_open(folder: StoreFolder) -> None:
    """Each file in turn, but those whose loss harms nothing."""
    store = folder.open(0)
    fill(store, 0, 2_000)
    frozen = folder.freeze(0)
    harmful = 0
    for number, victim in enumerate(frozen.files(), 1):
        incoming = folder.receive(number)
        for name in frozen.files():
            if name != victim:
                with frozen.read(name) as file:
                    incoming.write(name, [file.read()])
        try:
            folder.install(number, incoming)
            lost = content(folder.open(number)) != content(store)
        except Exception:
            harmful += 1
        else:
            assert not lost, victim
    assert harmful >= 2


def test_install_replaces_all_that_was_there(folder: StoreFolder) -> None:
    fill(folder.open(0), 0, 10)
    old = folder.open(1)
    fill(old, 100, 500)
    old.close()
    carry(folder.freeze(0), folder, 1)
    assert content(folder.open(1)) == content_of(folder, 0)


def content_of(folder: StoreFolder, partition: int) -> list[tuple[bytes, bytes]]:
    frozen = folder.freeze(partition)
    carry(frozen, folder, 99)
    store = folder.open(99)
    found = content(store)
    store.close()
    return found


def test_what_cannot_be_done_is_refused_and_changes_nothing(folder: StoreFolder) -> None:
    store = folder.open(0)
    fill(store, 0, 10)
    before = content(store)
    with pytest.raises(ValueError, match="no store"):
        folder.install(1, folder.receive(1))
    with pytest.raises(ValueError, match="partition 0 is open"):
        carry(folder.freeze(0), folder, 0)
    with pytest.raises(ValueError, match="not open"):
        folder.freeze(7)
    store.close()
    with pytest.raises(ValueError, match="no store"):
        folder.install(0, folder.receive(0))
    with pytest.raises(ValueError, match="not open"):
        folder.freeze(0)
    assert content(folder.open(0)) == before


@pytest.mark.parametrize("name", ["", ".", "..", "../p001", "/etc/x", "a/b", "a\\b", "a\0"])
def test_no_file_leads_out_of_the_folder(folder: StoreFolder, name: str) -> None:
    with pytest.raises(ValueError, match="plain file name"):
        folder.receive(0).write(name, [b"x"])


def test_another_thread_copies_while_the_store_goes_on(folder: StoreFolder) -> None:
    store = folder.open(0)
    fill(store, 0, 2_000)
    before = content(store)
    frozen = folder.freeze(0)
    copying = threading.Thread(target=carry, args=(frozen, folder, 1))
    copying.start()
    for first in range(2_000, 4_000, 100):
        fill(store, first, 100)
        store.write(Batch(range_deletes=[(b"q", b"q%06d" % first)]))
    copying.join(30)
    assert content(folder.open(1)) == before


def test_what_a_crash_left_on_its_way_is_swept(tmp_path: Path) -> None:
    folder = RocksFolder(tmp_path, "test")
    fill(folder.open(0), 0, 10)
    folder.freeze(0)
    folder.receive(1).write("half", [b"x"])
    assert len(list(tmp_path.glob("p*"))) == 3
    folder.close()
    folder = RocksFolder(tmp_path, "test")
    assert [each.name for each in tmp_path.glob("p*")] == ["p000"]
    folder.close()


def test_a_frozen_store_outlives_the_store_and_its_folder(tmp_path: Path) -> None:
    folder = RocksFolder(tmp_path / "s", "test")
    store = folder.open(0)
    fill(store, 0, 3_000)
    before = content(store)
    frozen = folder.freeze(0)
    store.close()
    folder.wipe(0)
    other = RocksFolder(tmp_path / "other", "test")
    carry(frozen, other, 0)
    assert content(other.open(0)) == before
    frozen.close()
    other.close()
    folder.close()
    shutil.rmtree(tmp_path / "s")
