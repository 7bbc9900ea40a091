"""Processors on a real broker: crashes at each commit step, take-overs, zombies, several processes."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from schemas import codec
from streams.ambient import Chance, Clock, monotonic_ms, wall_ms
from streams.config import ProcessorSettings
from streams.runtime.background import Background, Slices, Threads
from streams.runtime.checkpoint import Step
from streams.runtime.partition import Ambient
from streams.runtime.processor import Processor
from streams.runtime.telemetry import Telemetry
from streams.runtime.wiring import build
from streams.store.memory import MemoryFolder
from streams.transport.kafka.log import KafkaLog
from streams.transport.kafka.writers import KafkaTransactionalWriter
from streams.transport.log import TopicPartition
from tests.integration.runtime_real import END_SEC, Real, installation

pytestmark = pytest.mark.kafka

# What a take-over costs at most on a busy machine: the session (6 s), the rebalance, 500 ms of patience.
TAKE_OVER_SEC = 40.0
QUICK = (Step.SENT, Step.OFFSETS_SENT, Step.COMMITTED)
STEPS = [pytest.param(step, marks=() if step in QUICK else pytest.mark.slow, id=step.name) for step in Step]


def settle(world: Real, command: str) -> None:
    """The command's effect is in the log; its asker repeats it if no answer came (idempotent)."""
    world.until(lambda: "JobRegistered" in world.types(), TAKE_OVER_SEC)
    assert command


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_a_commit_step_nothing_is_lost_or_doubled(
    step: Step, kafka: str, namespace: str, tmp_path: Path
) -> None:
    """The predecessor dies for good; another instance without any local state takes over."""
    with installation(kafka, namespace, tmp_path) as world:
        child = world.start("p0", crash_at=step)
        world.until_owned_by("p0")
        world.armed.touch()
        command = world.register("job-1", delay_sec=0)
        assert child.wait(END_SEC) == -signal.SIGKILL
        died = time.monotonic()
        world.start("p1")
        settle(world, command)
        took = time.monotonic() - died
        world.until(lambda: "ExecutionFired" in world.types())
        world.request()
        world.until(lambda: len(world.grants()) == 1)
        world.stop("p1")
        assert world.types().count("JobRegistered") == 1
        assert world.types().count("ExecutionFired") == 1
        assert world.stored_digest("p1", 0) == world.replayed_digest()
        assert took < TAKE_OVER_SEC


def test_a_restart_with_and_without_its_folder_gives_the_same_state(
    kafka: str, namespace: str, tmp_path: Path
) -> None:
    with installation(kafka, namespace, tmp_path) as world:
        world.start("p0")
        world.until_owned_by("p0")
        for number in range(50):
            last = world.register(f"job-{number}", delay_sec=1)
        world.until(lambda: world.answer(last) is not None)
        # All are due first: what a pass cannot fill of a request lapses.
        world.until(lambda: world.types().count("ExecutionFired") == 50)
        world.request(credit=20)
        world.until(lambda: world.types().count("ExecutionClaimed") == 20)
        world.stop("p0")
        kept = world.stored_digest("p0", 0)
        assert kept == world.replayed_digest()
        before = len(world.events())
        world.start("p0", data="elsewhere")
        world.until(lambda: world.log_of("p0").read_text().count("partition runs") == 2)
        world.stop("p0")
        assert len(world.events()) == before
        assert world.stored_digest("p0", 0, data="elsewhere") == kept


def test_several_processes_share_partitions_and_hand_them_over(
    kafka: str, namespace: str, tmp_path: Path
) -> None:
    """Adding, stopping and killing one moves partitions; every job fires once."""
    with installation(kafka, namespace, tmp_path, partitions=4) as world:
        world.shards = {"acme": 4}
        world.start("p0")
        world.until_owned_by("p0")
        names = [f"job-{number}" for number in range(120)]

        def register(part: list[str]) -> None:
            for name in part:
                world.register(name, delay_sec=1)

        register(names[:30])
        world.start("p1")
        register(names[30:60])
        world.until_owned_by("p0", "p1")
        register(names[60:90])
        world.stop("p1")
        world.until_owned_by("p0")
        world.start("p2")
        world.until_owned_by("p0", "p2")
        world.children["p0"].kill()
        died = time.monotonic()
        register(names[90:])
        world.until_owned_by("p2")
        took = time.monotonic() - died
        world.until(lambda: fired(world) == sorted(names))
        for number in range(4):
            assert all(kind != "Forgotten" for kind in world.types(number))
        assert took < TAKE_OVER_SEC
        world.stop("p2")
        for number in range(4):
            assert world.stored_digest("p2", number) == world.replayed_digest(number)


