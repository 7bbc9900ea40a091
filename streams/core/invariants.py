"""Invariants stay on in production: a broken one stops its partition before doubtful state is written."""

from __future__ import annotations


class InvariantError(Exception):
    """State or log contradicts itself. The operator's action: keep the partition stopped, look at the log."""


def invariant(holds: bool, message: str) -> None:
    """Plain `assert` vanishes under -O; this does not."""
    if not holds:
        raise InvariantError(message)
