"""Snapshots of real stores in a real folder: what is carried, and every way in which a file can be wrong."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from streams.runtime.background import Work
from streams.runtime.mark import Mark, write_marked
from streams.runtime.snapshots import Damaged, Library, Manifest, Written
from streams.store.buckets import open_objects
from streams.store.kv import Batch, KeyValue
from streams.store.rocks import RocksFolder

T = TypeVar("T")
TOPIC = "HTwvW2hMTjq/N21U5S//fA"
"""Base64 as Kafka's clients write it."""


def through(work: Work[T]) -> T:
    while True:
        try:
            next(work)
        except StopIteration as stop:
            result: T = stop.value
            return result


class Place:
    """A state folder, and one for its snapshots."""

    def __init__(self, path: Path) -> None:
        self.kept = path / "kept"
        self.folder = RocksFolder(path / "state", "test")
        self.store: KeyValue = self.folder.open(7)
        self.library = Library(open_objects(str(self.kept)), "ns")
        self._taken_ms = 0

    def fill(self, first: int, count: int) -> None:
        puts: dict[bytes, bytes | None] = {
            family + b"%06d" % n: os.urandom(100)
            for family in (b"e", b"t", b"q")
            for n in range(first, first + count)
        }
        write_marked(self.store, Batch(puts), Mark(topic_id=TOPIC, last_offset=first + count))

    def snapshot(self) -> Written:
        self._taken_ms += 1
        mark = Mark(topic_id=TOPIC, last_offset=self._taken_ms)
        write_marked(self.store, Batch(), mark)
        head = Manifest(namespace="ns", partition=7, instance="p0", taken_ms=self._taken_ms, mark=mark)
        return through(self.library.write(self.folder.freeze(7), head))

    def content(self, store: KeyValue) -> list[tuple[bytes, bytes]]:
        return [each for family in b"ceqt" for each in store.scan(bytes((family,)), bytes((family + 1,)))]

    def fetched(self, manifest: Manifest, partition: int = 8) -> list[tuple[bytes, bytes]]:
        incoming = self.folder.receive(partition)
        sizes: list[int] = []
        try:
            through(self.library.fetch(manifest, incoming, sizes.append))
            assert sum(sizes) == manifest.size
            self.folder.install(partition, incoming)
            store = self.folder.open(partition)
            found = self.content(store)
            store.close()
            return found
        finally:
            incoming.close()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.folder.close()


def test_a_second_snapshot_carries_what_is_new(place: Place) -> None:
    place.fill(0, 30_000)
    place.folder.flush(7)
    first = place.snapshot()
    assert first.carried == first.manifest.size > 3_000_000
    place.fill(30_000, 100)
    second = place.snapshot()
    assert second.carried < first.carried / 20
    assert place.fetched(second.manifest) == place.content(place.store)
    assert place.fetched(first.manifest, 9) != place.content(place.store)
    assert not list((place.kept.parent / "state").glob("*frozen*"))


def test_two_are_kept_with_their_files_alone(place: Place) -> None:
    written = []
    for first in range(0, 5_000, 1_000):
        place.fill(first, 1_000)
        written.append(place.snapshot())
    found = through(place.library.find(7, TOPIC))
    assert [each.mark.last_offset for each in found.manifests] == [5, 4]
    assert not found.refused
    named = {file.digest for each in written[-2:] for file in each.manifest.files}
    assert {path.name for path in place.kept.rglob("files/*")} == named
    assert all(not each.trouble for each in written)


def test_a_damaged_object_that_all_share_is_replaced_when_its_size_is_wrong(place: Place) -> None:
    place.fill(0, 2_000)
    place.folder.flush(7)
    first = place.snapshot()
    largest = max(first.manifest.files, key=lambda file: file.size)
    (path,) = place.kept.rglob(f"files/{largest.digest}")
    path.write_bytes(path.read_bytes()[:-1])
    assert "bytes, not" in through(place.library.find(7, TOPIC)).refused[0]
    second = place.snapshot()
    assert place.fetched(second.manifest) == place.content(place.store)


@pytest.mark.parametrize(
    ("says", "spoil"),
    [
        pytest.param("is missing", Path.unlink, id="missing"),
        pytest.param("bytes, not", lambda path: path.write_bytes(path.read_bytes()[:-1]), id="short"),
        pytest.param("bytes, not", lambda path: path.write_bytes(path.read_bytes() + b"x"), id="long"),
        pytest.param("is not", lambda path: path.write_bytes(os.urandom(path.stat().st_size)), id="other"),
    ],
)
def test_each_file_is_checked(place: Place, says: str, spoil: Callable[[Path], object]) -> None:
    place.fill(0, 1_000)
    manifest = place.snapshot().manifest
    for file in manifest.files:
        if not file.size:
            continue
        (path,) = place.kept.rglob(f"files/{file.digest}")
        before = path.read_bytes()
        spoil(path)
        found = through(place.library.find(7, TOPIC))
        if found.manifests:
            with pytest.raises(Damaged, match=says):
                place.fetched(manifest)
        else:
            assert says in found.refused[0]
        path.write_bytes(before)
    assert place.fetched(manifest) == place.content(place.store)


def test_a_copy_that_was_not_finished_is_no_snapshot(place: Place) -> None:
    """After each slice: only when the manifest is there does anybody find it, and then it is whole."""
    place.fill(0, 1_000)
    mark = Mark(topic_id=TOPIC, last_offset=1)
    write_marked(place.store, Batch(), mark)
    head = Manifest(namespace="ns", partition=7, instance="p0", taken_ms=1, mark=mark)
    work = place.library.write(place.folder.freeze(7), head)
    seen = []
    for _ in work:
        found = through(place.library.find(7, TOPIC))
        assert not found.refused
        seen.append(len(found.manifests))
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (0, 1)
    (manifest,) = through(place.library.find(7, TOPIC)).manifests
    assert place.fetched(manifest) == place.content(place.store)
