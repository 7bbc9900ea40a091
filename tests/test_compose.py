"""docker-compose.yml and Dockerfile say the same as dev/, which is what runs without Docker.

No engine is needed: the files are read as data. What dev/kafka.py asks of an engine is shown to a
stand-in `docker` program.
"""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev import jars, kafka, server
from dev.broker import BROKER_SETTINGS, replication_settings

ROOT = Path(__file__).resolve().parent.parent

STAND_IN_DOCKER = """#!/bin/sh
echo "$HORARIUM_KAFKA_PORT $*" >> "$DOCKER_CALLS"
case "$*" in *" up "*) exit "$DOCKER_UP" ;; esac
"""


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return found


@pytest.fixture(scope="module")
def services(compose: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = compose["services"]
    return found


def test_the_parts_run_the_same_commands(services: dict[str, Any]) -> None:
    commands = {name: tuple(service["command"]) for name, service in services.items() if name != "kafka"}
    assert commands == {
        "processor": server.PROCESSOR,
        "projections": server.PROJECTIONS,
        "api": server.API,
    }


def test_the_parts_get_the_same_variables(services: dict[str, Any], tmp_path: Path) -> None:
    told = set(server.Server(tmp_path, bootstrap="127.0.0.1:1").environment())
    assert set(services["projections"]["environment"]) == told
    assert set(services["api"]["environment"]) == told
    assert set(services["processor"]["environment"]) == told | {"HORARIUM_INSTANCE", "HORARIUM_SNAPSHOT_DIR"}
    assert services["api"]["environment"]["HORARIUM_PARTITIONS"] == (
        f"${{HORARIUM_PARTITIONS:-{server.DEFAULT_PARTITIONS}}}"
    )


def test_state_and_snapshots_outlive_the_container_and_each_other(compose: dict[str, Any]) -> None:
    processor = compose["services"]["processor"]
    volumes = dict(reversed(volume.split(":")) for volume in processor["volumes"])
    folders = [processor["environment"][name] for name in ("HORARIUM_DATA", "HORARIUM_SNAPSHOT_DIR")]
    assert len({volumes[folder] for folder in folders}) == 2
    assert set(volumes.values()) <= set(compose["volumes"])
    # A new volume belongs to the user who owns the folder in the image.
    made = next(line for line in (ROOT / "Dockerfile").read_text().splitlines() if "useradd" in line)
    assert all(folder in made.partition("chown")[2].split() for folder in folders)


def test_the_broker_is_the_same(services: dict[str, Any]) -> None:
    assert services["kafka"]["image"] == f"apache/kafka:{jars.kafka_version()}"
    told = services["kafka"]["environment"]
    ours = {**replication_settings(1), **BROKER_SETTINGS}
    wanted = {f"KAFKA_{name.upper().replace('.', '_')}": value for name, value in ours.items()}
    assert {name: told.get(name) for name in wanted} == wanted


def test_every_port_is_published_on_the_loopback_address_only(services: dict[str, Any]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_image_holds_what_the_commands_run() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copied = {line.split()[1] for line in lines if line.startswith("COPY")}
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert copied == allowed
    assert {command[2].split(".")[0] for command in (server.PROCESSOR, server.PROJECTIONS, server.API)} | {
        "schemas",
        "requirements.lock",
    } == copied
    assert all((ROOT / name).exists() for name in copied)


@pytest.fixture
def docker_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(STAND_IN_DOCKER)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.setenv("DOCKER_CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("DOCKER_UP", "0")
    monkeypatch.delenv("HORARIUM_KAFKA", raising=False)
    return tmp_path / "calls"


@pytest.mark.parametrize(("keep", "end"), [(True, "stop kafka"), (False, "down --volumes")])
def test_a_docker_engine_that_answers_is_used(
    docker_calls: Path, tmp_path: Path, keep: bool, end: str
) -> None:
    with kafka.find_or_start(tmp_path / "data", port=4711, keep=keep) as found:
        assert found.bootstrap == "127.0.0.1:4711"
    calls = docker_calls.read_text().splitlines()
    assert calls[-2].startswith("4711 compose --file=")
    assert calls[-2].endswith(" up --detach --wait kafka")
    assert calls[-1].endswith(f" {end}")


def test_an_engine_that_cannot_start_kafka_is_passed_over(
    docker_calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_UP", "1")
    monkeypatch.setattr(jars, "java", _no_java)
    with (
        pytest.raises(kafka.KafkaNotFound, match="no Java here"),
        kafka.find_or_start(tmp_path / "data", keep=False),
    ):
        pytest.fail("there is no broker to be had")


def test_a_given_broker_must_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HORARIUM_KAFKA", "127.0.0.1:1")
    with pytest.raises(kafka.KafkaNotFound, match="no broker answers"), kafka.find_or_start(tmp_path):
        pytest.fail("nobody listens there")


def test_the_build_script_is_sound() -> None:
    assert subprocess.run(["bash", "-n", ROOT / ".ci" / "run"], check=False).returncode == 0
    assert "exec make test" in (ROOT / ".ci" / "run").read_text()


def _no_java() -> str:
    raise jars.JarsMissing("no Java here")
