"""Process entry of the read side: `python -m projections.main` follows the log until SIGTERM.

`python -m projections.main rebuild` drops the read model and replays the log's events into it, then ends. A
follower that runs meanwhile is not disturbed: it finds the positions moved and goes on from where they are.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from threading import Event

from projections.consumer import Follower, WrongPartitionsError
from projections.retention import Retention
from projections.settings import ProjectionSettings
from projections.store import ForeignDatabaseError, Store
from streams import collector
from streams.config import SettingsError
from streams.transport.kafka.log import KafkaLog

logger = logging.getLogger(__name__)

FAILED = 1
WRONG_SETTINGS = 2


def main(arguments: list[str] | None = None) -> int:
    """Runs until a signal; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m projections.main", description=__doc__)
    parser.add_argument("action", nargs="?", choices=("follow", "rebuild"), default="follow")
    action = parser.parse_args(arguments).action
    try:
        settings = ProjectionSettings.load()
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return WRONG_SETTINGS
    logging.basicConfig(level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    stop = Event()
    _stop_at_signals(stop)
    try:
        return run(settings, action, stop)
    except (WrongPartitionsError, ForeignDatabaseError) as error:
        logger.error("%s", error)
        return FAILED


def run(settings: ProjectionSettings, action: str, stop: Event) -> int:
    """Follows or rebuilds with these settings."""
    store = Store(settings.store_url)
    log = KafkaLog(settings.kafka)
    follower = Follower(
        store, log, settings.topics.events, settings.partitions, Retention(settings.detail_days)
    )
    collector.settle()
    try:
        if action == "rebuild":
            store.recreate()
            folded = follower.catch_up(stop)
            logger.info("replayed %d events", folded)
            return FAILED if stop.is_set() else 0
        logger.info("following %s into %s", settings.topics.events, store.url.render_as_string())
        follower.run(stop)
        return 0
    finally:
        follower.close()
        log.close()
        store.close()


def _stop_at_signals(stop: Event) -> None:
    def end(number: int, _frame: object) -> None:
        stop.set()
        # A second one ends it at once: it may be waiting for a broker that is not there.
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)


if __name__ == "__main__":
    sys.exit(main())
