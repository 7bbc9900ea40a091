"""Time buckets and the timer wheel: which entities to look at when.

The store keeps an entry per timer under `minute | tenant | instant | key`; it is a hint, and the entity says
what is really due. Entries of the next minute also sit in memory, a bounded number a tenant and minute.
A pass takes the tenants with due entries in turn, a bounded share of each, so that a million due entries of
one tenant hold up nobody. An entry is never filed at or before the instant that passes have reached, so
nothing lands behind the scan; a finished minute is range-deleted, and scans start at persisted positions,
never in front of tombstones (littlehorse#1742, camunda#57571). Two streams: lease ends advance by their own
clock, since log lag is not death (architecture §5.9).
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush

from streams.core import keys
from streams.core.limits import WHEEL_AHEAD_MS, WHEEL_TENANT_MAX
from streams.store.overlay import Overlay

SHARE = 64
"""Entries a tenant may have in turn before the next one's."""


class _Bucket:
    """Near entries of one tenant in one minute: (filed, log key). `more`: where further ones are stored."""

    __slots__ = ("heap", "more")

    def __init__(self) -> None:
        self.heap: list[tuple[int, str]] = []
        self.more: bytes | None = None


class TimeBuckets:
    """One stream of timers of a partition."""

    def __init__(self, kv: Overlay, stream: bytes) -> None:
        self._kv = kv
        self._stream = stream
        self._floor_ms = self._stored_floor()
        self._buckets: dict[tuple[int, str], _Bucket] = {}
        self._tops: list[tuple[int, int, str]] = []  # (filed, minute, tenant); may be out of date
        self._served = ""  # the tenant whose turn was the last
        self._added: list[tuple[int, str, str]] = []
        self._loaded_to = 0  # first minute that is not in memory
        self._first = 0  # oldest minute that may have entries in the store

    def reload(self) -> None:
        """Forgets the wheel; it is filled again from the store (at start and after an abort)."""
        self._buckets.clear()
        self._tops.clear()
        self._added.clear()
        self._loaded_to = self._first = 0
        self._floor_ms = self._stored_floor()

    def _stored_floor(self) -> int:
        stored = self._kv.get(keys.scan_floor(self._stream))
        return int.from_bytes(stored, "big") if stored else 0

    def advance_floor(self, now_ms: int) -> None:
        """From here on nothing is filed at or before `now_ms`."""
        self._floor_ms = max(self._floor_ms, now_ms)

    def add(self, due_ms: int, tenant: str, key: str) -> None:
        """Files a timer."""
        filed = max(due_ms, self._floor_ms + 1)
        self._kv.put(keys.timer(self._stream, filed, tenant, key), b"")
        self._added.append((filed, tenant, key))

    def savepoint(self) -> int:
        return len(self._added)

    def rollback(self, savepoint: int) -> None:
        del self._added[savepoint:]

    def written(self) -> None:
        """The transaction's entries are in the store: the near ones join the wheel."""
        for filed, tenant, key in self._added:
            minute = filed // keys.MINUTE_MS
            if minute >= self._loaded_to:
                continue
            bucket = self._buckets.setdefault((minute, tenant), _Bucket())
            if bucket.more is not None and keys.timer(self._stream, filed, tenant, key) >= bucket.more:
                continue
            heappush(bucket.heap, (filed, key))
            if bucket.heap[0] == (filed, key):
                heappush(self._tops, (filed, minute, tenant))
            if len(bucket.heap) == 2 * WHEEL_TENANT_MAX:
                self._cut(tenant, bucket)
        self._added.clear()

    def _cut(self, tenant: str, bucket: _Bucket) -> None:
        """Leaves the later half to the store."""
        bucket.heap.sort()
        filed, key = bucket.heap[WHEEL_TENANT_MAX]
        bucket.more = keys.timer(self._stream, filed, tenant, key)
        del bucket.heap[WHEEL_TENANT_MAX:]

    def next_ms(self) -> int | None:
        """The earliest entry in memory."""
        tops = self._tops
        while tops:
            filed, minute, tenant = tops[0]
            bucket = self._buckets.get((minute, tenant))
            if bucket is not None and bucket.heap and bucket.heap[0][0] == filed:
                return filed
            heappop(tops)
        return None

    def load_ahead(self, now_ms: int) -> None:
        """Brings the entries of the next minute into memory; costs one seek a minute when there are none."""
        horizon = (now_ms + WHEEL_AHEAD_MS) // keys.MINUTE_MS
        while self._loaded_to <= horizon:
            start = keys.minute_prefix(self._stream, self._loaded_to)
            first = next(self._kv.scan(start, keys.after(b"t" + self._stream)), None)
            minute = horizon + 1 if first is None else keys.minute_of(first[0])
            if minute <= horizon:
                self._load_minute(minute, now_ms)
                minute += 1
            self._loaded_to = min(minute, horizon + 1)

    def pop(self, now_ms: int, limit: int) -> list[str]:
        """Log keys of due entries, at most `limit`, tenants in turn. Handled unless `reload` is called."""
        self.load_ahead(now_ms)
        taken: list[str] = []
        due = self._due_minutes(now_ms)
        turns = deque(sorted(due, key=lambda tenant: (tenant <= self._served, tenant)))
        while turns and len(taken) < limit:
            tenant = self._served = turns.popleft()
            minutes = due[tenant]
            if not self._take(minutes[0], tenant, now_ms, min(SHARE, limit - len(taken)), taken):
                minutes.popleft()
            if minutes:
                turns.append(tenant)
        for tenant in turns:
            for minute in due[tenant]:
                heappush(self._tops, (self._buckets[minute, tenant].heap[0][0], minute, tenant))
        if taken:
            # Kept with the positions, so that a replay files nothing behind them either.
            self._kv.put(keys.scan_floor(self._stream), self._floor_ms.to_bytes(8, "big"))
        if now_ms // keys.MINUTE_MS > self._first:
            self._drop_finished_minutes(now_ms)
        return taken

    def _due_minutes(self, now_ms: int) -> dict[str, deque[int]]:
        """Takes every bucket with a due top off the heap of tops: minutes by tenant, the oldest first."""
        due: dict[str, dict[int, None]] = {}
        while (filed := self.next_ms()) is not None and filed <= now_ms:
            _, minute, tenant = heappop(self._tops)
            due.setdefault(tenant, {})[minute] = None
        return {tenant: deque(minutes) for tenant, minutes in due.items()}

    def _take(self, minute: int, tenant: str, now_ms: int, share: int, taken: list[str]) -> bool:
        """One turn of a tenant in one of its minutes; True if there is more due."""
        bucket = self._buckets[minute, tenant]
        last = bucket.heap[0]
        while share and bucket.heap and bucket.heap[0][0] <= now_ms:
            last = heappop(bucket.heap)
            taken.append(last[1])
            share -= 1
            if not bucket.heap and bucket.more is not None:
                self._load_bucket(minute, tenant, bucket, bucket.more, now_ms)
        handled = keys.timer(self._stream, last[0], tenant, last[1])
        self._kv.put(keys.position(self._stream, minute, tenant), handled)
        if not bucket.heap:
            del self._buckets[minute, tenant]
            return False
        if bucket.heap[0][0] <= now_ms:
            return True
        heappush(self._tops, (bucket.heap[0][0], minute, tenant))
        return False

    def _load_minute(self, minute: int, now_ms: int) -> None:
        at, end = keys.minute_prefix(self._stream, minute), keys.minute_prefix(self._stream, minute + 1)
        while (found := next(self._kv.scan(at, end), None)) is not None:
            tenant = keys.split_timer(found[0])[0]
            position = self._kv.get(keys.position(self._stream, minute, tenant))
            start = position + b"\x00" if position else keys.tenant_prefix(self._stream, minute, tenant)
            bucket = _Bucket()
            self._load_bucket(minute, tenant, bucket, start, now_ms)
            if bucket.heap:
                self._buckets[minute, tenant] = bucket
                heappush(self._tops, (bucket.heap[0][0], minute, tenant))
            at = keys.after(keys.tenant_prefix(self._stream, minute, tenant))

    def _load_bucket(self, minute: int, tenant: str, bucket: _Bucket, start: bytes, now_ms: int) -> None:
        """Of a minute that is over only a share: after an outage there are many of them."""
        bucket.more = None
        room = SHARE if minute < now_ms // keys.MINUTE_MS else WHEEL_TENANT_MAX
        end = keys.after(keys.tenant_prefix(self._stream, minute, tenant))
        for key, _ in self._kv.scan(start, end):
            if len(bucket.heap) == room:
                bucket.more = key
                break
            _, filed, entity_key = keys.split_timer(key)
            bucket.heap.append((filed, entity_key))
        heapify(bucket.heap)

    def _drop_finished_minutes(self, now_ms: int) -> None:
        """Range-deletes the minutes before now's in which nothing is left."""
        oldest = min((minute for minute, _ in self._buckets), default=self._loaded_to)
        finished = min(oldest, now_ms // keys.MINUTE_MS)
        if finished > self._first:
            s = self._stream
            self._kv.delete_range(keys.minute_prefix(s, self._first), keys.minute_prefix(s, finished))
            self._kv.delete_range(keys.positions_from(s, self._first), keys.positions_from(s, finished))
            self._first = finished
