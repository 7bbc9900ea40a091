"""The processor's process: `python -m streams.runtime.main`.

Owns the wiring and the life of the process: settings, state folder, log, topics, tenants, then the loop until
SIGTERM or SIGINT, which hands the partitions over at once. Everything that decides is elsewhere.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from types import FrameType

from prometheus_client import start_http_server

from streams import ambient, collector
from streams.ambient import Clock
from streams.config import ProcessorSettings, SettingsError
from streams.runtime.background import Threads
from streams.runtime.checkpoint import Step
from streams.runtime.partition import Ambient, GivenUp
from streams.runtime.telemetry import Telemetry, log_as_json
from streams.runtime.wiring import build, nothing
from streams.store.buckets import open_objects
from streams.store.objects import Objects, ObjectsError
from streams.store.rocks import RocksFolder, StateFolderBusyError
from streams.transport.kafka.log import KafkaLog
from streams.transport.log import LogError

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


def run(settings: ProcessorSettings, stop: Stop, on_step: Callable[[Step], None] = nothing) -> None:
    """Until a signal comes. Raises GivenUp, SettingsError, StateFolderBusyError or LogError."""
    telemetry = Telemetry()
    if settings.metrics_port:
        try:
            start_http_server(settings.metrics_port, settings.metrics_host, telemetry.registry)
        except OSError as error:
            raise GivenUp(f"HORARIUM_METRICS_PORT {settings.metrics_port}: {error}") from error
    times = Ambient(Clock(), ambient.monotonic_ms, ambient.Chance().random)
    with ExitStack() as stack:
        # The folder first: two processes of one name must not meet anywhere else.
        folder = RocksFolder(settings.state_folder, settings.instance)
        stack.callback(folder.close)
        log = KafkaLog(settings.kafka)
        stack.callback(log.close)
        objects = _snapshot_place(settings)
        processor = build(
            settings, log, folder, times, telemetry, on_step, objects=objects, background=Threads
        )
        collector.settle()
        telemetry.info("processor started", partitions=settings.partitions, namespace=settings.namespace)
        try:
            while not stop.wanted:
                processor.step()
        finally:
            processor.stop()
    telemetry.info("processor stopped")


def _snapshot_place(settings: ProcessorSettings) -> Objects | None:
    if not settings.snapshot_dir:
        return None
    try:
        return open_objects(settings.snapshot_dir)
    except ObjectsError as error:
        raise GivenUp(f"HORARIUM_SNAPSHOT_DIR {error}") from error


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
