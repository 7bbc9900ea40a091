"""`make demo`: the main job on real input, in about a minute; the last line is the verdict as JSON.

Exit code 0: nothing lost, early or accepted twice. 1: something was. 2: the demo could not be played.
"""

import json
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[2]
# Like the Makefile does: the client library is used from its folder.
sys.path.insert(0, str(ROOT / "clients" / "python"))

from horarium import HorariumError  # noqa: E402

from dev.broker import BrokerError  # noqa: E402
from dev.demo.play import Play, PlayError  # noqa: E402
from dev.demo.table import Lines, Screen, Show  # noqa: E402
from dev.kafka import KafkaNotFound  # noqa: E402
from dev.server import ServerError  # noqa: E402
from projections.checker.report import Report  # noqa: E402
from streams.transport.log import LogError  # noqa: E402

COMPLAINTS = 20  # shown; the counts say how many there are


def _say(line: str) -> None:
    print(line, flush=True)


def _interrupt(number: int, frame: FrameType | None) -> None:
    # Once is enough: a second Ctrl-C must not break off the orderly stop, which is bounded anyway.
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.SIG_IGN)
    raise KeyboardInterrupt


def _play(data: Path) -> Report:
    _say("Starting the server: broker, processor, projections, API")
    with Play(data, _say) as play:
        play.register()
        _say(f"Registered {len(play.plans)} jobs; two workers take them")
        kind = Screen if sys.stdout.isatty() else Lines
        show: Show = kind(play.ledger, play.plans)
        try:
            play.run(show)
        finally:
            show.close()
        return play.verdict()


def main() -> int:
    """Plays, stops everything, and says what came of it."""
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, _interrupt)
    try:
        with tempfile.TemporaryDirectory(prefix="horarium-demo-") as folder:
            verdict = _play(Path(folder))
    except KeyboardInterrupt:
        _say("Stopped.")
        return 130
    except (BrokerError, KafkaNotFound, ServerError, PlayError, HorariumError, LogError) as error:
        print(f"The demo could not be played: {error}", file=sys.stderr)
        return 2
    _say("")
    for violation in verdict.violations[:COMPLAINTS]:
        _say(f"WRONG: {violation}")
    _say(
        "Nothing lost, nothing early, nothing accepted twice."
        if verdict.good
        else "The promises were broken."
    )
    _say(json.dumps(verdict.summary()))
    return 0 if verdict.good else 1


if __name__ == "__main__":
    sys.exit(main())
