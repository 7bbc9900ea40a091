"""Time buckets and the timer wheel: which entities to look at when.

The store keeps entries under `minute | lane | instant | keys`; they are hints, and the entity says what is
really due. A lane is a priority and tenant. What one transaction files in a lane for the same instant shares
entries: a herd falls due together, and what is decided together ends together. Entries of the next minute
also sit in memory, a bounded number a lane and minute. A pass gives the priorities their turns, 16 : 4 : 1,
and within one takes the lanes with due entries in turn, a bounded share of each, so that a million due
entries of one hold up nobody. An entry is never filed at or before the instant that passes have reached, so
nothing lands behind the scan; a finished minute is range-deleted, and scans start at persisted positions,
never in front of tombstones (littlehorse#1742, camunda#57571). Two streams: lease ends advance by their own
clock, since log lag is not death (architecture §5.9).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from itertools import chain

from streams.core import keys
from streams.core.keys import Lane
from streams.core.limits import WHEEL_AHEAD_MS, WHEEL_LANE_MAX
from streams.core.priorities import by_turn
from streams.store.overlay import Overlay

SHARE = 64
"""Timers a lane may have in turn before the next one's; an entry that was begun is finished."""
ENTRY_MAX = 16
"""Timers of one entry."""


class _Bucket:
    """Near entries of one lane in one minute: (filed, log keys). `more`: where further ones are stored."""

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
        self._buckets: dict[tuple[int, Lane], _Bucket] = {}
        self._tops: list[tuple[int, int, Lane]] = []  # (filed, minute, lane); may be out of date
        self._served: dict[str, str] = dict.fromkeys(keys.PRIORITIES, "")  # the lane whose turn was the last
        self._step = 0  # turns of priorities so far
        self._added: list[tuple[int, Lane, str]] = []
        self._filed: list[tuple[int, Lane, str]] = []
        self._loaded_to = 0  # first minute that is not in memory
        self._first = 0  # oldest minute that may have entries in the store

    def reload(self) -> None:
        """Forgets the wheel; it is filled again from the store (at start and after an abort)."""
        self._buckets.clear()
        self._tops.clear()
        self._added.clear()
        self._filed.clear()
        self._loaded_to = self._first = 0
        self._floor_ms = self._stored_floor()

    def _stored_floor(self) -> int:
        stored = self._kv.get(keys.scan_floor(self._stream))
        return int.from_bytes(stored, "big") if stored else 0

    def advance_floor(self, now_ms: int) -> None:
        """From here on nothing is filed at or before `now_ms`."""
        self._floor_ms = max(self._floor_ms, now_ms)

    def add(self, due_ms: int, lane: Lane, key: str) -> None:
        """Files a timer, with the others of its transaction."""
        filed = due_ms if due_ms > self._floor_ms else self._floor_ms + 1
        self._added.append((filed, lane, key))

    def savepoint(self) -> int:
        return len(self._added)

    def rollback(self, savepoint: int) -> None:
        del self._added[savepoint:]

    def write(self) -> None:
        """The end of the transaction: its timers become entries."""
        together: dict[tuple[int, Lane], dict[str, None]] = {}
        for filed, lane, key in self._added:
            together.setdefault((filed, lane), {})[key] = None
        self._added.clear()
        for (filed, lane), found in together.items():
            log_keys = list(found)
            for at in range(0, len(log_keys), ENTRY_MAX):
                entry = "\x00".join(log_keys[at : at + ENTRY_MAX])
                self._kv.put(keys.timer(self._stream, filed, lane, entry), b"")
                self._filed.append((filed, lane, entry))

    def written(self) -> None:
        """The transaction's entries are in the store: the near ones join the wheel."""
        for filed, lane, key in self._filed:
            minute = filed // keys.MINUTE_MS
            if minute >= self._loaded_to:
                continue
            bucket = self._buckets.setdefault((minute, lane), _Bucket())
            if bucket.more is not None and keys.timer(self._stream, filed, lane, key) >= bucket.more:
                continue
            heappush(bucket.heap, (filed, key))
            if bucket.heap[0] == (filed, key):
                heappush(self._tops, (filed, minute, lane))
            if len(bucket.heap) == 2 * WHEEL_LANE_MAX:
                self._cut(lane, bucket)
        self._filed.clear()

    def _cut(self, lane: Lane, bucket: _Bucket) -> None:
        """Leaves the later half to the store."""
        bucket.heap.sort()
        filed, key = bucket.heap[WHEEL_LANE_MAX]
        bucket.more = keys.timer(self._stream, filed, lane, key)
        del bucket.heap[WHEEL_LANE_MAX:]

    def next_ms(self) -> int | None:
        """The earliest entry in memory."""
        tops = self._tops
        while tops:
            filed, minute, lane = tops[0]
            bucket = self._buckets.get((minute, lane))
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
        """Log keys of due entries, lanes in turn, until there are `limit`: some more, since no entry is cut.
        Handled unless `reload` is called."""
        self.load_ahead(now_ms)
        taken: list[str] = []
        due = self._due_minutes(now_ms)
        turns = self._turns(due) if due else {}
        while turns and len(taken) < limit and (waiting := self._next_turn(turns)) is not None:
            lane = waiting.popleft()
            self._served[keys.priority_of_lane(lane)] = lane
            minutes = due[lane]
            if not self._take(minutes[0], lane, now_ms, min(SHARE, limit - len(taken)), taken):
                minutes.popleft()
            if minutes:
                waiting.append(lane)
        for lane in chain.from_iterable(turns.values()):
            for minute in due[lane]:
                heappush(self._tops, (self._buckets[minute, lane].heap[0][0], minute, lane))
        if taken:
            # Kept with the positions, so that a replay files nothing behind them either.
            self._kv.put(keys.scan_floor(self._stream), self._floor_ms.to_bytes(8, "big"))
        if now_ms // keys.MINUTE_MS > self._first:
            self._drop_finished_minutes(now_ms)
        return taken

    def _turns(self, due: Iterable[Lane]) -> dict[str, deque[Lane]]:
        """Lanes with due entries by priority, beginning behind the one that was served last."""
        turns: dict[str, deque[Lane]] = {priority: deque() for priority in keys.PRIORITIES}
        for lane in sorted(due, key=lambda lane: (lane <= self._served[keys.priority_of_lane(lane)], lane)):
            turns[keys.priority_of_lane(lane)].append(lane)
        return turns

    def _next_turn(self, turns: dict[str, deque[Lane]]) -> deque[Lane] | None:
        """The lanes of the priority whose turn it is, of those that have any. The round goes on over passes:
        one may be too short for all of it."""
        order = by_turn(self._step)
        self._step += 1
        return next((turns[priority] for priority in order if turns[priority]), None)

    def _due_minutes(self, now_ms: int) -> dict[Lane, deque[int]]:
        """Takes every bucket with a due top off the heap of tops: minutes by lane, the oldest first."""
        due: dict[Lane, dict[int, None]] = {}
        while (filed := self.next_ms()) is not None and filed <= now_ms:
            _, minute, lane = heappop(self._tops)
            due.setdefault(lane, {})[minute] = None
        return {lane: deque(minutes) for lane, minutes in due.items()}

    def _take(self, minute: int, lane: Lane, now_ms: int, share: int, taken: list[str]) -> bool:
        """One turn of a lane in one of its minutes; True if there is more due."""
        bucket = self._buckets[minute, lane]
        last = bucket.heap[0]
        enough = len(taken) + share
        while len(taken) < enough and bucket.heap and bucket.heap[0][0] <= now_ms:
            last = heappop(bucket.heap)
            taken += last[1].split("\x00")
            if not bucket.heap and bucket.more is not None:
                self._load_bucket(minute, lane, bucket, bucket.more, now_ms)
        handled = keys.timer(self._stream, last[0], lane, last[1])
        self._kv.put(keys.position(self._stream, minute, lane), handled)
        if not bucket.heap:
            del self._buckets[minute, lane]
            return False
        if bucket.heap[0][0] <= now_ms:
            return True
        heappush(self._tops, (bucket.heap[0][0], minute, lane))
        return False

    def _load_minute(self, minute: int, now_ms: int) -> None:
        at, end = keys.minute_prefix(self._stream, minute), keys.minute_prefix(self._stream, minute + 1)
        while (found := next(self._kv.scan(at, end), None)) is not None:
            lane = keys.split_timer(found[0])[0]
            position = self._kv.get(keys.position(self._stream, minute, lane))
            start = position + b"\x00" if position else keys.lane_prefix(self._stream, minute, lane)
            bucket = _Bucket()
            self._load_bucket(minute, lane, bucket, start, now_ms)
            if bucket.heap:
                self._buckets[minute, lane] = bucket
                heappush(self._tops, (bucket.heap[0][0], minute, lane))
            at = keys.after(keys.lane_prefix(self._stream, minute, lane))

    def _load_bucket(self, minute: int, lane: Lane, bucket: _Bucket, start: bytes, now_ms: int) -> None:
        """Of a minute that is over only a share: after an outage there are many of them."""
        bucket.more = None
        room = SHARE if minute < now_ms // keys.MINUTE_MS else WHEEL_LANE_MAX
        end = keys.after(keys.lane_prefix(self._stream, minute, lane))
        for key, _ in self._kv.scan(start, end):
            if len(bucket.heap) == room:
                bucket.more = key
                break
            _, filed, log_keys = keys.split_timer(key)
            bucket.heap.append((filed, log_keys))
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
