"""Fixtures every test may use: a Kafka broker, a topic namespace, a PostgreSQL.

Imports pytest only, so that unit tests start without any client library; each fixture imports what it
needs. Broker and database are started once a run, when the first test asks for them, and end with it.
"""

from collections.abc import Iterator

import pytest


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what needs a broker or a database, so that quick runs leave it out."""
    for item in items:
        for need in ("kafka", "postgres"):
            if need in getattr(item, "fixturenames", ()):
                item.add_marker(need)
