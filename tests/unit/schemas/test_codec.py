"""The codec by example: golden bytes, strict types, old and newer writers, reasons of failure."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pytest

from schemas import avsc, codec, decoders
from schemas.codec import MARKER, UndecodableError, UnencodableError, decode, encode, fingerprint_of
from schemas.commands import Beat, ExtendLease, RegisterJob, ScheduleSpec
from schemas.decoders import DecoderCompiler
from schemas.encoders import EncoderCompiler
from schemas.entities import (
    Content,
    Execution,
    ExecutionKind,
    ExecutionStatus,
    JobStatus,
    Lease,
    LeaseEnd,
    Policies,
    Priority,
    Record,
    RetryPolicy,
    Tenant,
    WaitingFor,
)
from schemas.events import ExecutionFired
from tests.golden import golden, sample

GOLDEN = [(version, name) for version in avsc.released_versions() for name in golden(version)]


@pytest.mark.parametrize(("version", "name"), GOLDEN)
def test_golden_bytes_are_read_for_ever(version: str, name: str) -> None:
    data, record = golden(version)[name]
    cls = avsc.record_classes()[name]
    # A field that came later is absent in the stored record and takes its default here too.
    expected = msgspec.convert(record, cls)
    assert decode(data) == expected
    if data[2:10] == fingerprint_of(avsc.complete(name)):
        assert encode(expected) == data


def test_every_released_type_has_a_golden_record() -> None:
    for version in avsc.released_versions():
        assert golden(version).keys() == avsc.released(version).keys()


SPEC = ScheduleSpec(delay_sec=5)
CONTENT = Content(name="n", task="t", labels={"team": "x"})
REGISTER = RegisterJob(
    command_id="c",
    tenant="acme",
    actor="key",
    job_id="j",
    schedule=SPEC,
    pool="p",
    content=CONTENT,
    policies=Policies(),
)
BEAT = Beat(execution_id="e", worker_id="w", lease_epoch=1)
EXTEND = ExtendLease(command_id="c", tenant="acme", actor="key", items=(BEAT,))

EXECUTION = Execution(
    tenant="acme",
    execution_id="j.1.2.s",
    job_version=1,
    kind=ExecutionKind.MANUAL,
    pool="p",
    priority=Priority.LOW,
    scheduled_ms=2,
    due_ms=3,
    fired_ms=4,
    status=ExecutionStatus.PENDING,
    waiting_for=WaitingFor.WORKER,
    replays=7,
)


def replace(record: Record, **changes: Any) -> Record:
    return msgspec.structs.replace(record, **changes)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (replace(REGISTER, reply_partition=True), r"Expected `int`, got `bool` - at `\$\.replyPartition`"),
        (replace(REGISTER, reply_partition=1.0), r"got `float` - at `\$\.replyPartition`"),
        (replace(REGISTER, reply_partition=2**63), "does not fit in 64 bits"),
        (replace(REGISTER, reply_partition=-(2**63) - 1), "does not fit in 64 bits"),
        (replace(REGISTER, reply_partition=None), r"got `null` - at `\$\.replyPartition`"),
        (replace(REGISTER, tenant=b"acme"), r"at `\$\.tenant`|has no attribute 'encode'"),
        (replace(REGISTER, tenant=None), r"got `null` - at `\$\.tenant`"),
        (replace(REGISTER, tenant="\ud800"), "surrogates not allowed"),
        (replace(REGISTER, mode="CREATE"), "'str' object has no attribute '_value_'"),
        (replace(REGISTER, mode=JobStatus.ACTIVE), r"Invalid enum value 'ACTIVE' - at `\$\.mode`"),
        (replace(REGISTER, schedule=ScheduleSpec(delay_sec=True)), r"at `\$\.schedule\.delaySec`"),
        (replace(REGISTER, schedule=replace(SPEC, allow_past=1)), r"at `\$\.schedule\.allowPast`"),
        (replace(REGISTER, schedule={"delaySec": 5}), "has no attribute|expected ScheduleSpec, got dict"),
        (replace(REGISTER, content=replace(CONTENT, payload="x")), "str"),
        (replace(REGISTER, content=replace(CONTENT, labels={"a": 1})), r"labels"),
        (replace(REGISTER, content=replace(CONTENT, labels=None)), r"labels"),
        (replace(REGISTER, policies=Policies(retry=RetryPolicy(backoff_factor=True))), r"backoffFactor"),
        (replace(REGISTER, mode="\ud800"), "surrogates not allowed"),
        (replace(REGISTER, policies=Policies(retry=RetryPolicy(backoff_factor=10**400))), "out of range"),
        (replace(EXTEND, items=[BEAT]), "expected tuple, got list"),
        (replace(EXTEND, items=(replace(BEAT, lease_epoch=True),)), r"items\[0\]\.leaseEpoch"),
        (replace(EXTEND, items=(None,)), "items"),
    ],
)
def test_a_wrong_type_is_refused(record: Record, reason: str) -> None:
    # The number 1 was seen before: a cache must not let True pass for it.
    encode(replace(REGISTER, reply_partition=1))
    with pytest.raises(UnencodableError, match=reason):
        encode(record)


def test_a_member_of_an_enum_of_texts_is_a_text() -> None:
    record = replace(EXTEND, actor=Priority.LOW)
    assert encode(record) == encode(replace(EXTEND, actor="LOW"))


def test_an_int_is_a_float_as_python_has_it() -> None:
    record = replace(REGISTER, policies=Policies(retry=RetryPolicy(backoff_factor=2)))
    assert decode(encode(record)) == record


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"attempt": True}, "got `bool`"),
        ({"delivery_count": False}, "got `bool`"),
        ({"replays": 0.0}, "got `float`"),
        ({"worker_id": b""}, "claimId|workerId|no attribute 'encode'"),
        ({"error": None}, "got `null`"),
        ({"result": ""}, "a bytes-like object is required|expected (a )?bytes"),
        ({"lease_end": WaitingFor.NOTHING}, "Invalid enum value 'NOTHING'"),
    ],
)
def test_what_only_equals_a_default_is_refused_too(changes: dict[str, Any], reason: str) -> None:
    fired = ExecutionFired(at_ms=9, actor="engine", cause="time", execution=EXECUTION)
    encode(fired)
    with pytest.raises(UnencodableError, match=reason):
        encode(replace(fired, execution=replace(EXECUTION, **changes)))


def test_a_missing_record_is_refused_also_before_any_other_was_written() -> None:
    """None is not what was written last."""
    write = EncoderCompiler(avsc.record_classes()).compile(avsc.complete("horarium.commands.RegisterJob"))
    with pytest.raises((AttributeError, TypeError)):
        write(replace(REGISTER, policies=None))


def test_equal_policies_read_in_a_row_are_one_object() -> None:
    usual, other = encode(REGISTER), encode(replace(REGISTER, policies=Policies(timeout_sec=7)))
    first, second, third, fourth = (decode(data) for data in (usual, usual, other, usual))
    assert first.policies is second.policies  # type: ignore[attr-defined]
    assert (first, third, fourth) == (REGISTER, replace(REGISTER, policies=Policies(timeout_sec=7)), REGISTER)


def test_a_base_class_has_no_bytes() -> None:
    with pytest.raises(UnencodableError, match="Record has no schema"):
        encode(Record())


HEADER = MARKER + fingerprint_of(avsc.complete("horarium.entities.Lease"))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a single-object"),
        (bytes.fromhex("000000002affff"), "not a single-object"),  # STR-015, Confluent framing
        (b"\xc3", "not a single-object"),
        (HEADER[:9], "ends too early"),
        (MARKER + bytes(8), "unknown schema fingerprint 0000000000000000"),
        (HEADER, "Lease: ends too early"),
        (HEADER + b"\x02a\x02e\x02\x02\x08abc", "Lease: ends too early"),
        (HEADER + b"\x02a\x02e\x02\x02\x00\x00", "Lease: bytes left over"),
        (HEADER + b"\xfe" + b"\xff" * 8 + b"\x01", "Lease: ends too early"),  # 2^63 - 1 bytes
        (HEADER + b"\x02a\x02e\x02\x02\xfe" + b"\xff" * 8 + b"\x01", "Lease: ends too early"),
        (HEADER + b"\x01", "Lease: a negative length"),
        (HEADER + b"\x02\xff", "Lease: 'utf-8' codec"),
        (HEADER + b"\x80" * 11, "more than 10 bytes"),
        (HEADER + b"\xff" * 9 + b"\x02", "more than 64 bits"),
    ],
)
def test_a_reason_is_given(data: bytes, reason: str) -> None:
    with pytest.raises(UndecodableError, match=reason):
        decode(data)


@pytest.mark.parametrize(
    "value", [0, 63, -64, 64, 8191, 8192, 2**34, 2**41 - 1, 2**41, 2**48, 2**63 - 1, -(2**63)]
)
def test_numbers_of_every_length(value: int) -> None:
    for progress in (b"", b"0123456789"):
        lease = Lease(tenant="a", execution_id="e", lease_epoch=value, until_ms=value, progress=progress)
        assert decode(encode(lease)) == lease


def test_blocks_with_their_size_are_read() -> None:
    """Other writers cut arrays and maps into blocks and say how long each is."""
    content = Content(name="n", task="t", labels={"a": "b", "c": "d"})
    plain = encode(content)
    labels = b"\x04\x02a\x02b\x02c\x02d\x00"
    assert plain.endswith(labels)
    blocks = b"\x01\x08\x02a\x02b\x01\x08\x02c\x02d\x00"
    assert decode(plain.removesuffix(labels) + blocks) == content


def test_a_block_of_the_least_number_of_items_is_refused() -> None:
    least = b"\xff" * 9 + b"\x01"
    labels = encode(Content(name="n", task="t")).removesuffix(b"\x00") + least
    with pytest.raises(UndecodableError):
        decode(labels + b"\x00\x00")


class Foo(Record):
    foo: str
    bar: str | None = None


FOO: dict[str, Any] = {
    "type": "record",
    "name": "Foo",
    "namespace": "n",
    "fields": [{"name": "foo", "type": "string"}],
}
FOO_BAR = {**FOO, "fields": [*FOO["fields"], {"name": "bar", "type": ["null", "string"], "default": None}]}


def test_str_017_old_bytes_need_the_schema_that_wrote_them() -> None:
    data = bytes.fromhex("06666f6f")
    read_old = DecoderCompiler({"n.Foo": Foo}, {}).compile(FOO)
    assert read_old(data, 0) == (Foo(foo="foo", bar=None), 4)
    read_new = DecoderCompiler({"n.Foo": Foo}, {}).compile(FOO_BAR)
    with pytest.raises(IndexError):
        read_new(data, 0)


def test_what_was_cut_off_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoders, "REPEATED", frozenset({"n.Foo"}))
    read = DecoderCompiler({"n.Foo": Foo}, {}).compile(FOO)
    with suppress(IndexError):
        assert read(b"\x06fo", 0)[1] == 4  # beyond the end: the caller refuses it
    assert read(b"\x06foo", 0) == (Foo(foo="foo"), 4)


@pytest.fixture
def another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty released version beside today's schemas."""
    (tmp_path / "v1").mkdir()
    monkeypatch.setattr(avsc, "RELEASED", tmp_path)
    monkeypatch.setattr(codec, "_decoders", {})
    codec._known.cache_clear()
    yield tmp_path / "v1"
    codec._known.cache_clear()


