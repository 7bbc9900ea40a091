"""Owns how long a retry or redelivery waits, reckoned apart from `streams.core.retry` (semantics §4)."""

from __future__ import annotations

from fractions import Fraction

from schemas.entities import RetryJitter, RetryPolicy


def longest_backoff_ms(policy: RetryPolicy, attempt: int) -> int:
    """min(max, base * factor^(attempt-1)) after the failed `attempt`, multiplied out step by step."""
    longest = Fraction(policy.backoff_base_sec)
    for _ in range(attempt - 1):
        if longest >= policy.backoff_max_sec or policy.backoff_factor <= 1:
            break
        longest *= Fraction(policy.backoff_factor)
    return round(min(longest, Fraction(policy.backoff_max_sec)) * 1000)


def is_backoff(policy: RetryPolicy, attempt: int, wait_ms: int) -> bool:
    """Whether the policy may have drawn this wait after the failed `attempt`."""
    longest_ms = longest_backoff_ms(policy, attempt)
    return wait_ms == longest_ms if policy.jitter is RetryJitter.NONE else 0 <= wait_ms <= longest_ms


def redelivery_wait_ms(deliveries: int) -> int:
    """None after the first delivery of an attempt, then 1, 2, 4 … 60 s."""
    wait_sec = 0
    for _ in range(deliveries - 1):
        wait_sec = min(60, 2 * wait_sec or 1)
        if wait_sec == 60:
            break
    return wait_sec * 1000
