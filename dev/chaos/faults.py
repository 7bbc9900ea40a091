"""The faults of the chaos: each breaks something, and mends it again before it returns.

What it breaks is drawn from the seed. What a fault returns is told in the timeline.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dev.broker import BrokerError, LocalKafka
from dev.chaos.stage import Stage
from dev.server import Part
from streams.ambient import Chance

SLOTS = 24
# Longer than the group's session (6 s) and the transactions' time-out (10 s).
FROZEN_SEC = 14.0
# Longer than the leases of the load.
WORKER_FROZEN_SEC = 9.0
API_FROZEN_SEC = 5.0
DOWN_SEC = 3.0
BROKER_SEC = 240.0
CLOCK_STEP_SEC = (-45, 45)
CLOCK_SEC = 6.0
FULL_SEC = 6.0
DISK_BYTES = 48 << 20
PROCESSORS = ("p0", "p1")
FAKETIME = (
    Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"),
    Path("/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1"),
)

Fault = Callable[[Stage, Chance], str]


def wait(seconds: float) -> None:
    """The fault lasts."""
    threading.Event().wait(seconds)


def kill_processor(stage: Stage, chance: Chance) -> str:
    return _kill_part(stage, chance.choice(PROCESSORS), chance.uniform(0, DOWN_SEC))


def kill_api(stage: Stage, chance: Chance) -> str:
    return _kill_part(stage, "api", chance.uniform(0, DOWN_SEC))


def kill_projections(stage: Stage, chance: Chance) -> str:
    return _kill_part(stage, "projections", chance.uniform(0, DOWN_SEC))


def kill_worker(stage: Stage, chance: Chance) -> str:
    """With everything that it runs; another one takes its place."""
    name = chance.choice(sorted(stage.workers))
    stage.kill_worker(name)
    wait(chance.uniform(0, DOWN_SEC))
    return f"kill -9 of worker {name}; {stage.start_worker(SLOTS)} in its place"


def freeze_processor(stage: Stage, chance: Chance) -> str:
    return _freeze_part(stage, chance.choice(PROCESSORS), FROZEN_SEC)


def freeze_api(stage: Stage, chance: Chance) -> str:
    return _freeze_part(stage, "api", API_FROZEN_SEC)


def freeze_worker(stage: Stage, chance: Chance) -> str:
    """It wakes up behind the end of its leases and goes on as if nothing had been."""
    name = chance.choice(sorted(stage.workers))
    with _frozen(stage.workers[name].pid):
        wait(WORKER_FROZEN_SEC)
    return f"worker {name} frozen for {WORKER_FROZEN_SEC:.0f} s, longer than its leases"


def kill_broker(stage: Stage, chance: Chance) -> str:
    """It leads a share of all partitions."""
    node = chance.choice(stage.brokers.nodes)
    node.kill()
    wait(chance.uniform(4, 8))
    _start(node)
    return f"kill -9 of broker {node.node_id}, started again"


def restart_brokers(stage: Stage, chance: Chance) -> str:
    for node in stage.brokers.nodes:
        node.kill()
    wait(1)
    _start(*stage.brokers.nodes)
    return "kill -9 of all brokers at once, started again"


def fill_disk(stage: Stage, chance: Chance) -> str:
    """The state folder of a processor is on a small file system, and that becomes full."""
    name = chance.choice(PROCESSORS)
    folder = stage.server.data_dir / "state" / name
    with _small_disk(stage, name, folder) as kind:
        filler = folder / "filler"
        with filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"\0" * (1 << 16))
            except OSError:
                pass
        wait(FULL_SEC)
        ended = not stage.server.parts[name].running
        filler.unlink()
        stage.until(lambda: stage.server.parts[name].running, f"{name} runs again")
    return f"the disk of {name} ({kind}) full for {FULL_SEC:.0f} s{', which ended it' if ended else ''}"


def step_clock(stage: Stage, chance: Chance) -> str:
    """The wall clock of a processor jumps, and jumps back; its monotonic clock goes on."""
    library = next((path for path in FAKETIME if path.exists()), None)
    if library is None:
        return "no clock was stepped: libfaketime is not installed"
    name, step_sec = chance.choice(PROCESSORS), chance.choice(CLOCK_STEP_SEC)
    part = stage.server.parts[name]
    clock = stage.folder / f"{name}.clock"
    clock.write_text("+0\n")
    plain = part.environment
    part.environment = {
        **plain,
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    stage.server.restart(name)
    wait(CLOCK_SEC)
    clock.write_text(f"{step_sec:+d}\n")
    wait(CLOCK_SEC)
    clock.write_text("+0\n")
    wait(CLOCK_SEC)
    part.environment = plain
    stage.server.restart(name)
    return f"the clock of {name} stepped by {step_sec:+d} s and back"


SHORT: tuple[Fault, ...] = (kill_processor, freeze_worker, kill_broker, kill_worker, kill_api)
ALL: tuple[Fault, ...] = (
    kill_processor,
    kill_api,
    kill_projections,
    kill_worker,
    freeze_processor,
    freeze_api,
    freeze_worker,
    kill_broker,
    restart_brokers,
    fill_disk,
    step_clock,
)


def _start(*nodes: LocalKafka) -> None:
    """A killed broker recovers its log first, which takes a busy machine minutes."""
    for node in nodes:
        node.launch()
    for node in nodes:
        if not node.wait_ready(BROKER_SEC):
            raise BrokerError(f"broker {node.node_id} did not start again; see {node.log}")


def _kill_part(stage: Stage, name: str, down_sec: float) -> str:
    stage.server.kill(name)
    wait(down_sec)
    stage.server.restart(name)
    return f"kill -9 of {name}, started again after {down_sec:.1f} s"


def _freeze_part(stage: Stage, name: str, seconds: float) -> str:
    with _frozen(_pid(stage.server.parts[name])):
        wait(seconds)
    return f"{name} frozen for {seconds:.0f} s"


def _pid(part: Part) -> int:
    if part.process is None:
        raise ValueError(f"{part.name} was never started")
    return part.process.pid


@contextmanager
def _frozen(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def _small_disk(stage: Stage, name: str, folder: Path) -> Iterator[str]:
    """The processor's state is on a small file system for a while, and lost before and after it."""
    stage.server.stop_part(name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    size = f"size={DISK_BYTES}"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        raise OSError(f"no small file system: {mounted.stderr.decode().strip()} (this fault needs root)")
    try:
        stage.server.restart(name)
        wait(FULL_SEC)
        yield "a tmpfs"
        stage.server.stop_part(name)
    finally:
        stage.server.kill(name)
        subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)
    stage.server.restart(name)


def possible() -> tuple[Fault, ...]:
    """Those that this machine allows; the rest is named on stderr."""
    left = []
    for fault in ALL:
        if fault is fill_disk and os.geteuid() != 0:
            print("fill_disk is left out: it mounts a tmpfs, which needs root", file=sys.stderr)
        elif fault is step_clock and not any(path.exists() for path in FAKETIME):
            print("step_clock is left out: libfaketime is not installed", file=sys.stderr)
        else:
            left.append(fault)
    return tuple(left)
