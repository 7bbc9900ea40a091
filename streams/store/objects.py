"""Where snapshots are kept: whole objects by path, in a folder or an object store.

Owns: what such a place promises, and its in-memory twin for simulation and tests. May not know: what the
objects are. `buckets` has the real ones; `tests/conformance/test_objects.py` holds both to what is said here.
"""

import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Protocol

PIECE_BYTES = 1024 * 1024
"""What is read at once."""
PART = re.compile(r"(?!\.{1,2}$)[\w.-]+", re.ASCII)
"""Of a path: what folders and object stores take alike."""


class ObjectsError(Exception):
    """The place does not answer or refuses; the message says which object and why."""


class MissingObject(ObjectsError):
    """There is no such object."""


def check_path(path: str) -> None:
    """ObjectsError if some places would take it, and others not."""
    for part in path.split("/"):
        if not PART.fullmatch(part):
            raise ObjectsError(f"{path}: {part!r} is no part of a path: letters, digits and ._-")


class Objects(Protocol):
    """Paths are parts of letters, digits and `._-`, joined by `/`, none of them `.` or `..`. Several
    threads may use one at a time."""

    def put(self, path: str, content: BinaryIO) -> None:
        """Wholly or not at all; replaces what was there. ObjectsError, also for a path that is none."""
        ...

    def get(self, path: str) -> Iterator[bytes]:
        """Its pieces in order. MissingObject or ObjectsError, at the call or while it is read."""
        ...

    def list(self, folder: str) -> dict[str, int]:
        """Path and size in bytes of all objects whose path begins with `<folder>/`. ObjectsError."""
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """What is not there is no error. ObjectsError."""
        ...


class MemoryObjects:
    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}

    def put(self, path: str, content: BinaryIO) -> None:
        check_path(path)
        self.contents[path] = content.read()

    def get(self, path: str) -> Iterator[bytes]:
        content = self.contents.get(path)
        if content is None:
            raise MissingObject(f"{path} is not there")
        return iter([content[at : at + PIECE_BYTES] for at in range(0, len(content), PIECE_BYTES)])

    def list(self, folder: str) -> dict[str, int]:
        return {path: len(each) for path, each in self.contents.items() if path.startswith(f"{folder}/")}

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.contents.pop(path, None)
