"""A fresh read model for each test: every test of this folder runs on SQLite and on PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection

from projections.store import Store


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    url = f"sqlite:///{tmp_path / 'read.db'}"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres")
    made = Store(url)
    made.recreate()
    yield made
    made.close()


@pytest.fixture
def db(store: Store) -> Iterator[Connection]:
    """For queries. It sees what was folded when it was first used, or used again after `rollback`."""
    with store.reading() as connection:
        yield connection
