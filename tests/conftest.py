"""Fixtures every test may use: a Kafka broker, a topic namespace, a PostgreSQL, a word at the end of the run.

Imports pytest only, so that unit tests start without any client library; each fixture imports what it
needs. Broker and database are started once a process of the run, when its first test asks for them, and end
with it.
"""

from collections.abc import Callable, Iterator
from functools import partial

import pytest

MEASURED = "measured"


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Bootstrap servers of a broker: given (HORARIUM_KAFKA), from Docker, or from jars."""
    from dev.kafka import KafkaNotFound, find_or_start

    try:
        with find_or_start(tmp_path_factory.mktemp("kafka"), keep=False) as found:
            yield found.bootstrap
    except KafkaNotFound as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def namespace() -> str:
    """A prefix for topics (`<namespace>.events` …) that no other test uses, on a shared broker too."""
    import secrets

    return f"test-{secrets.token_hex(4)}"


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """SQLAlchemy URL of an empty PostgreSQL database made for this run."""
    from dev.postgres import PostgresError, temporary_cluster

    try:
        with temporary_cluster() as cluster:
            yield cluster.url
    except PostgresError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Says a figure at the end of the run."""
    return partial(record_property, MEASURED)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what needs a broker or a database, so that quick runs leave it out. What takes long comes first:
    the rest fills the other processes of the run to its end."""
    for item in items:
        for need in ("kafka", "postgres"):
            if need in getattr(item, "fixturenames", ()):
                item.add_marker(need)
    items.sort(
        key=lambda item: (item.get_closest_marker("slow") is None, item.get_closest_marker("kafka") is None)
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Figures of a run, whether it passed or not."""
    reports = [report for kind in terminalreporter.stats.values() for report in kind]
    told = [
        value
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, value in report.user_properties
        if name == MEASURED
    ]
    if told:
        terminalreporter.section("measured")
        for line in told:
            terminalreporter.line(str(line))
