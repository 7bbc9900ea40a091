"""What one tenant's flood costs another, and a midnight of many: `python -m bench.fairness`.

Processors and a broker alone, one shared pool, no-op workers. `flood`: tenant A has all its jobs due at one
instant, tenant B one a second, in the same partition; B is measured until A's flood is over, with equal
weights and with A at 100 times B's. `midnight`: cron jobs of very many tenants at one minute, with mixed
priorities. Figures are lateness in milliseconds, over time and by tenant or priority.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

from msgspec.structs import replace

from bench import processors, report
from bench.crowd import POOL, Crowd, Late
from bench.partition import registrations
from bench.wire import Refused
from schemas.commands import RegisterJob, ScheduleSpec
from schemas.entities import OverlapPolicy, Policies, Priority
from streams.ambient import wall_ms

WEIGHTS = (1, 100)
WITHIN_SEC = 3_600.0
LEAD_MS = 5_000
PROBE = 1_000
"""Jobs by which the rate of registrations is learned."""
PARTS = 10
"""Of a curve."""
MINUTE_MS = 60_000


def flood(options: argparse.Namespace, weight: int) -> report.Figures:
    """A against B."""
    with processors.running(partitions=1, shards=1) as running:
        crowd = Crowd(running.log, running.topics, 1)
        try:
            crowd.configure({"a": weight, "b": 1, "probe": 1})
            due_ms = _registered_by(crowd, options.n)
            _register(crowd, _jobs("a", options.n, ScheduleSpec(run_at=_instant(due_ms))), options.n)
            every = ScheduleSpec(every_sec=1, start_at=_instant(due_ms))
            _register(crowd, _jobs("b", 1, every, overlap=OverlapPolicy.ALLOW), 1)
            _check_lead(due_ms)
            _work(crowd, options, options.n, {"a"})
        finally:
            crowd.close()
    flooded = [each for each in crowd.late if each.tenant == "a"]
    over_ms = max(each.due_ms + each.late_ms for each in flooded)
    others = [each for each in crowd.late if each.tenant == "b" and each.due_ms < over_ms]
    return {
        "floodSec": round((over_ms - due_ms) / 1000, 1),
        "executionsPerSec": round(1000 * len(crowd.late) / (over_ms - due_ms)),
        "lateMs": {"a": _spread(flooded), "b": _spread(others)},
        "curve": {"a": _curve(flooded, due_ms, over_ms), "b": _curve(others, due_ms, over_ms)},
        "ofB": len(others),
        **_verdict(crowd, options.n + len([e for e in crowd.late if e.tenant == "b"])),
    }


def midnight(options: argparse.Namespace) -> report.Figures:
    """Cron jobs of many tenants in one minute."""
    tenants = [f"t{number:04d}" for number in range(options.tenants)]
    with processors.running(partitions=options.partitions, shards=1) as running:
        crowd = Crowd(running.log, running.topics, options.partitions)
        try:
            crowd.configure(dict.fromkeys([*tenants, "probe"], 1))
            due_ms = -(-_registered_by(crowd, options.n) // MINUTE_MS) * MINUTE_MS
            at = datetime.fromtimestamp(due_ms / 1000, UTC)
            schedule = ScheduleSpec(cron=f"{at.minute} {at.hour} * * *")
            _register(crowd, _of_many(tenants, options.n, schedule), options.n)
            _check_lead(due_ms)
            _work(crowd, options, options.n, set(tenants))
        finally:
            crowd.close()
    last_ms = max(each.due_ms + each.late_ms for each in crowd.late)
    by_priority = {each: [one for one in crowd.late if one.priority == each] for each in Priority}
    return {
        "executionsPerSec": round(1000 * len(crowd.late) / max(1, last_ms - due_ms)),
        "lateMs": {priority.lower(): _spread(late) for priority, late in by_priority.items()},
        **_verdict(crowd, options.n),
    }


def _registered_by(crowd: Crowd, count: int) -> int:
    """When so many jobs are registered for sure, by the rate of a few that are never due."""
    began_ms = wall_ms()
    never = ScheduleSpec(delay_sec=86_400 * 365)
    _register(crowd, _jobs("probe", PROBE, never), PROBE)
    return wall_ms() + round(1.5 * (wall_ms() - began_ms) * count / PROBE) + LEAD_MS


def _check_lead(due_ms: int) -> None:
    if wall_ms() > due_ms:
        raise Refused("due before all of it was registered: the machine is too busy")


def _jobs(tenant: str, count: int, schedule: ScheduleSpec, **policies: Any) -> Iterator[RegisterJob]:
    for command in registrations(0, count, 0):
        yield replace(command, tenant=tenant, pool=POOL, schedule=schedule, policies=Policies(**policies))


def _of_many(tenants: list[str], count: int, schedule: ScheduleSpec) -> Iterator[RegisterJob]:
    """One in ten is of high priority, three are of low."""
    for number, command in enumerate(_jobs("", count, schedule)):
        turn = number // len(tenants) % 10
        priority = Priority.HIGH if turn == 0 else Priority.LOW if turn > 6 else Priority.NORMAL
        tenant = tenants[number % len(tenants)]
        yield replace(command, tenant=tenant, policies=Policies(priority=priority))


def _register(crowd: Crowd, commands: Iterable[RegisterJob], count: int) -> None:
    made = crowd.register_all(commands, count, WITHIN_SEC)
    if made < count:
        raise Refused(f"{made} of {count} registered")


def _work(crowd: Crowd, options: argparse.Namespace, count: int, tenants: set[str]) -> None:
    """Until all of these tenants' jobs have run."""
    left = count
    while left:
        seen = len(crowd.late)
        before = len(crowd.accepted)
        crowd.work(1, options.credit, WITHIN_SEC)
        if len(crowd.accepted) == before:
            raise Refused(f"{left} of {count} did not run")
        left -= sum(each.tenant in tenants for each in crowd.late[seen:])


