"""The loop of a process: poll, restore, decide, commit, wait; one thread, one step at a time.

`step` is all there is: it reads what came (running the group's callbacks), restores a little, decides a
bounded batch over all partitions with `work` before `commands`, commits it, and reports. No transaction is
ever open across a poll, so what the group takes away has nothing unfinished (architecture §5.6).

Owns the order of things. May not know what a command means (`core`), how a commit goes (`checkpoint`) or how
a partition comes to life (`recovery`). No threads, no sleep, no clock of its own: a simulation drives it.
"""

from __future__ import annotations

from collections.abc import Sequence

from schemas.topics import Topics
from streams.runtime.checkpoint import Checkpoint
from streams.runtime.clock_watch import ClockWatch
from streams.runtime.deciding import BATCH_RECORDS, Decider
from streams.runtime.late import LateReplies
from streams.runtime.ownership import HANDED_OVER, Ownership
from streams.runtime.partition import Ambient, Codec, Partition, PartitionState, Settlement
from streams.runtime.recovery import Recovery
from streams.runtime.sharing import can_wait
from streams.runtime.snapshotting import Snapshotter
from streams.runtime.status import StatusBoard
from streams.runtime.telemetry import Telemetry
from streams.runtime.tenants import TenantDirectory
from streams.runtime.turns import Turns
from streams.transport.log import (
    GroupReader,
    Isolation,
    Log,
    LogError,
    LogFatal,
    Reader,
    TopicPartition,
)

WAIT_MS = 5
"""Longest wait of a poll: two topics are read in turn, and each may get a record meanwhile."""
IDLE_WAIT_MS = 100
"""Longest wait of a poll while nothing is owned."""
UNTRUSTED_WAIT_MS = 20
"""While the clock has not been found to be right, as at every start for as long as brokers take to answer."""
RESTORE_WAIT_SEC = 0.005
FULL_POLL_MS = 500
"""How often the group is polled although more commands wait than a batch takes: callbacks run there."""
MARK_MS = 3_600_000
"""How often the mark of an idle partition is renewed: it says until when nothing was missed."""
FLUSH_SEC = 5.0
"""For replies that are on their way when the process stops."""
TENANTS_MS = 200
"""How often the tenants topic is looked at."""


