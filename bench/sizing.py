"""What an installation needs, from measured costs: `python -m bench.sizing > docs/sizing.md`.

CPU, memory and disk come from saved results (`bench/results`, of the machine measured last; of each scenario
the largest, of those the newest); bytes are counted now, on the engine itself. Everything else is arithmetic
that the page shows.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.compare import machine_of, newest
from bench.core import START_MS
from bench.partition import Partition, completions, registrations
from bench.report import RESULTS
from schemas import codec
from schemas.replies import Granted
from streams.store.memory import MemoryStore

SAMPLE = 1_000
DAY_SEC = 86_400
RECORD_BYTES = 60
"""Of a record in a batch: its key (tenant and execution id), header of lengths, offset and time."""
GIB, TIB = 2**30, 2**40
RETENTIONS_D = (1, 7, 30)
DURATIONS_SEC = (0.1, 1, 5, 60, 600)
LEASE_SEC = 60
BEAT_SEC = LEASE_SEC / 3


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be served. Rates are due jobs a second."""

    jobs: int
    average: int
    peak: int
    partitions: int
    busy: float
    replication: int


@dataclass(frozen=True, slots=True)
class Octets:
    """Bytes a job or an execution, as encoded, without what a record adds."""

    registered: float
    command: float
    events: float
    events_count: float
    outcome: float
    grant: float


@dataclass(frozen=True, slots=True)
class Costs:
    """CPU µs an execution by part; memory and disk of a processor; events a second of a rebuild."""

    machine: str
    processor_us: float
    broker_us: float
    api_us: float
    read_model_us: float
    memory_mib: float
    memory_jobs: int
    store_bytes_per_job: float
    rebuilt_per_sec: float


def count_octets() -> Octets:
    """One herd through the engine."""
    partition = Partition(MemoryStore(), START_MS)
    jobs = list(registrations(0, SAMPLE, START_MS + 1_000))
    partition.run(jobs)
    registered, events = partition.event_bytes, partition.events
    partition.now_ms += 1_000
    partition.fire()
    grants = partition.claim(SAMPLE)
    outcomes = list(completions(grants))
    partition.run(outcomes)
    granted = Granted(session="", pool="", partition=0, number=1, grants=tuple(grants))
    return Octets(
        registered=registered / SAMPLE,
        command=_size(jobs) / SAMPLE,
        events=(partition.event_bytes - registered) / SAMPLE,
        events_count=(partition.events - events) / SAMPLE,
        outcome=_size(outcomes) / SAMPLE,
        grant=_size([granted]) / SAMPLE,
    )


def _size(records: Iterable[Any]) -> int:
    return sum(len(codec.encode(record)) for record in records)


def find_costs(folder: Path = RESULTS) -> Costs:
    """From the saved results; SystemExit names the command for what is missing."""
    found = newest(folder)
    processor = _largest(found, "processor", rate=0)["figures"]["cpuUsPerExecution"]
    herd = _largest(found, "herd")["figures"]["cpuUsPerExecution"]
    registered = _largest(found, "registered")
    disk_mib, memory_mib = (registered["figures"][name] for name in ("diskMib", "memoryMib"))
    jobs = registered["settings"]["n"]
    return Costs(
        machine=machine_of(registered),
        processor_us=sum(value for name, value in processor.items() if name.startswith("p")),
        broker_us=herd["broker"],
        api_us=herd["api"],
        read_model_us=herd["projections"],
        memory_mib=memory_mib["steady"],
        memory_jobs=jobs,
        store_bytes_per_job=disk_mib["store"] * 2**20 / jobs,
        rebuilt_per_sec=1e6 / _largest(found, "rebuild")["figures"]["cpuUsPerEvent"],
    )


def _largest(
    found: Mapping[str, Sequence[Mapping[str, Any]]], scenario: str, **settings: Any
) -> Mapping[str, Any]:
    """The largest result with these settings, of those the newest."""
    fit = [each for each in found.get(scenario, ()) if settings.items() <= each["settings"].items()]
    if not fit:
        sys.exit(f"no saved result of {scenario} on this machine: python -m bench.{scenario} --save")
    return max(fit, key=lambda result: (result["settings"]["n"], result["date"]))


def cores(per_sec: float, us: float, busy: float) -> float:
    """Cores for so many a second at so much CPU each, if they are to be that busy."""
    return per_sec * us / 1e6 / busy


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def page(wanted: Wanted, costs: Costs, octets: Octets) -> str:
    """The whole of docs/sizing.md."""
    sections = (
        _head(wanted, costs, octets),
        _processes(wanted, costs),
        _partitions(wanted, costs),
        _log(wanted, octets),
        _state(wanted, costs, octets),
        _workers(wanted),
    )
    return "\n\n".join(sections) + "\n"


