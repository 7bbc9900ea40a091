"""Time zone data of two versions, and which of them the process that runs now has.

Owns the newer data (made up: rules that change within a run) and the switch, which is thrown at each entry to
a process's code, since all processes of a run share an interpreter. `info` gives the same data to the
checkers by `zoneinfo`, which shares nothing with the product's own reading of them.
"""

from __future__ import annotations

import struct
from functools import cache, lru_cache
from io import BytesIO
from zoneinfo import ZoneInfo

from projections.checker.oracle import installed_zones
from streams.core import engine, planning, zones
from streams.core.handlers import pausing, registration, rezoning, scheduling
from streams.core.zones import Zone
from streams.runtime import status

INSTALLED = zones.TZ_VERSION
NEWER = "9999a"
_STAMPING = (zones, engine, pausing, registration, rezoning, scheduling, status)
_CHANGED_MIN = {"Europe/Berlin": 60, "Asia/Kolkata": 5 * 60 + 45}
"""By the newer data: minutes east of UTC, all year."""


def use(version: str) -> None:
    """From here on the product's code has these data."""
    for module in _STAMPING:
        setattr(module, "TZ_VERSION", version)  # noqa: B010 it is a constant to everybody else
    setattr(zones, "_load", _LOADS[version])  # noqa: B010
    setattr(planning, "_built", _BUILT[version])  # noqa: B010


def info(name: str, version: str) -> ZoneInfo | None:
    """For an oracle."""
    if version == NEWER and name in _CHANGED_MIN:
        return ZoneInfo.from_file(BytesIO(_fixed(_CHANGED_MIN[name])), key=name)
    return installed_zones(name, "" if version == NEWER else version)


def _fixed(minutes: int) -> bytes:
    """A TZif file (RFC 8536) of one offset."""
    block = b"TZif2" + bytes(15)
    block += struct.pack(">6l", 0, 0, 0, 0, 1, 4) + struct.pack(">lBB4s", minutes * 60, 0, 0, b"NEW\0")
    return block + block + f"\nNEW-{minutes // 60}:{minutes % 60:02d}\n".encode()


_load_installed = zones._load


@cache
def _load_newer(name: str) -> Zone:
    return Zone(name, _fixed(_CHANGED_MIN[name])) if name in _CHANGED_MIN else _load_installed(name)


_LOADS = {INSTALLED: _load_installed, NEWER: _load_newer}
_BUILT = {
    INSTALLED: planning._built,
    NEWER: lru_cache(maxsize=10_000)(planning._built.__wrapped__),
}
