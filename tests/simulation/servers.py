"""Processors as the simulation runs them: started, stopped, crashed and frozen between any two steps.

Owns the life of a process, its disk and its clock. The processor inside is the real one on the in-memory log
and store; nothing of it is replaced but time, chance and what carries its messages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from schemas.topics import Topics
from streams.ambient import Chance, Clock
from streams.config import ProcessorSettings
from streams.runtime.checkpoint import Step
from streams.runtime.partition import Ambient, GivenUp, PartitionState
from streams.runtime.processor import Processor
from streams.runtime.telemetry import Telemetry
from streams.runtime.wiring import build
from streams.store.memory import MemoryFolder
from streams.transport.log import Log
from streams.transport.memory import MemoryLog
from tests.simulation import zone_data
from tests.simulation.agenda import Agenda, MachineTime
from tests.simulation.bucket import Bucket
from tests.simulation.fetching import FetchingLog
from tests.simulation.hazards import Counts, Hazards

SESSION_MS = 6_000
"""The group takes a silent member for dead after this (`session.timeout.ms`)."""
IDLE_MS = (250, 1_200)
BUSY_MS = (1, 4)
RESTORING_MS = (5, 60)
RESTART_MS = (200, 14_000)
FREEZES_MS = ((20, 400), (2_000, 5_000), (6_500, 16_000), (20_000, 40_000))
"""A hiccup; shorter than the session; longer than session and transaction time-out; much longer."""
FETCHES_LATE_MS = ((50, 500), (2_000, 7_000))
FROZEN_AT_A_TIME = 2
"""Those in the middle of a step: each holds the frames of the run that goes on inside it."""
WALL_STEPS_MS = (-3_600_000, -30_000, -900, 900, 30_000, 3_600_000)
WRONG_AT_START_MS = (-3_600_000, -30_000, -900, 900, 4_000, 30_000, 3_600_000)


_ANNOUNCED = {step: f"step {step.name.lower()}" for step in Step}


class Crash(BaseException):
    """The process dies here; nothing of it catches this."""


class Elsewhere(BaseException):
    """Something was raised while the process stood still; its own code must not see it."""


@dataclass(slots=True)
class Surroundings:
    """What all processes share."""

    agenda: Agenda
    log: MemoryLog
    topics: Topics
    partitions: int
    chance: Chance
    counts: Counts
    hazards: Hazards
    tell: Callable[[str, str], None]
    """Who, what: for the ledger."""
    complain: Callable[[str], None]
    """Something that must never happen did."""
    bucket: Bucket
    snapshot_sec: int
    """How often snapshots are taken; 0: never."""
    zone_data: str = zone_data.INSTALLED
    """What a process that starts now comes with."""
    frozen_in_step: int = 0

    @property
    def group(self) -> str:
        return f"{self.topics.namespace}.processors"


class Watched(Telemetry):
    """Alerts that no fault of the surroundings explains are violations."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server

    def alert(self, kind: str, detail: str, **where: object) -> None:
        around = self._server.around
        around.counts[f"alert {kind}"] += 1
        around.tell(self._server.name, f"ALERT {kind}: {detail}")
        if kind in ("partition_stopped", "internal_error"):
            around.complain(f"{self._server.name}: {kind}: {detail}")

    def info(self, message: str, **where: object) -> None:
        if "snapshot" in message:
            self._server.around.counts[message.partition(":")[0].rstrip(" 0123456789MiBof")] += 1
        self._server.around.tell(self._server.name, f"{message} {_brief(where)}")

    def snapshot_refused(self, partition: int, why: str) -> None:
        self._server.around.counts["snapshot refused"] += 1
        super().snapshot_refused(partition, why)

    def warning(self, message: str, **where: object) -> None:
        self._server.around.tell(self._server.name, f"{message} {_brief(where)}")


def _brief(where: dict[str, object]) -> str:
    return " ".join(f"{name}={value}" for name, value in where.items())


