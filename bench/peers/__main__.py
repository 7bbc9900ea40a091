"""Horarium and other schedulers in one run: `python -m bench.peers`.

The herd of `bench.herd` and the rate of `bench.steady`, for Horarium by HTTP and by Kafka and for each peer
in turn, `--repeat` times; then ratios, as JSON too. Peers run on a PostgreSQL of their own, their workers in
one process with the scheduler, as is usual for them; what that compares to is Horarium by Kafka. HTTP adds an
API, a read model and a worker protocol that the peers do not have.

All may use the whole machine. A peer does so by itself, with its threads and the processes of its database.
A processor of Horarium decides on one core, so for the herd there are as many as cores (`processors_of`), and
the tenant is in every partition, as a large one would be. For the rate, which one partition bears by far, it
is in one, as most are, with one processor.

Needs Go (River), Java 17 and Maven (db-scheduler), PostgreSQL, and fetches the drivers' dependencies once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from bench import herd, processor, report, steady
from bench.peers.driver import PEERS, Peer
from bench.wire import Refused
from dev import compiled

HTTP, KAFKA = "horarium-http", "horarium-kafka"
PARTITIONS = 8
"""Of the installation: more processors would have none."""
Measured = dict[tuple[str, str], report.Figures]
"""By scenario and system."""


def measure(options: argparse.Namespace, peers: list[Peer]) -> Measured:
    """All of them, one after the other; each result is printed. Who cannot be measured is left out."""
    jobs = round(options.rate * options.seconds)
    found: Measured = {}

    def run(scenario: str, system: str, n: int, work: Callable[[], report.Figures]) -> None:
        settings: dict[str, Any] = {"system": system, "n": n}
        if scenario == "steady":
            settings["rate"] = options.rate
        ours = system in {HTTP, KAFKA}
        if ours:
            settings |= layout(options, scenario, system)
        given = report.only(options, **settings)
        try:
            found[scenario, system] = report.run(f"peers-{scenario}", given, work, processors=ours)
        except Refused as error:
            sys.stderr.write(f"{scenario}, {system}: {error}\n")

    if not options.only_peers:
        run("herd", KAFKA, options.n, partial(processor.measure, _by_kafka(options, "herd", options.n)))
        run("herd", HTTP, options.n, partial(herd.measure, _by_http(options, "herd", credit=1_000)))
    for peer in peers:
        n = round(options.n * peer.share)
        run("herd", peer.name, n, partial(peer.measure, n, 0))
    if not options.only_peers:
        run("steady", KAFKA, jobs, partial(processor.measure, _by_kafka(options, "steady", jobs)))
        run("steady", HTTP, jobs, partial(steady.measure, _by_http(options, "steady", credit=100)))
    for peer in peers:
        run("steady", peer.name, jobs, partial(peer.measure, jobs, options.rate))
    return found


def processors_of(system: str, count: int) -> int:
    """By HTTP half as many as by Kafka, for API and read model are processes of their own."""
    return count if system == KAFKA else max(1, count // 2)


def layout(options: argparse.Namespace, scenario: str, system: str) -> dict[str, int]:
    """Partitions of the tenant, and processors."""
    if scenario == "steady":
        return {"shards": 1, "processors": 1}
    return {"shards": options.shards, "processors": processors_of(system, options.processors)}


def _by_kafka(options: argparse.Namespace, scenario: str, n: int) -> argparse.Namespace:
    return argparse.Namespace(
        n=n,
        rate=options.rate if scenario == "steady" else 0,
        partitions=PARTITIONS,
        credit=1_000,
        **layout(options, scenario, KAFKA),
    )


def _by_http(options: argparse.Namespace, scenario: str, credit: int) -> argparse.Namespace:
    return argparse.Namespace(
        n=options.n,
        rate=options.rate,
        seconds=options.seconds,
        **layout(options, scenario, HTTP),
        workers=8,
        connections=4,
        credit=credit,
        posts=0,
        reads=0,
    )


def ratios(found: Mapping[tuple[str, str], report.Figures]) -> report.Figures:
    """How many times better Horarium is: its executions/s by a peer's; a peer's lateness, and its CPU for the
    whole life of a job, by Horarium's. Below 1 the peer is better."""
    compared: dict[str, dict[str, float]] = {}
    for (scenario, system), peer in found.items():
        for ours in (KAFKA, HTTP):
            mine = found.get((scenario, ours))
            if mine is None or system in {KAFKA, HTTP}:
                continue
            against = compared.setdefault(f"{ours} to {system}", {})
            if scenario == "herd":
                against["executionsPerSec"] = _ratio(mine["executionsPerSec"], peer["executionsPerSec"])
                against["cpuPerJob"] = _ratio(sum(peer["cpuUsPerJob"].values()), cpu_us_per_job(mine))
            else:
                theirs, late = peer["receivedLateMs"], mine["receivedLateMs"]
                against["lateP50"] = _ratio(theirs["p50"], late["p50"])
                against["lateP99"] = _ratio(theirs["p99"], late["p99"])
    return compared


def cpu_us_per_job(figures: report.Figures) -> float:
    """Of Horarium: registration and execution, server, broker and workers; of the read model only what it did
    meanwhile."""
    phases = (figures["cpuUsPerRegistration"], figures["cpuUsPerExecution"])
    return float(sum(phase["server"] + phase["load"] for phase in phases))


def _ratio(better: float, worse: float) -> float:
    """Whole milliseconds: less than one counts as one."""
    return round(max(1.0, better) / max(1.0, worse), 2)


def main() -> None:
    """The command line."""
    compiled.adopt()
    parser = report.arguments(__doc__ or "")
    parser.add_argument("-n", type=int, default=50_000, help="jobs due at once; a tenth for procrastinate")
    parser.add_argument("--rate", type=float, default=250, help="jobs due a second")
    parser.add_argument("--seconds", type=float, default=20, help="for so long")
    parser.add_argument("--shards", type=int, default=PARTITIONS, help="partitions of the herd's tenant")
    most = min(report.cores(), PARTITIONS)
    parser.add_argument(
        "--processors", type=int, default=most, help="of the herd by Kafka; by HTTP half as many"
    )
    parser.add_argument("--peers", nargs="*", choices=[peer.name for peer in PEERS], help="only these")
    parser.add_argument("--only-peers", action="store_true", help="without Horarium")
    options = parser.parse_args()
    chosen = [peer for peer in PEERS if options.peers is None or peer.name in options.peers]
    for peer in chosen:
        peer.command()  # what is to be fetched is fetched before anything is measured
    found = measure(options, chosen)
    if not options.only_peers:
        complete = len(found) == 2 * (len(chosen) + 2)
        named = ("n", "rate", "seconds", "shards", "processors")
        settings = {name: getattr(options, name) for name in named}
        given = argparse.Namespace(repeat=1, save=options.save, **settings)
        report.run("peers-ratio", given, lambda: {**ratios(found), report.VALID: complete})


if __name__ == "__main__":
    main()
