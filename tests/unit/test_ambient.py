"""The clock in virtual time: steps, slewing, brokers' word, and a new owner's floor."""

from __future__ import annotations

from itertools import pairwise

import pytest

from streams import ambient
from streams.ambient import ALARM_MS, OBSERVED_MS, STEP_CHECK_MS, UNTRUSTED_MS, Clock

NOON = 1_800_000_000_000


class World:
    """True time, this machine's wall clock, and a broker."""

    def __init__(self, wall_off_ms: int = 0) -> None:
        self.passed_ms = 0
        self.suspended_ms = 0
        self.wall_off_ms = wall_off_ms
        self.broker_off_ms = 0
        self.clock = Clock(self.wall, self.monotonic)

    def true(self) -> int:
        return NOON + self.passed_ms

    def wall(self) -> int:
        return self.true() + self.wall_off_ms

    def monotonic(self) -> int:
        return self.passed_ms - self.suspended_ms + 12_345

    def broker(self) -> int:
        return self.true() + self.broker_off_ms

    def run(self, ms: int, step_ms: int = 10) -> list[int]:
        """Time passes; what the clock says along the way."""
        readings = []
        for _ in range(ms // step_ms):
            self.passed_ms += step_ms
            readings.append(self.clock.now_ms())
        return readings

    def echo(self, round_trip_ms: int = 4) -> None:
        """A record of our own comes back from the broker."""
        sent = self.monotonic()
        self.passed_ms += round_trip_ms // 2
        stamp = self.broker()
        self.passed_ms += round_trip_ms // 2
        self.clock.observe_round_trip(stamp, sent, self.monotonic())


def assert_never_back_never_frozen(readings: list[int], step_ms: int = 10) -> None:
    for before, after in pairwise(readings):
        assert after - before >= step_ms * 9 // 10


def test_without_steps_it_is_the_wall_clock() -> None:
    world = World()
    readings = world.run(10_000)
    assert readings[-1] == world.wall()
    assert_never_back_never_frozen(readings)
    assert world.clock.steps == 0
    assert world.clock.trustworthy()


def test_a_step_back_that_brokers_do_not_confirm_changes_nothing() -> None:
    """STR-021: 12:00:31 becomes 11:59:37; jobs due each second stay on time."""
    world = World()
    world.run(1_000)
    world.echo()
    world.wall_off_ms -= 54_000
    readings = []
    for _ in range(54):
        readings += world.run(1_000)
        world.echo()
    assert_never_back_never_frozen(readings)
    assert world.clock.now_ms() == world.true()
    assert world.clock.steps == 1
    assert world.clock.unconfirmed_step_ms() == -54_000
    assert world.clock.trustworthy()


def test_a_step_forward_that_brokers_do_not_confirm_changes_nothing() -> None:
    world = World()
    world.echo()
    world.wall_off_ms += 3_600_000
    world.run(5_000)
    world.echo()
    assert world.clock.now_ms() == world.true()
    assert world.clock.unconfirmed_step_ms() == 3_600_000


def test_a_step_nobody_can_confirm_waits_for_the_first_word_of_a_broker() -> None:
    world = World(wall_off_ms=-3_000)
    world.wall_off_ms = 0  # set right
    world.run(1_000)
    assert world.clock.now_ms() == world.true() - 3_000
    world.clock.observe_record(world.broker() - 5)
    assert world.clock.now_ms() == world.true()
    assert world.clock.unconfirmed_step_ms() == 0


def test_a_confirmed_step_forward_is_taken_at_once() -> None:
    world = World(wall_off_ms=-40_000)
    world.echo()
    assert world.clock.offset_from_brokers_ms() == pytest.approx(-40_000, abs=5)
    assert world.clock.alarming()
    world.wall_off_ms = 0
    world.run(STEP_CHECK_MS)
    assert world.clock.now_ms() == world.true()
    assert not world.clock.alarming()


def test_a_confirmed_step_back_is_slewed() -> None:
    world = World(wall_off_ms=2_000)
    world.run(1_000)
    world.wall_off_ms = 0
    world.run(STEP_CHECK_MS)
    assert world.clock.now_ms() == world.true() + 2_000
    world.echo()
    readings = world.run(10_000)
    assert_never_back_never_frozen(readings)
    assert 900 <= readings[-1] - world.true() <= 1_100
    assert_never_back_never_frozen(world.run(11_000))
    assert world.clock.now_ms() == world.true()


def test_the_loss_of_a_step_is_forgotten_when_the_wall_comes_back() -> None:
    world = World()
    world.echo()
    world.wall_off_ms += 60_000
    world.run(1_000)
    world.wall_off_ms -= 60_000
    world.run(1_000)
    assert world.clock.unconfirmed_step_ms() == 0
    assert world.clock.now_ms() == world.true()
    assert world.clock.steps == 1


def test_a_suspended_machine_catches_up_with_the_first_record_it_reads() -> None:
    world = World()
    world.echo()
    world.passed_ms += 600_000
    world.suspended_ms += 600_000
    world.run(1_000)
    assert world.clock.now_ms() == world.true() - 600_000
    world.clock.observe_record(world.broker())
    assert world.clock.now_ms() == world.true()


def test_a_preempted_reading_is_no_step() -> None:
    world = World()
    slow = [False]

    def wall() -> int:
        if slow[0]:
            world.passed_ms += 500
        return world.wall()

    world.clock = Clock(wall, world.monotonic)
    slow[0] = True
    for _ in range(20):
        world.run(100)
    assert world.clock.steps == 0


def test_old_records_say_only_that_brokers_are_at_least_that_late() -> None:
    world = World()
    world.clock.observe_record(world.broker() - 3_600_000)
    assert world.clock.offset_from_brokers_ms() == 0
    world.clock.observe_record(world.broker() + 1_500)
    assert world.clock.offset_from_brokers_ms() == -1_500
    assert world.clock.alarming()


@pytest.mark.parametrize(
    ("off_ms", "alarming", "trusted"),
    [
        (0, False, True),
        (ALARM_MS - 10, False, True),
        (ALARM_MS + 10, True, True),
        (UNTRUSTED_MS - 10, True, True),
        (UNTRUSTED_MS + 10, True, False),
        (-ALARM_MS - 10, True, True),
        (-UNTRUSTED_MS - 10, True, False),
    ],
)
def test_how_far_off_the_brokers(off_ms: int, alarming: bool, trusted: bool) -> None:
    world = World(wall_off_ms=off_ms)
    world.echo(round_trip_ms=0)
    assert world.clock.wall_from_brokers_ms() == off_ms
    assert world.clock.alarming() is alarming
    assert world.clock.trustworthy() is trusted


@pytest.mark.parametrize("off_ms", [-UNTRUSTED_MS + 10, -ALARM_MS - 10, ALARM_MS + 10, UNTRUSTED_MS - 10])
def test_within_bounds_the_brokers_are_followed(off_ms: int) -> None:
    """Forward at once, backward by slewing; the wall clock stands apart until it is set right."""
    world = World(wall_off_ms=off_ms)
    world.echo(round_trip_ms=0)
    readings = [world.clock.now_ms(), *world.run(10 * max(0, off_ms) + 100)]
    assert_never_back_never_frozen(readings)
    assert world.clock.now_ms() == world.true()
    assert (world.clock.steps, world.clock.unconfirmed_step_ms()) == (1, off_ms)
    assert world.clock.alarming()
    world.wall_off_ms = 0
    world.run(STEP_CHECK_MS)
    assert world.clock.now_ms() == world.true()
    assert (world.clock.steps, world.clock.unconfirmed_step_ms()) == (1, 0)
    assert not world.clock.alarming()


@pytest.mark.parametrize("off_ms", [-3_600_000, -UNTRUSTED_MS - 10, UNTRUSTED_MS + 10, 3_600_000])
def test_beyond_bounds_nobody_is_followed_until_the_wall_clock_is_set_right(off_ms: int) -> None:
    world = World(wall_off_ms=off_ms)
    world.echo()
    world.run(60_000, step_ms=1_000)
    world.echo()
    assert world.clock.now_ms() == world.true() + off_ms
    assert not world.clock.trustworthy()
    world.wall_off_ms = 0
    world.run(STEP_CHECK_MS)
    world.echo()
    world.clock.start_anew()
    assert world.clock.trustworthy()
    assert world.clock.now_ms() == world.true()


def test_a_wall_clock_within_a_second_of_the_brokers_is_believed() -> None:
    world = World(wall_off_ms=900)
    world.echo()
    world.run(20_000)
    assert world.clock.now_ms() == world.wall()
    assert (world.clock.steps, world.clock.alarming()) == (0, False)


def test_only_a_round_trip_bounds_the_brokers_time() -> None:
    world = World(wall_off_ms=3_600_000)
    world.clock.observe_record(world.broker())
    assert not world.clock.bounded()
    assert world.clock.trustworthy()
    world.echo(round_trip_ms=4_000)
    assert world.clock.bounded()
    assert not world.clock.trustworthy()


def test_brokers_that_differ_a_little_are_both_believed() -> None:
    """Records of a broker ahead of the one that is asked do not make its word void."""
    world = World()
    for _ in range(20):
        world.echo()
        world.clock.observe_record(world.broker() + 900)
        assert world.clock.bounded()
        assert world.clock.offset_from_brokers_ms() == pytest.approx(0, abs=5)
        world.run(30_000, step_ms=1_000)


def test_what_brokers_said_is_forgotten() -> None:
    world = World()
    world.broker_off_ms = 8_000
    world.echo()
    assert not world.clock.trustworthy()
    world.broker_off_ms = 0
    for _ in range(3):
        world.run(OBSERVED_MS, step_ms=1_000)
        world.clock.observe_record(world.broker())
    assert world.clock.offset_from_brokers_ms() == 0


def test_brokers_whose_clock_jumped_are_believed_anew() -> None:
    world = World()
    world.echo()
    world.broker_off_ms = -2_000
    world.echo()
    assert world.clock.offset_from_brokers_ms() == pytest.approx(2_000, abs=5)


def test_a_new_owner_starts_at_the_last_event_and_slews_back() -> None:
    world = World()
    world.echo()
    assert world.clock.floor(world.true() - 1)
    assert world.clock.now_ms() == world.true()

    assert world.clock.floor(world.true() + 1_000)
    assert world.clock.now_ms() == world.true() + 1_000
    assert_never_back_never_frozen(world.run(10_000))
    assert world.clock.now_ms() == world.true()


@pytest.mark.parametrize("heard_of_brokers", [True, False])
def test_a_log_too_far_ahead_is_not_followed(heard_of_brokers: bool) -> None:
    world = World()
    if heard_of_brokers:
        world.echo()
    assert not world.clock.floor(world.true() + UNTRUSTED_MS + 100)
    assert world.clock.now_ms() == world.true()
    world.run(1_000)
    assert world.clock.trustworthy()


def test_real_time_ids_and_chance() -> None:
    assert ambient.wall_ms() > NOON - 400_000_000_000
    assert ambient.monotonic_ms() <= ambient.monotonic_ms()
    assert ambient.new_id() != ambient.new_id()
    assert len(ambient.new_id()) == 36
    assert ambient.Chance(7).random() == ambient.Chance(7).random()
