"""Owns `Horarium-Position`: what a read must have seen, and what this process wrote itself a moment ago.

A position that the caller brings is a promise: the read waits, or says 503. What this process acknowledged to
the tenant's callers is waited for as well, but only for as long after the write as a caller would: when
projections are down, reads go on with what there is.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping

from starlette.requests import Request

from api.problems import wrong

HEADER = "Horarium-Position"
WAIT_SEC = 2.0
_POSITIONS_MAX = 1_024
_TENANTS_MAX = 10_000
_POSITION = re.compile(r"\s*([0-9]{1,9}):([0-9]{1,18})\s*")


def sent(request: Request) -> dict[int, int]:
    """Partition to offset, as the caller brought them."""
    text = ",".join(request.headers.getlist(HEADER))
    if not text:
        return {}
    wanted: dict[int, int] = {}
    for part in text.split(",")[: _POSITIONS_MAX + 1]:
        match = _POSITION.fullmatch(part)
        if match is None or len(wanted) >= _POSITIONS_MAX:
            raise wrong(HEADER, "is <partition>:<offset>[,…], as an answer to a change gave it")
        wanted[int(match[1])] = max(int(match[2]), wanted.get(int(match[1]), -1))
    return wanted


def header(places: Iterable[tuple[int, int]]) -> dict[str, str]:
    """The header for an answer to changes; nothing if they wrote nothing."""
    newest: dict[int, int] = {}
    for partition, offset in places:
        if offset >= 0:
            newest[partition] = max(offset, newest.get(partition, -1))
    if not newest:
        return {}
    return {HEADER: ",".join(f"{partition}:{offset}" for partition, offset in sorted(newest.items()))}


class OwnWrites:
    """The newest writes acknowledged by this process, by tenant."""

    def __init__(self) -> None:
        self._writes: dict[str, dict[int, tuple[int, float]]] = {}

    def note(self, tenant: str, places: Iterable[tuple[int, int]]) -> None:
        """The tenant was told that these positions are written."""
        now = time.monotonic()
        for partition, offset in places:
            if offset >= 0:
                mine = self._writes.setdefault(tenant, {})
                known = mine.get(partition)
                if known is None or known[0] < offset:
                    mine[partition] = (offset, now)
        if len(self._writes) > _TENANTS_MAX:
            self._forget_older_than(now - WAIT_SEC)

    def of(self, tenant: str) -> dict[int, int]:
        """What a read of the tenant should include."""
        oldest = time.monotonic() - WAIT_SEC
        mine = self._writes.get(tenant, {})
        return {partition: offset for partition, (offset, at) in mine.items() if at > oldest}

    def seen(self, tenant: str, positions: Mapping[int, int]) -> None:
        """The read model has these."""
        mine = self._writes.get(tenant, {})
        for partition, offset in positions.items():
            if partition in mine and mine[partition][0] <= offset:
                del mine[partition]

    def _forget_older_than(self, oldest: float) -> None:
        for tenant in list(self._writes):
            if all(at <= oldest for _, at in self._writes[tenant].values()):
                del self._writes[tenant]
