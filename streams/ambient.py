"""Time, chance and new ids: the only module that may read them. Everyone else is handed values.

Owns what a process takes for "now" (`Clock`, architecture §5.10). May not know Kafka or what time is used
for. Readers of wall and monotonic time are injected, so the clock is tested in virtual time.
"""

from __future__ import annotations

import random  # noqa: TID251 this is the one place
import time
import uuid
from collections.abc import Callable

Chance = random.Random

# Wall and monotonic time are read one after the other; less than this between them is no step.
STEP_MIN_MS = 100
# A pair of readings further apart than this (the process was preempted) says nothing about a step.
READING_MAX_MS = 10
# Bounds how often the wall clock is looked at; `now_ms` is called for every record.
STEP_CHECK_MS = 50
# How near a wall clock must be to the brokers' time to be believed; brokers may be as far apart themselves.
CONFIRM_MS = 1_000
# Beyond the first the operator hears of it, beyond the second the process keeps no partition.
ALARM_MS = 1_000
UNTRUSTED_MS = 5_000
# Going back means running at 90 %: a due time is late by a tenth at most, and nothing stands still.
SLEW_DIVISOR = 10
# What brokers said is forgotten after one to two of these: their clocks are corrected, too.
OBSERVED_MS = 60_000


def wall_ms() -> int:
    """Unix time by this machine; may step."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Time since some point; never goes back."""
    return time.monotonic_ns() // 1_000_000


def new_id() -> str:
    """A random UUID."""
    return str(uuid.uuid4())  # noqa: TID251


class _BrokerTime:
    """What brokers' timestamps say about (their time - our monotonic time), from two windows: between `low`
    and `high`; None: nobody has said. Brokers that differ a little span what they say."""

    def __init__(self) -> None:
        self._since_ms = 0
        self._now: tuple[int | None, int | None] = (None, None)
        self._before: tuple[int | None, int | None] = (None, None)
        self.low: int | None = None
        self.high: int | None = None

    def observe(self, low: int, high: int | None, now_ms: int) -> None:
        if now_ms - self._since_ms >= OBSERVED_MS:
            stale = now_ms - self._since_ms >= 2 * OBSERVED_MS
            self._before = (None, None) if stale else self._now
            self._now = (None, None)
            self._since_ms = now_ms
        self._add(low, high)
        if self.low is not None and self.high is not None and self.low > self.high:
            if self.low - self.high > CONFIRM_MS:
                # The brokers' clock or ours (a suspended machine) jumped: only the newest counts.
                self._now = self._before = (None, None)
                self._add(low, high)
            else:
                self.low, self.high = self.high, self.low

    def _add(self, low: int, high: int | None) -> None:
        self._now = (_max(self._now[0], low), _min(self._now[1], high))
        self.low = _max(self._before[0], self._now[0])
        self.high = _min(self._before[1], self._now[1])