def _instant(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat().replace("+00:00", "Z")


def _spread(late: list[Late]) -> dict[str, float]:
    return report.spread([each.late_ms for each in late])


def _curve(late: list[Late], from_ms: int, to_ms: int) -> dict[str, dict[str, float]]:
    """Lateness of what began in each tenth of the time."""
    parts: dict[str, list[Late]] = {}
    step_ms = max(1, (to_ms - from_ms) / PARTS)
    for each in late:
        part = min(PARTS - 1, int((each.due_ms + each.late_ms - from_ms) / step_ms))
        parts.setdefault(f"{part * step_ms / 1000:.1f}s", []).append(each)
    return {name: _spread(part) for name, part in sorted(parts.items(), key=lambda item: float(item[0][:-1]))}


def _verdict(crowd: Crowd, expected: int) -> dict[str, Any]:
    twice = sum(count - 1 for count in crowd.accepted.values())
    early = sum(each.late_ms < 0 for each in crowd.late)
    lost = expected - len(crowd.late)
    return {
        "lost": lost,
        "acceptedTwice": twice,
        "early": early,
        "refused": crowd.refused,
        report.VALID: lost == twice == early == crowd.refused == 0,
    }


def main() -> None:
    """The command line."""
    parser = report.arguments(__doc__ or "")
    parser.add_argument("scenario", choices=["flood", "midnight"])
    parser.add_argument("-n", type=int, default=100_000, help="jobs of A, or of all tenants")
    parser.add_argument("--credit", type=int, default=200, help="free slots at each partition")
    parser.add_argument("--tenants", type=int, default=1_000, help="of a midnight")
    parser.add_argument("--partitions", type=int, default=8, help="of a midnight; a flood is in one")
    options = parser.parse_args()
    if options.scenario == "midnight":
        report.run("midnight", options, lambda: midnight(options))
        return
    for weight in WEIGHTS:
        told = report.only(options, n=options.n, credit=options.credit, weightOfA=weight)
        report.run("flood", told, partial(flood, options, weight))


if __name__ == "__main__":
    main()
