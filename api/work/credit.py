"""Owns what one partition may still grant to the workers of one pool: a ledger of requests and answers.

A request is absolute and the newest replaces. But until the partition says that it has seen a request, an
older one may still be in force, so what it may grant to a worker is the greatest credit of all requests that
were not yet replaced for certain. Every grant that comes counts against each of them. Pure: no I/O, time is
passed in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from api.work.running import Running
from schemas.replies import Granted, Waiting, WorkHinted, WorkSeen

PARK_SEC = 10
"""How long a partition keeps credit without a word from us; also how long a dead process's credit lives."""
SLACK_SEC = 5.0
"""Beyond that: clocks, and a reply on its way. Later than this nothing of a request can take effect."""
SILENT_SEC = 4.0
"""A partition that owes an answer for so long has no owner; its credit is better placed elsewhere."""
FIRST_WORD_SEC = 0.5
"""The first word of a partition is awaited so long: without it nobody knows whose work waits there."""
NEVER = -1e9
RENEW_SEC = 5.0
RENEW_SILENT_SEC = 1.0
"""Asked more often while it is silent, so that work waits no longer than this once it has an owner again."""


class Offers:
    """What partitions may still grant to each worker, by worker and partition. `changed`: workers of which
    that changed since somebody looked."""

    def __init__(self) -> None:
        self._by_worker: dict[str, dict[int, int]] = {}
        self.changed: set[str] = set()
        self.total = 0

    def set(self, worker_id: str, partition: int, credit: int) -> None:
        """The newest word."""
        offers = self._by_worker.get(worker_id)
        before = offers.get(partition, 0) if offers else 0
        if credit == before:
            return
        self.total += credit - before
        self.changed.add(worker_id)
        if offers is None:
            offers = self._by_worker[worker_id] = {}
        if credit:
            offers[partition] = credit
        else:
            del offers[partition]
            if not offers:
                del self._by_worker[worker_id]

    def at(self, worker_id: str) -> dict[int, int]:
        """Credit of the worker by partition."""
        return self._by_worker.get(worker_id, {})

    def of(self, worker_id: str) -> int:
        """All of it."""
        return sum(self.at(worker_id).values())


@dataclass(frozen=True, slots=True)
class Report:
    """What a partition says of a pool with each of its replies (`schemas.replies.Granted`)."""

    backlog: int = 0
    waiting: tuple[Waiting, ...] = ()
    running: int = 0

    @staticmethod
    def of(reply: Granted | WorkHinted | WorkSeen) -> Report:
        return Report(reply.backlog, reply.waiting, reply.running)


@dataclass(slots=True)
class _Sent:
    """A request: its credit, less the grants that came since. `void_at`: when it is certain to have ended."""

    seq: int
    credit: dict[str, int]
    total: int
    void_at: float | None = None

    def use(self, worker_id: str, places: int) -> None:
        left = self.credit.get(worker_id, 0)
        if left > places:
            self.credit[worker_id] = left - places
            self.total -= places
        elif left:
            del self.credit[worker_id]
            self.total -= left

    def lapse(self, worker_id: str) -> None:
        self.total -= self.credit.pop(worker_id, 0)