def _max(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return one if other is None else other
    return max(one, other)


def _min(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)


class Clock:
    """A process's time: monotonic plus an offset. Never goes back, never freezes (STR-021).

    It begins with the wall clock. A step of that changes the offset only when brokers confirm it, and where
    the two differ by more than `CONFIRM_MS` the brokers are followed: forward at once, backward by running
    slower. Beyond `UNTRUSTED_MS` nothing is followed: whoever is so wrong is to be looked at. One thread uses
    it.
    """

    def __init__(
        self, wall: Callable[[], int] = wall_ms, monotonic: Callable[[], int] = monotonic_ms
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._brokers = _BrokerTime()
        # now = monotonic + _offset; _target is where slewing leads, the wall's offset as last believed.
        self._offset = self._target = wall() - monotonic()
        self._slew_from_ms = 0
        self._slew_offset = self._offset
        self._checked_ms = monotonic()
        self._step: int | None = None
        self.steps = 0  # steps of the wall clock seen, believed or not: a metric and an alert

    def now_ms(self) -> int:
        """Unix time as this process has it."""
        monotonic = self._monotonic()
        if monotonic - self._checked_ms >= STEP_CHECK_MS:
            self._checked_ms = monotonic
            self._look_for_step()
        if self._offset > self._target:
            back = (monotonic - self._slew_from_ms) // SLEW_DIVISOR
            self._offset = max(self._target, self._slew_offset - back)
        return monotonic + self._offset

    def start_anew(self) -> None:
        """Takes at once, back or forth, what is believed by now: for a process that holds no partition, so
        that nobody sees its time go back."""
        self._move(self._target)

    def observe_record(self, timestamp_ms: int) -> None:
        """A broker's timestamp (LogAppendTime) just read. The record may have lain in the log for long, so
        it only shows that brokers are at least that late."""
        now = self._monotonic()
        self._brokers.observe(timestamp_ms - now, None, now)
        self._decide_step()

    def observe_round_trip(self, timestamp_ms: int, sent_ms: int, received_ms: int) -> None:
        """A broker's timestamp of a record of our own, sent and acknowledged at these monotonic instants: it
        bounds the brokers' clock from both sides."""
        self._brokers.observe(timestamp_ms - received_ms, timestamp_ms - sent_ms, self._monotonic())
        self._decide_step()
        self._correct()

    def floor(self, ms: int) -> bool:
        """A new owner goes on from the log's last event: raises now to `ms` and slews back. False, and no
        change, if that is so far ahead that time could not be trusted, or nobody has said that it is not: the
        partition has to wait."""
        ahead = ms - self.now_ms()
        if ahead <= 0:
            return True
        high = self._brokers.high
        if high is None or self._offset + ahead - high > UNTRUSTED_MS:
            return False
        self._move(self._offset + ahead)
        return True

    def offset_from_brokers_ms(self) -> int:
        """How far now is surely ahead of (positive) or behind the brokers; 0 while nothing is known."""
        return self._off(self._offset)

    def wall_from_brokers_ms(self) -> int:
        """As `offset_from_brokers_ms`, of the wall clock as it was seen last."""
        return self._off(self._target if self._step is None else self._step)

    def alarming(self) -> bool:
        """More than ALARM_MS off the brokers, or the wall clock is."""
        return max(abs(self.offset_from_brokers_ms()), abs(self.wall_from_brokers_ms())) > ALARM_MS

    def bounded(self) -> bool:
        """Brokers have said lately from both sides what the time is."""
        return self._brokers.high is not None

    def trustworthy(self) -> bool:
        """False when more than UNTRUSTED_MS off the brokers: no partition is taken or kept."""
        return abs(self.offset_from_brokers_ms()) <= UNTRUSTED_MS

    def unconfirmed_step_ms(self) -> int:
        """By how much the wall clock stands apart, waiting for brokers to confirm it."""
        return 0 if self._step is None else self._step - self._target

    def _off(self, offset: int) -> int:
        low, high = self._brokers.low, self._brokers.high
        if low is not None and offset < low:
            return offset - low
        if high is not None and offset > high:
            return offset - high
        return 0

    def _look_for_step(self) -> None:
        before = self._monotonic()
        wall = self._wall()
        if self._monotonic() - before > READING_MAX_MS:
            return
        seen = wall - before
        if abs(seen - self._target) < STEP_MIN_MS:
            self._step = None
            return
        if self._step is None or abs(seen - self._step) >= STEP_MIN_MS:
            self.steps += 1
            self._step = seen
        self._decide_step()

    def _decide_step(self) -> None:
        """Believes the wall clock if brokers' time is as far forward, or as far back, as it says."""
        step = self._step
        if step is None:
            return
        low, high = self._brokers.low, self._brokers.high
        forward = step > self._target
        if forward and (
            low is None or low < step - CONFIRM_MS or (high is not None and high < step - CONFIRM_MS)
        ):
            return
        if not forward and (high is None or high > step + CONFIRM_MS):
            return
        self._step = None
        self._follow(step)

    def _correct(self) -> None:
        """Within bounds the brokers are believed more than our wall clock; that is one that stands apart."""
        off = self._off(self._target)
        if not CONFIRM_MS < abs(off) <= UNTRUSTED_MS:
            return
        if self._step is None:
            self.steps += 1
            self._step = self._target
        self._follow(self._target - off)

    def _follow(self, target: int) -> None:
        """Forward at once, back by slewing."""
        self._target = target
        self._move(max(target, self._offset))

    def _move(self, offset: int) -> None:
        """The offset from now on; slewing towards the target begins there."""
        self._offset = self._slew_offset = offset
        self._slew_from_ms = self._monotonic()
