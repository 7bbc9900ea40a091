"""`make up`: the whole server in the foreground, from nothing to a first curl.

Its state lies under `$HORARIUM_DATA` (default `.horarium`), so that it goes on where it was when it is
started again. A part that dies is reported and started again after a back-off. Ctrl-C or SIGTERM ends
everything in order.
"""

import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from dev.broker import BrokerError
from dev.kafka import KafkaNotFound
from dev.server import DEFAULT_HTTP_PORT, Server, ServerError

TEND_SEC = 0.2


def _interrupt(number: int, frame: FrameType | None) -> None:
    # Once is enough: a second Ctrl-C must not break off the orderly stop, which is bounded anyway.
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.SIG_IGN)
    raise KeyboardInterrupt


def _say(line: str) -> None:
    print(line, flush=True)


def _welcome(server: Server) -> str:
    curl = f"curl -s -H 'Authorization: Bearer {server.key}' -H 'Content-Type: application/json'"
    job = '{"name": "hello", "schedule": {"delaySec": 5}, "payload": {"any": "json"}}'
    claim = '{"workerId": "me", "max": 1, "waitSec": 20}'
    operator = [f"  operator key: {server.operator_key}"] if server.operator_key else []
    return "\n".join(
        [
            "",
            f"Horarium is ready at {server.url}",
            f"  key:          {server.key}",
            *operator,
            f"  data, logs:   {server.data_dir}",
            "",
            "Register a job that is due in 5 s, then claim its execution:",
            f"  {curl} {server.url}/v1/jobs -d '{job}'",
            f"  {curl} {server.url}/v1/pools/default/claim -d '{claim}'",
            "",
            "Ctrl-C stops it.",
        ]
    )


def main() -> None:
    """Runs until a signal comes."""
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, _interrupt)
    try:
        server = Server(
            Path(os.environ.get("HORARIUM_DATA") or ".horarium"),
            processors=int(os.environ.get("HORARIUM_PROCESSORS") or 1),
            http_port=int(os.environ.get("HORARIUM_HTTP_PORT") or DEFAULT_HTTP_PORT),
            say=_say,
        )
        with server:
            _say(_welcome(server))
            while True:
                server.tend()
                threading.Event().wait(TEND_SEC)
    except KeyboardInterrupt:
        _say("Stopped.")
    except (BrokerError, KafkaNotFound, ServerError, ValueError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
