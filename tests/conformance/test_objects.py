"""One suite for every place that keeps snapshots: what `streams.store.objects` promises."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.store import buckets
from streams.store.buckets import open_objects
from streams.store.objects import MemoryObjects, MissingObject, Objects, ObjectsError
from tests.conformance.small_s3 import SmallS3


def use_s3(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    for name, value in {
        "AWS_ENDPOINT": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "here",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(params=["memory", "folder", "file-url", "memory-url", "s3"])
def objects(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Objects]:
    match request.param:
        case "memory":
            yield MemoryObjects()
        case "folder":
            yield open_objects(str(tmp_path / "new" / "folder"))
        case "file-url":
            yield open_objects(tmp_path.as_uri())
        case "memory-url":
            yield open_objects("memory:///")
        case _:
            with SmallS3() as server:
                use_s3(monkeypatch, server.endpoint)
                yield open_objects("s3://bucket/some/prefix")


def put(objects: Objects, path: str, content: bytes) -> None:
    objects.put(path, io.BytesIO(content))


def get(objects: Objects, path: str) -> bytes:
    return b"".join(objects.get(path))


@pytest.mark.parametrize("size", [0, 1, 1_000_000, 8 * 1024 * 1024, 20_000_001])
def test_what_was_put_is_there(objects: Objects, size: int, tmp_path: Path) -> None:
    content = bytes(range(256)) * (size // 256 + 1)
    source = tmp_path / "source"
    source.write_bytes(content[:size])
    with source.open("rb") as file:
        objects.put("a-b/p000/files/0f", file)
    assert get(objects, "a-b/p000/files/0f") == content[:size]
    assert objects.list("a-b/p000") == {"a-b/p000/files/0f": size}


def test_a_second_put_replaces(objects: Objects) -> None:
    put(objects, "a/one", b"first, and longer")
    put(objects, "a/one", b"second")
    assert get(objects, "a/one") == b"second"


def test_a_list_holds_what_lies_below_a_folder_and_nothing_else(objects: Objects) -> None:
    for path in ("a/p001/1.json", "a/p001/files/x", "a/p0011/1.json", "a/p002/1.json", "b/p001/1.json"):
        put(objects, path, b"x")
    assert sorted(objects.list("a/p001")) == ["a/p001/1.json", "a/p001/files/x"]
    assert len(objects.list("a")) == 4
    assert objects.list("c") == {}


def test_what_is_not_there_is_missing(objects: Objects) -> None:
    with pytest.raises(MissingObject, match="a/none is not there"):
        get(objects, "a/none")


def test_delete_takes_away_what_is_there(objects: Objects) -> None:
    for path in ("a/1", "a/2", "a/3"):
        put(objects, path, b"x")
    objects.delete(["a/1", "a/never", "a/3"])
    objects.delete([])
    assert list(objects.list("a")) == ["a/2"]


@pytest.mark.parametrize(
    "path", ["", "a//b", "/a", "a/", "a/../b", "./a", "a b", "a+b/c", "a/b:c", "a/\u00e4"]
)
def test_what_not_every_place_would_take_none_does(objects: Objects, path: str) -> None:
    with pytest.raises(ObjectsError, match="is no part of a path"):
        put(objects, path, b"x")


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file")
    with pytest.raises(ObjectsError):
        put(open_objects(str(blocked / "inside")), "a/1", b"x")


@pytest.mark.parametrize("place", ["ftp://host/path", "https://host/path", "s4://bucket"])
def test_a_place_of_a_kind_that_is_not_known_is_refused(place: str) -> None:
    with pytest.raises(ObjectsError, match="a folder, or a URL that begins with one of s3"):
        open_objects(place)


def test_a_store_that_does_not_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    use_s3(monkeypatch, "http://127.0.0.1:1")
    monkeypatch.setattr(buckets, "RETRY", {"max_retries": 0})
    objects = open_objects("s3://bucket/prefix")
    with pytest.raises(ObjectsError, match="a/1"):
        put(objects, "a/1", b"x")
    with pytest.raises(ObjectsError):
        objects.list("a")
    with pytest.raises(ObjectsError):
        get(objects, "a/1")
