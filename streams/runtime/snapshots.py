"""Snapshots in the place where they are kept: how one is laid out, written, found, checked and fetched.

    <namespace>/<topic id>/p007/files/<SHA-256>             what a frozen store consists of
    <namespace>/<topic id>/p007/<taken_ms>-<instance>.json  a manifest: whose it is, how far, and its files

A file goes by its content, so one that several snapshots share is kept and carried once. The manifest is
written last and as one object: what a crash leaves is files that nobody names. Nothing here is believed:
a manifest must fit its partition and the log, its files must be there in full size, and what is fetched must
have their digests.

Owns that layout. May not know partitions, the log or the processor: its methods are work for `background`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from typing import BinaryIO, NamedTuple

import msgspec
from msgspec.structs import replace

from streams.runtime.background import Work
from streams.runtime.mark import Mark, why_behind
from streams.store.kv import Frozen, Incoming
from streams.store.objects import PIECE_BYTES, Objects, ObjectsError

KEEP = 2
"""Snapshots of a partition: the newest, and one to fall back on."""
READ_MAX = 8
"""Manifests looked at when one is wanted; more than `KEEP` are there only if deleting fails."""
MANIFEST_BYTES = 4 * 1024 * 1024
"""Larger than the one of a store of 10,000 files."""
SUFFIX = ".json"

_DIGEST = re.compile(r"[0-9a-f]{64}")
_FOR_PATHS = str.maketrans("+/", "-_")
"""Base64 as it goes into paths: Kafka's clients write topic ids with + and /."""


class Damaged(Exception):
    """A snapshot is not what it says; another one or the log has to do."""


class StoredFile(msgspec.Struct, frozen=True):
    """`size` in bytes, `digest` the SHA-256 in hexadecimal."""

    name: str
    size: int
    digest: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One snapshot. `mark` is the store's own, so what the snapshot holds can be told without fetching it."""

    namespace: str
    partition: int
    instance: str
    taken_ms: int
    mark: Mark
    files: tuple[StoredFile, ...] = ()

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def why_unusable(
        self, namespace: str, partition: int, topic_id: str, start: int, end: int, now_ms: int
    ) -> str:
        """ "" if the log, from `start` to its read-uncommitted `end`, can complete it."""
        if (self.namespace, self.partition) != (namespace, partition):
            return f"it is one of partition {self.partition} of {self.namespace}"
        return why_behind(self.mark, topic_id, start, end, now_ms)


class Written(NamedTuple):
    """`carried`: bytes that were not there yet. `trouble`: why old snapshots were not deleted, or ""."""

    manifest: Manifest
    carried: int
    trouble: str


class Found(NamedTuple):
    """Whole snapshots, as far as a listing tells; and what is wrong with the others."""

    manifests: list[Manifest]
    refused: list[str]


