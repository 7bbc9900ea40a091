"""Cost with the number of partitions and of processors: `python -m bench.growth`.

The herd of `bench.processor` with the tenant in every partition: 1, 8 and 64 of them in one process, then two
processes. On a machine with fewer cores than processes the throughput says nothing; CPU an execution does.
"""

from __future__ import annotations

from functools import partial

from bench import processor, report


def main() -> None:
    """The command line."""
    parser = report.arguments(__doc__ or "")
    parser.add_argument("-n", type=int, default=20_000, help="jobs due at once")
    parser.add_argument("--partitions", type=int, nargs="*", default=[1, 8, 64], help="of the installation")
    parser.add_argument(
        "--processors", type=int, nargs="*", default=[1, 2], help="processes, with 8 partitions"
    )
    options = parser.parse_args()
    layouts = [(count, 1) for count in options.partitions]
    layouts += [(8, count) for count in options.processors if (8, count) not in layouts]
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
        report.run("growth", settings, partial(processor.measure, settings))


if __name__ == "__main__":
    main()
