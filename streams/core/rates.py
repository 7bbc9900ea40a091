"""How many jobs a tenant may register a second: a token bucket of one second's worth. Soft state: a restart
fills it, an abort gives back what the transaction took."""

from __future__ import annotations

import math

SWEEP_MS = 1_000


class RegistrationRates:
    """Buckets of one partition, by tenant. One that nobody used for a second is full, and forgotten."""

    def __init__(self) -> None:
        self._buckets: dict[str, tuple[float, int]] = {}  # tokens at an instant
        self._undo: dict[str, tuple[float, int] | None] = {}
        self._swept_ms = 0

    def take(self, tenant: str, per_sec: int, now_ms: int) -> int:
        """One registration: 0 if it may pass, else the milliseconds until one more may."""
        bucket = self._buckets.get(tenant)
        tokens = float(per_sec)
        if bucket is not None:
            tokens = min(tokens, bucket[0] + (now_ms - bucket[1]) * per_sec / 1_000)
        if tokens < 1:
            return math.ceil((1 - tokens) * 1_000 / per_sec)
        self._undo.setdefault(tenant, bucket)
        self._buckets[tenant] = (tokens - 1, now_ms)
        return 0

    def settled(self) -> None:
        """The registrations of the transaction are committed."""
        self._undo.clear()

    def undo(self) -> None:
        """The transaction was aborted: its registrations never were."""
        for tenant, bucket in self._undo.items():
            if bucket is None:
                del self._buckets[tenant]
            else:
                self._buckets[tenant] = bucket
        self._undo.clear()

    def drop_stale(self, now_ms: int) -> None:
        """Forgets full buckets; now and then, since it looks at all of them."""
        if now_ms - self._swept_ms < SWEEP_MS:
            return
        self._swept_ms = now_ms
        self._buckets = {t: bucket for t, bucket in self._buckets.items() if now_ms - bucket[1] < SWEEP_MS}
