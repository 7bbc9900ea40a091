"""Owns the API's two ends of the log: commands out to an explicit partition, replies in from its own one.

Requests live on the event loop; one thread reads replies, decodes those of this session and hands them over
in batches. Whether a change was done is only ever said by a reply. When the broker takes nothing, new
commands are refused at once instead of piling up: nothing of them was written then.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar
from zlib import crc32

from api.followed import Followed
from api.outcomes import Outcomes, Waiting
from api.problems import log_unavailable
from schemas import codec
from schemas.commands import JobCommand, WorkCommand
from schemas.ids import SHARED
from schemas.replies import CommandDone, Granted, WorkDone, WorkHinted, WorkSeen
from schemas.topics import Topics, partition_of, tenant_partitions
from streams.transport.log import (
    Done,
    Isolation,
    Log,
    LogError,
    LogRetriable,
    Outgoing,
    PlainWriter,
    Reader,
    Record,
    TopicPartition,
    Written,
)

log = logging.getLogger(__name__)

ANSWER_SEC = 10.0
STALLED_SEC = 3.0
"""The broker answers in milliseconds; when it took nothing for so long, it is down for who calls now."""
POLL_SEC = 0.5
RETRY_SEC = 0.5
RECORDS_PER_POLL = 2_000
FLUSH_SEC = 3.0

A = TypeVar("A", CommandDone, WorkDone)
WorkReply = Granted | WorkHinted | WorkSeen
# Between process and tenant in the session of a work request: hints name only session and pool.
TENANT_MARK = "~"


class LogClient:
    """Sends commands and awaits what the partitions decide."""

    def __init__(self, log_: Log, topics: Topics, followed: Followed) -> None:
        self.session = f"api-{os.urandom(8).hex()}"
        self.on_work: Callable[[list[WorkReply]], None] = lambda replies: None
        self.partitions = 0
        self.reply_partition = -1
        self._log = log_
        self._topics = topics
        self._followed = followed
        self._outcomes = Outcomes()
        self._writer: PlainWriter | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._progress = _Progress()
        self._stopping = threading.Event()
        self._connected = threading.Event()
        self._thread = threading.Thread(target=self._run, name="horarium-replies", daemon=True)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begins to connect; commands are refused until that has succeeded."""
        self._loop = loop
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread, after what is queued was delivered or given up. Blocks."""
        if self._writer is not None and not self._writer.flush(FLUSH_SEC):
            log.warning("some commands were not delivered before the end")
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10.0)
        if self._writer is not None:
            self._writer.close()

    @property
    def connected(self) -> bool:
        """Whether answers can come in and every tenant's partitions are known."""
        return self._connected.is_set() and self._followed.caught_up

    @property
    def waiting(self) -> int:
        """How many commands are without an answer."""
        return len(self._outcomes)

    def partition_of(self, tenant: str, job_id: str) -> int:
        """Where the job lives."""
        self._check_ready()
        return partition_of(tenant, job_id, self._followed.shards(tenant), self.partitions)

    def partitions_of(self, tenant: str) -> list[int]:
        """Everywhere the tenant's jobs can live."""
        self._check_ready()
        return tenant_partitions(tenant, self._followed.shards(tenant), self.partitions)

    def asked_partitions(self, owner: str) -> list[int]:
        """Everywhere the work of its pools can be: of shared ones in every partition."""
        self._check_ready()
        return list(range(self.partitions)) if owner == SHARED else self.partitions_of(owner)

    def max_running(self, owner: str, pool: str) -> int:
        """How many of a shared pool may run, 0: no bound. Pools of a tenant are bounded by its partitions."""
        return self._followed.pool_of(owner, pool).max_running if owner == SHARED else 0

    async def decide(self, commands: Sequence[tuple[int, JobCommand]]) -> list[CommandDone | None]:
        """Sends (partition, command) and waits; None where no answer came in time."""
        self._check_ready()
        waiting = Waiting[CommandDone](_ids(commands), asyncio.get_running_loop())
        return await self._ask(self._topics.commands, commands, waiting)

    async def work(self, commands: Sequence[tuple[int, WorkCommand]]) -> list[WorkDone | None]:
        """As `decide`, for heartbeats and outcomes."""
        self._check_ready()
        waiting = Waiting[WorkDone](_ids(commands), asyncio.get_running_loop())
        return await self._ask(self._topics.work, commands, waiting)

    def tell(self, partition: int, command: WorkCommand, delivered: Callable[[], None] | None = None) -> None:
        """Sends without waiting. `delivered` is called on the loop once the broker has it or never will.

        Problem if the log cannot be written now: nothing was sent then."""
        self._check_ready()

        def done(written: Written | None, error: LogError | None) -> None:
            self._progress.answered()
            if error is not None:
                log.warning("%s to partition %d: %s", type(command).__name__, partition, error)
            if delivered is not None:
                self._call(delivered)

        record = Outgoing(self._topics.work, partition, command.tenant.encode(), codec.encode(command))
        try:
            self._send(record, done)
        except LogError as error:
            raise log_unavailable(str(error)) from error

    async def _ask(
        self, topic: str, commands: Sequence[tuple[int, JobCommand | WorkCommand]], waiting: Waiting[A]
    ) -> list[A | None]:
        self._outcomes.expect(waiting)
        try:
            self._send_all(topic, commands)
            async with asyncio.timeout(ANSWER_SEC):
                await waiting.done
        except TimeoutError:
            pass
        finally:
            self._outcomes.forget(waiting)
        return waiting.answers

    def _send_all(self, topic: str, commands: Sequence[tuple[int, JobCommand | WorkCommand]]) -> None:
        # All before the first is sent: what comes at once goes out in few requests.
        values = [codec.encode(command) for _, command in commands]
        for number, ((partition, command), value) in enumerate(zip(commands, values, strict=True)):
            record = Outgoing(topic, partition, command.tenant.encode(), value)
            try:
                self._send(record, self._on_delivery(command.command_id))
            except LogError as error:
                if not number:
                    raise log_unavailable(str(error)) from error
                # Those before are on their way and their answers count; these were not sent.
                for _, unsent in commands[number:]:
                    self._outcomes.fail(unsent.command_id)
                return

    def _on_delivery(self, command_id: str) -> Done:
        def done(written: Written | None, error: LogError | None) -> None:
            self._progress.answered()
            if error is not None:
                log.warning("command %s was not delivered: %s", command_id, error)
                self._call(self._outcomes.fail, command_id)

        return done

    def _send(self, record: Outgoing, done: Done) -> None:
        assert self._writer is not None
        self._progress.sent()
        try:
            self._writer.send(record, done)
        except LogError:
            self._progress.answered()
            raise

    def _check_ready(self) -> None:
        if not self.connected:
            raise log_unavailable("it is not reached yet")
        if self._progress.stalled():
            raise log_unavailable("the broker does not take what was sent before")

    def _call(self, function: Callable[..., None], *args: object) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            log.debug("an answer came after the end")  # the loop is closed: nobody waits any more

    # From here on: the thread that reads replies.

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._read()
            except LogError as error:
                log.warning("reading replies: %s", error)
                self._stopping.wait(RETRY_SEC)
            except Exception:
                # A bug; but without this thread the process would look alive and serve nobody.
                log.exception("reading replies: begun anew")
                self._stopping.wait(RETRY_SEC)

    def _read(self) -> None:
        partitions = self._log.partitions(self._topics.commands)
        reply_partitions = self._log.partitions(self._topics.replies)
        if not (partitions and reply_partitions and self._log.partitions(self._topics.work)):
            self._stopping.wait(RETRY_SEC)  # the first processor makes the topics
            return
        # Chosen once: every outstanding command and parked request names it.
        if self.reply_partition < 0:
            self.reply_partition = crc32(self.session.encode()) % reply_partitions
        replies = TopicPartition(self._topics.replies, self.reply_partition)
        reader = self._log.reader(Isolation.UNCOMMITTED)
        try:
            reader.assign({replies: self._log.end_offset(replies, Isolation.UNCOMMITTED)})
            if self._writer is None:
                self._writer = self._log.plain_writer()
            self.partitions = partitions
            self._connected.set()
            self._read_on(reader)
        finally:
            reader.close()

    def _read_on(self, reader: Reader) -> None:
        while not self._stopping.is_set():
            try:
                records = reader.poll(RECORDS_PER_POLL, POLL_SEC)
            except LogRetriable as error:
                log.warning("reading replies: %s", error)
                self._stopping.wait(RETRY_SEC)
                continue
            if records:
                self._take(records)

    def _take(self, records: list[Record]) -> None:
        mine = self.session.encode()
        answers: list[CommandDone | WorkDone] = []
        work: list[WorkReply] = []
        for record in records:
            # Others share the partition: theirs are not worth decoding.
            if record.value is None or mine not in record.value:
                continue
            try:
                reply = codec.decode(record.value)
            except codec.UndecodableError as error:
                log.error("cannot read %s [%d] @%d: %s", record.topic, record.partition, record.offset, error)
                continue
            if isinstance(reply, CommandDone | WorkDone):
                answers.append(reply)
            elif isinstance(reply, Granted | WorkHinted | WorkSeen):
                work.append(reply)
        if answers:
            self._call(self._outcomes.give, answers)
        if work:
            self._call(self.on_work, work)


class _Progress:
    """Whether the broker takes what is sent. Written by the loop and by the writer's thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0
        self._moved_at = 0.0

    def sent(self) -> None:
        with self._lock:
            if not self._open:
                self._moved_at = time.monotonic()
            self._open += 1

    def answered(self) -> None:
        with self._lock:
            self._open -= 1
            self._moved_at = time.monotonic()

    def stalled(self) -> bool:
        """Something is under way and nothing was taken for long. When the last of it was given up, the next
        command is the probe."""
        return self._open > 0 and time.monotonic() - self._moved_at > STALLED_SEC


def _ids(commands: Sequence[tuple[int, JobCommand | WorkCommand]]) -> list[str]:
    return [command.command_id for _, command in commands]
