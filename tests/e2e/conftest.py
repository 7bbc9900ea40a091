"""Marks the whole folder, gives each test a pool of its own, and shows what was measured."""

import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TEST_SEC = 300  # on a busy machine; the whole folder takes less on an idle one
MEASURED = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[MEASURED] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Real processes and kill -9 take their time: not part of the quick run."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.kafka)
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(TEST_SEC))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Figures of a run, whether it passed or not."""
    if config.stash[MEASURED]:
        terminalreporter.section("measured end to end")
        for line in config.stash[MEASURED]:
            terminalreporter.line(line)


@pytest.fixture
def pool() -> str:
    """A pool that no other test uses, on a shared server too."""
    return f"pool-{secrets.token_hex(4)}"


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Says a figure at the end of the run."""
    return request.config.stash[MEASURED].append
