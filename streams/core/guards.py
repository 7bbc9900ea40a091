"""What protects tenants from their own floods, as far as state does not say. Soft: forgotten at a restart,
undone by an abort."""

from __future__ import annotations

from streams.core.late import Late
from streams.core.outcomes import Outcomes
from streams.core.rates import RegistrationRates


class Guards:
    """Of one partition."""

    def __init__(self) -> None:
        self.rates = RegistrationRates()
        self.outcomes = Outcomes()
        self.late = Late()

    def settled(self) -> None:
        """What the transaction counted is committed."""
        self.rates.settled()
        self.outcomes.settled()
        self.late.settled()

    def undo(self) -> None:
        """The transaction was aborted: what it counted never was."""
        self.rates.undo()
        self.outcomes.undo()
        self.late.undo()

    def drop_stale(self, now_ms: int) -> None:
        """Forgets what no longer counts."""
        self.rates.drop_stale(now_ms)
        self.outcomes.drop_stale(now_ms)
        self.late.drop_stale(now_ms)