def _head(wanted: Wanted, costs: Costs, octets: Octets) -> str:
    rows = [
        ("processor, CPU µs an execution (fire, claim, complete)", f"{costs.processor_us:.0f}"),
        ("broker, CPU µs an execution", f"{costs.broker_us:.0f}"),
        ("API, CPU µs an execution by HTTP", f"{costs.api_us:.0f}"),
        ("read model, CPU µs an execution", f"{costs.read_model_us:.0f}"),
        ("store, bytes a registered job", f"{costs.store_bytes_per_job:.0f}"),
        (f"memory of a processor with {costs.memory_jobs:,} jobs, MiB", f"{costs.memory_mib:.0f}"),
        ("rebuild, events a second of a core", f"{costs.rebuilt_per_sec:,.0f}"),
        ("events an execution", f"{octets.events_count:.1f}"),
        ("their bytes", f"{octets.events:.0f}"),
        ("event of a registration with 200 bytes of payload, bytes", f"{octets.registered:.0f}"),
        ("command of a registration, bytes", f"{octets.command:.0f}"),
        ("outcome and grant, bytes an execution", f"{octets.outcome:.0f} and {octets.grant:.0f}"),
    ]
    return f"""# Sizing
What {wanted.jobs:,} registered jobs, {wanted.average:,} due a second on average and {wanted.peak:,} a \
second at the top of the hour need. Made by `python -m bench.sizing` from the saved results of the \
benchmarks and from bytes counted on the engine: measure on your machines, and make it anew with your \
numbers (`--help`). Cores are planned to be {wanted.busy:.0%} busy.

## Measured
On {costs.machine}.

{table(("what", "figure"), rows)}"""