def fired(world: Real) -> list[str]:
    return sorted(
        execution.job_id
        for number in range(world.partitions)
        for kind, execution in world.executions(number)
        if kind == "ExecutionFired"
    )


def in_process(
    world: Real,
    name: str,
    log: KafkaLog,
    clock: Clock | None = None,
    background: Callable[[], Background] = Slices,
) -> tuple[Processor, dict[Step, list[object]]]:
    hooks: dict[Step, list[object]] = {}

    def on_step(step: Step) -> None:
        for hook in hooks.pop(step, []):
            hook()  # type: ignore[operator]

    settings = ProcessorSettings(
        kafka=world.bootstrap,
        namespace=world.namespace,
        partitions=world.partitions,
        instance=name,
        dev_shards=world.shards,
    )
    times = Ambient(clock or Clock(), monotonic_ms, Chance(1).random)
    processor = build(settings, log, MemoryFolder(), times, Telemetry(), on_step, background=background)
    return processor, hooks


def test_rule_1_and_2_a_zombie_is_refused_by_the_broker(kafka: str, namespace: str, tmp_path: Path) -> None:
    """It stood still between poll and commit until the group gave its partition away; only a timer is due."""
    with installation(kafka, namespace, tmp_path) as world:
        stalls = KafkaLog(kafka, member_settings={"max.poll.interval.ms": 6_000, "session.timeout.ms": 6_000})
        zombie, hooks = in_process(world, "zombie", stalls)
        successor, _ = in_process(world, "successor", KafkaLog(kafka))
        step_until(lambda: len(zombie.ownership.running()) == 1, zombie)
        command = world.register("job-1", delay_sec=1)
        step_until(lambda: world.answer(command) is not None, zombie)

        def moved() -> None:
            step_until(lambda: "ExecutionFired" in world.types(), successor)

        hooks[Step.DECIDED] = [moved]
        step_until(lambda: not hooks, zombie)
        step_until(lambda: not len(zombie.ownership), zombie, successor)
        assert world.types().count("ExecutionFired") == 1
        zombie.stop()
        successor.stop()


def step_until(condition: object, *processors: Processor, timeout_sec: float = END_SEC) -> None:
    deadline = time.monotonic() + timeout_sec
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it did not come true"
        for processor in processors:
            processor.step()


