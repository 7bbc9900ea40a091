"""What goes wrong with the in-memory log when a test wants it to.

Owns the kinds of faults and who is hit by the next one. May not know the log: `memory` asks here at each
commit and each plain send.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from streams.transport.log import Outgoing


class CommitFault(Enum):
    """How a commit fails: ABORTED raises LogAborted, the others LogFatal with an outcome nobody knows."""

    ABORTED = "aborted"
    UNKNOWN_COMMITTED = "unknown, committed"
    UNKNOWN_ABORTED = "unknown, aborted"
    UNKNOWN_OPEN = "unknown, still open"


class PlainFault(Enum):
    """What becomes of a plain send. DROP answers with LogRetriable, DELAY waits for `deliver_delayed`."""

    DROP = "drop"
    DUPLICATE = "duplicate"
    DELAY = "delay"


class Faults:
    """Asked at each commit (with the transactional id) and each plain send; None lets it succeed."""

    def __init__(self) -> None:
        self.on_commit: Callable[[str], CommitFault | None] | None = None
        self.on_plain_send: Callable[[Outgoing], PlainFault | None] | None = None
        # A commit returns before the markers are written (Kafka does so): committed records and offsets
        # count at once, readers see them after `write_markers` or the id's next transaction.
        self.late_markers = False
        self._next_commits: list[CommitFault] = []

    def fail_next_commit(self, fault: CommitFault) -> None:
        self._next_commits.append(fault)

    def of_commit(self, transactional_id: str) -> CommitFault | None:
        if self._next_commits:
            return self._next_commits.pop(0)
        return self.on_commit(transactional_id) if self.on_commit else None

    def of_plain_send(self, record: Outgoing) -> PlainFault | None:
        return self.on_plain_send(record) if self.on_plain_send else None