class Server:
    """One processor. `life` grows with each start, so that what was meant for a former one is dropped."""

    def __init__(self, around: Surroundings, name: str) -> None:
        self.around = around
        self.name = name
        self.lives = 0
        self.processor: Processor | None = None
        self.folder = MemoryFolder()
        self.kept_down = False
        self.zone_data = around.zone_data
        self.in_step = False
        self._time = MachineTime(around.agenda)
        self._backups: list[MemoryFolder] = []
        self._next_ms: int | None = None
        self._frozen_until_ms = 0
        self._fetched_at_ms = 0
        self._left_open_ms: int | None = None
        self._killed = False
        self._turns = 0

    # -- its life

    def start(self) -> None:
        if self.processor is not None or self.kept_down:
            return
        around, chance = self.around, self.around.chance
        self.lives += 1
        drift = chance.randint(-around.hazards.drift_ppm, around.hazards.drift_ppm)
        off_ms = 0
        if chance.random() < around.hazards.p_wrong_clock_at_start:
            off_ms = chance.choice(WRONG_AT_START_MS)
            around.counts["started with a wrong clock"] += 1
        self._time = MachineTime(around.agenda, drift, off_ms)
        self._frozen_until_ms, self._killed, self._next_ms = 0, False, None
        self._left_open_ms = None
        self.zone_data = around.zone_data
        zone_data.use(self.zone_data)
        self.in_step = True
        try:
            self.processor = self._build()
        except (Crash, GivenUp) as error:
            self._die(str(error))
            return
        finally:
            self.in_step = False
        around.tell(self.name, f"starts (life {self.lives}, clock {off_ms:+d} ms)")
        self.wake(0)

    def _build(self) -> Processor:
        settings = ProcessorSettings(
            kafka="memory",
            namespace=self.around.topics.namespace,
            partitions=self.around.partitions,
            data=Path("unused"),
            instance=self.name,
            snapshot_sec=self.around.snapshot_sec,
        )
        time = self._time
        clock = Clock(time.wall_ms, time.monotonic_ms)
        ambient = Ambient(clock, time.monotonic_ms, Chance(self.around.chance.random()).random)
        around = self.around
        log = cast(Log, FetchingLog(around.log, around.topics.work, self._fetch_is_late))
        return build(settings, log, self.folder, ambient, Watched(self), self._on_step, objects=around.bucket)

    def _fetch_is_late(self) -> bool:
        around, chance = self.around, self.around.chance
        if chance.random() < around.hazards.p_fetch_late:
            around.counts["fetch late"] += 1
            late_ms = chance.randint(*chance.choice(FETCHES_LATE_MS))
            self._fetched_at_ms = max(self._fetched_at_ms, around.agenda.now_ms + late_ms)
        return around.agenda.now_ms < self._fetched_at_ms

    def stop(self) -> None:
        """As an operator stops it: partitions are handed over."""
        processor = self.processor
        if processor is None or self.in_step or self.frozen:
            return
        zone_data.use(self.zone_data)
        self.in_step = True
        try:
            processor.stop()
        except Crash as crash:
            self._die(str(crash))
            return
        finally:
            self.in_step = False
        self.around.counts["deployed"] += 1
        self._gone("stops", self._member(processor))

    def kill(self, why: str) -> None:
        """Dies where it stands: also in the middle of a step in which it is frozen."""
        if self.in_step:
            self._killed = True
        elif self.processor is not None:
            self._die(why)

    def _die(self, why: str) -> None:
        processor = self.processor
        self._gone(f"dies: {why}", self._member(processor) if processor is not None else None)

    def _gone(self, how: str, member: str | None) -> None:
        around = self.around
        self.processor = None
        self.lives += 1
        self._next_ms = None
        around.tell(self.name, how)
        self.folder = self._disk_after()
        if member is not None:
            around.agenda.after(SESSION_MS, lambda: self._evict(member, "is taken for dead"))
        around.agenda.after(around.chance.randint(*RESTART_MS), self.start)

    def _disk_after(self) -> MemoryFolder:
        """What the next life finds: what was written, nothing, or an older state of it."""
        hazards, chance, counts = self.around.hazards, self.around.chance, self.around.counts
        left = self.folder.copy()
        if chance.random() < hazards.p_disk_lost / 3:
            counts["disk lost"] += 1
            return MemoryFolder()
        if self._backups and chance.random() < hazards.p_disk_old / 2:
            counts["disk older"] += 1
            return chance.choice(self._backups).copy()
        return left

    def back_up(self) -> None:
        """Remembers the disk as it is now, for a later life to find."""
        if self.processor is not None:
            self._backups = [*self._backups[-2:], self.folder.copy()]

    # -- its group

    @staticmethod
    def _member(processor: Processor) -> str | None:
        group = processor._group
        return str(group.member) if group is not None else None  # type: ignore[attr-defined]

    @property
    def member(self) -> str | None:
        """As its group knows it."""
        return self._member(self.processor) if self.processor is not None else None

    def _evict(self, member: str, why: str) -> None:
        around = self.around
        if member in around.log.cluster.group(around.group).members:
            around.counts[f"member {why}"] += 1
            around.tell(self.name, f"{member} {why}")
            around.log.evict(around.group, around.topics.commands, member)

    def lose_session(self) -> None:
        """The group does not hear it for a while, although it lives."""
        member = self.member
        if member is not None:
            self._evict(member, "is evicted alive")

    # -- its time

    @property
    def frozen(self) -> bool:
        return self.around.agenda.now_ms < self._frozen_until_ms

    @property
    def steady(self) -> bool:
        """It may be looked at: it lives, and is not in the middle of a step."""
        return self.processor is not None and not self.in_step

    def step_clock(self) -> None:
        self.around.counts["clock stepped"] += 1
        ms = self.around.chance.choice(WALL_STEPS_MS)
        self.around.tell(self.name, f"its wall clock steps by {ms} ms")
        self._time.step(ms)

    def mend_clock(self) -> None:
        """Someone sets the wall clock right."""
        self._time.step(-self._time.wall_off_ms)

    def freeze(self) -> None:
        """Between two steps."""
        ms = self.around.chance.randint(*self.around.chance.choice(FREEZES_MS))
        self._begin_freeze(ms, "between steps")

    def _begin_freeze(self, ms: int, where: str) -> None:
        around = self.around
        around.counts["frozen in a step" if self.in_step else "frozen"] += 1
        around.tell(self.name, f"is frozen for {ms} ms {where}")
        self._frozen_until_ms = around.agenda.now_ms + ms
        life, turns, member = self.lives, self._turns, self.member

        def look() -> None:
            # Inside another one's step it may have to stand still for longer than it was to.
            if member is not None and (self.lives, self._turns) == (life, turns):
                self._evict(member, "is silent for too long")

        around.agenda.after(SESSION_MS, look)

    def wake(self, in_ms: int) -> None:
        """A step at that time at the latest."""
        if self.processor is None:
            return
        when_ms = self.around.agenda.now_ms + in_ms
        if self._next_ms is not None and self._next_ms <= when_ms:
            return
        self._next_ms = when_ms
        life = self.lives
        self.around.agenda.after(in_ms, lambda: self._turn(life, when_ms))

    def _turn(self, life: int, when_ms: int) -> None:
        if life != self.lives or when_ms != self._next_ms or self.processor is None:
            return
        self._next_ms = None
        if self.in_step:  # and goes on when that ends
            return
        if self.frozen:
            self.wake(self._frozen_until_ms - self.around.agenda.now_ms)
            return
        zone_data.use(self.zone_data)
        self.in_step = True
        self._turns += 1
        try:
            self.processor.step(0)
        except (Crash, GivenUp) as error:
            self._die(f"{type(error).__name__} {error}")
            return
        finally:
            self.in_step = False
        if self._killed:
            self._die("killed")
            return
        self._look_at_transaction(self.processor)
        self.wake(self._pause_ms())

    def _look_at_transaction(self, processor: Processor) -> None:
        """What became of a transaction of unknown outcome is asked by ending it first: whoever restores
        partitions has none of its own open from one step to the next."""
        restoring = any(each.state is PartitionState.RESTORING for each in processor.ownership)
        open_ms = self.around.log.open_since_ms(f"{self.around.topics.namespace}.{self.name}.0")
        left_open_ms = open_ms if restoring else None
        if left_open_ms is not None and left_open_ms == self._left_open_ms:
            self.around.complain(f"{self.name}: waits for its own transaction, open since {open_ms}")
        self._left_open_ms = left_open_ms

    def _pause_ms(self) -> int:
        """How long until its next step if nothing comes."""
        processor, chance = self.processor, self.around.chance
        assert processor is not None
        for partition in processor.ownership:
            if partition.backlog or partition.more_due:
                return chance.randint(*BUSY_MS)
            if not partition.opened:
                return chance.randint(*RESTORING_MS)
        idle_ms = chance.randint(*IDLE_MS)
        timer_ms = processor.next_wakeup_ms()
        if timer_ms is None:
            return idle_ms
        return max(1, min(idle_ms, timer_ms - processor._ambient.clock.now_ms()))

    def _on_step(self, step: Step) -> None:
        around, chance = self.around, self.around.chance
        around.counts[_ANNOUNCED[step]] += 1
        if chance.random() < around.hazards.p_crash_at_step:
            around.counts[f"crash at {step.name.lower()}"] += 1
            raise Crash(f"at {step.name}")
        if around.frozen_in_step < FROZEN_AT_A_TIME and chance.random() < around.hazards.p_freeze_at_step:
            ms = chance.randint(*chance.choice(FREEZES_MS))
            self._begin_freeze(ms, f"at {step.name}")
            around.frozen_in_step += 1
            try:
                around.agenda.run_until(around.agenda.now_ms + ms)
            except Exception as error:
                # What others raise meanwhile must not look like a fault of this one's log.
                raise Elsewhere(repr(error)) from error
            finally:
                around.frozen_in_step -= 1
                zone_data.use(self.zone_data)
            around.tell(self.name, "goes on")
            if self._killed:
                raise Crash("killed while frozen")
