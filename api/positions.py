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
_Write = tuple[int, float]
"""Offset, and when the caller was told."""
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
    """The newest writes acknowledged by this process, by tenant and by job."""

    def __init__(self) -> None:
        self._writes: dict[str, dict[int, _Write]] = {}
        # Young ones, and those before them: what is in neither is older than a read waits for.
        self._of_jobs: dict[tuple[str, str], dict[int, _Write]] = {}
        self._of_jobs_before: dict[tuple[str, str], dict[int, _Write]] = {}
        self._turned_at = time.monotonic()

    def note(self, tenant: str, partition: int, offset: int, job_ids: Iterable[str]) -> None:
        """The tenant was told that this position is written, by changes of these jobs."""
        if offset < 0:
            return
        now = time.monotonic()
        if now - self._turned_at > WAIT_SEC:
            self._of_jobs_before, self._of_jobs, self._turned_at = self._of_jobs, {}, now
        write = (offset, now)
        _newer(self._writes.setdefault(tenant, {}), partition, write)
        for job_id in job_ids:
            _newer(self._of_jobs.setdefault((tenant, job_id), {}), partition, write)
        if len(self._writes) > _TENANTS_MAX:
            self._forget_older_than(now - WAIT_SEC)

    def of(self, tenant: str, job_id: str = "") -> dict[int, int]:
        """What a read of the tenant should include; of one job, if the read is about that alone."""
        oldest = time.monotonic() - WAIT_SEC
        return {
            partition: offset
            for partition, (offset, at) in self._known(tenant, job_id).items()
            if at > oldest
        }

    def seen(self, tenant: str, job_id: str, positions: Mapping[int, int]) -> None:
        """The read model has these, which `of` gave."""
        mine = self._known(tenant, job_id)
        for partition, offset in positions.items():
            if partition in mine and mine[partition][0] <= offset:
                del mine[partition]

    def _known(self, tenant: str, job_id: str) -> dict[int, _Write]:
        if not job_id:
            return self._writes.get(tenant, {})
        key = (tenant, job_id)
        return self._of_jobs.get(key) or self._of_jobs_before.get(key, {})

    def _forget_older_than(self, oldest: float) -> None:
        for tenant in list(self._writes):
            if all(at <= oldest for _, at in self._writes[tenant].values()):
                del self._writes[tenant]


def _newer(writes: dict[int, _Write], partition: int, write: _Write) -> None:
    known = writes.get(partition)
    if known is None or known[0] < write[0]:
        writes[partition] = write
