"""Backoff and redelivery waits: numbers in, milliseconds out."""

from __future__ import annotations

import math

from schemas.entities import RetryJitter, RetryPolicy
from streams.core.limits import REDELIVERY_WAIT_MAX_MS


def backoff_ms(policy: RetryPolicy, attempt: int, draw: float) -> int:
    """Wait after the failed `attempt` (from 1): min(max, base * factor^(attempt-1)), or, with full jitter, a
    draw from [0, that]. `draw` is in [0, 1). The exponent is capped before the power, which would overflow
    a float at attempt 1,025 with factor 2 (redis/redis-py#4320).
    """
    ceiling_sec = float(policy.backoff_max_sec)
    reached = ceiling_sec / policy.backoff_base_sec
    if policy.backoff_factor > 1 and reached > 1:
        steps_to_ceiling = math.log(reached) / math.log(policy.backoff_factor)
        if attempt - 1 < steps_to_ceiling:
            ceiling_sec = policy.backoff_base_sec * policy.backoff_factor ** (attempt - 1)
    elif reached > 1:
        ceiling_sec = policy.backoff_base_sec
    longest_ms = round(min(ceiling_sec, policy.backoff_max_sec) * 1000)
    return longest_ms if policy.jitter is RetryJitter.NONE else math.floor(longest_ms * draw)


def redelivery_wait_ms(deliveries: int) -> int:
    """Wait after `deliveries` of an attempt ended without a word: none for the first, then 1, 2, 4 … 60 s."""
    if deliveries < 2:
        return 0
    return int(min(REDELIVERY_WAIT_MAX_MS, 1_000 << min(deliveries - 2, 16)))
