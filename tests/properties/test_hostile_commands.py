"""Command records that no honest client sends: whatever is in them, the engine answers or refuses, a refusal
changes nothing, and the partition goes on. Bytes that are no record at all cost a quarantined record."""

from __future__ import annotations

import base64
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import fields, replace

from projections.paging import SortKey, StaleTokenError, _open, _seal
from schemas import codec
from schemas.codec import MARKER
from schemas.commands import JobCommand, LeaseRef, RegisterJob, RegisterMode, ScheduleSpec, WorkCommand
from schemas.entities import Content, JobStatus, OverlapPolicy, Policies, RetryPolicy
from schemas.replies import CommandDone
from streams.core.engine import Engine
from tests.properties.test_codec import records
from tests.unit.core.world import TENANT, World, rebuild
from tests.unit.runtime.installation import Installation

KINDS = sorted((*get_args(JobCommand), *get_args(WorkCommand)), key=lambda kind: kind.__name__)
JOBS = ["a", "b", "c"]
INSTANTS = [
    "2026-05-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00Z",
    "2026-05-01T24:00:00Z",
    "",
]
CRONS = [
    "* * * * *",
    "0 0 31 2 *",
    "*/0 * * * *",
    "H H(0-0) L * 5#5",
    "@yearly",
    "@reboot",
    "\x00",
    "9" * 400,
]
ZONES = ["UTC", "Europe/London", "../etc/passwd", "Factory", "", "\x00"]
NUMBERS = st.one_of(
    st.sampled_from([-(2**63), -1, 0, 1, 2, 60, 1_000, 2**31, 2**53, 2**63 - 1]), st.integers(0, 100)
)


def world() -> World:
    """Jobs that run, wait, are paused and over."""
    made = World()
    made.register("a", every_sec=60, overlap=OverlapPolicy.QUEUE, retry=RetryPolicy(max_attempts=1))
    made.register("b", cron="* * * * *", time_zone="Europe/London")
    made.register("c", delay_sec=0)
    made.until(made.now_ms + 61_000)
    for grant in made.claim("A", 1):
        made.fail(grant)
    made.claim("A", 1)
    made.pause("b")
    return made


def specs() -> st.SearchStrategy[ScheduleSpec]:
    """Schedules with one or more members, in and out of range."""
    optional: dict[str, st.SearchStrategy[Any]] = {
        "cron": st.sampled_from(CRONS),
        "every_sec": NUMBERS,
        "delay_sec": NUMBERS,
        "run_at": st.sampled_from(INSTANTS),
        "time_zone": st.sampled_from(ZONES),
        "start_at": st.sampled_from(INSTANTS),
        "end_at": st.sampled_from(INSTANTS),
        "max_runs": NUMBERS,
        "jitter_sec": NUMBERS,
    }
    return st.fixed_dictionaries({}, optional=optional).map(lambda given: ScheduleSpec(**given))


@st.composite
def hostile(draw: st.DrawFn, known: list[str]) -> Any:
    """A record of any kind with anything in it, most of it aimed at what is there."""
    command = draw(records(draw(st.sampled_from(KINDS))))
    aims: dict[str, Any] = {
        "tenant": st.sampled_from([TENANT, TENANT, TENANT, "other"]),
        "job_id": st.sampled_from(JOBS),
        "execution_id": st.sampled_from(known),
        "pool": st.sampled_from(["default", "shared/x", "p"]),
        "version": st.integers(0, 3),
        "schedule": specs(),
    }
    changes = {
        field.name: draw(aims[field.name])
        for field in fields(command)
        if field.name in aims and draw(st.integers(0, 9)) > 0
    }
    items = getattr(command, "items", ())
    if items and isinstance(items[0], LeaseRef):
        aimed = {"worker_id": "A", "lease_epoch": draw(st.integers(0, 2))}
        changes["items"] = tuple(
            replace(one, execution_id=draw(st.sampled_from(known)), **aimed) for one in items
        )
    return replace(command, **changes)