@dataclass(slots=True, eq=False)
class Ledger:
    """One partition's side of a pool."""

    partition: int
    offers: Offers
    seq: int = 0
    number: int = 0
    """Grants of the partition that we have seen, as it counts them."""
    report: Report = field(default_factory=Report)
    """Its newest word."""
    allotted: dict[str, int] = field(default_factory=dict)
    """Credit placed here for the sake of a tenant and not used yet."""
    running: Running = field(default_factory=Running)
    """How many of each tenant run there."""
    wanting_since: float = 0.0
    """Since when it has work that nobody here was offered; 0: it has none."""
    sent_at: float = NEVER
    heard_at: float = NEVER
    owing_since: float | None = None
    """When the oldest request was sent that it has not answered."""
    running_max: int = 0
    """Its credit is to be used only while fewer run there; 0: no such bound."""
    claims: dict[str, str] = field(default_factory=dict)
    """Worker to claim, as in the newest request."""
    in_parts: set[str] = field(default_factory=set)
    """Workers of a pass of grants of which parts are still to come."""
    _sent: deque[_Sent] = field(default_factory=deque)

    def placed(self) -> dict[str, int]:
        """Credit of the newest request that was not used yet."""
        return self._sent[-1].credit if self._sent else {}

    @property
    def placed_total(self) -> int:
        return self._sent[-1].total if self._sent else 0

    def ceiling(self, worker_id: str) -> int:
        """The most it can still grant to the worker."""
        return self.offers.at(worker_id).get(self.partition, 0)

    def unconfirmed(self) -> int:
        """Credit that was called back, at most, and may still be used."""
        if len(self._sent) < 2:
            return 0
        most: dict[str, int] = {}
        for sent in self._sent:
            for worker_id, credit in sent.credit.items():
                most[worker_id] = max(most.get(worker_id, 0), credit)
        return sum(most.values()) - self.placed_total

    def usable(self) -> int:
        """How much credit it can use, as far as known."""
        if not self.running_max:
            return self.report.backlog
        return max(0, min(self.report.backlog, self.running_max - self.report.running))

    def holds_credit(self) -> bool:
        """Whether it can grant anything at all."""
        return any(sent.credit for sent in self._sent)

    def send(self, credit: dict[str, int], claims: dict[str, str], now: float) -> int:
        """A new request goes out; returns its number."""
        self.seq += 1
        self.sent_at = now
        if self.owing_since is None:
            self.owing_since = now
        self.claims = claims
        before = set(self.placed())
        self._sent.append(_Sent(self.seq, dict(credit), sum(credit.values())))
        self._recount(before | set(credit))
        return self.seq

    def delivered(self, seq: int, now: float) -> None:
        """The broker has the request (or never will): from now on its time runs."""
        for sent in self._sent:
            if sent.seq <= seq and sent.void_at is None:
                sent.void_at = now + PARK_SEC + SLACK_SEC

    def seen(self, seq: int, number: int, report: Report, now: float) -> None:
        """It has seen a request and sent all grants of earlier ones: those are replaced for certain."""
        while len(self._sent) > 1 and self._sent[0].seq < seq:
            self._recount(self._sent.popleft().credit)
        self.number = number
        if seq == self.seq:
            self.owing_since = None
        self._heard(report, now)

    def used(self, workers: Mapping[str, int], tenants: Mapping[str, int]) -> None:
        """Grants came: so many to each worker, so many of each tenant."""
        for sent in self._sent:
            for worker_id, count in workers.items():
                sent.use(worker_id, count)
        self.running.granted(tenants)
        for tenant, count in tenants.items():
            left = self.allotted.pop(tenant, 0) - count
            if left > 0:
                self.allotted[tenant] = left

    def granted(self, workers: Set[str], number: int, more: bool, report: Report, now: float) -> None:
        """A message of grants was taken in. At the end of a pass what its workers did not get has lapsed,
        also of requests that it has not seen yet: those were written without knowledge of the pass."""
        self.number = number
        self.in_parts |= workers
        passed = self.in_parts
        if not more:
            for sent in self._sent:
                for worker_id in passed:
                    sent.lapse(worker_id)
            self.in_parts = set()
        self._recount(passed)
        self._heard(report, now)

    def hinted(self, report: Report, now: float) -> None:
        """It has work, knows of our interest, and has no credit."""
        self._heard(report, now)

    def expire(self, now: float) -> bool:
        """Gives back the credit of requests that ended unanswered; whether anything changed."""
        changed = False
        while len(self._sent) > 1 and _is_void(self._sent[0], now):
            self._recount(self._sent.popleft().credit)
            changed = True
        if self._sent and _is_void(self._sent[-1], now) and self._sent[-1].credit:
            workers = list(self._sent[-1].credit)
            self._sent[-1].credit.clear()
            self._sent[-1].total = 0
            self._recount(workers)
            changed = True
        return changed

    def silent(self, now: float) -> bool:
        """Whether it seems to have no owner."""
        return self.owing_since is not None and now - self.owing_since > SILENT_SEC

    def first_word_until(self, now: float) -> float:
        """How long its first word is awaited."""
        if self.heard_at > NEVER:
            return NEVER
        return (now if self.owing_since is None else self.owing_since) + FIRST_WORD_SEC

    def renew_at(self, now: float) -> float:
        """When it should hear from us again."""
        return self.sent_at + (RENEW_SILENT_SEC if self.silent(now) else RENEW_SEC)

    def next_void_at(self) -> float | None:
        """When unanswered credit comes back, if any is out."""
        return min((s.void_at for s in self._sent if s.credit and s.void_at is not None), default=None)

    def _recount(self, workers: Iterable[str]) -> None:
        for worker_id in workers:
            most = max((sent.credit.get(worker_id, 0) for sent in self._sent), default=0)
            self.offers.set(worker_id, self.partition, most)

    def _heard(self, report: Report, now: float) -> None:
        self.heard_at = now
        if self.silent(now):
            self.owing_since = now  # it lives again; what it owes it owes from now on
        self.report = report
        if not report.backlog:
            self.wanting_since = 0.0
        elif not self.wanting_since:
            self.wanting_since = now
        self.running.told(report.waiting, report.running, now)
        if sum(self.allotted.values()) > self.placed_total:
            self.allotted.clear()


def _is_void(sent: _Sent, now: float) -> bool:
    return sent.void_at is not None and sent.void_at <= now
