"""What the core may ask for besides events: a closed union of values.

The shell sends dead letters and quarantined commands in the transaction of the events, replies after its
commit, and counts and logs alerts; on replay all of them are dropped (late replies aside).
"""

from __future__ import annotations

from dataclasses import dataclass

from schemas.replies import DeadLetter, Reply


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply to one partition of `replies`. The shell fills in its `offset` after the commit."""

    reply_partition: int
    reply: Reply


@dataclass(frozen=True, slots=True)
class Bury:
    """A dead letter for outside consumers."""

    letter: DeadLetter


@dataclass(frozen=True, slots=True)
class Quarantine:
    """The command just decided raised; the shell adds its bytes and origin."""

    reason: str


@dataclass(frozen=True, slots=True)
class Alert:
    """Something a person should see: an error log line and `horarium_alerts_total{kind}`."""

    kind: str
    tenant: str
    detail: str


Effect = Answer | Bury | Quarantine | Alert
