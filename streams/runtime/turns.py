"""Taking turns: what is due and waiting is decided and committed, and what becomes of a failed commit.

Refused (LogAborted): nothing happened, everything is decided again. Refused for good (LogRefused): records
are decided one by one, and the one the log will never take is set aside. Unknown (LogFatal): overlays and
writer are thrown away and the partitions restored from the log, which knows (architecture §4, §5.6).

Owns those consequences, and the replies whose transaction is in doubt. May not know the group or the readers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from schemas.topics import Topics
from streams.runtime.checkpoint import Checkpoint, Draft
from streams.runtime.deciding import Decider, Part, Turn
from streams.runtime.mark import fingerprint
from streams.runtime.partition import Ambient, GivenUp, Partition
from streams.runtime.sharing import choose
from streams.runtime.telemetry import Telemetry
from streams.transport.log import (
    Isolation,
    Log,
    LogAborted,
    LogError,
    LogFatal,
    LogRefused,
    TopicPartition,
)

LEASE_CHECK_MS = 50
"""How often an idle partition is asked for ended leases; they need not be seen to the millisecond."""
BEHIND_MS = 1_000
"""Positions of records that nothing came of are committed after this, if no transaction took them along."""
FATAL_MAX = 5
FATAL_WITHIN_MS = 60_000
"""So many writers lost in so short a time: another process has this instance's name. A fenced process must
not fence back for ever; brokers that are away take longer over each."""
PACE_MS = 8
"""Small transactions begin no closer together: each has its price at the brokers, in the read model and the
API, whatever is in it, and where all share few cores everybody waits for that (measured: benchmarks)."""
PACED_EVENTS = 100
"""With fewer a transaction is small."""
BACKOFF_MS = 5
BACKOFF_MAX_MS = 500
"""Pause after transactions that were refused in a row: the group tells us soon why."""


class Turns:
    """Used by one thread."""

    def __init__(
        self,
        log: Log,
        topics: Topics,
        ambient: Ambient,
        decider: Decider,
        checkpoint: Checkpoint,
        telemetry: Telemetry,
        restore_again: Callable[[Partition], None],
        stop_partition: Callable[[Partition, Exception], None],
    ) -> None:
        self._log = log
        self._topics = topics
        self._ambient = ambient
        self._decider = decider
        self._checkpoint = checkpoint
        self._telemetry = telemetry
        self._restore_again = restore_again
        self._stop_partition = stop_partition
        self._doubtful: dict[int, Draft] = {}
        self._fatal_ms: deque[int] = deque(maxlen=FATAL_MAX)
        self._aborted_in_a_row = 0
        self._began_ms = 0
        self._resume_ms = 0
        self._alone: deque[tuple[int, Part]] = deque()
        """Which partition has the next turns alone, and with what: one was refused for good."""

    @property
    def paused(self) -> bool:
        return self.paused_for_ms > 0

    @property
    def paused_for_ms(self) -> int:
        """For so long nothing is decided; now it may be if that is not above 0."""
        return self._resume_ms - self._ambient.monotonic_ms()

    def take(self, running: Sequence[Partition], membership: object) -> None:
        """One transaction, if there is anything to say. `membership` is that of the poll before."""
        if self.paused:
            return
        self._began_ms = self._ambient.monotonic_ms()
        now_ms = self._ambient.clock.now_ms()
        self._look_for_ended_leases(running, now_ms)
        busy = [
            each
            for each in running
            if each.backlog or each.more_due or each.wakeup_ms <= now_ms or each.alerts or not each.opened
        ]
        part = Part.ALL
        if self._alone:
            number, part = self._alone.popleft()
            busy = [each for each in busy if each.number == number]
        chosen = choose(busy)
        decided = self._decider.decide(chosen, part) if chosen else []
        for each in busy:
            each.passed_over += 1  # until its turn is settled
        spoken = [(turn, draft) for turn, draft in decided if draft.speaks]
        if spoken or self._long_behind(running):
            self._commit(decided, running, membership)
            return
        for turn, draft in decided:
            self._settle(turn, draft)

    def _look_for_ended_leases(self, running: Sequence[Partition], now_ms: int) -> None:
        for partition in running:
            if partition.settlement.asked or now_ms - partition.lease_check_ms < LEASE_CHECK_MS:
                continue
            partition.lease_check_ms = now_ms
            if partition.engine is not None and partition.engine.lease_due(now_ms):
                work = TopicPartition(self._topics.work, partition.number)
                try:
                    end_offset = partial(self._log.end_offset, work, Isolation.UNCOMMITTED)
                    partition.settlement.ask(now_ms, end_offset)
                except LogError as error:
                    self._telemetry.warning(f"end of work not known: {error}", partition=partition.number)

    def _long_behind(self, running: Sequence[Partition]) -> bool:
        oldest_ms = self._ambient.monotonic_ms() - BEHIND_MS
        return any(each.behind_since_ms is not None and each.behind_since_ms <= oldest_ms for each in running)

    def _commit(
        self, decided: Sequence[tuple[Turn, Draft]], running: Sequence[Partition], membership: object
    ) -> None:
        drafts = [draft for _, draft in decided]
        drafts += self._positions_alone(running, {draft.partition.number for draft in drafts})
        try:
            failures = self._checkpoint.commit(drafts, membership)
        except LogRefused as error:
            self._give_back(decided, error)
            self._isolate(decided, error, membership)
            return
        except LogAborted as error:
            # A stale membership above all: the next poll tells what is ours.
            self._telemetry.fenced.inc()
            self._give_back(decided, error)
            return
        except LogFatal as error:
            self._doubt(drafts, error)
            return
        self._aborted_in_a_row = 0
        if sum(len(draft.events) for draft in drafts) < PACED_EVENTS:
            self._resume_ms = self._began_ms + PACE_MS
        for partition, why in failures:
            self._stop_partition(partition, why)
        for turn, _ in decided:
            self._go_on(turn)

    def _positions_alone(self, running: Iterable[Partition], without: set[int]) -> list[Draft]:
        """Partitions whose positions moved and that have nothing to say: they come along."""
        now_ms = self._ambient.clock.now_ms()
        return [
            Draft(each, each.positions, now_ms)
            for each in running
            if each.positions != each.committed and each.number not in without
        ]

    def _settle(self, turn: Turn, draft: Draft) -> None:
        try:
            self._checkpoint.settle_quietly(draft)
        except Exception as error:
            self._stop_partition(turn.partition, error)
        else:
            self._go_on(turn)

    def _go_on(self, turn: Turn) -> None:
        partition = turn.partition
        if not partition.running or partition.engine is None:
            return
        partition.opened = True
        partition.more_due = turn.more_due
        partition.heavy = turn.more_due or turn.cut
        partition.passed_over = 0
        partition.wakeup_ms = partition.engine.next_wakeup_ms(self._ambient.clock.now_ms())

    def _give_back(self, decided: Sequence[tuple[Turn, Draft]], error: LogAborted) -> None:
        """Nothing of it happened: overlays go, and the records are decided again from the same position."""
        for turn, _ in decided:
            turn.give_back()
        pause_ms = min(BACKOFF_MAX_MS, BACKOFF_MS << min(self._aborted_in_a_row, 10))
        self._aborted_in_a_row += 1
        self._resume_ms = self._ambient.monotonic_ms() + pause_ms
        self._telemetry.warning(f"transaction refused: {error}")

    def _isolate(self, decided: Sequence[tuple[Turn, Draft]], error: LogRefused, membership: object) -> None:
        """What the log will never take is found by deciding records one by one, and set aside; a partition
        whose timers it will not take stops."""
        for turn, _ in decided:
            if turn.part is Part.ALL:
                self._alone += [(turn.partition.number, part) for part in turn.parts()]
                continue
            draft = self._decider.quarantine_unseen(turn, str(error))
            if draft is None:
                self._stop_partition(turn.partition, error)
            else:
                self._commit([(turn, draft)], (), membership)

    def _doubt(self, drafts: Sequence[Draft], error: LogFatal) -> None:
        """Committed or not, nobody knows: overlays go, and the log is asked after a new writer (§4)."""
        self._telemetry.warning(f"outcome of a transaction is unknown: {error}")
        for draft in drafts:
            partition = draft.partition
            if partition.engine is not None:
                partition.engine.abort()
            partition.forget_fetched()
            self._doubtful[partition.number] = draft
            self._restore_again(partition)
        self.count_fatal(error)

    def resolve(self, partition: Partition) -> bool:
        """The replayed log says whether the transaction of unknown outcome was committed: if so, its askers
        still wait. False if there was none."""
        draft = self._doubtful.pop(partition.number, None)
        if draft is not None and is_in_log(draft, partition):
            self._checkpoint.deliver(draft, partition.mark.last_offset)
        return draft is not None

    def forget(self, partition: Partition) -> None:
        """It runs here no more: its replies are lost, and askers repeat."""
        self._doubtful.pop(partition.number, None)

    def hand_over(self, partitions: Sequence[Partition], membership: object) -> None:
        """Commits positions of records that nothing came of, so that the successor need not decide them."""
        drafts = self._positions_alone(partitions, set())
        if not drafts:
            return
        try:
            self._checkpoint.commit(drafts, membership)
        except LogError as error:
            self._telemetry.warning(f"positions not handed over: {error}")

    def count_fatal(self, error: LogFatal) -> None:
        """GivenUp if it happens again and again."""
        now_ms = self._ambient.monotonic_ms()
        self._fatal_ms.append(now_ms)
        if len(self._fatal_ms) == FATAL_MAX and now_ms - self._fatal_ms[0] <= FATAL_WITHIN_MS:
            raise GivenUp(f"{FATAL_MAX} times: {error}. Does another process use this HORARIUM_INSTANCE?")


def is_in_log(draft: Draft, partition: Partition) -> bool:
    """Whether a draft's transaction was committed, as the replayed partition shows."""
    if draft.events:
        last = draft.events[-1]
        return partition.mark.last_crc == fingerprint(last.key.encode(), last.value)
    return partition.committed >= draft.positions
