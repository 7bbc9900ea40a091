"""The herd, or a steady rate, without API and read model: `python -m bench.processor`.

Processors and a broker alone; a service registers, claims and completes by records on Kafka. Shows what the
engine, its transactions and its store cost together, and how far HTTP is from that. `--rate 250` makes the
jobs due one after the other instead of all at once.
"""

from __future__ import annotations

import argparse
import time

from bench import processors, report
from bench.usage import per_unit_us
from bench.wire import Refused
from dev import compiled
from streams.ambient import wall_ms

LEAD_MS = 3_000


def measure(options: argparse.Namespace) -> report.Figures:
    """One herd, or one steady run, on fresh processors."""
    with (
        processors.running(
            processors=options.processors, partitions=options.partitions, shards=options.shards
        ) as running,
        running.service() as service,
    ):
        rate = service.warm_up(options.credit)
        usage = running.usage()
        lead_ms = round(1_500 * options.n / rate) + LEAD_MS
        due_ms = wall_ms() + lead_ms
        spacing_ms = 1000 / options.rate if options.rate else 0.0
        began = time.perf_counter()
        made = service.register(options.n, due_ms, report.within_sec(options.n), spacing_ms)
        took = time.perf_counter() - began
        registering = usage.since()
        if made < options.n or wall_ms() > due_ms:
            raise Refused(f"{made} of {options.n} registered in {took:.0f} s: the machine is too busy")
        idle_sec = (due_ms - wall_ms()) / 1000
        waited: dict[str, float] = {}

        def start_count() -> None:
            if not waited and wall_ms() >= due_ms:
                waited.update({name: round(used / idle_sec, 3) for name, used in usage.since().items()})

        lasts_sec = (lead_ms + made * spacing_ms) / 1000
        service.work(made, options.credit, lasts_sec + report.within_sec(made), start_count)
        running_us = per_unit_us(usage.since(), made)
        return {
            "registeredPerSec": round(made / took),
            "executionsPerSec": round(1000 * len(service.accepted) / max(1, service.last_ms - due_ms)),
            "cpuUsPerRegistration": per_unit_us(registering, made),
            "cpuUsPerExecution": running_us,
            "cpuShareWhileWaiting": waited,
            "memoryMib": usage.memory_mib(),
            **service.verdict(made),
        }


def arguments(description: str) -> argparse.ArgumentParser:
    """The options of a herd by Kafka."""
    parser = report.arguments(description)
    parser.add_argument("-n", type=int, default=50_000, help="jobs")
    parser.add_argument("--rate", type=float, default=0, help="jobs due a second; 0: all at once")
    parser.add_argument("--partitions", type=int, default=8, help="of the installation")
    parser.add_argument("--shards", type=int, default=1, help="partitions of the tenant")
    parser.add_argument("--processors", type=int, default=1, help="processor processes")
    parser.add_argument("--credit", type=int, default=1_000, help="free slots at each partition")
    return parser


def main() -> None:
    """The command line."""
    compiled.adopt()
    options = arguments(__doc__ or "").parse_args()
    report.run("processor", options, lambda: measure(options))


if __name__ == "__main__":
    main()
