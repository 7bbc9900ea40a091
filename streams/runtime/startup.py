"""Before anything is served: the topics are there and as they must be, and tenants are known.

Owns those checks. A wrong number of partitions is refused, since every id would route elsewhere; durability
that a production cluster should have is only missed aloud.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from schemas.topics import Topics, catalogue
from streams.config import ProcessorSettings
from streams.runtime.partition import GivenUp
from streams.runtime.telemetry import Telemetry
from streams.transport.log import Log, LogError, LogRefused, LogRetriable

T = TypeVar("T")

PRODUCTION_REPLICATION = 3
TRIES = 150
PAUSE_SEC = 0.2
"""Between tries: half a minute for brokers that still elect leaders of new topics."""


def ensure_topics(log: Log, settings: ProcessorSettings, telemetry: Telemetry) -> None:
    """Makes what is missing and compares what is there."""
    specs = catalogue(settings.namespace, settings.partitions, settings.replication)
    if settings.replication < PRODUCTION_REPLICATION:
        telemetry.warning(
            f"HORARIUM_REPLICATION is {settings.replication}: a broker that dies takes records with it; "
            f"production needs {PRODUCTION_REPLICATION}"
        )
    for tenant, shards in settings.dev_shards.items():
        if shards > settings.partitions:
            raise GivenUp(f"HORARIUM_DEV_SHARDS: {tenant!r} has more shards than there are partitions")
    insist(partial(log.create_topics, specs))
    fixed = Topics(settings.namespace)
    for topic in (fixed.commands, fixed.work, fixed.events):
        count = insist(partial(log.partitions, topic))
        if count != settings.partitions:
            raise GivenUp(
                f"topic {topic} has {count} partitions and HORARIUM_PARTITIONS is {settings.partitions}; the "
                "number of partitions is fixed for the life of an installation"
            )


def insist(call: Callable[[], T], *, made: bool = False) -> T:
    """Calls until the log answers; GivenUp when it does not or refuses. Only before the loop starts.

    `made`: the topics were just made, so a broker that refuses them has not heard of them yet (each of a
    cluster's brokers hears for itself)."""
    waits = (LogRetriable, LogRefused) if made else (LogRetriable,)
    for left in reversed(range(TRIES)):
        try:
            return call()
        except waits as error:
            if not left:
                raise GivenUp(f"no answer from Kafka: {error}") from error
            threading.Event().wait(PAUSE_SEC)
        except LogError as error:
            raise GivenUp(f"Kafka: {error}") from error
    raise AssertionError("unreachable")