class Held(KafkaLog):
    """Lets nobody have the id of a dead one until `gate` is set, and notes on which threads it is asked for
    what a take-over has to wait for."""

    def __init__(self, bootstrap: str, dead_id: str) -> None:
        super().__init__(bootstrap)
        self.asked = threading.Event()
        self.gate = threading.Event()
        self.threads: set[threading.Thread] = set()
        self._dead_id = dead_id

    def transactional_writer(self, transactional_id: str) -> KafkaTransactionalWriter:
        if transactional_id == self._dead_id:
            self.threads.add(threading.current_thread())
            self.asked.set()
            assert self.gate.wait(END_SEC)
        return super().transactional_writer(transactional_id)

    def committed(self, group: str, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        self.threads.add(threading.current_thread())
        return super().committed(group, tps)


def test_partitions_that_run_go_on_while_a_dead_ones_transaction_is_ended(
    kafka: str, namespace: str, tmp_path: Path
) -> None:
    """It is killed when events and offsets are sent and not committed."""
    with installation(kafka, namespace, tmp_path, partitions=4) as world:
        world.shards = {"acme": 4}
        log = Held(kafka, f"{namespace}.p1.0")
        survivor, _ = in_process(world, "p0", log, background=Threads)
        child = world.start("p1", crash_at=Step.OFFSETS_SENT)
        step_until(lambda: sorted(world.owners().values()) == ["p0", "p0", "p1", "p1"], survivor)
        owners = world.owners()
        names = {world.where(name): name for name in (f"job-{number}" for number in range(100))}
        world.armed.touch()
        for number in owners:
            if owners[number] == "p1":
                world.register(names[number])
        step_until(lambda: child.poll() is not None, survivor)
        assert child.returncode == -signal.SIGKILL
        step_until(log.asked.is_set, survivor)
        # Nothing of the dead one can be known until the gate opens; this here must not wait for that.
        command = world.register(next(names[number] for number in owners if owners[number] == "p0"))
        step_until(lambda: world.answer(command) is not None, survivor)
        log.gate.set()
        step_until(lambda: len(survivor.ownership.running()) == 4, survivor)
        lost = [number for number in owners if owners[number] == "p1"]
        step_until(lambda: all("JobRegistered" in world.types(number) for number in lost), survivor)
        assert all(world.types(number).count("JobRegistered") == 1 for number in lost)
        assert threading.current_thread() not in log.threads
        survivor.stop()


def test_rule_9_a_beat_that_waited_in_the_log_is_in_time(kafka: str, namespace: str, tmp_path: Path) -> None:
    """Its owner is killed before it can read the beat; its successor comes after the lease's end."""
    with installation(kafka, namespace, tmp_path) as world:
        child = world.start("p0")
        world.until_owned_by("p0")
        world.register("job-1", delay_sec=0, lease_sec=6)
        world.request()
        world.until(lambda: len(world.grants()) == 1)
        (grant,) = world.grants()
        child.kill()
        for _ in range(600):
            world.request(credit=0)
        beat_ms = Clock().now_ms()
        world.beat(grant.execution)
        assert beat_ms < grant.execution.lease_until_ms
        world.until(lambda: Clock().now_ms() > grant.execution.lease_until_ms)
        world.start("p1")
        world.until(lambda: "LeaseExtended" in world.types(), TAKE_OVER_SEC)
        kinds = world.types()
        assert "LeaseExpired" not in kinds[: kinds.index("LeaseExtended")]


def test_rule_10_a_process_that_starts_with_its_clock_ahead_fires_nothing_early(
    kafka: str, namespace: str, tmp_path: Path
) -> None:
    """An hour ahead it takes no partition, although it is alone, until the clock is set right."""
    with installation(kafka, namespace, tmp_path, partitions=2) as world:
        world.shards = {"acme": 2}
        off_ms = [3_600_000]
        clock = Clock(lambda: wall_ms() + off_ms[0], monotonic_ms)
        ahead, _ = in_process(world, "ahead", KafkaLog(kafka), clock)
        for number in range(10):
            world.register(f"later-{number}", delay_sec=1_800)
            world.register(f"soon-{number}", delay_sec=1)
        # The first answer may be slow, and tells no more than how slow it was; more of them follow.
        hour_ahead = pytest.approx(3_600_000, abs=1_000)
        step_until(lambda: clock.bounded() and clock.offset_from_brokers_ms() == hour_ahead, ahead)
        right, _ = in_process(world, "right", KafkaLog(kafka))
        step_until(lambda: len(fired(world)) == 10, ahead, right)
        assert not len(ahead.ownership)
        assert all(name.startswith("soon-") for name in fired(world))
        off_ms[0] = 0
        step_until(lambda: len(ahead.ownership.running()) == 1, ahead, right)
        assert clock.now_ms() == pytest.approx(wall_ms(), abs=1_000)
        assert len(fired(world)) == 10
        ahead.stop()
        right.stop()


def test_str_023_a_second_process_on_one_folder_ends_and_touches_nothing(
    kafka: str, namespace: str, tmp_path: Path
) -> None:
    with installation(kafka, namespace, tmp_path) as world:
        world.start("p0")
        world.until_owned_by("p0")
        first = world.children.pop("p0")
        second = world.start("p0")
        assert second.wait(END_SEC) != 0
        text = world.log_of("p0").read_text()
        assert f"state folder {tmp_path / 'data' / 'state' / 'p0'} is held by p0 (pid {first.pid})" in text
        world.children["p0"] = first
        command = world.register("job-1")
        world.until(lambda: world.answer(command) is not None)


def test_another_partition_count_is_refused(kafka: str, namespace: str, tmp_path: Path) -> None:
    with installation(kafka, namespace, tmp_path, partitions=2) as world:
        world.partitions = 3
        child = world.start("p0")
        assert child.wait(END_SEC) == 2
        assert "has 2 partitions and HORARIUM_PARTITIONS is 3" in world.log_of("p0").read_text()


def test_what_is_decided_is_decoded_by_everyone(kafka: str, namespace: str, tmp_path: Path) -> None:
    """STR-015 on a broker: junk goes to quarantine, what follows is applied."""
    with installation(kafka, namespace, tmp_path) as world:
        world.start("p0")
        world.until_owned_by("p0")
        first = world.register("job-1")
        junk = bytes.fromhex("000000002affff")
        world.send(world.topics.commands, 0, junk)
        second = world.cancel("job-1")
        world.until(lambda: world.answer(second) is not None)
        assert world.answer(first) is not None
        (record,) = world.read(world.topics.quarantine)
        assert (record.value, record.headers["offset"]) == (junk, b"1")
        assert codec.decode(world.events()[0].value or b"")
