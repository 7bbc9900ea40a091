"""Owns what one partition may still grant to the workers of one pool: a ledger of requests and answers.

A request is absolute and the newest replaces. But until the partition says that it has seen a request, an
older one may still be in force, so what it may grant to a worker is the greatest credit of all requests that
were not yet replaced for certain. Every grant that comes counts against each of them. Pure: no I/O, time is
passed in.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

PARK_SEC = 10
"""How long a partition keeps credit without a word from us; also how long a dead process's credit lives."""
SLACK_SEC = 5.0
"""Beyond that: clocks, and a reply on its way. Later than this nothing of a request can take effect."""
SILENT_SEC = 4.0
"""A partition that owes an answer for so long has no owner; its credit is better placed elsewhere."""
RENEW_SEC = 5.0
RENEW_SILENT_SEC = 1.0
"""Asked more often while it is silent, so that work waits no longer than this once it has an owner again."""


@dataclass(slots=True)
class _Sent:
    """A request: its credit, less the grants that came since. `void_at`: when it is certain to have ended."""

    seq: int
    credit: dict[str, int]
    void_at: float | None = None


@dataclass(slots=True)
class Ledger:
    """One partition's side of a pool."""

    partition: int
    seq: int = 0
    number: int = 0
    """Grants of the partition that we have seen, as it counts them."""
    backlog: int = 0
    """Pending executions that stay behind, by its newest word."""
    wanting_since: float = 0.0
    """Since when it has work that nobody here was offered; 0: it has none."""
    sent_at: float = -1e9
    heard_at: float = -1e9
    owing_since: float | None = None
    """When the oldest request was sent that it has not answered."""
    claims: dict[str, str] = field(default_factory=dict)
    """Worker to claim, as in the newest request."""
    in_parts: set[str] = field(default_factory=set)
    """Workers of a pass of grants of which parts are still to come."""
    _sent: deque[_Sent] = field(default_factory=deque)

    def placed(self) -> dict[str, int]:
        """Credit of the newest request that was not used yet."""
        return self._sent[-1].credit if self._sent else {}

    def ceiling(self, worker_id: str) -> int:
        """The most it can still grant to the worker."""
        return max((sent.credit.get(worker_id, 0) for sent in self._sent), default=0)

    def ceilings(self) -> dict[str, int]:
        """The same for every worker with any."""
        if len(self._sent) == 1:
            return self._sent[0].credit
        most: dict[str, int] = {}
        for sent in self._sent:
            for worker_id, credit in sent.credit.items():
                most[worker_id] = max(most.get(worker_id, 0), credit)
        return most

    def send(self, credit: dict[str, int], claims: dict[str, str], now: float) -> int:
        """A new request goes out; returns its number."""
        self.seq += 1
        self.sent_at = now
        if self.owing_since is None:
            self.owing_since = now
        self.claims = claims
        self._sent.append(_Sent(self.seq, credit))
        return self.seq

    def delivered(self, seq: int, now: float) -> None:
        """The broker has the request (or never will): from now on its time runs."""
        for sent in self._sent:
            if sent.seq <= seq and sent.void_at is None:
                sent.void_at = now + PARK_SEC + SLACK_SEC

    def seen(self, seq: int, number: int, backlog: int, now: float) -> None:
        """It has seen a request and sent all grants of earlier ones: those are replaced for certain."""
        while len(self._sent) > 1 and self._sent[0].seq < seq:
            self._sent.popleft()
        self.number = number
        if seq == self.seq:
            self.owing_since = None
        self._heard(backlog, now)

    def granted(self, worker_id: str) -> None:
        """One grant came."""
        for sent in self._sent:
            left = sent.credit.get(worker_id, 0) - 1
            if left > 0:
                sent.credit[worker_id] = left
            else:
                sent.credit.pop(worker_id, None)

    def granted_all(
        self, workers: set[str], number: int, seq: int, more: bool, backlog: int, now: float
    ) -> None:
        """A message of grants was taken in. At the end of a pass what its workers did not get has lapsed, as
        far as it was offered by the request that was granted under or an older one."""
        self.number = number
        self.in_parts |= workers
        if not more:
            for sent in self._sent:
                if sent.seq <= seq:
                    for worker_id in self.in_parts:
                        sent.credit.pop(worker_id, None)
            self.in_parts = set()
        self._heard(backlog, now)

    def hinted(self, backlog: int, now: float) -> None:
        """It has work, knows of our interest, and has no credit."""
        self._heard(backlog, now)

    def expire(self, now: float) -> bool:
        """Gives back the credit of requests that ended unanswered; whether anything changed."""
        before = len(self._sent)
        while len(self._sent) > 1 and _is_void(self._sent[0], now):
            self._sent.popleft()
        changed = before != len(self._sent)
        if self._sent and _is_void(self._sent[-1], now) and self._sent[-1].credit:
            self._sent[-1].credit.clear()
            changed = True
        return changed

    def silent(self, now: float) -> bool:
        """Whether it seems to have no owner."""
        return self.owing_since is not None and now - self.owing_since > SILENT_SEC

    def renew_at(self, now: float) -> float:
        """When it should hear from us again."""
        return self.sent_at + (RENEW_SILENT_SEC if self.silent(now) else RENEW_SEC)

    def next_void_at(self) -> float | None:
        """When unanswered credit comes back, if any is out."""
        return min((s.void_at for s in self._sent if s.credit and s.void_at is not None), default=None)

    def _heard(self, backlog: int, now: float) -> None:
        self.heard_at = now
        if self.silent(now):
            self.owing_since = now  # it lives again; what it owes it owes from now on
        self.backlog = backlog
        if not backlog:
            self.wanting_since = 0.0
        elif not self.wanting_since:
            self.wanting_since = now


def _is_void(sent: _Sent, now: float) -> bool:
    return sent.void_at is not None and sent.void_at <= now
