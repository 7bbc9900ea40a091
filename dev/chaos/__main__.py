"""`make chaos`: real processes, real faults, and the checker's verdict; the last line is JSON.

Exit code 0: every promise was kept. 1: one was broken. 2: the chaos could not be played.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Like the Makefile does: the client library is used from its folder.
sys.path.insert(0, str(ROOT / "clients" / "python"))

from horarium import HorariumError  # noqa: E402

from dev.broker import BrokerError  # noqa: E402
from dev.chaos import faults  # noqa: E402
from dev.chaos.run import play  # noqa: E402
from dev.chaos.stage import StageError  # noqa: E402
from dev.server import ServerError  # noqa: E402
from streams.ambient import Chance  # noqa: E402

SHOWN = 30


def _say(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    """Plays one chaos; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m dev.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=4.0, help="at least so long, and every fault once")
    parser.add_argument("--seed", type=int, default=None, help="order and victims of the faults")
    parser.add_argument("--only", nargs="*", default=[], help="names of faults, such as kill_broker")
    parser.add_argument("--folder", type=Path, default=None, help="where data and logs are kept afterwards")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else Chance().randrange(1_000_000)
    chosen = [one for one in faults.possible() if not options.only or one.__name__ in options.only]
    _say(f"seed {seed}: make chaos SEED={seed} MINUTES={options.minutes:g} plays it again")
    try:
        with tempfile.TemporaryDirectory(prefix="horarium-chaos-") as temporary:
            folder = options.folder or Path(temporary)
            result = play(folder, seed=seed, faults=chosen, seconds=options.minutes * 60, say=_say)
    except (BrokerError, ServerError, StageError, HorariumError) as error:
        print(f"The chaos could not be played to its end: {error}", file=sys.stderr)
        return 2
    for line in [*result.wrong, *map(str, result.report.violations[:SHOWN])]:
        _say(f"WRONG: {line}")
    _say("Every promise was kept." if result.good else "PROMISES WERE BROKEN.")
    _say(json.dumps(result.summary()))
    return 0 if result.good else 1


if __name__ == "__main__":
    sys.exit(main())
