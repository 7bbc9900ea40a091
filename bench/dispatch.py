"""Very many jobs due at once and no worker: `python -m bench.dispatch`.

What a due job costs by itself: from its due instant until the event that it fired is in the log, committed
and read. Processors and a broker alone; the reader of the events is this process.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

from bench import processors, report
from bench.partition import TENANT
from bench.processor import LEAD_MS, arguments
from bench.usage import per_unit_us
from bench.wire import Refused
from dev import compiled
from schemas import codec
from schemas.events import ExecutionFired
from schemas.topics import tenant_partitions
from streams.ambient import wall_ms
from streams.transport.log import Isolation, TopicPartition

RECORDS = 5_000
POLL_SEC = 0.05


def measure(options: argparse.Namespace) -> report.Figures:
    """One herd without workers on fresh processors."""
    with (
        processors.running(
            processors=options.processors, partitions=options.partitions, shards=options.shards
        ) as running,
        running.service() as service,
    ):
        rate = service.warm_up(options.credit)
        due_ms = wall_ms() + round(1_500 * options.n / rate) + LEAD_MS
        made = service.register(options.n, due_ms, report.within_sec(options.n))
        if made < options.n or wall_ms() > due_ms:
            raise Refused(f"{made} of {options.n} registered in time: the machine is too busy")
        events = [
            TopicPartition(running.topics.events, number)
            for number in tenant_partitions(TENANT, options.shards, options.partitions)
        ]
        reader = running.log.reader(Isolation.COMMITTED)
        reader.assign({tp: running.log.end_offset(tp, Isolation.COMMITTED) for tp in events})
        usage = running.usage()
        fired: Counter[str] = Counter()
        late_ms: list[int] = []
        last_ms = due_ms
        deadline = time.monotonic() + (due_ms - wall_ms()) / 1000 + report.within_sec(made)
        waiting = True
        while len(fired) < made and time.monotonic() < deadline:
            if waiting and wall_ms() >= due_ms:
                waiting = False
                usage.since()
            for record in reader.poll(RECORDS, POLL_SEC):
                event = codec.decode(record.value) if record.value else None
                if isinstance(event, ExecutionFired):
                    fired[event.execution.execution_id] += 1
                    last_ms = wall_ms()
                    late_ms.append(last_ms - event.execution.scheduled_ms)
        reader.close()
        lost, twice, early = made - len(fired), len(late_ms) - len(fired), sum(ms < 0 for ms in late_ms)
        return {
            "firedPerSec": round(1000 * len(fired) / max(1, last_ms - due_ms)),
            "seenLateMs": report.spread(late_ms),
            "cpuUsPerExecution": per_unit_us(usage.since(), made),
            "memoryMib": usage.memory_mib(),
            "lost": lost,
            "firedTwice": twice,
            "early": early,
            report.VALID: lost == twice == early == 0,
        }


def main() -> None:
    """The command line."""
    compiled.adopt()
    options = arguments(__doc__ or "").parse_args()
    report.run("dispatch", options, lambda: measure(options))


if __name__ == "__main__":
    main()
