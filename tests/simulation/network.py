"""The way of messages: plain sends that are lost, doubled, delayed and overtaken; calls of clients likewise.

Owns what becomes of a message, and who is woken by one. May not know what messages say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from schemas.topics import Topics
from streams.ambient import Chance
from streams.transport.log import Outgoing
from streams.transport.memory import MemoryLog
from streams.transport.memory_faults import PlainFault
from tests.simulation.agenda import Agenda
from tests.simulation.hazards import Counts, Hazards

LATENCY_MS = (1, 12)
NOTICED_MS = (4, 45)
"""Until whom a message is for has it; what comes meanwhile is taken along, as a poll does."""
LATE_MS = (20, 4_000)
NO_ANSWER_MS = 12_000
"""When a client takes a call for lost."""

T = TypeVar("T")


class Callee(Protocol):
    """A process that clients call."""

    @property
    def life(self) -> int:
        """Grows with each start; 0 while it is down."""
        ...


class Network:
    def __init__(
        self, agenda: Agenda, log: MemoryLog, topics: Topics, chance: Chance, counts: Counts
    ) -> None:
        self.hazards = Hazards()
        self.wake_owner: Callable[[int], None] = lambda partition: None
        self.wake_asker: Callable[[int], None] = lambda reply_partition: None
        self._agenda = agenda
        self._log = log
        self._topics = topics
        self._chance = chance
        self._counts = counts
        self._unreliable = {topics.commands, topics.work, topics.replies, topics.status, topics.clock}
        log.faults.on_plain_send = self._on_send

    def _on_send(self, record: Outgoing) -> PlainFault | None:
        fault = self._fault(record)
        if fault is not PlainFault.DELAY:
            self._wake(record)
            return fault
        self._agenda.after(self._chance.randint(*LATE_MS), self._deliver_any)
        return fault

    def _fault(self, record: Outgoing) -> PlainFault | None:
        if record.topic not in self._unreliable:
            return None
        hazards, drawn = self.hazards, self._chance.random()
        if drawn >= hazards.p_message_lost + hazards.p_message_twice + hazards.p_message_late:
            return None
        for kind, fault, probability in (
            ("lost", PlainFault.DROP, hazards.p_message_lost),
            ("twice", PlainFault.DUPLICATE, hazards.p_message_twice),
            ("late", PlainFault.DELAY, hazards.p_message_late),
        ):
            if drawn < probability:
                self._counts[f"message {kind}"] += 1
                return fault
            drawn -= probability
        return None

    def _deliver_any(self) -> None:
        """One of those on their way, so that they overtake each other."""
        if not self._log.delayed:
            return
        at = self._chance.randrange(len(self._log.delayed))
        if at:
            self._counts["message overtaken"] += 1
        record, done = self._log.delayed.pop(at)
        self._log.deliver(record, done)
        self._wake(record)

    def _wake(self, record: Outgoing) -> None:
        if record.topic == self._topics.replies:
            self.wake_asker(record.partition)
        elif record.topic in (self._topics.commands, self._topics.work):
            self.wake_owner(record.partition)

    def latency_ms(self) -> int:
        return self._chance.randint(*LATENCY_MS)

    def noticed_ms(self) -> int:
        return self._chance.randint(*NOTICED_MS)

    def call(
        self,
        callee: Callee,
        request: Callable[[Callable[[T], None]], None],
        on_answer: Callable[[T | None], None],
        timeout_ms: int = NO_ANSWER_MS,
    ) -> None:
        """A client's call: `request` runs at the callee and answers by what it is given. `on_answer` gets
        None if the call, its answer or the callee is lost."""
        open_ = [True]

        def finish(answer: T | None) -> None:
            if open_:
                open_.clear()
                on_answer(answer)

        def respond(answer: T) -> None:
            if callee.life == life and not self._lost("answer"):
                self._agenda.after(self.latency_ms(), lambda: finish(answer))

        def arrive() -> None:
            if callee.life == life and life:
                request(respond)

        life = callee.life
        self._agenda.after(timeout_ms, lambda: finish(None))
        if not self._lost("call"):
            self._agenda.after(self.latency_ms(), arrive)

    def _lost(self, what: str) -> bool:
        if self._chance.random() < self.hazards.p_call_lost:
            self._counts[f"{what} lost"] += 1
            return True
        return False