def _processes(wanted: Wanted, costs: Costs) -> str:
    parts = (
        ("processors", costs.processor_us),
        ("brokers, before replication", costs.broker_us),
        ("API (workers by HTTP)", costs.api_us),
        ("read model", costs.read_model_us),
    )
    rows = [
        (
            name,
            f"{cores(wanted.average, us, wanted.busy):.1f}",
            f"{cores(wanted.peak, us, wanted.busy):.1f}",
        )
        for name, us in parts
    ]
    average = max(1, math.ceil(cores(wanted.average, costs.processor_us, wanted.busy)))
    peak = max(average, math.ceil(cores(wanted.peak, costs.processor_us, wanted.busy)))
    herd = wanted.peak * 60
    drains = []
    for count in sorted({average, 2 * average, (average + peak) // 2, peak}):
        rate = count * 1e6 / costs.processor_us
        if rate <= wanted.average:
            continue
        behind = max(0.0, herd - rate * 60)
        drains.append((count, f"{rate:,.0f}", f"{behind:,.0f}", f"{behind / (rate - wanted.average):,.0f}"))
    return f"""## Processes
`cores = rate * CPU µs an execution ÷ 1,000,000 ÷ {wanted.busy:g}`; a processor uses one core.

{table(("cores for", "average", "peak, kept up with"), rows)}

Whoever cannot pay for the peak lets it queue. A minute of {wanted.peak:,} a second is {herd:,} executions; \
with fewer processes the rest waits and drains at what is left over the average. Nothing is lost, and small \
tenants are served in turn meanwhile (semantics §6); default jitter on cron jobs flattens the peak before it \
is one.

{table(("processes", "executions/s at most", "waiting after the minute", "drained after, s"), drains)}"""


def _partitions(wanted: Wanted, costs: Costs) -> str:
    most = 1e6 / costs.processor_us
    rows = [
        (
            count,
            f"{wanted.average / count:,.0f}",
            f"{wanted.peak / count:,.0f}",
            f"{wanted.jobs / count:,.0f}",
            f"{wanted.jobs / count * costs.store_bytes_per_job / GIB:.2f}",
        )
        for count in (wanted.partitions, 2 * wanted.partitions, 4 * wanted.partitions)
    ]
    least = math.ceil(cores(wanted.peak, costs.processor_us, wanted.busy))
    columns = ("partitions", "due/s, average", "due/s, peak", "jobs a partition", "store a partition, GiB")
    return f"""## Partitions
The due scan of a partition must keep up with its share of what becomes due. One process decides at most \
{most:,.0f} executions a second, in however many partitions; a partition cannot be split over processes. So \
there are at least as many partitions as processes at the peak ({least}), several times as many so that \
they spread evenly, and the number is fixed for the life of an installation. A tenant with one shard is \
bound to {most:,.0f} a second; a large one needs `shards ≥ its peak ÷ {most * wanted.busy:,.0f}`.

{table(columns, rows)}"""


def _log(wanted: Wanted, octets: Octets) -> str:
    events = octets.events + octets.events_count * RECORD_BYTES
    work = octets.outcome + RECORD_BYTES / 10
    replies = octets.grant + RECORD_BYTES / 10
    per_day = wanted.average * DAY_SEC
    rows = []
    for days in RETENTIONS_D:
        kept = events * per_day * days
        rows.append((days, f"{kept / TIB:.1f}", f"{kept * wanted.replication / TIB:.1f}"))
    write = wanted.average * (events + work + replies)
    peak = wanted.peak * (events + work + replies)
    return f"""## Log
An execution writes {events:.0f} bytes to `events` (with keys and what a record adds, before compression), \
about {work:.0f} to `work` and {replies:.0f} to `replies`: {write / 2**20:,.0f} MiB/s on average and \
{peak / 2**20:,.0f} MiB/s at the peak, times {wanted.replication} for replication. `events` grows by \
{events * per_day / TIB:.2f} TiB a day; `work` is kept a day ({work * per_day / GIB:,.0f} GiB), `replies` an \
hour.

{table(("audit retention, days", "events, TiB", f"with {wanted.replication} replicas, TiB"), rows)}

Behind the retention compaction leaves the newest state of each entity: registered jobs \
({octets.registered * wanted.jobs / GIB:,.0f} GiB) and a day of finished executions. The retention is the \
audit's price. Processors write events compressed (lz4): what is left of the bytes above depends on payloads \
and on how many events a transaction has; of executions' events, two fifths with four of them, an eighth \
with hundreds (measured)."""


def _state(wanted: Wanted, costs: Costs, octets: Octets) -> str:
    average = max(1, math.ceil(cores(wanted.average, costs.processor_us, wanted.busy)))
    store = wanted.jobs * costs.store_bytes_per_job
    day = wanted.average * DAY_SEC / wanted.partitions * octets.events_count
    rebuild_h = day * 30 / costs.rebuilt_per_sec / 3600
    return f"""## Memory and disk of processors
Registered jobs are on disk, not in memory: {store / GIB:,.0f} GiB in all, {store / average / GIB:,.1f} GiB \
each with {average} processes, and as much again free for compactions; the finished executions of a day \
come on top. Memory is bounded by caches and write buffers: {costs.memory_mib:.0f} MiB were resident with \
{costs.memory_jobs:,} jobs. Plan 1.5 GiB a process, and the rest of the machine for the page cache.

A partition rebuilt from 30 days of its log alone ({day * 30:,.0f} events) would take {rebuild_h:,.0f} hours \
in one process. So `HORARIUM_SNAPSHOT_DIR` is not optional at this size: a take-over fetches the partition's \
store ({store / wanted.partitions / GIB:.2f} GiB) and replays the minutes since."""


def _workers(wanted: Wanted) -> str:
    rows = []
    for duration in DURATIONS_SEC:
        beats = 1 / BEAT_SEC if duration > BEAT_SEC else 0.0
        rows.append(
            (
                f"{duration:g}",
                f"{wanted.average * duration:,.0f}",
                f"{wanted.peak * duration:,.0f}",
                f"{wanted.average * duration * beats:,.0f}",
            )
        )
    columns = ("mean duration, s", "slots, average", "slots, peak", "heartbeats/s, average")
    return f"""## Workers
Little's law: `slots busy = rate * mean duration`. Fewer slots than at the average, and the queue grows for \
ever; fewer than at the peak, and it grows for as long as the peak lasts. Leases of {LEASE_SEC} s are \
extended every {BEAT_SEC:.0f} s, so only what runs longer beats: `heartbeats/s = running ÷ {BEAT_SEC:.0f}`. \
A heartbeat costs an item of a record of `work`, an event of the lease and its share of a transaction, so \
long leases for long work are cheap.

{table(columns, rows)}"""


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=100_000_000, help="registered jobs")
    parser.add_argument("--average", type=int, default=12_000, help="due a second on average")
    parser.add_argument("--peak", type=int, default=100_000, help="due a second at the top of the hour")
    parser.add_argument("--partitions", type=int, default=64, help="of the installation")
    parser.add_argument("--busy", type=float, default=0.6, help="how busy a core may be")
    parser.add_argument("--replication", type=int, default=3, help="copies of the log")
    wanted = Wanted(**vars(parser.parse_args()))
    sys.stdout.write(page(wanted, find_costs(), count_octets()))


if __name__ == "__main__":
    main()
