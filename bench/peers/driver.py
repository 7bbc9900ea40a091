"""Builds a peer's driver, runs it on a fresh PostgreSQL, and turns what it printed into figures.

A driver is called with URL, JOBS, RATE (0: all due at once) and LEAD_SEC (from its start to the first due
time) and prints one JSON object: see `Seen`. So all of them are judged in one way, here.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench import report
from bench.usage import tree_cpu_seconds
from bench.wire import Refused
from dev import jars
from dev.postgres import Cluster, temporary_cluster

HERE = Path(__file__).resolve().parent
BUILD_SEC = 900.0
HERD_PER_SEC, STEADY_PER_SEC = 1_000, 250
"""Registrations that every peer manages here, with room: in batches, and with a due time each."""
CALM_SEC = 5.0
WITHIN_SEC = 330.0
"""A driver gives up 300 s after the last due time."""


class Seen(msgspec.Struct, rename="camel"):
    """`last_ms`: when the last outcome was stored. `late_ms`: start - due of each job, None if it never ran;
    `runs` counts all starts. Unix milliseconds."""

    register_sec: float
    due_ms: int
    last_ms: int
    runs: int
    late_ms: list[int | None]


@dataclass(frozen=True, slots=True)
class Peer:
    """`command`: builds the driver if need be, and gives program and arguments. `url`: how it wants the
    database named. `share`: of the herd; a slow one would take all day."""

    name: str
    command: Callable[[], list[str]]
    url: Callable[[Cluster], str]
    share: float = 1.0

    def measure(self, jobs: int, rate: float) -> report.Figures:
        """One run on a fresh cluster. Raises Refused if the driver cannot be built or fails."""
        command = self.command()
        lead_sec = CALM_SEC + jobs / (STEADY_PER_SEC if rate else HERD_PER_SEC)
        with temporary_cluster() as cluster:
            before = _cpu_seconds(cluster)
            done = subprocess.run(
                [*command, self.url(cluster), str(jobs), str(rate), str(lead_sec)],
                stdout=subprocess.PIPE,
                timeout=lead_sec + (jobs / rate if rate else 0) + WITHIN_SEC,
                check=False,
            )
            after = _cpu_seconds(cluster)
        if done.returncode != 0:
            raise Refused(f"{self.name} ended with {done.returncode}")
        used = {name: after[name] - before[name] for name in before}
        return figures(msgspec.json.decode(done.stdout, type=Seen), used)


def figures(seen: Seen, cpu_seconds: Mapping[str, float]) -> report.Figures:
    """In the names that the scenarios of Horarium use."""
    jobs = len(seen.late_ms)
    late = [ms for ms in seen.late_ms if ms is not None]
    lost, twice, early = jobs - len(late), seen.runs - len(late), sum(ms < 0 for ms in late)
    return {
        "registeredPerSec": round(jobs / max(0.001, seen.register_sec)),
        "executionsPerSec": round(1000 * len(late) / max(1, seen.last_ms - seen.due_ms)),
        "receivedLateMs": report.spread(late),
        "cpuUsPerJob": {name: round(value * 1e6 / jobs, 1) for name, value in cpu_seconds.items()},
        "lost": lost,
        "acceptedTwice": twice,
        "early": early,
        report.VALID: lost == twice == early == 0,
    }


def _cpu_seconds(cluster: Cluster) -> dict[str, float]:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"database": tree_cpu_seconds(cluster.pid), "driver": ended.ru_utime + ended.ru_stime}


def _build(command: list[str], cwd: Path) -> None:
    if shutil.which(command[0]) is None:
        raise Refused(f"{command[0]} was not found; a peer's driver needs it")
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=BUILD_SEC, check=False)
    if done.returncode != 0:
        raise Refused(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


def _river() -> list[str]:
    program = jars.cache() / "peers" / "river"
    _build(["go", "build", "-buildvcs=false", "-o", str(program), "."], HERE / "river")
    return [str(program)]


def _db_scheduler() -> list[str]:
    source = HERE / "dbscheduler"
    classes = jars.fetched(source / "pom.xml", "peers-db-scheduler")
    return [jars.java(), "-Xmx512m", "-cp", f"{classes}/*", str(source / "Load.java")]


def _procrastinate() -> list[str]:
    source = HERE / "procrastinate"
    place = jars.cache() / "peers" / "procrastinate"
    python, lock, made_after = place / "bin" / "python", source / "requirements.lock", place / "made-after"
    if not made_after.exists() or made_after.read_bytes() != lock.read_bytes():
        _build([sys.executable, "-m", "venv", "--clear", str(place)], source)
        _build([str(python), "-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(lock)], source)
        shutil.copy(lock, made_after)
    return [str(python), str(source / "load.py")]


def _plain(cluster: Cluster) -> str:
    return f"postgresql://horarium@{cluster.host}:{cluster.port}/postgres?sslmode=disable"


def _jdbc(cluster: Cluster) -> str:
    return f"jdbc:postgresql://{cluster.host}:{cluster.port}/postgres?user=horarium"


PEERS = (
    Peer("river", _river, _plain),
    Peer("db-scheduler", _db_scheduler, _jdbc),
    Peer("procrastinate", _procrastinate, _plain, share=0.1),
)
