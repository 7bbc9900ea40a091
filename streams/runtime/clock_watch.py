"""Whether this process's clock may decide when something is due: asks the brokers what the time is.

A record on the topic `clock` is stamped by its broker between two readings of our monotonic clock, at its
sending and its acknowledgement; what is read from other topics can only show that we are behind. Owns the
asking and what people are told. May not know partitions: the processor takes and gives them (architecture
§5.10).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from schemas.topics import Topics
from streams.runtime.partition import Ambient, GivenUp
from streams.runtime.telemetry import Telemetry
from streams.transport.log import Done, LogError, Outgoing, Written

ASK_MS = 30_000
"""While all is well: twice in the time for which an answer is remembered at least (`ambient.OBSERVED_MS`)."""
ASK_AGAIN_MS = 1_000
"""While partitions may not be taken."""
TELL_MS = 10_000
"""How often a process that waits says what for."""
Publish = Callable[[Outgoing, Done], None]


class ClockWatch:
    """Used by one thread; answers come on the writer's."""

    def __init__(
        self,
        topics: Topics,
        instance: str,
        publish: Publish,
        ambient: Ambient,
        telemetry: Telemetry,
        alarm: Callable[[str], None],
    ) -> None:
        self._topic = topics.clock
        self._key = instance.encode()
        self._publish = publish
        self._clock = ambient.clock
        self._monotonic_ms = ambient.monotonic_ms
        self._telemetry = telemetry
        self._alarm = alarm
        self._answers: deque[tuple[int, int, Written | None, LogError | None]] = deque()
        self._asked_ms: int | None = None
        self._told_ms = ambient.monotonic_ms()
        self._steps = 0
        self._alarming = False
        self._failure = "no answer yet"

    def look(self) -> bool:
        """Asks and hears the brokers. Whether partitions may be kept; GivenUp if they cannot be asked."""
        clock = self._clock
        # Looks at the wall clock: once it is set right, partitions are taken again.
        clock.now_ms()
        self._ask()
        self._hear()
        alarming = clock.alarming()
        if clock.steps != self._steps or (alarming and not self._alarming):
            self._alarm(
                f"the clock is {clock.offset_from_brokers_ms()} ms off the brokers; "
                f"{clock.unconfirmed_step_ms()} ms by which the wall clock stands apart are not taken over"
            )
            self._steps = clock.steps
            self._telemetry.clock_steps.set(clock.steps)
        self._alarming = alarming
        self._telemetry.clock_trusted.set(int(self.ready()))
        return clock.trustworthy()

    def ready(self) -> bool:
        """Whether partitions may be taken: brokers have said what the time is, and it is ours."""
        return self._clock.bounded() and self._clock.trustworthy()

    def tell(self) -> None:
        """Says now and then why no partition is taken."""
        now_ms = self._monotonic_ms()
        if now_ms - self._told_ms < TELL_MS:
            return
        self._told_ms = now_ms
        if self._clock.bounded():
            why = f"the clock is {self._clock.offset_from_brokers_ms()} ms off the brokers: set it right"
        else:
            why = f"the brokers have not said what the time is: {self._failure}"
        self._telemetry.warning(f"no partition is taken: {why}")

    def _ask(self) -> None:
        sent_ms = self._monotonic_ms()
        every_ms = ASK_MS if self.ready() else ASK_AGAIN_MS
        if self._asked_ms is None or sent_ms - self._asked_ms >= every_ms:
            self._asked_ms = sent_ms
            self._publish(Outgoing(self._topic, 0, self._key, b""), partial(self._answered, sent_ms))

    def _answered(self, sent_ms: int, written: Written | None, error: LogError | None) -> None:
        self._answers.append((sent_ms, self._monotonic_ms(), written, error))

    def _hear(self) -> None:
        while self._answers:
            sent_ms, received_ms, written, error = self._answers.popleft()
            if written is None:
                self._failure = str(error)
                continue
            if written.timestamp_ms is None:
                raise GivenUp(
                    f"topic {self._topic} has message.timestamp.type=CreateTime; it must be LogAppendTime, "
                    "since the brokers' time is read from it"
                )
            self._clock.observe_round_trip(written.timestamp_ms, sent_ms, received_ms)
            self._telemetry.clock_offset.set(self._clock.offset_from_brokers_ms() / 1000)
