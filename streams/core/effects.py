"""What the core may ask for besides events: a closed union of values.

The shell sends dead letters and quarantined commands in the transaction of the events, replies after its
commit, and counts and logs alerts, which are events too (`horarium_alerts_total{kind}`, an error line); on
replay all of them are dropped (late replies aside).
"""

from __future__ import annotations

import msgspec

from schemas.entities import Alert
from schemas.replies import DeadLetter, Reply


class Answer(msgspec.Struct, frozen=True, gc=False):
    """A reply to one partition of `replies`. The shell fills in its `offset` after the commit."""

    reply_partition: int
    reply: Reply


class Bury(msgspec.Struct, frozen=True, gc=False):
    """A dead letter for outside consumers."""

    letter: DeadLetter


class Quarantine(msgspec.Struct, frozen=True, gc=False):
    """The command just decided raised; the shell adds its bytes and origin."""

    reason: str


Effect = Answer | Bury | Quarantine | Alert
