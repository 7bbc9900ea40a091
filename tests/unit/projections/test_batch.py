"""Batches: rows and positions together, in any cut, once; and what compaction may take away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from projections.batch import Batch, UnknownEventError
from projections.executions import ExecutionRows
from projections.store import PositionsMovedError, Store, Writer
from projections.tables import contents, executions, offsets
from schemas import codec
from schemas.entities import Content, PartitionMeta
from schemas.events import PartitionOpened
from schemas.replies import PartitionStatus
from streams.transport.log import Record
from tests.unit.projections.stories import CURRENT, compacted, long_story, rows_of
from tests.unit.projections.story import T0, TOPIC, Story, fold, job, positions_of


@pytest.fixture
def others(tmp_path: Path) -> Iterator[list[Store]]:
    """Two more read models, to compare with."""
    made = [Store(f"sqlite:///{tmp_path / name}.db") for name in ("one", "two")]
    for each in made:
        each.recreate()
    yield made
    for each in made:
        each.close()


@pytest.mark.parametrize("seed", range(5))
def test_rows_do_not_depend_on_the_cut(store: Store, others: list[Store], seed: int) -> None:
    records = long_story(seed).records
    one, two = others
    fold(store, records, 1_000)
    fold(one, records, 1)
    fold(two, records, 7)
    assert rows_of(store) == rows_of(one) == rows_of(two)
    assert rows_of(one)["executions"]


@pytest.mark.parametrize("seed", range(5))
def test_any_suffix_may_come_again(store: Store, others: list[Store], seed: int) -> None:
    records = long_story(seed).records
    once, _ = others
    fold(once, records)
    fold(store, records[: len(records) // 2])
    for start in (0, len(records) // 3, len(records) // 2):
        fold(store, records[start:], 11)
    fold(store, records[-5:])
    assert rows_of(store) == rows_of(once)


@pytest.mark.parametrize("seed", range(8))
def test_a_compacted_log_folds_to_the_same_current_rows(store: Store, others: list[Store], seed: int) -> None:
    """STR-019. Superseded definitions are gone with compaction; the newest are the same."""
    records = long_story(seed).records
    full, _ = others
    fold(full, records, 13)
    fold(store, compacted(records), 13)
    expected, seen = rows_of(full, CURRENT), rows_of(store, CURRENT)
    for name in ("definitions", "labels"):
        assert set(seen.pop(name)) <= set(expected.pop(name))
    assert seen == expected


def test_partitions_keep_their_own_positions(store: Store) -> None:
    left, right = long_story(1, 0), long_story(2, 1)
    mixed = sorted(left.records + right.records, key=lambda record: (record.offset, record.partition))
    fold(store, mixed, 9)
    positions = {row[0]: row[1] for row in rows_of(store, [offsets])["offsets"]}
    assert positions == {0: left.last_offset + 1, 1: right.last_offset + 1}


def test_a_crash_in_the_transaction_leaves_nothing(
    store: Store, others: list[Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    records = long_story(3).records
    half = len(records) // 2
    fold(store, records[:half])
    before = rows_of(store)

    def crash(self: ExecutionRows, writer: Writer) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ExecutionRows, "write", crash)
        with pytest.raises(KeyboardInterrupt):
            fold(store, records[half:])
    assert rows_of(store) == before

    once, _ = others
    fold(once, records)
    fold(store, records[half:])
    assert rows_of(store) == rows_of(once)


def test_the_second_of_two_writers_is_refused(store: Store, others: list[Store]) -> None:
    records = long_story(4).records
    positions = positions_of(store, records)
    first, second = Batch(positions), Batch(positions)
    first.fold(records[:20])
    second.fold(records[:30])
    first.write(store)
    with pytest.raises(PositionsMovedError):
        second.write(store)

    once, _ = others
    fold(once, records[:20], 20)
    assert rows_of(store) == rows_of(once)


def test_events_without_a_tenant_move_the_position_only(store: Store) -> None:
    story = Story()
    story.tell(PartitionOpened, meta=PartitionMeta(partition=0, partition_count=8, tz_version="2026.6"))
    fold(store, story.records)
    rows = rows_of(store)
    assert rows.pop("offsets") == [(0, 1, T0 + 1_000)]
    assert not any(rows.values())


@pytest.mark.parametrize(
    "value",
    [
        b"\xc3\x01 nonsense",
        codec.encode(PartitionStatus(partition=0, owner="p0", state="RUNNING")),
    ],
    ids=["no event", "of another topic"],
)
def test_what_cannot_be_read_is_named_and_nothing_is_written(store: Store, value: bytes) -> None:
    story = Story()
    story.register(job("a"))
    strange = Record(TOPIC, 0, 77, T0, b"job:acme/b", value, {})
    with pytest.raises(UnknownEventError, match=r"test.events \[0\] at offset 77"):
        fold(store, [*story.records, strange])
    assert not rows_of(store)["jobs"]


def test_text_that_postgresql_does_not_know(store: Store) -> None:
    story = Story()
    execution = story.fail(story.claim(story.fire(story.register(job("a")), T0)), error="bad \0 byte")
    story.keep(execution, Content(name="a", task="work", payload=b"\0\xff"))
    fold(store, story.records)
    with store.reading() as connection:
        error = connection.execute(select(executions.c.error)).scalar_one()
        payload = connection.execute(select(contents.c.payload)).scalar_one()
    assert error in ("bad \0 byte", "bad \N{REPLACEMENT CHARACTER} byte")
    assert payload == b"\0\xff"
