"""Cost with the number of partitions and of processors: `python -m bench.growth`.

The herd of `bench.processor` with the tenant in every partition: 1, 8 and 64 of them in one process, then two
processes; then ratios. Cost is to stay flat with partitions (± 15 %). Two processes are as fast again as one
if they have cores: on two, broker and load take their part of them, and CPU an execution says more.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial

from bench import processor, report
from dev import compiled

WIDE = 8
"""Partitions, where processes differ."""
Layout = tuple[int, int]
"""Partitions and processes."""


def ratios(found: Mapping[Layout, report.Figures]) -> report.Figures:
    """To the fewest partitions in one process, and to the fewest processes: CPU an execution of processors
    and broker; executions a second."""
    one = {str(partitions): each for (partitions, count), each in found.items() if count == 1}
    wide = {str(count): each for (partitions, count), each in found.items() if partitions == WIDE}
    return {
        "costByPartitions": _to_first({name: _cost(each) for name, each in one.items()}),
        "costByProcessors": _to_first({name: _cost(each) for name, each in wide.items()}),
        "speedByProcessors": _to_first({name: each["executionsPerSec"] for name, each in wide.items()}),
    }


def _cost(figures: report.Figures) -> float:
    cost: float = figures["cpuUsPerExecution"]["server"]
    return cost


def _to_first(values: Mapping[str, float]) -> dict[str, float]:
    first = next(iter(values.values()), 1.0)
    return {name: round(value / first, 2) for name, value in values.items()}


def main() -> None:
    """The command line."""
    compiled.adopt()
    parser = report.arguments(__doc__ or "")
    parser.add_argument("-n", type=int, default=20_000, help="jobs due at once")
    parser.add_argument("--partitions", type=int, nargs="*", default=[1, 8, 64], help="of the installation")
    parser.add_argument(
        "--processors", type=int, nargs="*", default=[1, 2], help=f"processes, with {WIDE} partitions"
    )
    options = parser.parse_args()
    layouts = [(count, 1) for count in options.partitions]
    layouts += [(WIDE, count) for count in options.processors if (WIDE, count) not in layouts]
    found: dict[Layout, report.Figures] = {}
    for partitions, processes in layouts:
        settings = report.only(
            options,
            n=options.n,
            rate=0,
            partitions=partitions,
            shards=partitions,
            processors=processes,
            # As many free slots in all for 8 partitions and more; one request can ask for no more than 1,000.
            credit=min(1_000, 8_000 // partitions),
        )
        found[partitions, processes] = report.run("growth", settings, partial(processor.measure, settings))
    given = argparse.Namespace(repeat=1, save=options.save, n=options.n)
    report.run("growth-ratio", given, lambda: ratios(found))


if __name__ == "__main__":
    main()
