"""Topic settings and routing: the table of the architecture, and STR-013."""

from __future__ import annotations

from itertools import pairwise
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.ids import JOB_ID, TENANT
from schemas.topics import (
    DAY_MS,
    HOUR_MS,
    Topics,
    TopicSpec,
    catalogue,
    pack_positions,
    partition_of,
    tenant_partitions,
    unpack_positions,
)


def by_name(partitions: int = 64, replication: int = 3) -> dict[str, TopicSpec]:
    return {spec.name.removeprefix("hor."): spec for spec in catalogue("hor", partitions, replication)}


def test_the_catalogue_holds_every_name() -> None:
    names = {value for key, value in vars(Topics("hor")).items() if key not in ("namespace", "prefix")}
    assert {spec.name for spec in catalogue("hor", 8, 1)} == names
    assert all(name.startswith(Topics("hor").prefix) for name in names)


@pytest.mark.parametrize(
    ("name", "partitions", "policy", "time_setting", "time_ms"),
    [
        ("commands", 64, "delete", "retention.ms", 7 * DAY_MS),
        ("work", 64, "delete", "retention.ms", DAY_MS),
        ("events", 64, "compact", "min.compaction.lag.ms", 30 * DAY_MS),
        ("tenants", 1, "compact", "min.compaction.lag.ms", 0),
        ("replies", 16, "delete", "retention.ms", HOUR_MS),
        ("dead-letters", 64, "delete", "retention.ms", 30 * DAY_MS),
        ("quarantine", 64, "delete", "retention.ms", 30 * DAY_MS),
        ("status", 1, "compact", "min.compaction.lag.ms", 0),
        ("clock", 1, "delete", "retention.ms", HOUR_MS),
    ],
)
def test_settings(name: str, partitions: int, policy: str, time_setting: str, time_ms: int) -> None:
    spec = by_name()[name]
    assert spec.partitions == partitions
    assert spec.config["cleanup.policy"] == policy
    assert spec.config[time_setting] == str(time_ms)
    assert spec.config["min.insync.replicas"] == "2"
    assert spec.config["max.message.bytes"] == str(1 << 20)
    stamped_by = "LogAppendTime" if name in ("work", "clock") else "CreateTime"
    assert spec.config["message.timestamp.type"] == stamped_by


def test_tombstones_outlive_a_week_where_state_is_restored() -> None:
    assert by_name()["events"].config["delete.retention.ms"] == str(7 * DAY_MS)


def test_segments_close_well_within_their_retention() -> None:
    for spec in by_name().values():
        if "retention.ms" in spec.config:
            assert int(spec.config["segment.ms"]) * 6 <= int(spec.config["retention.ms"])


def test_a_segment_ends_before_its_indexes_are_full() -> None:
    """Or a broker that reads it anew after a crash may find more entries than there is room for, and end."""
    every, of_time = 4_096, 12  # bytes of the log for an entry at least (`index.interval.bytes`), and its own
    for spec in by_name().values():
        config = spec.config
        assert int(config["segment.bytes"]) // every * of_time < 0.8 * int(config["segment.index.bytes"])


def test_a_small_cluster_asks_for_no_second_replica() -> None:
    assert all("min.insync.replicas" not in spec.config for spec in by_name(8, 1).values())


def test_the_audit_retention_is_the_compaction_lag() -> None:
    events = next(s for s in catalogue("hor", 8, 1, audit_retention_ms=5) if s.name == "hor.events")
    assert events.config["min.compaction.lag.ms"] == "5"


@pytest.mark.parametrize("namespace", ["", ".hor", "a_b", "a b", "ä", "x" * 201, "hor\n"])
def test_a_bad_namespace_is_refused(namespace: str) -> None:
    with pytest.raises(ValueError, match="namespace"):
        Topics(namespace)


@pytest.mark.parametrize(("partitions", "replication"), [(0, 1), (1, 0)])
def test_a_catalogue_needs_partitions_and_replicas(partitions: int, replication: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        catalogue("hor", partitions, replication)


def murmur2(data: bytes) -> int:
    """Hash of the Java client's default partitioner."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        h = h * m & mask ^ (k ^ k >> 24) * m & mask
    if whole < len(data):
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return (h ^ h >> 15) & 0x7FFFFFFF


def test_str_013_clients_disagree_so_the_partition_is_ours() -> None:
    keys = [("fd7af248-ce5c-46a5-93d7-1c0c9005b99d", 32), ("TT0124", 15)]
    assert [murmur2(key.encode()) % n for key, n in keys] == [26, 10]
    assert [crc32(key.encode()) % n for key, n in keys] == [23, 9]
    # Frozen: a processor refuses what does not route to it, and history stays where it is.
    assert partition_of("acme", "nightly", 1, 64) == 62
    assert partition_of("acme", "nightly", 4, 64) == 0
    assert tenant_partitions("acme", 4, 64) == [62, 63, 0, 1]


tenants = st.from_regex(TENANT, fullmatch=True)
job_ids = st.from_regex(JOB_ID, fullmatch=True)


@given(tenants, job_ids, st.integers(1, 100), st.integers(1, 70))
def test_a_job_lives_in_one_of_its_tenants_partitions(
    tenant: str, job_id: str, shards: int, partitions: int
) -> None:
    homes = tenant_partitions(tenant, shards, partitions)
    assert partition_of(tenant, job_id, shards, partitions) in homes
    assert len(set(homes)) == len(homes) == min(shards, partitions)
    assert all(b == (a + 1) % partitions for a, b in pairwise(homes))


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_positions_round_trip(commands: int, work: int) -> None:
    assert unpack_positions(pack_positions(commands, work)) == (commands, work)


@pytest.mark.parametrize("value", [b"", b"0" * 15, b"0" * 17])
def test_other_bytes_are_no_positions(value: bytes) -> None:
    with pytest.raises(ValueError, match="positions"):
        unpack_positions(value)
