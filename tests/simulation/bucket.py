"""Where the processors of a run keep their snapshots, and what becomes of what lies there.

Owns the place and its faults: calls that fail before or after they were done, and, at rest, what is cut
short, changed, lost, put into another partition's folder, or all as it was some time ago. May not know what a
snapshot is good for: processors find out, and their states are compared as all states are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

from streams.ambient import Chance
from streams.store.objects import MemoryObjects, ObjectsError
from tests.simulation.hazards import Counts

COPIES = 3
"""How far back all of it may go."""


class Bucket(MemoryObjects):
    """`p_fails` is asked at each call: faults end with the run's safety phase."""

    def __init__(self, chance: Chance, counts: Counts, p_fails: Callable[[], float]) -> None:
        super().__init__()
        self._chance = chance
        self._counts = counts
        self._p_fails = p_fails
        self._copies: list[dict[str, bytes]] = []

    # -- calls

    def put(self, path: str, content: BinaryIO) -> None:
        self._fail("put")
        super().put(path, content)
        self._fail("put, after it was done")

    def get(self, path: str) -> Iterator[bytes]:
        self._fail("get")
        return super().get(path)

    def list(self, folder: str) -> dict[str, int]:
        self._fail("list")
        return super().list(folder)

    def delete(self, paths: Iterable[str]) -> None:
        self._fail("delete")
        super().delete(paths)

    def _fail(self, what: str) -> None:
        if self._chance.random() < self._p_fails():
            self._counts["bucket failed"] += 1
            raise ObjectsError(f"cannot {what}")

    # -- what lies there

    def remember(self) -> None:
        """As it is now, for a later damage to come back to."""
        self._copies = [*self._copies[1 - COPIES :], dict(self.contents)]

    def damage(self) -> str:
        """Something happens to something; what, or "" if nothing is there."""
        if not self.contents:
            return ""
        kinds = (self._cut, self._change, self._lose, self._misplace, self._go_back)
        what = self._chance.choice(kinds)(self._chance.choice(sorted(self.contents)))
        self._counts["bucket damaged"] += bool(what)
        return what

    def _cut(self, path: str) -> str:
        content = self.contents[path]
        self.contents[path] = content[: self._chance.randrange(len(content))] if content else content
        return f"{path} is cut short"

    def _change(self, path: str) -> str:
        content = bytearray(self.contents[path])
        if content:
            content[self._chance.randrange(len(content))] ^= 1 << self._chance.randrange(8)
        self.contents[path] = bytes(content)
        return f"{path} is changed"

    def _lose(self, path: str) -> str:
        del self.contents[path]
        return f"{path} is lost"

    def _misplace(self, path: str) -> str:
        """All of its partition's in another partition's folder, too."""
        source = _folder(path)
        others = sorted({_folder(each) for each in self.contents} - {source})
        if not others:
            return ""
        target = self._chance.choice(others)
        for each, content in list(self.contents.items()):
            if _folder(each) == source:
                self.contents[each.replace(source, target, 1)] = content
        return f"{source} is copied into {target}"

    def _go_back(self, path: str) -> str:
        if not self._copies:
            return ""
        self.contents = dict(self._chance.choice(self._copies))
        return "all is as it was some time ago"


def _folder(path: str) -> str:
    """`<namespace>/<topic id>/<partition>`."""
    return "/".join(path.split("/")[:3])
