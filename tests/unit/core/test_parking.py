"""Parked requests: credit, turns, hints, sizes of replies, and bad requests (architecture §6)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from schemas import ids
from schemas.codec import encode
from schemas.commands import Completion, RequestWork, Slot
from schemas.replies import Granted, WorkSeen
from streams.core.transaction import Source
from streams.core.validation import check, check_item
from tests.unit.core.world import (
    TENANT,
    World,
    granted,
    hints,
    registration,
    seen,
    work_request,
)


def test_sessions_take_turns() -> None:
    world = World()
    for session in ("s1", "s2"):
        world.run(replace(work_request(world, 1, 9), session=session))
    for name in ("a", "b"):
        world.register(name, delay_sec=0)
    world.run()
    assert {r.session for r in world.replies if isinstance(r, Granted)} == {"s1", "s2"}


def test_a_session_whose_interest_is_over_gets_no_hint() -> None:
    world = World()
    world.run(work_request(world, 1, 0, park_sec=60))
    world.at(16)
    world.register(delay_sec=0)
    assert hints(world.replies) == []


def test_credit_is_used_only_while_fewer_run_than_its_request_says() -> None:
    world = World()
    for name in "abcd":
        world.register(name, delay_sec=0)
    slots = tuple(Slot(worker_id=worker, credit=1) for worker in "ABC")
    bounded = replace(work_request(world, 1, 3), slots=slots, running_max=2)
    grants = granted(world.run(bounded))
    assert len(grants) == 2
    # Its asker is told at once that more is there than it may use.
    (hint,) = hints(world.replies)
    assert (hint.running, hint.backlog) == (2, 2)
    # What was not used is, as soon as one ends.
    before = world.types.count("ExecutionClaimed")
    world.complete(grants[0])
    assert world.types.count("ExecutionClaimed") == before + 1


def test_a_session_that_is_at_its_bound_is_passed_over() -> None:
    world = World()
    for name in "ab":
        world.register(name, delay_sec=0)
    world.run(replace(work_request(world, 1, 1), session="s0"))
    world.run(replace(work_request(world, 1, 9), session="s1", running_max=1))
    world.run(replace(work_request(world, 1, 9), session="s2"))
    assert [r.session for r in world.replies if isinstance(r, Granted)] == ["s0", "s2"]


def test_an_older_request_changes_nothing() -> None:
    world = World()
    world.run(work_request(world, 5, 0))
    world.run(work_request(world, 4, 9))
    world.register(delay_sec=0)
    assert "ExecutionClaimed" not in world.types


def test_credit_lasts_as_long_as_its_request_says_by_the_brokers_clock() -> None:
    world = World()
    world.register("a", delay_sec=5)
    world.run(work_request(world, 1, 1, park_sec=4))
    world.at(6)
    assert "ExecutionClaimed" not in world.types
    world.engine.begin(world.now_ms, world.chance.random)
    old = Source("work", 1, world.now_ms - 10_001)
    world.engine.decide(work_request(world, 2, 1, park_sec=10), old)
    world.engine.grant()
    assert [e for e in world.engine.decided().events if e.type == "ExecutionClaimed"] == []


def test_an_abort_gives_back_the_credit_that_it_spent_and_no_more() -> None:
    world = World()
    for name in "abcd":
        world.register(name, delay_sec=0)
    world.run()
    request = work_request(world, 1, 2)
    engine = world.engine
    for _ in range(3):
        engine.begin(world.now_ms, world.chance.random)
        engine.decide(request, Source("work", 1, world.now_ms))
        engine.grant()
        engine.abort()
    world.run(request)
    world.run()
    assert world.types.count("ExecutionClaimed") == 2


def test_a_hint_of_an_aborted_transaction_is_given_again() -> None:
    world = World()
    world.request()
    engine = world.engine
    job = registration(world, 0)
    engine.begin(world.now_ms, world.chance.random)
    engine.decide(job, Source("commands", 1, 0))
    engine.grant()
    engine.abort()
    assert len(hints(world.run(job))) == 1


def test_workers_of_a_session_take_turns_over_renewed_requests() -> None:
    world = World()
    got: list[str] = []
    for n in range(6):
        slots = (Slot(worker_id="big", credit=50), Slot(worker_id="small", credit=1))
        world.request(*slots)
        world.register(f"j{n}", delay_sec=0)
        got += [e.worker_id for e in world.executions() if e.job_id == f"j{n}"]
    assert set(got) == {"big", "small"}


def test_grants_with_long_errors_fit_replies() -> None:
    world = World()
    for n in range(410):
        world.register(f"j{n}", delay_sec=0)
    grants = world.claim("A", 410)
    for grant in grants[200:]:  # more than fail: no breaker opens
        world.complete(grant)
    for grant in grants[:200]:
        world.fail(grant, "\u20ac" * 8_000, retry_after_sec=1)
    world.at(1)
    replies = world.request(Slot(worker_id="A", credit=200))
    parcels = [r for r in replies if isinstance(r, Granted)]
    assert sum(len(p.grants) for p in parcels) == 200
    assert all(len(encode(p)) < 1_000_000 for p in parcels)


def test_what_a_claim_still_holds_fits_replies() -> None:
    world = World()
    for n in range(8):
        world.register(f"j{n}", delay_sec=0, payload=b"x" * 262_144)
    world.claim("A", 8, claim_id="c")
    replies = world.request(Slot(worker_id="A", credit=8, claim_id="c"), ack=True)
    parcels = [r for r in replies if isinstance(r, Granted | WorkSeen)]
    held = [g for p in parcels for g in (p.grants if isinstance(p, Granted) else p.held)]
    assert len({g.execution.execution_id for g in held}) == 8
    assert all(len(encode(p)) < 1_000_000 for p in parcels)


def test_a_claim_that_the_asker_knows_about_is_not_looked_up_again() -> None:
    world = World()
    for n in range(2):
        world.register(f"j{n}", delay_sec=0)
    world.claim("A", 1, claim_id="c")
    replies = world.request(Slot(worker_id="A", credit=1, claim_id="c", known=True), ack=True)
    (answer,) = [reply for reply in replies if isinstance(reply, WorkSeen)]
    assert answer.held == ()
    assert len(granted(replies)) == 1


@pytest.mark.parametrize(("mine", "others"), [("reports", "mail"), ("shared/x", "shared/y")])
def test_a_claim_of_another_pool_is_not_brought(mine: str, others: str) -> None:
    """Keys are for pools: whoever knows a worker and a claim of another one learns no payload by it."""
    world = World()
    world.register("secret", delay_sec=0, pool=others)
    world.claim("A", claim_id="c", pool=others)
    replies = world.request(Slot(worker_id="A", credit=1, claim_id="c"), pool=mine, ack=True)
    assert seen(replies).held == ()
    replies = world.request(Slot(worker_id="A", credit=1, claim_id="c"), pool=others, ack=True)
    assert [grant.execution.job_id for grant in seen(replies).held] == ["secret"]


def test_abort_without_a_transaction_changes_nothing() -> None:
    """The runtime aborts all partitions of a transaction in doubt, also those with positions alone."""
    world = World()
    world.register(delay_sec=1)
    world.engine.abort()
    world.at(1)
    assert len(world.executions()) == 1


ENVELOPE: dict[str, Any] = {
    "command_id": "c",
    "tenant": TENANT,
    "actor": "a",
    "reply_partition": 0,
    "session": "s",
}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"grants_seen": 2**63 - 1}, "grantsSeen"),
        ({"grants_seen": -1}, "grantsSeen"),
        ({"seq": -1}, "seq"),
        ({"session": "s" * 300}, "session"),
        ({"session": "a\x00b"}, "session"),
        ({"actor": "a" * 300}, "actor"),
        ({"command_id": "c\ud800"}, "commandId"),
        ({"command_id": "c\x00"}, "commandId"),
        ({"reply_partition": -1}, "session"),
    ],
)
def test_bad_requests_name_the_field(changes: dict[str, Any], field: str) -> None:
    request: dict[str, Any] = {"pool": "p", "seq": 1, "grants_seen": 0, "park_sec": 1, **ENVELOPE, **changes}
    assert field in [problem.field for problem in check(RequestWork(**request))]


@pytest.mark.parametrize(
    "execution_id", ["j.1.1." + "s" * 1_000, "j.1.\x00.s", "j.1.1.\ud800", "j. .1.s", "j.1.1.s\n"]
)
def test_no_execution_has_such_an_id(execution_id: str) -> None:
    assert ids.job_id_of(execution_id) is None
    item = Completion(execution_id=execution_id, worker_id="A", lease_epoch=1)
    assert [problem.field for problem in check_item(item, known=False)] == ["executionId"]


def test_ranges_are_told_in_plain_numbers() -> None:
    answer = World().register(delay_sec=1, timeout_sec=9_999_999_999)
    assert answer.detail == "timeoutSec: is 1 to 604800"
    answer = World().register(every_sec=2**40)
    assert answer.detail == "schedule.everySec: is 1 to 31536000"


def test_a_pass_fills_one_worker_before_the_next_and_what_it_could_not_fill_lapses() -> None:
    """Its claim is answered with what it got; more would come too late and have to be handed back."""
    world = World()
    for n in range(5):
        world.register(f"j{n}", delay_sec=0)
    world.run()
    slots = [Slot(worker_id=name, credit=4) for name in "ABC"]
    workers = [g.execution.worker_id for g in granted(world.request(*slots))]
    assert workers == ["A", "A", "A", "A", "B"]
    world.register("later", delay_sec=0)
    (late,) = granted(world.replies[-2:])
    assert late.execution.worker_id == "C"