@given(st.data())
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_engine_takes_or_refuses_anything(data: st.DataObject) -> None:
    target = world()
    known = [execution.execution_id for execution in target.executions()] + ["nobody", "a.b.c.d"]
    for _ in range(3):
        command = data.draw(hostile(known))
        before = target.engine.digest()
        replies = target.run(command)
        assert target.quarantined == [], (command, target.quarantined)
        assert "internal_error" not in [alert.kind for alert in target.alerts], command
        refused = [one for one in replies if isinstance(one, CommandDone) and one.code]
        if refused:
            assert target.engine.digest() == before, (command, refused)
    assert rebuild(target.log).digest() == target.engine.digest()
    # It goes on: another hour, and every job can still be cancelled.
    target.until(target.now_ms + 60_000)
    target.now_ms += 3_600_000
    target.run()
    assert target.quarantined == []
    for job_id in JOBS:
        if target.knows_job(job_id):
            target.cancel_job(job_id)
            assert target.cursor(job_id).status in (JobStatus.CANCELLED, JobStatus.COMPLETED)
    assert isinstance(target.rebuilt(), Engine)


@st.composite
def rubbish(draw: st.DrawFn) -> bytes:
    """Random bytes, and good records that were cut, prolonged or changed in a byte."""
    plain = draw(st.binary(max_size=64))
    if draw(st.booleans()):
        return draw(st.sampled_from([b"", MARKER])) + plain
    good = bytearray(codec.encode(draw(records(draw(st.sampled_from(KINDS))))))
    at = draw(st.integers(0, len(good) - 1))
    match draw(st.sampled_from(["cut", "longer", "changed"])):
        case "cut":
            del good[at:]
        case "longer":
            good += plain
        case _:
            good[at] ^= draw(st.integers(1, 255))
    return bytes(good)


@given(st.lists(st.tuples(st.sampled_from(["commands", "work"]), rubbish()), min_size=1, max_size=8))
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_partition_survives_any_bytes(sent: list[tuple[str, bytes]]) -> None:
    installation = Installation()
    process = installation.live()
    for topic, value in sent:
        installation.send(getattr(installation.topics, topic), 0, value)
    installation.run(process, steps=20)
    assert process.running == [0]
    installation.send(installation.topics.commands, 0, codec.encode(registration()))
    installation.run(process, steps=20)
    assert process.running == [0]
    keys = [record.key for record in installation.read(installation.topics.events)]
    assert f"job:{TENANT}/after-all-that".encode() in keys


def registration() -> RegisterJob:
    return RegisterJob(
        **World()._envelope(),
        job_id="after-all-that",
        mode=RegisterMode.CREATE,
        schedule=ScheduleSpec(delay_sec=3600),
        pool="default",
        content=Content(name="n", task="t"),
        policies=Policies(),
    )


@given(st.text(max_size=200), st.binary(max_size=20), st.integers(0, 10_000), st.integers(1, 255))
def test_page_tokens_are_theirs_or_stale(text: str, question: bytes, at: int, flip: int) -> None:
    """Whatever is sent as a token opens to what it was made for, or not at all. (The last bits of its text
    and padding may differ: they mean nothing.)"""
    secret = b"s" * 32
    key = SortKey(5, "a")
    token = _seal(msgspec.msgpack.encode(key), secret, question)
    assert _open(token, secret, question) == key
    raw = bytearray(base64.urlsafe_b64decode(token + "=="))
    raw[at % len(raw)] ^= flip
    changed = base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
    for bad in (text, changed, token[:-1], token + "A", f"{token}=", token.swapcase()):
        try:
            assert _open(bad, secret, question) == key
        except StaleTokenError:
            continue
        assert bad.startswith(token[:-1])
    with pytest.raises(StaleTokenError):
        _open(token, secret, question + b"x")
