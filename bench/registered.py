"""Very many registered jobs in one processor: `python -m bench.registered`.

Writes the events of registrations to the log, all due within 30 days, and starts a processor on it: how fast
it rebuilds, what it takes in memory and on disk, how late a steady rate of due jobs is beside them, and how
long a start after a clean stop takes. Not through commands: that would take ten times as long and leave the
same log.

A million jobs need about 4 minutes and 1 GiB of disk; `-n 10000000` about 30 minutes and 10 GiB.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
from pathlib import Path

from bench import processors, report
from bench.partition import TENANT, registered
from bench.processor import LEAD_MS
from bench.rebuild import NAME, start
from bench.usage import per_unit_us
from bench.wire import Refused
from schemas import codec
from schemas.topics import partition_of
from streams.ambient import wall_ms
from streams.runtime.late import LATE_MS
from streams.transport.log import Outgoing

FIRST = 1_000_000_000
"""Their numbers, apart from those that the service registers."""
SOON_MS, FAR_MS = 3_600_000, 30 * 86_400_000
BYTES_PER_JOB = 1_500
"""Log and store together, with room for what a compaction writes anew."""
REBUILT_PER_SEC = 2_000
"""A machine that is slower than this has given up."""


def measure(options: argparse.Namespace) -> report.Figures:
    """One processor, from an empty disk."""
    with processors.running(
        processors=0, partitions=options.partitions, shards=options.partitions
    ) as running:
        _check_room(running.folder, options.n)
        fill_sec = _fill(running, options.n)
        within_sec = 60 + options.n / REBUILT_PER_SEC
        rebuilt = start(running, within_sec)
        memory = running.usage().memory_mib()
        count = round(options.rate * options.seconds)
        with running.service() as service:
            rate = service.warm_up(options.credit)
            usage = running.usage()
            first_ms = wall_ms() + round(1_500 * count / rate) + LEAD_MS
            made = service.register(count, first_ms, report.within_sec(count), 1000 / options.rate)
            usage.since()
            service.work(made, options.credit, options.seconds + report.within_sec(made))
            used = per_unit_us(usage.since(), made)
            verdict = service.verdict(made)
        memory_after = running.usage().memory_mib()
        clean = running.stop(NAME)
        again = start(running, within_sec)
        return {
            "fillSec": fill_sec,
            "rebuildSec": rebuilt.took_sec,
            "rebuiltPerSec": round(options.n / rebuilt.took_sec),
            "startSec": again.took_sec,
            "memoryMib": {"rebuilt": memory[NAME], "steady": memory_after[NAME]},
            "diskMib": {
                "store": _disk_mib(running.folder / "state"),
                "log": _disk_mib(running.folder / "kafka"),
            },
            "cpuUsPerExecution": used,
            **verdict,
            report.VALID: verdict[report.VALID] and clean,
        }


def _check_room(folder: Path, count: int) -> None:
    free, needed = shutil.disk_usage(folder).free, count * BYTES_PER_JOB
    if free < needed:
        raise Refused(f"{needed >> 20} MiB of disk are needed at {folder}, {free >> 20} are free")


def _fill(running: processors.Processors, count: int) -> float:
    """Writes the events as the engine would; seconds."""
    began = time.perf_counter()
    topic, shards, partitions = running.topics.events, running.shards, running.partitions
    spacing_ms = (FAR_MS - SOON_MS) / count
    now_ms = wall_ms()
    # So old that no asker is taken to wait for an answer any more.
    made = registered(FIRST, count, now_ms - 2 * LATE_MS, now_ms + SOON_MS, spacing_ms)
    running.write(
        Outgoing(
            topic,
            partition_of(TENANT, event.job.job_id, shards, partitions),
            key.encode(),
            codec.encode(event),
        )
        for key, event in made
    )
    return round(time.perf_counter() - began, 1)


def _disk_mib(folder: Path) -> int:
    """What is allocated: Kafka's index files are longer than what they hold."""
    blocks = sum(
        os.stat(Path(parent) / name).st_blocks for parent, _, names in os.walk(folder) for name in names
    )
    return blocks * 512 >> 20


def main() -> None:
    """The command line."""
    parser = report.arguments(__doc__ or "")
    parser.add_argument("-n", type=int, default=1_000_000, help="registered jobs")
    parser.add_argument("--partitions", type=int, default=8, help="of the installation")
    parser.add_argument("--rate", type=float, default=250, help="jobs due a second")
    parser.add_argument("--seconds", type=float, default=20, help="for so long")
    parser.add_argument("--credit", type=int, default=200, help="free slots at each partition")
    options = parser.parse_args()
    report.run("registered", options, lambda: measure(options))


if __name__ == "__main__":
    main()
