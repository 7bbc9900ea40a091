"""Every released version and today's read each other; what would break that is refused (STR-018)."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.schema import parse

from schemas import avsc, release
from schemas.codec import fingerprint_of
from schemas.compatibility import problems

TODAY = {name: avsc.complete(name) for name in avsc.record_classes()}
RELEASED = [(version, name) for version in avsc.released_versions() for name in avsc.released(version)]


def test_today_is_compatible_with_every_released_version() -> None:
    assert avsc.released_versions()[0] == "v1"
    assert release.check() == []


def avro_says(older: Any, newer: Any) -> bool:
    """Apache Avro's own opinion, both ways."""
    pair = parse(json.dumps(older)), parse(json.dumps(newer))
    checker = ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call]
    return all(
        checker.get_compatibility(reader, writer).compatibility is SchemaCompatibilityType.compatible
        for reader, writer in (pair, pair[::-1])
    )


@pytest.mark.parametrize(("version", "name"), RELEASED)
def test_apache_avro_agrees(version: str, name: str) -> None:
    assert avro_says(avsc.released(version)[name], TODAY[name])


@pytest.mark.parametrize(("version", "name"), RELEASED)
def test_the_listed_fingerprints_are_those_of_the_files(version: str, name: str) -> None:
    assert fingerprint_of(avsc.released(version)[name]).hex() == avsc.released_fingerprints(version)[name]


def test_a_list_of_fingerprints_leaves_nothing_out() -> None:
    for version in avsc.released_versions():
        assert avsc.released_fingerprints(version).keys() == avsc.released(version).keys()


BASE: dict[str, Any] = {
    "type": "record",
    "name": "R",
    "namespace": "n",
    "fields": [
        {"name": "jobId", "type": "string"},
        {"name": "note", "type": "string", "default": ""},
        {
            "name": "status",
            "type": {"type": "enum", "name": "S", "namespace": "n", "symbols": ["A", "PAUSED"]},
        },
        {
            "name": "kind",
            "type": {"type": "enum", "name": "K", "namespace": "n", "symbols": ["X"], "default": "X"},
        },
        {"name": "maybe", "type": ["null", "long"], "default": None},
        {"name": "many", "type": {"type": "array", "items": "n.K"}, "default": []},
        {
            "name": "inner",
            "type": {
                "type": "record",
                "name": "I",
                "namespace": "n",
                "fields": [{"name": "a", "type": "long"}],
            },
            "default": {"a": 1},
        },
    ],
}


def changed(path: list[Any], value: Any) -> Any:
    schema = copy.deepcopy(BASE)
    place = schema["fields"]
    for step in path[:-1]:
        place = place[step]
    if path[-1] == "append":
        place.append(value)
    elif value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return schema


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        # The four of STR-018.
        (
            ["append"],
            {"name": "lastRun", "type": MILLIS, "default": None},
            "n.R.lastRun: the default does not fit",
        ),
        (["append"], {"name": "prio", "type": "long"}, "n.R.prio: was added without a default"),
        ([2, "type", "symbols"], ["A"], "n.S: symbol PAUSED was removed"),
        ([0, "name"], "job_id", "n.R.job_id: was added without a default"),
        # And more.
        ([0], None, "n.R.jobId: was removed or renamed without a default"),
        ([1, "type"], "bytes", "n.R.note: string became bytes"),
        ([4, "type"], "long", "n.R.maybe: union became long"),
        ([4, "type"], ["null", "long", "string"], "n.R.maybe: the union has other branches"),
        ([4, "default"], 0, "n.R.maybe: the default does not fit"),
        ([2, "type", "symbols"], ["A", "PAUSED", "NEW"], "n.S: symbol NEW was added"),
        ([3, "type", "default"], "Y", "n.K: the default is no symbol"),
        ([3, "type", "name"], "K2", "n.R.kind: n.K became n.K2"),
        ([5, "type", "items"], "string", "n.R.many: enum became string"),
        ([6, "type", "fields", 0, "type"], "double", "n.I.a: long became double"),
        ([6, "type", "fields", 0, "name"], "b", "n.I.b: was added without a default"),
        ([6, "default"], {"a": "1"}, "n.R.inner: the default does not fit"),
    ],
)
def test_a_breaking_change_is_refused(path: list[Any], value: Any, complaint: str) -> None:
    found = problems({"n.R": BASE}, {"n.R": changed(path, value)})
    assert any(one.startswith(complaint) for one in found), found


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["append"], {"name": "more", "type": ["null", "string"], "default": None}),
        (["append"], {"name": "raw", "type": "bytes", "default": "ÿ"}),
        (["append"], {"name": "rate", "type": "double", "default": 1}),
        (["append"], {"name": "labels", "type": {"type": "map", "values": "string"}, "default": {"a": "b"}}),
        ([1], None),
        ([3, "type", "symbols"], ["X", "Y"]),
        ([2, "type", "symbols"], ["PAUSED", "A"]),
        ([0, "doc"], "words"),
        ([1, "default"], "other"),
    ],
)
def test_a_harmless_change_is_allowed(path: list[Any], value: Any) -> None:
    newer = changed(path, value)
    assert problems({"n.R": BASE}, {"n.R": newer}) == []
    assert avro_says(BASE, newer)


def test_a_record_may_come_but_not_go() -> None:
    assert problems({}, {"n.R": BASE}) == []
    assert problems({"n.R": BASE}, {}) == ["n.R: was removed, its records could not be read"]


def test_a_changed_entity_is_seen_where_it_is_only_named() -> None:
    """The type was spelled out in a field that went, so the other field spells it out now."""
    shape = {"type": "record", "name": "E", "namespace": "n", "fields": [{"name": "a", "type": "long"}]}
    other = {**shape, "fields": [{"name": "a", "type": "string"}]}
    older = {
        **BASE,
        "fields": [{"name": "gone", "type": shape, "default": {"a": 0}}, {"name": "kept", "type": "n.E"}],
    }
    newer = {**BASE, "fields": [{"name": "kept", "type": other}]}
    assert problems({"n.R": older}, {"n.R": newer}) == ["n.E.a: long became string"]


def test_a_version_is_released_once_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avsc, "RELEASED", tmp_path)
    with pytest.raises(release.NotReleasedError, match="next version is v1"):
        release.release("v2")
    folder = release.release("v1")
    assert avsc.released("v1") == TODAY
    assert release.main(["v1"]) == 1
    assert release.main([]) == 2
    # Someone released what today's files cannot read.
    path = folder / "horarium.entities.Tenant.avsc"
    schema = json.loads(path.read_text())
    path.write_text(json.dumps({**schema, "fields": [*schema["fields"], {"name": "old", "type": "long"}]}))
    with pytest.raises(release.NotReleasedError, match=r"v1: horarium\.entities\.Tenant\.old: was removed"):
        release.release("v2")
