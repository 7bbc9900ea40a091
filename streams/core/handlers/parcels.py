"""Grants on their way to askers: cut into replies that the broker takes, with what stays behind."""

from __future__ import annotations

from dataclasses import dataclass

from schemas import ids
from schemas.replies import Grant, Granted
from streams.core.effects import Answer
from streams.core.handlers.ordering import PoolOrder
from streams.core.limits import GRANT_REPLY_BYTES_MAX
from streams.core.parking import Asker
from streams.core.transaction import Transaction


def _size(grant: Grant) -> int:
    """Bytes of a grant in a reply, at most: a character takes up to four."""
    content, execution = grant.content, grant.execution
    chars = len(content.name) + len(content.task) + len(content.content_type)
    chars += len(execution.worker_id) + len(execution.claim_id) + len(execution.error)
    if content.labels:
        chars += sum(len(name) + len(value) for name, value in content.labels.items())
    return 1_536 + len(content.payload) + len(grant.progress) + len(execution.result) + 4 * chars


def parcels(grants: list[Grant]) -> list[tuple[Grant, ...]]:
    """The grants in parts that replies can hold; one part at least."""
    parts: list[list[Grant]] = [[]]
    size = 0
    for grant in grants:
        size += _size(grant)
        if parts[-1] and size > GRANT_REPLY_BYTES_MAX:
            parts.append([])
            size = _size(grant)
        parts[-1].append(grant)
    return [tuple(part) for part in parts]


@dataclass(slots=True)
class _Parcel:
    asker: Asker
    grants: list[Grant]
    size: int


class Outbox:
    """Collects the grants of a pool by session."""

    def __init__(self, tx: Transaction, pool_key: str, partition: int) -> None:
        self._tx = tx
        self._pool = ids.pool_of(pool_key)
        self._partition = partition
        self._parcels: dict[str, _Parcel] = {}

    def add(self, asker: Asker, grant: Grant, order: PoolOrder) -> None:
        size = _size(grant)
        parcel = self._parcels.get(asker.session)
        if parcel is None:
            parcel = self._parcels[asker.session] = _Parcel(asker, [], 0)
        if parcel.grants and parcel.size + size > GRANT_REPLY_BYTES_MAX:
            self._send(parcel, order, more=True)
            parcel.grants, parcel.size = [], 0
        parcel.grants.append(grant)
        parcel.size += size

    def flush(self, order: PoolOrder) -> list[Asker]:
        """Sends what is left; returns who got something although more waits."""
        for parcel in self._parcels.values():
            self._send(parcel, order, more=False)
        return [parcel.asker for parcel in self._parcels.values()] if order.waiting()[0] else []

    def _send(self, parcel: _Parcel, order: PoolOrder, *, more: bool) -> None:
        """The grant that a parcel is too full for is counted already."""
        asker = parcel.asker
        backlog, waiting = order.waiting()
        granted = Granted(
            session=asker.session,
            pool=self._pool,
            partition=self._partition,
            number=asker.number - more,
            grants=tuple(parcel.grants),
            backlog=backlog,
            seq=asker.seq,
            more=more,
            waiting=waiting,
            running=order.running,
        )
        self._tx.effects.append(Answer(asker.reply_partition, granted))