class Processor:
    """Everything of one process that touches partitions. Made by `main`, or by a simulation."""

    def __init__(
        self,
        log: Log,
        topics: Topics,
        group: str,
        instance: str,
        partition_count: int,
        ambient: Ambient,
        codec: Codec,
        checkpoint: Checkpoint,
        recovery: Recovery,
        status: StatusBoard,
        tenants: TenantDirectory,
        late: LateReplies,
        snapshots: Snapshotter,
        telemetry: Telemetry,
    ) -> None:
        self._log = log
        self._topics = topics
        self._group_name = group
        self._ambient = ambient
        self._checkpoint = checkpoint
        self._recovery = recovery
        self._status = status
        self._tenants = tenants
        self._late = late
        self._snapshots = snapshots
        self._telemetry = telemetry
        decider = Decider(
            topics, partition_count, codec, ambient, checkpoint, telemetry, self._stop_partition
        )
        self._turns = Turns(
            log, topics, ambient, decider, checkpoint, telemetry, self._restore_again, self._stop_partition
        )
        self._watch = ClockWatch(topics, instance, checkpoint.publish, ambient, telemetry, self._alarm)
        self.ownership = Ownership(self._taken, self._finish, self._gone)
        self._group: GroupReader | None = None
        self._membership: object = None
        self._work: Reader = log.reader(Isolation.COMMITTED)
        self._work_changed = False
        self._polled_ms = 0
        self._tenants_ms = 0
        self._marks_ms = ambient.monotonic_ms()
        self._closing: list[Partition] = []
        self._to_record: list[tuple[str, str]] = []

    # -- the step

    def step(self, max_wait_sec: float | None = None) -> None:
        """One turn. Waits at most `max_wait_sec` (by default until something is due, within bounds)."""
        if not self._trust_clock():
            self._tenants.follow(UNTRUSTED_WAIT_MS / 1000)
            return
        self._poll(self._wait_sec() if max_wait_sec is None else max_wait_sec)
        now_ms = self._ambient.monotonic_ms()
        if now_ms - self._tenants_ms >= TENANTS_MS:
            self._tenants_ms = now_ms
            self._follow_tenants()
        self._restore()
        self._record_alerts()
        self._late.step()
        self._turns.take(self.ownership.running(), self._membership)
        self._status.refresh(self.ownership, self._known_end)
        self._renew_marks()
        self._snapshots.step(self.ownership.running())
        self._close_one()

    def stop(self) -> None:
        """Hands the partitions over at once."""
        if self._group is not None:
            self._group.leave()
            self._group = None
        while self._closing:
            self._close_one()
        self._recovery.close()
        self._snapshots.close()
        self._late.close()
        self._work.close()
        self._tenants.close()
        self._checkpoint.close(FLUSH_SEC)

    def next_wakeup_ms(self) -> int | None:
        """When the earliest timer of a running partition is due; for whoever drives time."""
        return min((each.wakeup_ms for each in self.ownership.running()), default=None)

    def _follow_tenants(self) -> None:
        """Other settings count at once: what they let run is granted now, not with the next event."""
        if self._tenants.follow():
            for partition in self.ownership.running():
                if partition.engine is not None:
                    partition.engine.settings_changed()
                    partition.wakeup_ms = 0

    def _wait_sec(self) -> float:
        if not len(self.ownership):
            return IDLE_WAIT_MS / 1000
        if self._turns.paused:
            return min(WAIT_MS, self._turns.paused_for_ms) / 1000
        now_ms = self._ambient.clock.now_ms()
        wait_ms = 0 if self._recovery.replaying else WAIT_MS
        for partition in self.ownership.running():
            if partition.backlog or partition.more_due or not partition.opened:
                return 0
            wait_ms = min(wait_ms, partition.wakeup_ms - now_ms)
        return max(0, wait_ms) / 1000

    def _trust_clock(self) -> bool:
        """More than 5 s off the brokers no partition is taken or kept, nor one taken before they have said
        what the time is (§5.10)."""
        trusted = self._watch.look()
        if self._group is None:
            self._ambient.clock.start_anew()
            if not self._watch.ready():
                self._watch.tell()
                return False
        elif not trusted:
            self._alarm("partitions are given up: the clock cannot be trusted")
            self._group.leave()
            self._group = None
            return False
        return True

    def _alarm(self, detail: str) -> None:
        self._raise("clock_step", detail)

    def _raise(self, kind: str, detail: str) -> None:
        """Operators are told at once; the event follows with the next transaction of a running partition."""
        self._telemetry.alert(kind, detail)
        self._to_record.append((kind, detail))

    def _record_alerts(self) -> None:
        for partition in self.ownership.running()[:1]:
            partition.alerts += self._to_record
            self._to_record.clear()

    # -- reading

    def _poll(self, wait_sec: float) -> None:
        """`work` first: it is where the waiting is done, since workers' calls are the most frequent."""
        if self._group is None:
            self._group = self._log.group_reader(self._group_name, self._topics.commands, self.ownership)
        if self.ownership.running():
            self._poll_work(wait_sec)
            wait_sec = 0
        room = BATCH_RECORDS - sum(len(each.commands) for each in self.ownership if not can_wait(each))
        now_ms = self._ambient.monotonic_ms()
        if room <= 0 and now_ms - self._polled_ms < FULL_POLL_MS:
            return
        self._polled_ms = now_ms
        try:
            records = self._group.poll(max(1, room), wait_sec)
        except LogFatal as error:
            self._read_again(error)
            records = []
        # Of this poll: whatever is decided now must not be committed under a later membership (§5.2).
        self._membership = self._group.membership()
        for record in records:
            partition = self.ownership.get(record.partition)
            if partition is not None and partition.running:
                partition.commands.append(record)

    def _poll_work(self, wait_sec: float) -> None:
        self._assign_work()
        room = BATCH_RECORDS - sum(len(each.work) for each in self.ownership if not can_wait(each))
        if room > 0:
            try:
                records = self._work.poll(room, wait_sec)
            except LogFatal as error:
                self._read_again(error)
                return
            for record in records:
                self._ambient.clock.observe_record(record.timestamp_ms)
                partition = self.ownership.get(record.partition)
                if partition is not None and partition.running:
                    partition.work.append(record)
        for partition in self.ownership.running():
            if partition.settlement.asked and partition.settlement.decided_to(self._work_decided(partition)):
                partition.more_due = True

    def _work_decided(self, partition: Partition) -> int:
        """All of `work` before it is decided, for good: only then does it count (§5.9)."""
        if partition.work:
            return partition.positions.work
        return self._work.position(TopicPartition(self._topics.work, partition.number))

    def _assign_work(self) -> None:
        """The owner of commands-p reads work-p, by a reader that is in no group (§5.2)."""
        if not self._work_changed:
            return
        self._work_changed = False
        topic = self._topics.work
        self._work.assign(
            {TopicPartition(topic, each.number): each.work_next for each in self.ownership.running()}
        )

    def _known_end(self, tp: TopicPartition) -> int:
        if tp.topic == self._topics.work:
            return self._work.known_end(tp)
        return 0 if self._group is None else self._group.known_end(tp.partition)

    def _read_again(self, error: LogFatal) -> None:
        """A position is not in the log any more (retention overtook us): go on where the log begins."""
        self._raise("internal_error", f"cannot read on: {error}")
        self._turns.count_fatal(error)
        for partition in self.ownership.running():
            partition.forget_fetched()
            partition.positions = self._recovery.within_log(partition.number, partition.positions)
            if self._group is not None:
                self._group.start(partition.number, partition.positions.commands)
        self._work_changed = True

    # -- restoring

    def _restore(self) -> None:
        if not self._recovery:
            return
        try:
            # Ends what the former writer left open: before that, the log cannot say what became of it.
            self._checkpoint.renew()
        except LogError as error:
            self._telemetry.warning(f"no writer yet: {error}")
            return
        ready, failed = self._recovery.step(RESTORE_WAIT_SEC)
        for partition, reason in failed:
            self._stop_partition(partition, reason)
        for partition in ready:
            self._go_live(partition)

    def _go_live(self, partition: Partition) -> None:
        if self._group is None or partition.engine is None:
            return
        unanswered, partition.unanswered = partition.unanswered, ()
        if not self._turns.resolve(partition) and unanswered:
            self._late.owe(partition.number, unanswered, partition.mark.last_offset)
        partition.state = PartitionState.RUNNING
        partition.settlement = Settlement()
        partition.opened = False
        partition.heavy = False
        partition.wakeup_ms = 0
        self._group.start(partition.number, partition.positions.commands)
        self._work_changed = True
        self._telemetry.info(
            "partition runs",
            partition=partition.number,
            offset=partition.mark.next_offset,
        )

    def _renew_marks(self) -> None:
        """An idle store stays usable: it says that up to now nothing was missed."""
        if self._ambient.monotonic_ms() - self._marks_ms < MARK_MS:
            return
        self._marks_ms = self._ambient.monotonic_ms()
        for partition in self.ownership.running():
            partition.mark_complete(self._ambient.clock.now_ms())

    # -- what the group says, and what goes wrong

    def _close_one(self) -> None:
        """Closing a store takes a tenth of a second: not inside a rebalance, and one at a time."""
        if self._closing:
            self._closing.pop(0).close()

    def _taken(self, partition: Partition) -> None:
        for former in [each for each in self._closing if each.number == partition.number]:
            self._closing.remove(former)
            former.close()
        self._recovery.add(partition)
        self._status.refresh([partition], self._known_end)
        self._telemetry.info("partition assigned", partition=partition.number)

    def _finish(self, partitions: Sequence[Partition]) -> None:
        """Revoked: everything decided is committed but positions that nothing came of; then hand over."""
        if self._group is not None:
            self._turns.hand_over(partitions, self._group.membership())
        for partition in partitions:
            partition.mark_complete(self._ambient.clock.now_ms())

    def _gone(self, partition: Partition, why: str) -> None:
        self._recovery.drop(partition.number)
        self._turns.forget(partition)
        self._late.forget(partition.number)
        self._snapshots.forget(partition)
        self._work_changed = True
        self._closing.append(partition)
        self._status.forget(partition, why == HANDED_OVER)
        self._telemetry.info(f"partition {why}", partition=partition.number)

    def _restore_again(self, partition: Partition) -> None:
        """What became of its newest transaction is not known: the log is asked."""
        partition.state = PartitionState.RESTORING
        if self._group is not None:
            self._group.hold(partition.number)
        self._work_changed = True
        self._recovery.add(partition)

    def _stop_partition(self, partition: Partition, error: Exception) -> None:
        """No doubtful state: it stands still until a restart, and the others go on."""
        partition.state = PartitionState.STOPPED
        partition.reason = str(error)
        self._recovery.drop(partition.number)
        self._turns.forget(partition)
        self._late.forget(partition.number)
        self._snapshots.forget(partition)
        if self._group is not None:
            self._group.hold(partition.number)
        partition.close()
        self._work_changed = True
        self._telemetry.stopped.set(sum(1 for each in self.ownership if each.state is PartitionState.STOPPED))
        self._telemetry.alert(
            "partition_stopped",
            f"partition {partition.number} stands still: {error}",
            partition=partition.number,
            offset=partition.mark.next_offset,
        )
