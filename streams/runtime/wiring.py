"""Puts a processor together on any log, store and clock: the door of `main`, and of simulations.

Owns which part gets which. May not know Kafka or RocksDB, so that a simulation loads neither.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from schemas import codec
from streams.config import ProcessorSettings
from streams.core.engine import Engine
from streams.core.room import Room
from streams.runtime.background import Background, Slices
from streams.runtime.checkpoint import Checkpoint, Step
from streams.runtime.inquiries import Inquiries
from streams.runtime.late import LateReplies
from streams.runtime.partition import Ambient
from streams.runtime.predecessor import Predecessors
from streams.runtime.processor import Processor
from streams.runtime.recovery import Recovery
from streams.runtime.snapshots import Library
from streams.runtime.snapshotting import Snapshotter
from streams.runtime.starting import EngineFactory, StartingStores
from streams.runtime.startup import ensure_topics, insist
from streams.runtime.status import StatusBoard
from streams.runtime.telemetry import Telemetry
from streams.runtime.tenants import TenantDirectory
from streams.store.kv import StoreFolder
from streams.store.objects import Objects
from streams.transport.log import Log


def nothing(step: Step) -> None:
    """What a processor does at each commit step when nobody wants to know."""


def build(
    settings: ProcessorSettings,
    log: Log,
    folder: StoreFolder,
    times: Ambient,
    telemetry: Telemetry,
    on_step: Callable[[Step], None] = nothing,
    make_engine: EngineFactory | None = None,
    objects: Objects | None = None,
    background: Callable[[], Background] = Slices,
) -> Processor:
    """A processor whose topics are checked and whose tenants are read; it owns nothing yet.

    `objects`: where snapshots are kept, if anywhere. `background`: makes whoever copies them, and whoever
    asks the log for what a take-over has to wait for: neither waits for the other. By default the loop.
    """
    topics = settings.topics
    ensure_topics(log, settings, telemetry)
    tenants = TenantDirectory(log, topics, settings.partitions, codec, telemetry)
    insist(tenants.load, made=True)
    configure = partial(tenants.configure, settings.dev_shards, settings.dev_jitter, times.clock.now_ms())
    insist(configure, made=True)
    checkpoint = insist(
        partial(Checkpoint, log, topics, settings.transactional_id, codec, times, telemetry, on_step)
    )
    predecessors = Predecessors(log, topics, settings.transactional_id, codec, telemetry)
    inquiries = Inquiries(
        log, topics, settings.group, predecessors, tenants.end_offset, background(), times, telemetry
    )
    copying = background()
    library = None if objects is None else Library(objects, settings.namespace)
    room = Room()
    make_engine = make_engine or (lambda number, store: Engine(number, store, codec, tenants, room))
    stores = StartingStores(log, topics, folder, make_engine, library, copying, times, telemetry)
    recovery = Recovery(log, topics, stores, codec, times, inquiries, tenants, telemetry)
    every_ms = settings.snapshot_sec * 1000
    snapshots = Snapshotter(folder, library, copying, settings.instance, every_ms, times, telemetry)
    status = StatusBoard(topics, settings.instance, checkpoint.publish, codec, times, telemetry)
    return Processor(
        log,
        topics,
        settings.group,
        settings.instance,
        settings.partitions,
        times,
        codec,
        checkpoint,
        recovery,
        status,
        tenants,
        LateReplies(log, topics, codec, times.monotonic_ms, checkpoint.answer),
        snapshots,
        telemetry,
    )
