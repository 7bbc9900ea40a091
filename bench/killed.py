"""kill -9 of a processor under a steady rate: `python -m bench.killed`.

Two processors share the partitions; jobs become due at a steady rate in all of them. In the middle one is
killed and stays down. `backUnder1SecMs`: from the kill until the last execution of its partitions came that
was more than a second late. `lateMsBySec` is the curve: the latest execution that came in each second after
the kill (negative: before it), for the partitions of the killed one and for the others.
"""

from __future__ import annotations

import argparse

from bench import processors, report
from bench.processor import LEAD_MS
from bench.service import Came
from streams.ambient import wall_ms

VICTIM = "p1"
GOAL_MS = 1_000
SEEN_SEC = 3
"""The curve begins so long before the kill."""


def measure(options: argparse.Namespace) -> report.Figures:
    """One kill."""
    count = round(options.rate * options.seconds)
    with (
        processors.running(processors=2, partitions=options.partitions, shards=options.partitions) as running,
        running.service() as service,
    ):
        rate = service.warm_up(options.credit)
        first_ms = wall_ms() + round(1_500 * count / rate) + LEAD_MS
        made = service.register(count, first_ms, report.within_sec(count), 1000 / options.rate)
        owners = running.wait_until_running(0, owners=2)
        kill_ms = first_ms + round(500 * options.seconds)
        killed: list[int] = []

        def kill() -> None:
            if not killed and wall_ms() >= kill_ms:
                running.kill(VICTIM)
                killed.append(wall_ms())

        service.work(made, options.credit, options.seconds + report.within_sec(made), kill)
        theirs = {number for number, owner in owners.items() if owner == VICTIM}
        came_of_it = [each for each in service.came if each.partition in theirs]
        others = [each for each in service.came if each.partition not in theirs]
        verdict = service.verdict(made)
        return {
            "partitionsKilled": len(theirs),
            "backUnder1SecMs": back_under_ms(came_of_it, killed[0]),
            "othersLateMs": report.spread([each.received_ms - each.due_ms for each in others]),
            "killedLateMs": report.spread([each.received_ms - each.due_ms for each in came_of_it]),
            "lateMsBySec": {"killed": curve(came_of_it, killed[0]), "others": curve(others, killed[0])},
            **verdict,
            report.VALID: verdict[report.VALID] and bool(theirs),
        }


def back_under_ms(came: list[Came], killed_ms: int) -> int:
    """From the kill until the last execution came that was more than a second late; 0 if none was."""
    late = [each.received_ms - killed_ms for each in came if each.received_ms - each.due_ms > GOAL_MS]
    return max(late, default=0)


def curve(came: list[Came], killed_ms: int) -> dict[str, int]:
    """The most that an execution was late, by the second after the kill in which it came."""
    worst: dict[int, int] = {}
    for each in came:
        second = (each.received_ms - killed_ms) // 1000
        if second >= -SEEN_SEC:
            worst[second] = max(worst.get(second, 0), each.received_ms - each.due_ms)
    return {str(second): worst[second] for second in sorted(worst)}


def main() -> None:
    """The command line."""
    parser = report.arguments(__doc__ or "")
    parser.add_argument("--rate", type=float, default=250, help="jobs due a second")
    parser.add_argument("--seconds", type=float, default=40, help="for so long; the kill is in the middle")
    parser.add_argument("--partitions", type=int, default=8, help="of the installation")
    parser.add_argument("--credit", type=int, default=200, help="free slots at each partition")
    options = parser.parse_args()
    report.run("killed", options, lambda: measure(options))


if __name__ == "__main__":
    main()
