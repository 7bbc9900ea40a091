"""Checks the log of a live installation: `python -m projections.checker`, with the HORARIUM_* settings of it.

Reads every committed event up to the ends seen at the start, and disturbs nobody. Exit code 0: every promise
was kept; 1: one was broken; 2: the log could not be read.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping

from projections.checker.checker import GRACE_MS, Checker
from projections.checker.reading import read_all
from projections.checker.report import Report
from schemas.topics import DAY_MS, DEFAULT_AUDIT_RETENTION_MS
from streams.ambient import wall_ms
from streams.config import CommonSettings, SettingsError
from streams.transport.kafka.log import KafkaLog
from streams.transport.log import LogError

BROKEN = 1
UNREADABLE = 2
SHOWN = 50


def main(arguments: list[str] | None = None) -> int:
    """Checks and prints; the exit code."""
    options = _options(arguments)
    try:
        settings = CommonSettings.load()
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return UNREADABLE
    now_ms = wall_ms()
    checker = Checker(complete_since_ms=now_ms - options.complete_days * DAY_MS)
    log = KafkaLog(settings.kafka)
    try:
        read_all(log, settings.topics, checker, _progress)
    except LogError as error:
        sys.stderr.write(f"the log cannot be read: {error}\n")
        return UNREADABLE
    finally:
        log.close()
    report = checker.finish(now_ms, drained=options.drained, grace_ms=options.grace_sec * 1000)
    sys.stdout.write(as_json(report) if options.json else as_text(report))
    return 0 if report.good else BROKEN


def _progress(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m projections.checker", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    parser.add_argument(
        "--grace-sec",
        type=int,
        default=GRACE_MS // 1000,
        help="what was due so shortly before the start need not be decided yet (%(default)s)",
    )
    parser.add_argument(
        "--complete-days",
        type=int,
        default=DEFAULT_AUDIT_RETENTION_MS // DAY_MS,
        help="events younger than this were not compacted: min.compaction.lag.ms of the topic (%(default)s)",
    )
    parser.add_argument("--drained", action="store_true", help="nothing may be unfinished at the end")
    return parser.parse_args(arguments)


def as_json(report: Report) -> str:
    """For programs: one object on one line."""
    told = [{"kind": one.kind, "subject": one.subject, "detail": one.detail} for one in report.violations]
    return json.dumps(report.summary() | {"good": report.good, "found": told[:SHOWN]}) + "\n"


def as_text(report: Report) -> str:
    """For people: a line a number, then what is wrong."""
    summary = report.summary()
    lines = [f"events {report.events}, jobs {report.jobs}", _row("occurrences", summary["occurrences"])]
    lines += [_row("executions", summary["executions"])]
    lines += [f"attempts failed {report.attempts_failed}, redelivered {report.redelivered}"]
    lines += [_row("lateness ms", summary["latenessMs"])]
    if report.unjudged:
        lines.append(_row("not judged", summary["unjudged"]))
    lines.append(_row("violations", {kind: count for kind, count in summary["violations"].items() if count}))
    lines += [f"WRONG: {violation}" for violation in report.violations[:SHOWN]]
    lines.append("every promise was kept" if report.good else "PROMISES WERE BROKEN")
    return "\n".join(lines) + "\n"


def _row(title: str, numbers: Mapping[str, object]) -> str:
    parts = [
        f"{name} ({_row('', value)})" if isinstance(value, dict) else f"{name} {value}"
        for name, value in numbers.items()
    ]
    return f"{title}: {', '.join(parts) or 'none'}".removeprefix(": ")


if __name__ == "__main__":
    sys.exit(main())
