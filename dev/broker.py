"""Apache Kafka from plain jars: one broker for development and tests, three for chaos.

Owns the settings, folders, ports and processes of brokers on this machine; where the jars come from
is dev/jars.py's business. Every node is broker and controller at once, listens on the loopback
address only and keeps everything under its data folder, so that it can be stopped, killed and
started again on the same data. Readiness is an answer to a request of Kafka's own protocol: a broker
answers its first client when it has joined and is unfenced.
"""

import json
import socket
import struct
import subprocess
import threading
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Self

from dev import jars, processes

HOST = "127.0.0.1"

# Small and quick to start; a benchmark may pass its own.
SMALL_JVM = ("-Xms128m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

START_SEC = 60.0  # a broker listens after 2 s; a busy machine and a long log recovery take longer
STOP_SEC = 15.0  # a clean shutdown takes about 1 s; what is killed instead recovers at the next start
REQUEST_SEC = 2.0  # one try to get an answer from a starting broker
PAUSE_SEC = 0.05  # between two tries
START_TRIES = 3  # a free port may be taken by somebody else before Kafka binds it

# What every broker of ours has, in Docker and outside of it (docker-compose.yml repeats these, a test
# compares). Replication is added by `replication_settings`.
BROKER_SETTINGS: Mapping[str, str] = {
    # Topics are made on purpose, with their policies, or not at all.
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    # A group of one need not wait for others.
    "group.initial.rebalance.delay.ms": "0",
    # Short sessions allowed, so that a killed processor's partitions move soon.
    "group.min.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    # The default buffer of 128 MiB does not fit a small heap.
    "log.cleaner.dedupe.buffer.size": "8388608",
    # Who takes a partition ends its predecessor's transaction. A lone broker that starts again must not: as
    # long as it does not know itself as a leader it leaves out the markers, and readers wait for ever.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "60000",
}

# Chaos tests take a broker away: the others must notice soon.
CLUSTER_SETTINGS: Mapping[str, str] = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "5000",
}


def replication_settings(replication: int) -> dict[str, str]:
    """Copies of the broker's own topics, and how many of them must hold a record."""
    in_sync = str(max(1, replication - 1))
    return {
        "offsets.topic.replication.factor": str(replication),
        "transaction.state.log.replication.factor": str(replication),
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": str(replication),
        "share.coordinator.state.topic.min.isr": in_sync,
        "default.replication.factor": str(replication),
    }


class BrokerError(Exception):
    """A broker did not start; the message shows the end of its log."""


def free_port() -> int:
    """A loopback port nobody listens on now."""
    with closing(socket.socket()) as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def answers(bootstrap: str) -> bool:
    """Whether a broker at `host:port[,…]` answers an ApiVersions request without error."""
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    api_versions, version, correlation, no_client_id = 18, 0, 1, -1
    request = struct.pack(">hhih", api_versions, version, correlation, no_client_id)
    try:
        with socket.create_connection((host, int(port)), REQUEST_SEC) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            with connection.makefile("rb") as response:
                header = response.read(10)
    except OSError:
        return False
    if len(header) < 10:
        return False
    _, answered, error = struct.unpack(">iih", header)
    return bool(answered == correlation and error == 0)


