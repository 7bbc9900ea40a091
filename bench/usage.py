"""CPU and memory of the server's processes, as the kernel counts them (`/proc/<pid>/stat`, all threads)."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PARENT, _USER, _SYSTEM, _ENDED_USER, _ENDED_SYSTEM = 1, 11, 12, 13, 14
"""Where they stand behind the process's name; the last two are of children that ended."""
LOAD = "load"
"""This process: what makes the load."""


class Usage:
    """CPU seconds by process since the last question; a process that ended meanwhile counts as 0."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = dict(pids)
        self._before = self._now()

    def since(self) -> dict[str, float]:
        """CPU seconds by process since the last call."""
        now = self._now()
        used = {name: round(max(0.0, now[name] - self._before[name]), 2) for name in now}
        self._before = now
        return used

    def memory_mib(self) -> dict[str, float]:
        """Resident memory by process."""
        return {name: _resident_mib(pid) for name, pid in self._pids.items()}

    def _now(self) -> dict[str, float]:
        return {name: _cpu_seconds(pid) for name, pid in self._pids.items()} | {LOAD: time.process_time()}


def tree_cpu_seconds(pid: int) -> float:
    """CPU seconds of a process and all its children, those that ended included (one level: PostgreSQL)."""
    children = [
        int(folder.name)
        for folder in Path("/proc").iterdir()
        if folder.name.isdigit() and (fields := _stat(int(folder.name))) and int(fields[_PARENT]) == pid
    ]
    mine = _stat(pid)
    ended = (int(mine[_ENDED_USER]) + int(mine[_ENDED_SYSTEM])) / _TICKS if mine else 0.0
    return ended + sum(_cpu_seconds(each) for each in (pid, *children))


def _cpu_seconds(pid: int) -> float:
    fields = _stat(pid)
    return (int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS if fields else 0.0


def _stat(pid: int) -> list[str]:
    """What stands behind the process's name in its `stat`; nothing if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _resident_mib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    found = [line.split()[1] for line in lines if line.startswith("VmRSS")]
    return round(int(found[0]) / 1024, 1) if found else 0.0


def per_unit_us(seconds: Mapping[str, float], units: int) -> dict[str, float]:
    """CPU µs per unit, by process and of the server together (without what makes the load)."""
    each = {name: round(value * 1e6 / max(1, units), 1) for name, value in seconds.items()}
    server = sum(value for name, value in seconds.items() if name != LOAD)
    return each | {"server": round(server * 1e6 / max(1, units), 1)}
