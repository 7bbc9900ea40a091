"""The processor's process: `python -m streams.runtime.main`.

Owns the wiring and the life of the process: settings, state folder, log, topics, tenants, then the loop until
SIGTERM or SIGINT, which hands the partitions over at once. Everything that decides is elsewhere.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from types import FrameType

from prometheus_client import start_http_server

from schemas import codec
from streams import ambient
from streams.ambient import Clock
from streams.config import ProcessorSettings, SettingsError
from streams.core.engine import Engine
from streams.runtime.checkpoint import Checkpoint, Step
from streams.runtime.partition import Ambient, GivenUp
from streams.runtime.predecessor import Predecessors
from streams.runtime.processor import Processor
from streams.runtime.recovery import Recovery
from streams.runtime.startup import ensure_topics, insist
from streams.runtime.status import StatusBoard
from streams.runtime.telemetry import Telemetry, log_as_json
from streams.runtime.tenants import TenantDirectory
from streams.store.kv import StoreFolder
from streams.store.rocks import RocksFolder, StateFolderBusyError
from streams.transport.kafka.log import KafkaLog
from streams.transport.log import Log, LogError

FLUSH_SEC = 5.0
REFUSED = 2
"""Exit code when the operator has to change something first."""


class Stop:
    """Set by a signal; a second one changes nothing, the stop is bounded anyway."""

    def __init__(self) -> None:
        self.wanted = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._heard)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self.wanted = True


def build(
    settings: ProcessorSettings,
    log: Log,
    folder: StoreFolder,
    times: Ambient,
    telemetry: Telemetry,
    on_step: Callable[[Step], None] = lambda step: None,
) -> tuple[Processor, Checkpoint]:
    """A processor on any log and store, with topics checked and tenants read; the simulation's door, too."""
    topics = settings.topics
    ensure_topics(log, settings, telemetry)
    tenants = TenantDirectory(log, topics, settings.partitions, codec, telemetry)
    insist(tenants.load)
    insist(partial(tenants.configure, settings.dev_shards, times.clock.now_ms()))
    checkpoint = insist(
        partial(Checkpoint, log, topics, settings.transactional_id, codec, times, telemetry, on_step)
    )
    predecessors = Predecessors(log, topics, settings.transactional_id, codec, times, telemetry)
    recovery = Recovery(
        log,
        topics,
        settings.group,
        folder,
        lambda number, store: Engine(number, store, codec, tenants),
        codec,
        times,
        predecessors,
        telemetry,
    )
    status = StatusBoard(log, topics, settings.instance, checkpoint.publish, codec, times, telemetry)
    processor = Processor(
        log,
        topics,
        settings.group,
        settings.partitions,
        times,
        codec,
        checkpoint,
        recovery,
        status,
        tenants,
        telemetry,
    )
    return processor, checkpoint


def run(settings: ProcessorSettings, stop: Stop, on_step: Callable[[Step], None] = lambda step: None) -> None:
    """Until a signal comes. Raises GivenUp, SettingsError, StateFolderBusyError or LogError."""
    telemetry = Telemetry()
    if settings.metrics_port:
        start_http_server(settings.metrics_port, settings.metrics_host, telemetry.registry)
    times = Ambient(Clock(), ambient.monotonic_ms, ambient.Chance().random)
    with ExitStack() as stack:
        # The folder first: two processes of one name must not meet anywhere else.
        folder = RocksFolder(settings.state_folder, settings.instance)
        stack.callback(folder.close)
        log = KafkaLog(settings.kafka)
        stack.callback(log.close)
        processor, checkpoint = build(settings, log, folder, times, telemetry, on_step)
        stack.callback(checkpoint.close, FLUSH_SEC)
        telemetry.info("processor started", partitions=settings.partitions, namespace=settings.namespace)
        try:
            while not stop.wanted:
                processor.step()
        finally:
            processor.stop()
    telemetry.info("processor stopped")


def main() -> None:
    stop = Stop()
    try:
        settings = ProcessorSettings.load()
        log_as_json(settings.instance, settings.log_level)
        run(settings, stop)
    except (GivenUp, SettingsError, StateFolderBusyError, LogError) as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(REFUSED)


if __name__ == "__main__":
    main()
