"""The checker knows when a circuit breaker may open, and whom it holds back: the log of one that opens, opens
again and closes is tampered with."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from msgspec.structs import replace

from projections.checker.report import Kind
from schemas.entities import BreakerStatus, OverlapPolicy, RetryJitter, RetryPolicy
from schemas.events import (
    AttemptFailed,
    BreakerClosed,
    BreakerOpened,
    BreakerProbing,
    ExecutionClaimed,
)
from tests.unit.checker.tale import Line, Log, judged, log_of
from tests.unit.checker.test_checker import at, change, without
from tests.unit.core.world import World

RETRY = RetryPolicy(max_attempts=9, backoff_base_sec=5, backoff_factor=1, jitter=RetryJitter.NONE)


@cache
def told() -> tuple[World, tuple[Line, ...]]:
    """Twenty fail; after the pause one of three that are tried fails again; after another one succeeds."""
    world = World()
    world.register("j", every_sec=86_400, overlap=OverlapPolicy.ALLOW, retry=RETRY)
    for n in range(20):
        world.trigger("j", key=f"t{n}")
    for grant in world.claim("W", 20):
        world.fail(grant)
    for sec, good in ((31, False), (92, True)):
        world.at(sec)
        grant, *others = world.claim("W", 3)
        world.complete(grant) if good else world.fail(grant)
        for other in others:
            world.complete(other)
    world.at(95)
    for grant in world.claim("W", 20):
        world.complete(grant)
    return world, tuple(log_of(world))


def opened_again(event: Any) -> bool:
    return bool(event.breaker.openings == 2)


def a_retry(event: Any) -> bool:
    return bool(event.execution.attempt > 1)


def a_retry_while(status: BreakerStatus) -> Callable[[Log], Log]:
    """The first retry is granted while the breaker is as given, and not among those that are tried."""

    def tamper(log: Log) -> Log:
        n = at(log, ExecutionClaimed, a_retry)
        kind = {BreakerStatus.OPEN: BreakerOpened, BreakerStatus.PROBING: BreakerProbing}[status]
        breaker = next(m for m, (_, e) in enumerate(log) if isinstance(e, kind))
        key, event = log[breaker]
        assert isinstance(event, BreakerOpened | BreakerProbing)
        claimed = log[n][1]
        assert isinstance(claimed, ExecutionClaimed)
        now = replace(
            event, at_ms=claimed.at_ms, breaker=replace(event.breaker, status=status, probes=("a", "b", "c"))
        )
        return [*log[:n], (key, now), *log[n:]]

    return tamper


CASES = [
    change(BreakerOpened, failures=9),
    change(BreakerOpened, outcomes=19),
    change(BreakerOpened, outcomes=21),
    change(BreakerOpened, until_ms=lambda breaker: breaker.until_ms + 1),
    change(BreakerOpened, opened_again, openings=1),
    change(BreakerProbing, at_ms=1),
    change(BreakerProbing, lambda e: len(e.breaker.probes) == 3, probes=("a", "b", "c", "d")),
    without(lambda e: isinstance(e, AttemptFailed)),
    without(lambda e: isinstance(e, BreakerProbing)),
    a_retry_while(BreakerStatus.OPEN),
    a_retry_while(BreakerStatus.PROBING),
    lambda log: [*log[: at(log, BreakerOpened) + 1], ("breaker:acme:pool:default", None)],
]


@pytest.mark.parametrize("tamper", CASES, ids=[str(n) for n in range(len(CASES))])
def test_what_is_wrong_with_a_breaker_is_found(tamper: Callable[[Log], Log]) -> None:
    world, log = told()
    assert judged(tamper(list(log)), world.now_ms).found[Kind.BREAKER] >= 1


def test_a_breaker_that_opens_and_closes_as_it_must_is_good() -> None:
    world, log = told()
    assert [type(e) for _, e in log if isinstance(e, BreakerOpened | BreakerClosed)] == [
        BreakerOpened,
        BreakerOpened,
        BreakerClosed,
    ]
    report = judged(log, world.now_ms, world.work)
    assert report.good, report.violations
    assert report.completed == 20


def test_nobody_was_told_of_a_change() -> None:
    world, log = told()
    alone = without(lambda e: getattr(getattr(e, "alert", None), "detail", "").endswith("a probe went well"))
    assert judged(alone(list(log)), world.now_ms).found == {Kind.ALERT: 1}
