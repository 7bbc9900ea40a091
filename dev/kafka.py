"""Finds a Kafka for whoever needs one: given, from Docker, or from jars on this machine.

The order is `HORARIUM_KAFKA`, then a Docker engine that answers (service `kafka` of
docker-compose.yml), then Apache Kafka from Maven jars. What was started here is stopped here; what was
given is left alone.
"""

import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dev import jars
from dev.broker import HOST, LocalKafka, answers, free_port

ROOT = Path(__file__).resolve().parent.parent

DOCKER_INFO_SEC = 10.0  # an engine that is slower than this is of no use
DOCKER_START_SEC = 300.0  # the image may have to be fetched
DOCKER_STOP_SEC = 60.0


class KafkaNotFound(Exception):
    """No broker, and no way to start one; the message says what to install."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A broker that answers."""

    bootstrap: str
    # The process, where it is one of ours: to watch it, or to kill it in a test.
    broker: LocalKafka | None = None


@contextmanager
def find_or_start(data_dir: Path, *, port: int = 0, keep: bool = True) -> Iterator[Found]:
    """Gives a broker that answers.

    A broker started here keeps its log under `data_dir` (Docker: in a volume named after it) and goes
    on with it next time, unless `keep` is false.
    """
    given = os.environ.get("HORARIUM_KAFKA")
    if given:
        if not any(answers(server) for server in given.split(",")):
            raise KafkaNotFound(f"no broker answers at HORARIUM_KAFKA={given}")
        yield Found(bootstrap=given)
        return
    if docker_answers():
        with _docker(data_dir, port=port, keep=keep) as bootstrap:
            if bootstrap is not None:
                yield Found(bootstrap=bootstrap)
                return
    _fetch_jars()
    with LocalKafka(data_dir, port=port) as broker:
        yield Found(bootstrap=broker.bootstrap, broker=broker)
    if not keep:
        shutil.rmtree(data_dir, ignore_errors=True)


def prepare() -> str:
    """Does ahead what needs the network, and says which broker `find_or_start` will give."""
    given = os.environ.get("HORARIUM_KAFKA")
    if given:
        return f"Kafka: the one at {given}"
    if docker_answers():
        return "Kafka: from Docker"
    _fetch_jars()
    return f"Kafka: {jars.kafka_version()} from jars"


def _fetch_jars() -> None:
    try:
        jars.java()
        jars.kafka_jars()
    except jars.JarsMissing as error:
        raise KafkaNotFound(str(error)) from error


def docker_answers() -> bool:
    """Whether there is a Docker engine with the compose plugin."""
    if shutil.which("docker") is None:
        return False
    for command in (["docker", "info"], ["docker", "compose", "version"]):
        try:
            done = subprocess.run(command, capture_output=True, check=False, timeout=DOCKER_INFO_SEC)
        except subprocess.TimeoutExpired:
            return False
        if done.returncode != 0:
            return False
    return True


@contextmanager
def _docker(data_dir: Path, *, port: int, keep: bool) -> Iterator[str | None]:
    """A broker in a container, or None where the engine cannot start it (say, no image to be had)."""
    project = f"horarium-{zlib.crc32(str(data_dir.resolve()).encode()):08x}"
    port = port or free_port()
    compose = ["docker", "compose", f"--file={ROOT / 'docker-compose.yml'}", f"--project-name={project}"]
    environment = os.environ | {"HORARIUM_KAFKA_PORT": str(port)}

    def run(*arguments: str, timeout_sec: float) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*compose, *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            timeout=timeout_sec,
        )

    try:
        done = run("up", "--detach", "--wait", "kafka", timeout_sec=DOCKER_START_SEC)
        if done.returncode == 0:
            yield f"{HOST}:{port}"
        else:
            sys.stderr.write(f"Docker could not start Kafka, so it is run from jars:\n{done.stderr}\n")
            yield None
    finally:
        if keep:
            run("stop", "kafka", timeout_sec=DOCKER_STOP_SEC)
        else:
            run("down", "--volumes", timeout_sec=DOCKER_STOP_SEC)


if __name__ == "__main__":
    try:
        print(prepare())
    except KafkaNotFound as error:
        sys.exit(str(error))