def write_with(folder: Path, name: str, schema: Any, value: Any) -> bytes:
    """Bytes that another version wrote, which had that schema."""
    prints = {name: fingerprint_of(schema).hex()}
    (folder / f"{name}.avsc").write_text(json.dumps(schema))
    (folder / avsc.FINGERPRINTS).write_text(json.dumps(prints))
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(copy.deepcopy(schema)), value, strict=True)
    return MARKER + bytes.fromhex(prints[name]) + buffer.getvalue()


FIRED = "horarium.events.ExecutionFired"


def old_execution(schema: Any) -> Any:
    return next(field for field in schema["fields"] if field["name"] == "execution")["type"]


def test_an_older_writer_had_fewer_more_and_other_fields(another_version: Path) -> None:
    schema = avsc.complete(FIRED)
    execution = old_execution(schema)
    execution["fields"] = [field for field in execution["fields"] if field["name"] != "replays"]
    gone = {
        "type": "record",
        "name": "Gone",
        "namespace": "horarium.entities",
        "fields": [
            {"name": "why", "type": {"type": "enum", "name": "Why", "namespace": "n", "symbols": ["A"]}},
            {"name": "texts", "type": {"type": "array", "items": "string"}},
            {"name": "by", "type": {"type": "map", "values": "double"}},
        ],
    }
    execution["fields"].insert(0, {"name": "gone", "type": ["null", gone], "default": None})
    schema["fields"].insert(0, schema["fields"].pop())
    fired = ExecutionFired(at_ms=9, actor="engine", cause="time", execution=EXECUTION)
    value = msgspec.to_builtins(fired, builtin_types=(bytes,))
    del value["execution"]["replays"]
    value["execution"]["gone"] = {"why": "A", "texts": ["x", "y"], "by": {"k": 1.5}}
    data = write_with(another_version, FIRED, schema, value)
    assert decode(data) == replace(fired, execution=replace(EXECUTION, replays=0))


