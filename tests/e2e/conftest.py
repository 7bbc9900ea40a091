"""Marks the whole folder, and gives each test a pool of its own."""

import secrets
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TEST_SEC = 300  # on a busy machine; the whole folder takes less on an idle one


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Real processes and kill -9 take their time: not part of the quick run."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.kafka)
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(TEST_SEC))


@pytest.fixture
def pool() -> str:
    """A pool that no other test uses, on a shared server too."""
    return f"pool-{secrets.token_hex(4)}"
