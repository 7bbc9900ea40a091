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
from schemas.commands import (
    BackfillJob,
    Beat,
    CancelExecution,
    CancelJob,
    Complete,
    Completion,
    ConfigurePool,
    ConfigureTenant,
    DiscardDeadLetter,
    ExtendLease,
    Fail,
    Failure,
    Handback,
    JobCommand,
    PauseJob,
    RegisterJob,
    RegisterMode,
    Release,
    ReplayDeadLetter,
    RequestWork,
    ResumeJob,
    ScheduleSpec,
    Slot,
    TriggerJob,
    UpdateJob,
    WorkCommand,
)
from schemas.entities import Content, JobStatus, OverlapPolicy, Policies, RetryPolicy
from schemas.entities import ExecutionStatus as E
from schemas.replies import CommandDone
from streams.core.engine import Engine
from streams.core.instants import parse_instant
from tests.properties.test_codec import records, values
from tests.unit.core.world import TENANT, World, rebuild
from tests.unit.runtime.installation import Installation

KINDS = sorted((*get_args(JobCommand), *get_args(WorkCommand)), key=lambda kind: kind.__name__)
JOBS = ["a", "b", "c"]
PAST_MS = parse_instant("2026-05-01T00:00:00Z", "past")
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
    made.register("c", delay_sec=0, retry=RetryPolicy(max_attempts=1))
    made.until(made.now_ms + 61_000)
    for grant in made.claim("A", 1):
        made.fail(grant)
    made.claim("A", 1)
    made.pause("b")
    return made


def ids_of(target: World) -> list[str]:
    """The running execution first, the dead letter last."""
    found = target.executions()
    order = [E.RUNNING, E.PENDING, E.SCHEDULED, E.COMPLETED, E.FAILED]
    found.sort(key=lambda one: order.index(one.status))
    return [found[0].execution_id, "nobody", "a.b.c.d", *(one.execution_id for one in found[1:])]


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


def honest(known: list[str], worker: str) -> list[Any]:
    """One command of each kind as an honest client sends it."""
    envelope = World()._envelope()
    content = Content(name="n", task="t", payload=b"1", labels={"k": "v"})
    spec = ScheduleSpec(every_sec=60)
    job: dict[str, Any] = {"schedule": spec, "pool": "default", "content": content, "policies": Policies()}
    lease: dict[str, Any] = {"execution_id": known[0], "worker_id": worker, "lease_epoch": 1}
    return [
        RegisterJob(**envelope, job_id="new", mode=RegisterMode.PUT, **job),
        UpdateJob(**envelope, job_id="a", version=1, **job),
        PauseJob(**envelope, job_id="a", reason="r"),
        ResumeJob(**envelope, job_id="b"),
        CancelJob(**envelope, job_id="a"),
        CancelExecution(**envelope, execution_id=known[0]),
        TriggerJob(**envelope, job_id="a", payload=b"1"),
        BackfillJob(**envelope, job_id="b", backfill_id="f", scheduled_ms=(PAST_MS,)),
        ReplayDeadLetter(**envelope, execution_id=known[-1], payload=b"1"),
        DiscardDeadLetter(**envelope, execution_id=known[-1]),
        ConfigureTenant(**envelope, max_running=5),
        ConfigurePool(**envelope, pool="default", max_running=5),
        RequestWork(
            **envelope,
            pool="default",
            seq=99,
            grants_seen=2,
            park_sec=10,
            slots=(Slot(worker_id="B", credit=2, claim_id="x"),),
            ack=True,
        ),
        ExtendLease(**envelope, items=(Beat(**lease, progress=b"1"),)),
        Complete(**envelope, items=(Completion(**lease, result=b"1"),)),
        Fail(**envelope, items=(Failure(**lease, error="e"),)),
        Release(**envelope, items=(Handback(**lease),)),
    ]


@st.composite
def bent(draw: st.DrawFn, record: Any, known: list[str]) -> Any:
    """The record with one of its attributes, or of those inside them, changed to anything of its type."""
    field = draw(st.sampled_from(fields(record)))
    value = getattr(record, field.name)
    if isinstance(value, msgspec.Struct) and draw(st.integers(0, 4)):
        return replace(record, **{field.name: draw(bent(value, known))})
    if (
        isinstance(value, tuple)
        and value
        and isinstance(value[0], msgspec.Struct)
        and draw(st.integers(0, 4))
    ):
        return replace(record, **{field.name: (draw(bent(value[0], known)), *value[1:])})
    aims: dict[str, Any] = {
        "job_id": st.sampled_from([*JOBS, "new"]),
        "execution_id": st.sampled_from(known),
        "pool": st.sampled_from(["default", "shared/x", "p"]),
        "schedule": specs(),
        **dict.fromkeys(("version", "lease_epoch", "seq", "park_sec", "credit", "max_attempts"), NUMBERS),
    }
    anything = values(field.type)
    found = draw(st.one_of(aims[field.name], anything) if field.name in aims else anything)
    return replace(record, **{field.name: found})


@st.composite
def hostile(draw: st.DrawFn, known: list[str]) -> Any:
    """A command of any kind, honest but for up to three things in it."""
    command = draw(st.sampled_from(honest(known, "A")))
    for _ in range(draw(st.integers(0, 3))):
        command = draw(bent(command, known))
    return command


@given(st.data())
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_engine_takes_or_refuses_anything(data: st.DataObject) -> None:
    target = world()
    known = ids_of(target)
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


def test_the_honest_ones_are_taken() -> None:
    """Else the hostile ones would all fail for the same reason."""
    for number in range(len(honest(["a.b.c.d"], "A"))):
        target = world()
        command = honest(ids_of(target), "A")[number]
        answers = [one for one in target.run(command) if isinstance(one, CommandDone)]
        assert [one for one in answers if one.code] == [], command


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