class LocalKafka:
    """One node; alone unless `voters` names the others.

    With port 0 the node takes the port it had last time, or a free one. `cluster_id` must be the same
    for all nodes of a cluster.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int = 0,
        node_id: int = 1,
        settings: Mapping[str, str] | None = None,
        jvm: Sequence[str] = SMALL_JVM,
    ) -> None:
        self.data_dir = data_dir.resolve()
        self.log = self.data_dir / "kafka.log"
        self.node_id = node_id
        self.port = port
        self.controller_port = 0
        self._asked_port = port
        # Once clients have been told a port it stays, whatever happens to the process.
        self._settled = False
        self._voters: str | None = None
        self._cluster_id: str | None = None
        self._settings = dict(settings or {})
        self._jvm = tuple(jvm)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """The address clients are given."""
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """The process to send signals to; only while it runs."""
        if self._process is None:
            raise BrokerError(f"the broker on {self.data_dir} does not run")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def died(self) -> bool:
        """Whether the process ended though nobody here ended it."""
        return self._process is not None and self._process.poll() is not None

    def start(self) -> None:
        """Starts the node and returns when it answers clients."""
        for _ in range(START_TRIES):
            self.launch()
            if self.wait_ready():
                self._settled = True
                return
            if "already in use" not in processes.tail(self.log, 200):
                break
            self._forget_ports()
        raise BrokerError(f"Kafka did not start; the end of {self.log}:\n{processes.tail(self.log)}")

    def launch(self) -> None:
        """Starts the process without waiting for it; nodes of a cluster only get ready together."""
        if self.running:
            raise BrokerError(f"the broker on {self.data_dir} runs already")
        self.choose_ports()
        self.log.unlink(missing_ok=True)
        properties = self._write_properties()
        self._format(properties)
        self._process = processes.start(
            [*self._java(), "kafka.Kafka", str(properties)], log=self.log, cwd=self.data_dir
        )

    def wait_ready(self, timeout_sec: float = START_SEC) -> bool:
        """Waits for the first answer; False if the process ended or the time is up."""
        process = self._process
        if process is None:
            return False
        deadline = time.monotonic() + timeout_sec
        while time.monotonic() < deadline:
            if process.poll() is not None:
                self._process = None
                return False
            if answers(self.bootstrap):
                return True
            threading.Event().wait(PAUSE_SEC)
        self.kill()
        return False

    def stop(self) -> None:
        """Shuts the node down cleanly, in bounded time."""
        if self._process is not None:
            processes.stop(self._process, STOP_SEC)
            self._process = None

    def kill(self) -> None:
        """Ends the node as a crash would."""
        if self._process is not None:
            processes.kill(self._process)
            self._process = None

    def restart(self) -> None:
        """Starts the node again on the same data and the same port."""
        self.stop()
        self.start()

    def join(self, voters: str, cluster_id: str) -> None:
        """Makes this node one of several; before its first start."""
        self._voters = voters
        self._cluster_id = cluster_id

    def choose_ports(self) -> None:
        """Settles the node's two ports and remembers them for the next start."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        remembered = self.data_dir / "ports.json"
        if not self.controller_port and remembered.exists():
            before = json.loads(remembered.read_text())
            self.controller_port = before["controller"]
            self.port = self.port or before["broker"]
        if self._may_move():
            if not self._asked_port and (not self.port or not _is_free(self.port)):
                self.port = free_port()
            if not self.controller_port or not _is_free(self.controller_port):
                self.controller_port = free_port()
        remembered.write_text(json.dumps({"broker": self.port, "controller": self.controller_port}))

    def _may_move(self) -> bool:
        # The nodes of a cluster know each other's ports.
        return self._voters is None and not self._settled

    def _forget_ports(self) -> None:
        if self._may_move():
            self.port = self._asked_port
            self.controller_port = 0
            (self.data_dir / "ports.json").unlink(missing_ok=True)

    def _java(self) -> list[str]:
        # Kafka logs through slf4j-simple to standard error, which goes to our log file.
        return [
            jars.java(),
            *self._jvm,
            "-Djava.awt.headless=true",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
            "-cp",
            f"{jars.kafka_jars()}/*",
        ]

    def _write_properties(self) -> Path:
        voters = self._voters or f"{self.node_id}@{HOST}:{self.controller_port}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            # Fixed voters instead of a formatted set: a lone node may then change its ports.
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"BROKER://{HOST}:{self.port},CONTROLLER://{HOST}:{self.controller_port}",
            "advertised.listeners": f"BROKER://{HOST}:{self.port}",
            "inter.broker.listener.name": "BROKER",
            "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.data_dir / "log"),
            **replication_settings(1),
            **BROKER_SETTINGS,
            **self._settings,
        }
        path = self.data_dir / "server.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return path

    def _format(self, properties: Path) -> None:
        if (self.data_dir / "log" / "meta.properties").exists():
            return
        cluster_id = self._cluster_id or new_cluster_id()
        command = [
            *self._java(),
            "kafka.tools.StorageTool",
            "format",
            "-t",
            cluster_id,
            "-c",
            str(properties),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=START_SEC)
        if done.returncode != 0:
            raise BrokerError(f"Kafka could not format {self.data_dir}:\n{done.stdout}{done.stderr}")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def new_cluster_id() -> str:
    """A Kafka UUID; one that begins with `-` would be taken for an option."""
    while True:
        text = urlsafe_b64encode(uuid.uuid1().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


class KafkaCluster:
    """Three brokers with replication 3; for tests that take one of them away."""

    def __init__(
        self,
        data_dir: Path,
        *,
        brokers: int = 3,
        settings: Mapping[str, str] | None = None,
        jvm: Sequence[str] = SMALL_JVM,
    ) -> None:
        merged = {**replication_settings(brokers), **CLUSTER_SETTINGS, **(settings or {})}
        self.nodes = [
            LocalKafka(data_dir / f"node{number}", node_id=number, settings=merged, jvm=jvm)
            for number in range(1, brokers + 1)
        ]

    @property
    def bootstrap(self) -> str:
        """All brokers, so that a client finds the cluster while one is down."""
        return ",".join(node.bootstrap for node in self.nodes)

    def start(self) -> None:
        """Starts all brokers and returns when each answers."""
        for node in self.nodes:
            node.choose_ports()
        voters = ",".join(f"{node.node_id}@{HOST}:{node.controller_port}" for node in self.nodes)
        cluster_id = new_cluster_id()
        for node in self.nodes:
            node.join(voters, cluster_id)
            node.launch()
        for node in self.nodes:
            if not node.wait_ready():
                end = processes.tail(node.log)
                self.stop()
                raise BrokerError(f"broker {node.node_id} did not start; the end of {node.log}:\n{end}")

    def stop(self) -> None:
        """Ends all brokers; at once, since the last ones could not leave a quorum politely."""
        for node in self.nodes:
            node.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
