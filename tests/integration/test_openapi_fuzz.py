"""Schemathesis against the running server: whatever fits its OpenAPI description or does not, no answer is a
server error, and each is one that the description names, in status, type, headers and body."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.server import Server

KEYS = {"tenant": "acme-key", "worker": "work-key", "operator": "ops-key"}
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_headers_conformance,response_schema_conformance"
)
SEED = "20260501"
EXAMPLES = "4"  # of an operation, beyond those that cover its parameters; `make fuzz` tries more
# What the other keys are let in to; each answers 403 elsewhere, as the tenant's run shows.
PATHS = {"tenant": ".*", "worker": "claim|executions", "operator": "tenants|partitions|tz-shifts|alerts"}


@pytest.fixture(scope="module")
def server(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("fuzz")
    keys = f"acme={KEYS['tenant']},acme={KEYS['worker']}:worker,ops={KEYS['operator']}:operator"
    settings = {
        "HORARIUM_DEV_KEYS": keys,
        "HORARIUM_DATABASE_URL": f"sqlite:///{folder / 'projections.db'}",
    }
    with Server(folder, bootstrap=kafka, namespace="fuzz", partitions=2, settings=settings) as server:
        yield server


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("role", KEYS)
def test_the_description_holds(server: Server, role: str, tmp_path: Path) -> None:
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"),
        *("--header", f"Authorization: Bearer {KEYS[role]}", "--checks", CHECKS, "--seed", SEED),
        *("--phases", "coverage,fuzzing", "--continue-on-failure", "--no-color"),
        *("--max-examples", os.environ.get("FUZZ_EXAMPLES", EXAMPLES)),
        *("--include-path-regex", PATHS[role], "--request-timeout", "30"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=380)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
    assert "passed" in done.stdout
    # The server is as it was before.
    server.wait_ready(10)
