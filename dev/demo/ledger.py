"""What the log says, folded twice: into rows for the table, and kept whole for the checker.

A thread follows the events topic (read-committed, all partitions, from its beginning), since the log is the
truth and goes on to be readable while processors are down.
"""

import threading
from collections import defaultdict
from dataclasses import dataclass, field

from schemas import codec
from schemas.entities import Execution, ExecutionStatus
from schemas.events import (
    AttemptFailed,
    CursorEvent,
    EngineEvent,
    ExecutionClaimed,
    ExecutionEvent,
    JobCancelled,
    JobCompleted,
    JobRegistered,
    LeaseExpired,
)
from streams.core.lifecycle import FINAL
from streams.transport.log import Isolation, Log, LogError, LogRetriable, Reader, Record, TopicPartition

POLL_SEC = 0.2
RECORDS = 1_000
END_SEC = 20.0


@dataclass(slots=True)
class Row:
    """One job as it stands."""

    next_ms: int = 0
    executions: dict[str, Execution] = field(default_factory=dict)
    failed_attempts: int = 0
    redeliveries: int = 0
    late_ms: list[int] = field(default_factory=list)
    over: bool = False

    def count(self, *statuses: ExecutionStatus) -> int:
        return sum(execution.status in statuses for execution in self.executions.values())


class Ledger:
    """All events so far. Read by the table and the play while the follower adds: take `lock`."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lines: list[tuple[int, EngineEvent]] = []
        self.rows: dict[str, Row] = defaultdict(Row)

    def add(self, partition: int, event: EngineEvent) -> None:
        """The next event of a partition."""
        self.lines.append((partition, event))
        if isinstance(event, JobRegistered):
            self.rows[event.job.job_id].next_ms = event.job.first_next_ms
        elif isinstance(event, CursorEvent):
            row = self.rows[event.cursor.job_id]
            row.next_ms = event.cursor.next_ms
            row.over = isinstance(event, JobCancelled | JobCompleted)
        elif isinstance(event, ExecutionEvent):
            self._add_execution(event)

    def _add_execution(self, event: ExecutionEvent) -> None:
        execution = event.execution
        row = self.rows[execution.job_id]
        row.executions[execution.execution_id] = execution
        if row.next_ms <= execution.scheduled_ms:
            row.next_ms = 0
        row.over = row.over or execution.closes_job
        row.failed_attempts += isinstance(event, AttemptFailed)
        row.redeliveries += isinstance(event, LeaseExpired)
        if isinstance(event, ExecutionClaimed) and execution.attempt == execution.delivery_count == 1:
            row.late_ms.append(execution.started_ms - execution.due_ms)

    def running_on(self, job_id: str) -> str:
        """The worker that runs an execution of the job; "" if there is none."""
        with self.lock:
            for execution in self.rows[job_id].executions.values():
                if execution.status is ExecutionStatus.RUNNING:
                    return execution.worker_id
        return ""

    def unfinished(self, job_ids: list[str]) -> list[str]:
        """Those of the jobs that are not over, or have an execution that is not."""
        with self.lock:
            return [
                job_id
                for job_id in job_ids
                if not (row := self.rows[job_id]).over
                or any(execution.status not in FINAL for execution in row.executions.values())
            ]


class Follower:
    """The thread that fills a ledger."""

    def __init__(self, log: Log, topic: str, ledger: Ledger) -> None:
        self._log = log
        self._ledger = ledger
        self._partitions = [TopicPartition(topic, number) for number in range(log.partitions(topic))]
        self._positions: dict[TopicPartition, int] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-follower", daemon=True)
        self.failure: Exception | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def reached_the_end(self) -> bool:
        """Waits until everything that is in the log now has been read; False if that takes too long."""
        ends = {tp: self._log.end_offset(tp, Isolation.COMMITTED) for tp in self._partitions}
        waited = 0.0
        while any(self._positions.get(tp, 0) < end for tp, end in ends.items()):
            if self._stopping.wait(POLL_SEC) or self.failure is not None or waited > END_SEC:
                return False
            waited += POLL_SEC
        return True

    def _run(self) -> None:
        reader = self._log.reader(Isolation.COMMITTED)
        try:
            reader.assign(dict.fromkeys(self._partitions, 0))
            while not self._stopping.is_set():
                self._poll(reader)
        except (LogError, codec.UndecodableError) as error:
            self.failure = error
        finally:
            reader.close()

    def _poll(self, reader: Reader) -> None:
        try:
            self._take(reader.poll(RECORDS, POLL_SEC))
        except LogRetriable:
            self._stopping.wait(POLL_SEC)
        self._positions = {tp: reader.position(tp) for tp in self._partitions}

    def _take(self, records: list[Record]) -> None:
        with self._ledger.lock:
            for record in records:
                # A tombstone: the engine forgot something, which is no event.
                if record.value is not None:
                    self._ledger.add(record.partition, codec.decode(record.value))  # type: ignore[arg-type]
