"""The herd without API and read model: `python -m bench.processor`.

Processors and a broker alone; a service registers, claims and completes by records on Kafka. Shows what the
engine, its transactions and its store cost together, and how far HTTP is from that.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import report
from bench.partition import TENANT
from bench.service import Service
from bench.usage import Usage, per_unit_us
from bench.wire import Refused
from dev import processes
from dev.kafka import find_or_start
from dev.server import PROCESSOR, ROOT
from schemas.topics import Topics
from streams.ambient import new_id, wall_ms
from streams.transport.kafka.log import KafkaLog

PARTITIONS = 8
WARM_UP = 2_000
LEAD_MS = 3_000
WITHIN_SEC = 300.0
READY_SEC = 60.0
STOP_SEC = 15.0


@contextmanager
def _running(options: argparse.Namespace) -> Iterator[tuple[Service, Usage]]:
    """Broker and processors in a temporary folder, a service, and what they use."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="horarium-bench-")))
        found = stack.enter_context(find_or_start(folder / "kafka", keep=False))
        topics = Topics(f"bench-{new_id()[:8]}")
        environment = {
            "HORARIUM_KAFKA": found.bootstrap,
            "HORARIUM_DATA": str(folder),
            "HORARIUM_NAMESPACE": topics.namespace,
            "HORARIUM_PARTITIONS": str(PARTITIONS),
            "HORARIUM_DEV_SHARDS": f"{TENANT}={options.shards}",
        }
        pids = {"broker": found.broker.pid} if found.broker is not None else {}
        for number in range(options.processors):
            name = f"p{number}"
            process = processes.start(
                [sys.executable, *PROCESSOR[1:]],
                log=folder / f"{name}.log",
                environment={**environment, "HORARIUM_INSTANCE": name},
                cwd=ROOT,
            )
            stack.callback(processes.stop, process, STOP_SEC)
            pids[name] = process.pid
        log = KafkaLog(found.bootstrap)
        stack.callback(log.close)
        deadline = time.monotonic() + READY_SEC
        while not (log.partitions(topics.commands) and log.partitions(topics.replies)):
            if time.monotonic() > deadline:
                raise Refused(f"no processor:\n{processes.tail(folder / 'p0.log')}")
            threading.Event().wait(0.1)
        service = Service(log, topics, shards=options.shards, partitions=PARTITIONS)
        stack.callback(service.close)
        yield service, Usage(pids)


def measure(options: argparse.Namespace) -> report.Figures:
    """One herd on fresh processors."""
    with _running(options) as (service, usage):
        rate = _warm_up(service, options.credit)
        service.late_ms.clear()
        service.received_ms.clear()
        usage.since()
        lead_ms = round(1_500 * options.n / rate) + LEAD_MS
        due_ms = wall_ms() + lead_ms
        began = time.perf_counter()
        made = service.register(WARM_UP, options.n, due_ms, WITHIN_SEC)
        took = time.perf_counter() - began
        registering = usage.since()
        if made < options.n or wall_ms() > due_ms:
            raise Refused(f"{made} of {options.n} registered in {took:.0f} s: the machine is too busy")
        waited: list[dict[str, float]] = []

        def start_count() -> None:
            if not waited and wall_ms() >= due_ms:
                waited.append(usage.since())

        service.work(made, options.credit, lead_ms / 1000 + WITHIN_SEC, start_count)
        running = usage.since()
        return _figures(service, made, took, due_ms) | {
            "cpuUsPerRegistration": per_unit_us(registering, made),
            "cpuUsPerExecution": per_unit_us(running, made),
            "memoryMib": usage.memory_mib(),
        }


def _figures(service: Service, made: int, took: float, due_ms: int) -> report.Figures:
    accepted = len(service.accepted) - WARM_UP
    twice = sum(count - 1 for count in service.accepted.values())
    early = sum(ms < 0 for ms in service.late_ms)
    return {
        "registeredPerSec": round(made / took),
        "executionsPerSec": round(1000 * accepted / max(1, service.last_ms - due_ms)),
        "startedLateMs": report.spread(service.late_ms),
        "receivedLateMs": report.spread(service.received_ms),
        "lost": made - accepted,
        "acceptedTwice": twice,
        "early": early,
        "refused": service.refused,
        report.VALID: made - accepted == twice == early == service.refused == 0,
    }


def _warm_up(service: Service, credit: int) -> float:
    """A small herd; how many are registered a second."""
    began = time.perf_counter()
    made = service.register(0, WARM_UP, wall_ms() + LEAD_MS, READY_SEC)
    rate = made / (time.perf_counter() - began)
    service.work(made, credit, READY_SEC, lambda: None)
    if len(service.accepted) < WARM_UP:
        raise Refused(f"only {len(service.accepted)} of {WARM_UP} executions of the warm-up ran")
    return rate


def main() -> None:
    """The command line."""
    parser = report.arguments(__doc__ or "")
    parser.add_argument("-n", type=int, default=50_000, help="jobs due at once")
    parser.add_argument("--shards", type=int, default=1, help=f"partitions of the tenant, of {PARTITIONS}")
    parser.add_argument("--processors", type=int, default=1, help="processor processes")
    parser.add_argument("--credit", type=int, default=1_000, help="free slots at each partition")
    options = parser.parse_args()
    report.run("processor", options, lambda: measure(options))


if __name__ == "__main__":
    main()
