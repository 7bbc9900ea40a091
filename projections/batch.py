"""Owns one batch: which fold an event belongs to, and rows and positions in one transaction.

Pure until `write`. Each record is folded once: positions decide which records are new, and the transaction
fails if someone else moved them meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from projections.alerts import AlertRows
from projections.breakers import BreakerRows
from projections.executions import ExecutionRows
from projections.history import HistoryRows
from projections.jobs import JobRows
from projections.stats import StatRows
from projections.store import Store
from schemas import codec
from schemas.events import (
    AlertRaised,
    BreakerEvent,
    ContentKept,
    CursorEvent,
    ExecutionEvent,
    JobEvent,
    LeaseExtended,
    PartitionOpened,
    TenantConfigured,
)
from streams.transport.log import Record

_EXECUTION_KEY = b"exec:"
_BREAKER_KEY = b"breaker:"


class UnknownEventError(Exception):
    """An event that this version cannot read. Its partition stands still here, as it does in its processor.
    The operator's action: upgrade the projections if a newer version wrote it."""

    def __init__(self, record: Record, reason: str) -> None:
        super().__init__(f"{record.topic} [{record.partition}] at offset {record.offset}: {reason}")
        self.partition = record.partition
        self.offset = record.offset


class Batch:
    """Rows of some records, and where they end in each partition."""

    def __init__(self, positions: Mapping[int, int]) -> None:
        """`positions`: the next offset of each partition that is not folded yet."""
        self._before = dict(positions)
        self._after: dict[int, tuple[int, int]] = {}
        self._jobs = JobRows()
        self._executions = ExecutionRows()
        self._history = HistoryRows()
        self._stats = StatRows()
        self._alerts = AlertRows()
        self._breakers = BreakerRows()
        self.folded = 0

    def fold(self, records: Sequence[Record]) -> None:
        """Adds records, in offset order per partition; what was folded before is left out."""
        for record in records:
            next_offset = self._after.get(record.partition, (self._before[record.partition], 0))[0]
            if record.offset < next_offset:
                continue
            at_ms = self._fold(record)
            self._after[record.partition] = (record.offset + 1, at_ms)
            self.folded += 1

    def write(self, store: Store) -> dict[int, int]:
        """Commits rows and positions and returns these; PositionsMovedError: nothing was written."""
        if not self._after:
            return {}
        with store.writing() as writer:
            # First: whoever comes second learns it before he did the work.
            writer.move(self._before, self._after)
            self._jobs.write(writer)
            self._executions.write(writer)
            self._history.write(writer)
            self._stats.write(writer)
            self._alerts.write(writer)
            self._breakers.write(writer)
        return {partition: next_offset for partition, (next_offset, _) in self._after.items()}

    def _fold(self, record: Record) -> int:
        """Folds one record and returns its time."""
        if record.value is None:
            self._forget(record, record.key or b"")
            return record.timestamp_ms
        event = _decode(record, record.value)
        match event:
            case ExecutionEvent():
                self._executions.fold_execution(event)
                if event.execution.closes_job:
                    self._jobs.fold_closing(event.execution)
                self._stats.fold_execution(event)
            case LeaseExtended():
                self._executions.fold_lease(event.lease)
            case CursorEvent():
                self._jobs.fold_cursor(event, record.offset)
                self._stats.fold_cursor(event)
            case JobEvent():
                self._jobs.fold_job(event)
            case ContentKept():
                self._executions.fold_content(event.kept)
            case AlertRaised():
                self._alerts.fold(event.alert, record.partition)
                return event.at_ms
            case BreakerEvent():
                self._breakers.fold(event.breaker, record.partition)
                return event.at_ms
            case PartitionOpened():
                return event.at_ms
            case TenantConfigured():
                pass  # what it says is followed on the topic of tenants; here is who changed what, and when
            case _:
                raise UnknownEventError(record, f"{type(event).__name__} is not folded here")
        self._history.fold(event, record.partition, record.offset, record.value)
        return event.at_ms

    def _forget(self, record: Record, key: bytes) -> None:
        """The engine let go of an entity; what is shown here has its own retention."""
        if key.startswith(_EXECUTION_KEY):
            tenant, _, execution_id = key[len(_EXECUTION_KEY) :].decode().partition("/")
            self._executions.forget(tenant, execution_id, record.timestamp_ms)
        elif key.startswith(_BREAKER_KEY):
            tenant, _, target = key[len(_BREAKER_KEY) :].decode().partition(":")
            self._breakers.forget(tenant, target, record.partition)


def _decode(record: Record, value: bytes) -> object:
    try:
        return codec.decode(value)
    except codec.UndecodableError as error:
        raise UnknownEventError(record, str(error)) from error