def test_a_symbol_of_a_newer_version_is_its_default_or_undecodable(another_version: Path) -> None:
    schema = avsc.complete(FIRED)
    enums = {field["name"]: field["type"] for field in old_execution(schema)["fields"]}
    enums["leaseEnd"]["symbols"] = ["EATEN", *enums["leaseEnd"]["symbols"]]
    enums["status"]["symbols"] = [*enums["status"]["symbols"], "DREAMING"]
    fired = ExecutionFired(at_ms=9, actor="engine", cause="time", execution=EXECUTION)
    value = msgspec.to_builtins(fired, builtin_types=(bytes,))
    value["execution"]["leaseEnd"] = "EATEN"
    assert decode(write_with(another_version, FIRED, schema, value)) == fired
    value["execution"]["leaseEnd"] = "TIMEOUT"
    expected = replace(fired, execution=replace(EXECUTION, lease_end=LeaseEnd.TIMEOUT))
    assert decode(write_with(another_version, FIRED, schema, value)) == expected
    value["execution"]["status"] = "DREAMING"
    with pytest.raises(UndecodableError, match="no such symbol"):
        decode(write_with(another_version, FIRED, schema, value))


def test_versions_that_differ_in_docs_and_defaults_share_their_bytes(another_version: Path) -> None:
    name = "horarium.entities.Tenant"
    schema = avsc.complete(name)
    schema["doc"] = "Other words."
    schema["fields"] = [
        {**field, "default": 5} if "default" in field and field["type"] == "long" else field
        for field in schema["fields"]
    ]
    assert fingerprint_of(schema) == fingerprint_of(avsc.complete(name))
    tenant = sample(Tenant)
    assert write_with(another_version, name, schema, msgspec.to_builtins(tenant)) == encode(tenant)
    assert decode(encode(tenant)) == tenant


