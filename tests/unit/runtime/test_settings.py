"""Settings: what is wrong is named by its variable."""

from __future__ import annotations

from pathlib import Path

import pytest

from streams.config import CommonSettings, ProcessorSettings, SettingsError

VARIABLES = (
    *("KAFKA", "NAMESPACE", "PARTITIONS", "REPLICATION", "DATA", "INSTANCE", "DEV_SHARDS"),
    *("METRICS_PORT", "METRICS_HOST", "LOG_LEVEL"),
)


@pytest.fixture(autouse=True)
def _empty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(f"HORARIUM_{name}", raising=False)
    monkeypatch.setenv("HORARIUM_KAFKA", "127.0.0.1:9092")


def test_defaults() -> None:
    settings = ProcessorSettings.load()
    assert (settings.namespace, settings.partitions, settings.instance) == ("horarium", 8, "p0")
    assert settings.transactional_id == "horarium.p0.0"
    assert settings.state_folder == Path(".horarium/state/p0")
    assert settings.metrics_port == 0


def test_kafka_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HORARIUM_KAFKA")
    with pytest.raises(SettingsError, match="HORARIUM_KAFKA is not set"):
        CommonSettings.load()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("PARTITIONS", "0", "greater than or equal to 1"),
        ("PARTITIONS", "many", "valid integer"),
        ("NAMESPACE", "a_b", "letters, digits"),
        ("INSTANCE", "a.b", "letters, digits"),
        ("DEV_SHARDS", "acme", "is not <tenant>=<shards>"),
        ("DEV_SHARDS", "acme=0", "is not <tenant>=<shards>"),
        ("DEV_SHARDS", "acme=2,acme=3", "named twice"),
        ("METRICS_PORT", "70000", "less than or equal to 65535"),
        ("LOG_LEVEL", "loud", "pattern"),
    ],
)
def test_what_is_wrong_is_named(name: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"HORARIUM_{name}", value)
    with pytest.raises(SettingsError, match=f"HORARIUM_{name}: .*{message}"):
        ProcessorSettings.load()


def test_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HORARIUM_DEV_SHARDS", "acme=4, big-co=2")
    assert ProcessorSettings.load().dev_shards == {"acme": 4, "big-co": 2}
    monkeypatch.setenv("HORARIUM_DEV_SHARDS", "")
    assert ProcessorSettings.load().dev_shards == {}


def test_default_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HORARIUM_DEV_JITTER", "acme=30, big-co=0")
    assert ProcessorSettings.load().dev_jitter == {"acme": 30, "big-co": 0}
    monkeypatch.setenv("HORARIUM_DEV_JITTER", "acme=86401")
    with pytest.raises(SettingsError, match=r"HORARIUM_DEV_JITTER: .*=<seconds>"):
        ProcessorSettings.load()


def test_unknown_variables_of_other_parts_are_none_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HORARIUM_HTTP_PORT", "x")
    ProcessorSettings.load()
