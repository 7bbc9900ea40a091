"""A partition of many jobs taken over without local state, from a snapshot: `python -m bench.takeover`.

Real: broker, processor processes, snapshot, kill, take-over, and the tail, which is registered by commands.
Simulated: the jobs before the snapshot were never asked for by commands. One is registered; the events of the
others are made from its event, as the engine would have written them, and go to the log directly. The first
processor that takes the partition over replays them all, which is what the snapshot saves.

`assignedToRunningSec` is the take-over itself; `killToRunningSec` has the start of a process and the 6 s
after which the group misses a killed one in it. Valid: the state after the take-over has the digest of the
state that the killed processor left, the tail was replayed and not the log, and it took 30 s at most.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from bench import processors, report
from bench.partition import TENANT, OnePartition, job_id_of
from bench.wire import Refused
from schemas import codec, ids
from schemas.events import JobRegistered
from schemas.topics import HEADER_POSITION, pack_positions
from streams.ambient import wall_ms
from streams.core.engine import Engine
from streams.runtime.mark import read_mark
from streams.store.rocks import RocksFolder
from streams.transport.log import Isolation, Outgoing, TopicPartition

GOAL_SEC = 30.0
WITHIN_SEC = 900.0
FAR_MS = 30 * 86_400_000
"""Due so much later: nothing fires meanwhile."""
SPACING_MS = 1_000
FIRST = 10_000_000
"""Numbers of the jobs that are made, apart from those that are asked for."""
SNAPSHOT_SEC = 20
POLL_SEC = 0.2


def measure(options: argparse.Namespace) -> report.Figures:
    """One take-over on a fresh broker."""
    with processors.running(partitions=1, shards=1) as running, running.service() as service:
        snapshots = running.folder / "snapshots"
        settings = {"HORARIUM_SNAPSHOT_DIR": str(snapshots), "HORARIUM_SNAPSHOT_SEC": str(SNAPSHOT_SEC)}
        service.register(1, wall_ms() + FAR_MS, WITHIN_SEC)
        running.stop("p0")
        running.forget_state("p0")
        fill(running, options.n)
        since_ms = wall_ms()
        running.start("p1", settings)
        running.wait_until_running(since_ms, WITHIN_SEC)
        replay_sec = _between(running.folder / "p1.log", "partition assigned", "partition runs")
        taken = _line(running.folder / "p1.log", "snapshot taken", WITHIN_SEC)
        tail = service.register(options.tail, wall_ms() + FAR_MS, WITHIN_SEC)
        running.kill("p1")
        killed_ms = wall_ms()
        left = _state_of(running.folder / "state" / "p1")
        running.forget_state("p1")
        began_ms = wall_ms()
        running.start("p2", settings)
        running.wait_until_running(began_ms, WITHIN_SEC)
        log = running.folder / "p2.log"
        usage = running.usage()
        ran_ms = _line(log, "partition runs")["time_ms"]
        took_sec = _between(log, "partition assigned", "partition runs")
        replayed = int(_line(log, "replays the tail")["tail"])
        memory = usage.memory_mib()
        running.stop("p2")
        taken_over = _state_of(running.folder / "state" / "p2")
        end = running.log.end_offset(TopicPartition(running.topics.events, 0), Isolation.COMMITTED)
        return {
            "assignedToRunningSec": took_sec,
            "fetchSec": _between(log, "fetching a snapshot", "begins with a snapshot"),
            "killToRunningSec": round((ran_ms - killed_ms) / 1000, 2),
            "fullReplaySec": replay_sec,
            "tailJobs": tail,
            "tailOffsets": replayed,
            "logOffsets": end,
            "snapshotFrozenMs": taken["frozen_ms"],
            "snapshotCarriedSec": round(taken["carried_ms"] / 1000, 2),
            "snapshotMib": _size_of(taken["message"]),
            "memoryMib": memory,
            "digestsEqual": left == taken_over,
            report.VALID: left == taken_over
            and tail == options.tail <= replayed < end
            and took_sec <= GOAL_SEC,
        }


def fill(running: processors.Processors, count: int) -> None:
    """Writes the events of that many registrations."""
    tp = TopicPartition(running.topics.events, 0)
    reader = running.log.reader(Isolation.COMMITTED)
    reader.assign({tp: 0})
    found: JobRegistered | None = None
    position = b""
    while reader.position(tp) < running.log.end_offset(tp, Isolation.COMMITTED):
        for record in reader.poll(100, POLL_SEC):
            event = codec.decode(record.value) if record.value else None
            found = event if isinstance(event, JobRegistered) else found
            position = record.headers.get(HEADER_POSITION, position)
    reader.close()
    if found is None:
        raise Refused("the first job is not in the log")
    running.write(_registered(found, count, running.topics.events, position or pack_positions(0, 0)))


def _registered(found: JobRegistered, count: int, topic: str, position: bytes) -> Iterator[Outgoing]:
    for number in range(FIRST, FIRST + count):
        job_id, due_ms = job_id_of(number), found.job.first_next_ms + (number - FIRST) * SPACING_MS
        job = replace(
            found.job,
            job_id=job_id,
            schedule=replace(found.job.schedule, run_at_ms=due_ms),
            first_next_ms=due_ms,
        )
        key = ids.job_key(TENANT, job_id).encode()
        yield Outgoing(topic, 0, key, codec.encode(replace(found, job=job)), {HEADER_POSITION: position})


def _state_of(folder: Path) -> str:
    """How far a store is, and the digest of all its entities."""
    stores = RocksFolder(folder, "bench")
    try:
        store = stores.open(0)
        mark = read_mark(store)
        return f"{mark and mark.last_offset} {Engine(0, store, codec, OnePartition()).digest()}"
    finally:
        stores.close()


def _line(log: Path, begins: str, within_sec: float = 0) -> dict[str, Any]:
    """The first line of a processor's log whose message begins so. Raises Refused."""
    deadline = time.monotonic() + within_sec
    while True:
        for text in log.read_text().splitlines():
            line: dict[str, Any] = json.loads(text) if text.startswith("{") and text.endswith("}") else {}
            if str(line.get("message", "")).startswith(begins):
                return line
        if time.monotonic() > deadline:
            raise Refused(f"{log.name} never said {begins!r}")
        threading.Event().wait(POLL_SEC)


def _between(log: Path, first: str, last: str) -> float:
    took_ms: int = _line(log, last)["time_ms"] - _line(log, first)["time_ms"]
    return round(took_ms / 1000, 2)


def _size_of(message: str) -> int:
    """Of "snapshot taken: <n> bytes, …"."""
    return int(message.split()[2]) >> 20


def main() -> None:
    """The command line."""
    parser = report.arguments(__doc__ or "")
    parser.add_argument("-n", type=int, default=1_000_000, help="jobs of the partition")
    parser.add_argument("--tail", type=int, default=5_000, help="registered after the snapshot")
    options = parser.parse_args()
    report.run("takeover", options, lambda: measure(options))


if __name__ == "__main__":
    main()