def test_a_repeated_record_is_not_taken_for_the_one_that_another_thread_reads() -> None:
    """Its memory of the newest is for all threads; here the other one comes at the worst of times."""
    name = "horarium.entities.Policies"
    schema = avsc.complete(name)
    write = EncoderCompiler(avsc.record_classes()).compile(schema)
    read = DecoderCompiler(avsc.record_classes(), avsc.enum_members()).compile(schema)
    mine, other = Policies(timeout_sec=1), Policies(timeout_sec=2)

    class Interrupted(bytes):
        def startswith(self, *arguments: Any) -> bool:
            found = super().startswith(*arguments)
            assert read(write(other), 0)[0] == other
            return found

    for _ in range(2):
        assert read(write(mine), 0)[0] == mine
        assert read(Interrupted(write(mine)), 0)[0] == mine


def test_a_class_that_has_left_its_file_behind_is_not_written_in_part() -> None:
    with pytest.raises(ValueError, match="does not have the fields of the class"):
        EncoderCompiler({"n.Foo": Foo}).compile(FOO)


@pytest.mark.parametrize("cls", avsc.record_classes().values(), ids=avsc.record_classes())
def test_no_record_is_a_burden_to_the_garbage_collector(cls: type[Record]) -> None:
    assert cls.__struct_config__.gc is False
