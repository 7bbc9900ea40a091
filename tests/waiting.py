"""Waiting in tests: for a condition, with a deadline, never for a fixed time."""

import threading
import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], timeout_sec: float = 10) -> None:
    """Returns when the condition holds; fails the test if it does not within the time."""
    deadline = time.monotonic() + timeout_sec
    while not condition():
        assert time.monotonic() < deadline, f"it did not come true within {timeout_sec} s"
        threading.Event().wait(0.01)
