"""A place for snapshots as tests see it, tamper with it and make it fail; and how partitions get there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, BinaryIO

import msgspec

from streams.runtime.snapshots import Manifest
from streams.store.memory import MemoryFolder
from streams.store.objects import MemoryObjects, ObjectsError
from tests.unit.runtime.applied import Applied
from tests.unit.runtime.installation import Installation, Process

SNAPSHOT_MS = 61_000


class Kept(MemoryObjects):
    """Objects as tests look at and tamper with them."""

    def manifests(self) -> list[str]:
        """Newest last."""
        return sorted(path for path in self.contents if path.endswith(".json"))

    def read(self, path: str) -> Manifest:
        return msgspec.json.decode(self.contents[path], type=Manifest)

    def change(self, path: str, **changes: Any) -> None:
        changed = msgspec.structs.replace(self.read(path), **changes)
        self.contents[path] = msgspec.json.encode(changed)

    def own_files(self, path: str) -> list[str]:
        """Files that this snapshot alone has."""
        others = {file.digest for each in self.manifests() if each != path for file in self.read(each).files}
        return [each for each in self.files() if each.rpartition("/")[2] in self._digests(path) - others]

    def files(self) -> list[str]:
        return sorted(path for path in self.contents if "/files/" in path)

    def _digests(self, path: str) -> set[str]:
        return {file.digest for file in self.read(path).files}


def snapshot(world: Installation, process: Process) -> None:
    """Lets one be taken. What is due meanwhile fires."""
    taken = process.metric("snapshots_total", outcome="taken")
    world.time.pass_ms(SNAPSHOT_MS)
    world.until(lambda: process.metric("snapshots_total", outcome="taken") > taken, process, ms=300)


def register(world: Installation, process: Process, first: int, count: int) -> None:
    for number in range(first, first + count):
        world.register(f"job-{number}", delay_sec=80_000)
    world.run(process, steps=10)


def taken_over(world: Installation, folder: MemoryFolder | None = None) -> tuple[Process, int]:
    """A process that runs, and how many events were applied for it; its state is the log's."""
    applied = Applied()
    process = world.live("b", folder or MemoryFolder(), make_engine=applied)
    assert process.digest(0) == world.replayed_digest()
    return process, applied.count


def died_with_two_snapshots(world: Installation) -> Process:
    """6, 4 and 2 jobs: before the first snapshot, between them, and behind the second."""
    process = world.live()
    register(world, process, 0, 6)
    snapshot(world, process)
    register(world, process, 6, 4)
    snapshot(world, process)
    register(world, process, 10, 2)
    process.crash()
    process.evict()
    return process


class Failing(Kept):
    """A place that refuses what `refuses` names."""

    refuses: frozenset[str] = frozenset()

    def _check(self, name: str) -> None:
        if name in self.refuses:
            raise ObjectsError(f"cannot {name}")

    def put(self, path: str, content: BinaryIO) -> None:
        self._check("put")
        super().put(path, content)

    def get(self, path: str) -> Any:
        self._check("get")
        return super().get(path)

    def list(self, folder: str) -> dict[str, int]:
        self._check("list")
        return super().list(folder)

    def delete(self, paths: Iterable[str]) -> None:
        self._check("delete")
        super().delete(paths)
