"""A server for each file, and a client of its tenant."""

import secrets
from collections.abc import Iterator

import pytest
from horarium import Client

from dev.server import Server


@pytest.fixture(scope="module")
def server(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    namespace = f"test-{secrets.token_hex(4)}"
    with Server(folder, bootstrap=kafka, namespace=namespace, partitions=4) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url, server.key) as client:
        yield client
