"""Take-over from a snapshot, on a real broker with real processes and files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streams.runtime.snapshots import Manifest
from tests.integration.runtime_real import END_SEC, Real, installation

pytestmark = pytest.mark.kafka


def manifests(folder: Path) -> list[Manifest]:
    """Newest last. One may be deleted while they are read."""
    found = []
    for path in sorted(folder.rglob("p000/*.json")):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=Manifest))
        except FileNotFoundError:
            continue
    return found


def lines(world: Real, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in world.log_of(name).read_text().splitlines() if line.startswith("{")]


def tail_of(world: Real, name: str) -> int:
    """What it said it had to replay."""
    (line,) = [each for each in lines(world, name) if each["message"] == "replays the tail"]
    return int(line["tail"])


def register(world: Real, first: int, count: int) -> None:
    for number in range(first, first + count):
        last = world.register(f"job-{number}", delay_sec=80_000)
    world.until(lambda: world.answer(last) is not None)


def snapshot_of_all(world: Real, folder: Path) -> None:
    """Waits for one that holds all events."""
    end = world.events()[-1].offset + 1
    world.until(lambda: any(each.mark.next_offset >= end for each in manifests(folder)))


def test_a_killed_processor_without_its_state_is_succeeded_from_a_snapshot(
    kafka: str, namespace: str, tmp_path: Path
) -> None:
    snapshots = tmp_path / "snapshots"
    with installation(kafka, namespace, tmp_path) as world:
        world.settings = {"HORARIUM_SNAPSHOT_DIR": str(snapshots), "HORARIUM_SNAPSHOT_SEC": "1"}
        world.start("p0")
        world.until_owned_by("p0")
        register(world, 0, 400)
        snapshot_of_all(world, snapshots)
        register(world, 400, 30)
        world.children["p0"].kill()
        world.children["p0"].wait()
        shutil.rmtree(tmp_path / "data" / "state" / "p0")
        world.start("p1")
        world.until_owned_by("p1")
        tail = tail_of(world, "p1")
        assert tail < 100 < 430 < len(world.events())
        register(world, 430, 5)
        snapshot_of_all(world, snapshots)
        assert len(manifests(snapshots)) <= 2
        world.stop("p1")
        assert world.stored_digest("p1", 0) == world.replayed_digest()


def test_damaged_files_of_a_snapshot_are_found_out(kafka: str, namespace: str, tmp_path: Path) -> None:
    """Every file that only the newest has is spoilt: its predecessor is used, and after that the log."""
    snapshots = tmp_path / "snapshots"
    with installation(kafka, namespace, tmp_path) as world:
        world.settings = {"HORARIUM_SNAPSHOT_DIR": str(snapshots), "HORARIUM_SNAPSHOT_SEC": "1"}
        world.start("p0")
        world.until_owned_by("p0")
        for first in (0, 300):
            register(world, first, 300)
            snapshot_of_all(world, snapshots)
        world.stop("p0")
        older, newest = manifests(snapshots)
        shared = {file.digest for file in older.files}
        for path in snapshots.rglob("files/*"):
            if path.name in {file.digest for file in newest.files} - shared:
                content = bytearray(path.read_bytes())
                content[len(content) // 2] ^= 1
                path.write_bytes(content)
        world.settings["HORARIUM_SNAPSHOT_SEC"] = "0"
        world.start("p1")
        world.until_owned_by("p1")
        end = world.events()[-1].offset + 1
        assert end - older.mark.next_offset <= tail_of(world, "p1") < end
        assert any(
            "is not the file that the manifest names" in each["message"] for each in lines(world, "p1")
        )
        world.stop("p1")
        assert world.stored_digest("p1", 0) == world.replayed_digest()
        for path in snapshots.rglob("*.json"):
            path.write_bytes(path.read_bytes()[:-10])
        world.start("p2")
        world.until_owned_by("p2")
        assert tail_of(world, "p2") >= end
        world.stop("p2")
        assert world.stored_digest("p2", 0) == world.replayed_digest()


def test_a_place_that_cannot_be_used_is_named_by_its_variable(
    kafka: str, namespace: str, tmp_path: Path
) -> None:
    with installation(kafka, namespace, tmp_path) as world:
        world.settings = {"HORARIUM_SNAPSHOT_DIR": "ftp://somewhere/else"}
        child = world.start("p0")
        assert child.wait(END_SEC) == 2
        assert "HORARIUM_SNAPSHOT_DIR ftp://somewhere/else: a folder, or" in world.log_of("p0").read_text()