class Library:
    """The snapshots of one installation."""

    def __init__(self, objects: Objects, namespace: str) -> None:
        self._objects = objects
        self.namespace = namespace

    def write(self, frozen: Frozen, head: Manifest) -> Work[Written]:
        """`head` says everything but the files. Closes `frozen`. Raises ObjectsError or OSError."""
        try:
            folder = self._folder(head.partition, head.mark.topic_id)
            there = self._objects.list(folder)
            files, carried = [], 0
            for name, size in frozen.files().items():
                yield
                with frozen.read(name) as content:
                    file = StoredFile(name, size, _digest(content))
                files.append(file)
                path = _file_path(folder, file)
                if there.get(path) != size:
                    with frozen.read(name) as content:
                        self._objects.put(path, content)
                    carried += size
            yield
            manifest = replace(head, files=tuple(files))
            path = f"{folder}/{head.taken_ms:015d}-{head.instance}{SUFFIX}"
            self._objects.put(path, BytesIO(msgspec.json.encode(manifest)))
            yield
            trouble = ""
            try:
                yield from self._forget_old(folder, there, path, manifest)
            except ObjectsError as error:
                trouble = str(error)
            return Written(manifest, carried, trouble)
        finally:
            frozen.close()

    def _forget_old(self, folder: str, there: Mapping[str, int], path: str, newest: Manifest) -> Work[None]:
        """Only of what was there before: another process may be writing, and its files are not named yet."""
        kept = [newest]
        garbage = []
        for old in sorted(_manifests(there) - {path}, reverse=True):
            manifest = None
            if len(kept) < KEEP:
                try:
                    manifest = self._read(old, there[old])
                except Damaged:
                    pass
                yield
            if manifest is None:
                garbage.append(old)
            else:
                kept.append(manifest)
        named = {_file_path(folder, file) for manifest in kept for file in manifest.files} | _manifests(there)
        # Manifests first: none may ever name a file that is gone.
        for paths in (garbage, [each for each in there if each not in named]):
            self._objects.delete(paths)
            yield

    def find(self, partition: int, topic_id: str) -> Work[Found]:
        """The snapshots of a partition, the one that goes furthest first. Raises ObjectsError."""
        there = self._objects.list(self._folder(partition, topic_id))
        found = Found([], [])
        for path in sorted(_manifests(there), reverse=True)[:READ_MAX]:
            yield
            try:
                manifest = self._read(path, there[path])
                self._check_listed(manifest, self._folder(partition, topic_id), there)
            except (Damaged, ObjectsError) as error:
                found.refused.append(f"{path}: {error}")
            else:
                found.manifests.append(manifest)
        found.manifests.sort(key=lambda each: (each.mark.next_offset, each.taken_ms), reverse=True)
        return found

    def fetch(self, manifest: Manifest, incoming: Incoming, got: Callable[[int], None]) -> Work[None]:
        """Into `incoming`; `got` hears of each piece. Raises Damaged, ObjectsError, OSError or ValueError."""
        folder = self._folder(manifest.partition, manifest.mark.topic_id)
        for file in manifest.files:
            yield
            incoming.write(file.name, self._checked(_file_path(folder, file), file, got))

    def _checked(self, path: str, file: StoredFile, got: Callable[[int], None]) -> Iterator[bytes]:
        digest, size = hashlib.sha256(), 0
        for piece in self._objects.get(path):
            digest.update(piece)
            size += len(piece)
            if size > file.size:
                break
            got(len(piece))
            yield piece
        if size != file.size or digest.hexdigest() != file.digest:
            raise Damaged(f"{file.name} is not the file that the manifest names")

    def _read(self, path: str, size: int) -> Manifest:
        if size > MANIFEST_BYTES:
            raise Damaged(f"a manifest of {size} bytes")
        try:
            manifest = msgspec.json.decode(b"".join(self._objects.get(path)), type=Manifest)
        except msgspec.DecodeError as error:
            raise Damaged(f"no manifest: {error}") from error
        if not manifest.files:
            raise Damaged("a manifest that names no file")
        for file in manifest.files:
            if not _DIGEST.fullmatch(file.digest):
                raise Damaged(f"no digest: {file.digest!r}")
        return manifest

    @staticmethod
    def _check_listed(manifest: Manifest, folder: str, there: Mapping[str, int]) -> None:
        for file in manifest.files:
            size = there.get(_file_path(folder, file))
            if size is None:
                raise Damaged(f"{file.name} is missing")
            if size != file.size:
                raise Damaged(f"{file.name} has {size} bytes, not {file.size}")

    def _folder(self, partition: int, topic_id: str) -> str:
        """With the id of the events topic, so that an installation made anew does not meet another's."""
        return f"{self.namespace}/{topic_id.translate(_FOR_PATHS)}/p{partition:03d}"


def _file_path(folder: str, file: StoredFile) -> str:
    return f"{folder}/files/{file.digest}"


def _digest(content: BinaryIO) -> str:
    digest = hashlib.sha256()
    while piece := content.read(PIECE_BYTES):
        digest.update(piece)
    return digest.hexdigest()


def _manifests(paths: Mapping[str, int]) -> set[str]:
    return {path for path in paths if path.endswith(SUFFIX)}
