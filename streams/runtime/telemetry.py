"""Metrics and structured logs of a processor.

Owns the names of the metrics (`horarium_…`) and the form of a log line: one JSON object with partition,
offset, job and execution where they are known. May not know how they are served (`main` does that) nor
decide anything. Payloads, results and keys are never logged.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable
from functools import cache
from typing import Any, TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from streams.core.transaction import Logged

LOGGER = logging.getLogger("horarium")

# Around the objective: p50 10 ms, p99 25 ms, 1 s under a herd, 60 s for 99.99 %.
LATENESS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
TRANSACTION_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.035, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)

# How an execution ended, by the event that says so.
OUTCOMES = {
    "ExecutionCompleted": "completed",
    "ExecutionDeadLettered": "dead_lettered",
    "ExecutionCancelled": "cancelled",
    "ExecutionSkipped": "skipped",
}
LEASE_EXPIRED = "LeaseExpired"

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """One JSON object a line; what was passed as `extra` becomes members of it."""

    def __init__(self, instance: str) -> None:
        super().__init__()
        self._instance = instance

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time_ms": int(record.created * 1000),
            "level": record.levelname.lower(),
            "instance": self._instance,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def log_as_json(instance: str, level: str, stream: TextIO | None = None) -> None:
    """Everything the process logs goes to one stream, in one form."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines(instance))
    logging.basicConfig(level=level, handlers=[handler], force=True)


class Telemetry:
    """Counts and logs on behalf of the runtime. One registry an instance: simulations run several."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()

        def counter(name: str, help_text: str, *labels: str) -> Counter:
            return Counter(f"horarium_{name}", help_text, labels, registry=self.registry)

        def gauge(name: str, help_text: str, *labels: str) -> Gauge:
            return Gauge(f"horarium_{name}", help_text, labels, registry=self.registry)

        def histogram(name: str, help_text: str, buckets: Iterable[float]) -> Histogram:
            return Histogram(f"horarium_{name}", help_text, buckets=tuple(buckets), registry=self.registry)

        self.lateness = histogram(
            "firing_lateness_seconds",
            "Due instant to commit, of the earliest occurrence a transaction fires",
            LATENESS_BUCKETS,
        )
        self.commands = counter("commands", "Commands decided", "type", "outcome")
        self.events = counter("events", "Events committed", "type")
        self.transactions = counter("transactions", "Transactions", "outcome")
        self.transaction_seconds = histogram(
            "transaction_seconds", "Begin to commit of a transaction", TRANSACTION_BUCKETS
        )
        self.restore_remaining = gauge(
            "restore_remaining_records", "Offsets still to be replayed", "partition"
        )
        self.takeover_tail = gauge(
            "takeover_tail_records",
            "Offsets that the newest take-over of the partition had to replay",
            "partition",
        )
        self.snapshots = counter("snapshots", "Snapshots taken, failed, or refused at a take-over", "outcome")
        self.snapshot_bytes = counter("snapshot_bytes", "Carried to where snapshots are kept")
        self.snapshot_age = gauge("snapshot_age_seconds", "Age of the newest snapshot known", "partition")
        self.snapshot_tail = gauge(
            "snapshot_tail_records", "Offsets of events since the newest snapshot known", "partition"
        )
        self.owner = gauge("partition_owner", "1: this process owns the partition and runs it", "partition")
        self.lag = gauge("lag", "Records of a topic that are not decided yet", "topic", "partition")
        self.fenced = counter("fenced_writes", "Transactions that the broker refused to this process")
        self.lease_expirations = counter("lease_expirations", "Leases that ended without a word")
        self.executions = counter("executions", "Executions that became final", "outcome")
        self.alerts = counter("alerts", "Things a person should see", "kind")
        self.stopped = gauge("partitions_stopped", "Partitions that stand still because of an error")
        self.clock_offset = gauge("clock_offset_seconds", "This process's clock minus the brokers'")
        self.clock_trusted = gauge("clock_trusted", "0: no partition is taken because of the clock")
        self.clock_steps = gauge("clock_steps", "Steps of the wall clock seen since the start")
        # Counted for every command and event: finding a metric by its labels costs five times as much.
        self._commands_of = cache(self.commands.labels)
        self._events_of = cache(self.events.labels)
        self._transactions_of = cache(self.transactions.labels)

    def decided(self, command_type: str, outcome: str, count: int) -> None:
        self._commands_of(command_type, outcome).inc(count)

    def committed(self, events: Iterable[Logged]) -> None:
        """Counts the events of one partition once they are part of the log."""
        counts: dict[str, int] = {}
        for event in events:
            counts[event.type] = counts.get(event.type, 0) + 1
        for kind, count in counts.items():
            self._events_of(kind).inc(count)
            outcome = OUTCOMES.get(kind)
            if outcome is not None:
                self.executions.labels(outcome).inc(count)
        if LEASE_EXPIRED in counts:
            self.lease_expirations.inc(counts[LEASE_EXPIRED])

    def transaction(self, outcome: str, seconds: float) -> None:
        self._transactions_of(outcome).inc()
        self.transaction_seconds.observe(seconds)

    def tail_at(self, partition: int, records: int) -> None:
        """At a take-over: what is to be replayed on top of the store it begins with."""
        self.takeover_tail.labels(str(partition)).set(records)
        LOGGER.info("replays the tail", extra={"partition": partition, "tail": records})

    def snapshot_refused(self, partition: int, why: str) -> None:
        self.snapshots.labels("refused").inc()
        self.warning(f"snapshot is not used: {why}", partition=partition)

    def snapshot_gone(self, partition: int) -> None:
        """It is another process's to watch."""
        for watched in (self.snapshot_age, self.snapshot_tail):
            try:
                watched.remove(str(partition))
            except KeyError:
                continue

    def alert(self, kind: str, detail: str, **where: object) -> None:
        """An error line and a count: this is for people."""
        self.alerts.labels(kind).inc()
        LOGGER.error(detail, extra={"alert": kind, **where})

    def info(self, message: str, **where: object) -> None:
        LOGGER.info(message, extra=where)

    def warning(self, message: str, **where: object) -> None:
        LOGGER.warning(message, extra=where)
