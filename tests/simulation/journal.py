"""What callers were told: the other side of the promises. Kept for the checkers, which see nothing else of
the API.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from schemas.commands import JobCommand, WorkCommand
from schemas.entities import Execution
from schemas.replies import CommandDone, Granted, WorkDone


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply as its asker took it in. `at_ms`: true time."""

    at_ms: int
    command: JobCommand | WorkCommand
    reply: CommandDone | WorkDone


@dataclass(frozen=True, slots=True)
class Granting:
    """One grant as its asker took it in. `seq`: of the request it was made under."""

    at_ms: int
    partition: int
    session: str
    pool: str
    seq: int
    execution: Execution


@dataclass(slots=True)
class Journal:
    """In the order in which it was heard."""

    answers: list[Answer] = field(default_factory=list)
    grants: list[Granting] = field(default_factory=list)

    def answered(self, at_ms: int, command: JobCommand | WorkCommand, reply: CommandDone | WorkDone) -> None:
        self.answers.append(Answer(at_ms, command, reply))

    def granted(self, at_ms: int, reply: Granted) -> None:
        self.grants += [
            Granting(at_ms, reply.partition, reply.session, reply.pool, reply.seq, grant.execution)
            for grant in reply.grants
        ]
