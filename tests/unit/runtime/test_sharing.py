"""Who has a part in a turn: light partitions always, heavy ones in rotation."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

import pytest

from dev.limits import lift
from streams.ambient import Chance
from streams.runtime.partition import Partition
from streams.runtime.sharing import (
    FIRE_LIMIT,
    HEAVY_SHARE,
    SHARE_MIN,
    WAIT_TURNS,
    WAITING_RECORDS,
    can_wait,
    choose,
    timers_each,
)
from streams.transport.log import Record
from tests.unit.runtime.asking import TENANT
from tests.unit.runtime.installation import Installation


def partitions(count: int, *, heavy: bool) -> list[Partition]:
    return [Partition(number, heavy=heavy) for number in range(count)]


def turn(busy: list[Partition], heavy: Callable[[Partition], bool] = lambda each: each.heavy) -> list[int]:
    """As `Turns` does it; `heavy` says what a turn leaves of a partition."""
    chosen = choose(busy)
    for each in busy:
        each.passed_over += 1
    for each in chosen:
        each.passed_over, each.heavy = 0, heavy(each)
    return [each.number for each in chosen]


def records(count: int) -> Iterable[Record]:
    return (Record("work", 0, offset, 0, b"", b"", {}) for offset in range(count))


def test_light_partitions_are_always_in() -> None:
    busy = partitions(64, heavy=True)
    light = busy[5::7]
    for each in light:
        each.heavy = False
    for _ in range(10):
        assert {each.number for each in light} <= set(turn(busy))


@pytest.mark.parametrize("count", [1, FIRE_LIMIT // HEAVY_SHARE])
def test_few_heavy_partitions_are_always_in(count: int) -> None:
    busy = partitions(count, heavy=True)
    assert turn(busy) == turn(busy) == list(range(count))


def test_the_rotation_goes_on_where_it_ended() -> None:
    busy = partitions(64, heavy=True)
    rounds = [turn(busy) for _ in range(8)]
    assert rounds[:4] == rounds[4:] == [list(range(first, first + 16)) for first in (0, 16, 32, 48)]
    assert timers_each(busy[:16]) == (125, 125)


def test_so_many_have_a_part_as_get_a_share_that_is_worth_it() -> None:
    busy = partitions(32, heavy=True)
    assert [len(turn(busy)) for _ in range(3)] == [10, 10, 10]
    assert timers_each(busy[:10]) == (200, 200)


def test_none_waits_longer_than_the_bound() -> None:
    """Whatever becomes heavy, light or idle meanwhile."""
    chance = Chance(3).random
    owned = partitions(64, heavy=False)
    waited = dict.fromkeys(range(64), 0)
    passed_over = 0
    for _ in range(2_000):
        busy = [each for each in owned if each.heavy or chance() < 0.5]
        chosen = turn(busy, lambda _: chance() < 0.8)
        for each in busy:
            waited[each.number] = 0 if each.number in chosen else waited[each.number] + 1
        passed_over += len(busy) - len(chosen)
        assert max(waited.values()) < WAIT_TURNS
    assert passed_over > 20_000


def test_many_records_are_worth_a_part() -> None:
    busy = partitions(64, heavy=True)
    busy[63].work.extend(records(WAITING_RECORDS - 1))
    assert 63 not in turn(busy)
    busy[63].commands.extend(records(1))
    assert not can_wait(busy[63])
    assert 63 in turn(busy)


def test_shares_sum_to_the_limit() -> None:
    for light in range(0, 65, 4):
        for heavy in range(0, 65, 4):
            chosen = partitions(light, heavy=False) + partitions(heavy, heavy=True)
            of_light, of_heavy = timers_each(chosen)
            assert light * of_light <= max(FIRE_LIMIT, light * SHARE_MIN)
            assert heavy * of_heavy <= max(FIRE_LIMIT, heavy * SHARE_MIN)
            assert SHARE_MIN <= of_light <= of_heavy


# -- in a processor

PARTITIONS = 48
LIGHT = range(7, PARTITIONS, 8)
HEAVY = [number for number in range(PARTITIONS) if number not in LIGHT]


def jobs_of(world: Installation, partition: int, name: str = "job") -> Iterator[str]:
    names = (f"{name}-{number}" for number in itertools.count())
    return (name for name in names if world.where(name) == partition)


def ask(world: Installation, partition: int) -> None:
    world.request(partition, credit=0)


def cancel(world: Installation, partition: int) -> None:
    """What is nobody's job."""
    world.cancel(next(jobs_of(world, partition, "none")))


@pytest.mark.parametrize("send", [cancel, ask])
def test_a_herd_in_many_partitions_holds_up_neither_them_nor_others(
    send: Callable[[Installation, int], None],
) -> None:
    """Records of partitions that wait keep no others from being read, either."""
    world = Installation(PARTITIONS)
    world.shards = {TENANT: PARTITIONS}
    process = world.live()
    lift(world.log, world.topics, PARTITIONS, TENANT)
    world.until(lambda: process.processor._tenants.settings_of(TENANT).max_jobs > 1_000_000, process)
    due = 250
    for number in HEAVY:
        for name in itertools.islice(jobs_of(world, number), due):
            world.register(name, delay_sec=60)
    world.until(lambda: all(world.committed(n)[0] >= due for n in HEAVY), process, steps=400, ms=1)
    world.time.pass_ms(60_000)
    process.step()
    owned = list(process.processor.ownership)
    heavy = [each for each in owned if each.heavy]
    assert [each.number for each in heavy] == HEAVY
    light = [process.partition(number) for number in LIGHT]
    for _ in range(2 * WAIT_TURNS):
        for each in heavy:
            for _ in range(WAITING_RECORDS // WAIT_TURNS - 1):
                send(world, each.number)
        before = [sum(each.positions) for each in light]
        for each in light:
            send(world, each.number)
        process.step()
        assert [sum(each.positions) for each in light] == [1 + position for position in before]
        assert max(each.passed_over for each in owned) < WAIT_TURNS
        assert FIRE_LIMIT // HEAVY_SHARE <= sum(not each.passed_over for each in heavy) < len(heavy)
    world.until(lambda: not any(each.more_due or each.backlog for each in owned), process, ms=1)
    assert all(world.types(number).count("ExecutionFired") == due for number in HEAVY)


def test_a_lease_ends_although_work_never_ceases() -> None:
    """What was decided counts, also while more waits (§5.9)."""
    world = Installation()
    process = world.live()
    world.register(delay_sec=0, lease_sec=60)
    world.request()
    world.until(lambda: bool(world.grants()), process)
    world.time.pass_ms(61_000)
    for _ in range(20):
        world.request(credit=0)
        process.step()
        world.time.pass_ms(10)
    assert "LeaseExpired" in world.types()
