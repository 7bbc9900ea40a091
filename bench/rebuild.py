"""State from the log: `python -m bench.rebuild`.

Jobs live their whole life by Kafka (registered, fired, claimed, completed); then the processor stops in good
order and starts again, once with its store and once without. What the second start takes longer is the
rebuild.
"""

from __future__ import annotations

import argparse
import time
from typing import NamedTuple

from bench import processors, report, site
from bench.processor import LEAD_MS
from bench.usage import Usage
from streams.ambient import wall_ms
from streams.runtime.late import LATE_MS
from streams.transport.log import Isolation, TopicPartition

NAME = "p0"
POLL_SEC = 0.05


class Start(NamedTuple):
    """Seconds until every partition runs, and CPU seconds of the processor for it."""

    took_sec: float
    cpu_sec: float


def start(running: processors.Processors, within_sec: float) -> Start:
    """Starts the processor and waits for it."""
    began, since_ms = time.perf_counter(), wall_ms()
    running.start(NAME)
    usage: Usage = running.usage()
    running.wait_until_running(since_ms, within_sec)
    return Start(round(time.perf_counter() - began, 2), usage.since()[NAME])


def measure(options: argparse.Namespace) -> report.Figures:
    """Fills a log, and starts on it twice."""
    within_sec = report.within_sec(options.n)
    with processors.running(partitions=options.partitions, shards=options.partitions) as running:
        with running.service() as service:
            service.warm_up(options.credit)
            made = service.register(options.n, wall_ms() + LEAD_MS, within_sec)
            service.work(made, options.credit, within_sec)
            lived = len(service.accepted)
        running.stop(NAME)
        site.pause(LATE_MS / 1000)
        events, octets = _count(running)
        kept = start(running, within_sec)
        running.stop(NAME)
        running.forget_state(NAME)
        wiped = start(running, within_sec)
        return {
            "events": events,
            "bytesPerEvent": round(octets / max(1, events)),
            "eventsPerSec": round(events / max(0.01, wiped.took_sec - kept.took_sec)),
            "cpuUsPerEvent": round(1e6 * (wiped.cpu_sec - kept.cpu_sec) / max(1, events), 1),
            "startSec": {"withStore": kept.took_sec, "withoutStore": wiped.took_sec},
            "memoryMib": running.usage().memory_mib(),
            report.VALID: lived == options.n,
        }


def _count(running: processors.Processors) -> tuple[int, int]:
    """Records of `events` and their bytes; offsets count transaction markers, too."""
    reader = running.log.reader(Isolation.COMMITTED)
    ends = {
        tp: running.log.end_offset(tp, Isolation.COMMITTED)
        for number in range(running.partitions)
        if (tp := TopicPartition(running.topics.events, number))
    }
    reader.assign(dict.fromkeys(ends, 0))
    records = octets = 0
    while any(reader.position(tp) < end for tp, end in ends.items()):
        for record in reader.poll(5_000, POLL_SEC):
            records += 1
            octets += len(record.key or b"") + len(record.value or b"")
    reader.close()
    return records, octets


def main() -> None:
    """The command line."""
    parser = report.arguments(__doc__ or "")
    parser.add_argument("-n", type=int, default=50_000, help="jobs that lived")
    parser.add_argument("--partitions", type=int, default=8, help="of the installation")
    parser.add_argument("--credit", type=int, default=1_000, help="free slots at each partition")
    options = parser.parse_args()
    report.run("rebuild", options, lambda: measure(options))


if __name__ == "__main__":
    main()
