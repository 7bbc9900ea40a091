"""Work in slices of the loop and on threads: the same promises."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from streams.runtime.background import THREADS, Background, Cancelled, Slices, Task, Threads, Work
from tests.waiting import wait_until


@pytest.fixture(params=[Slices, Threads])
def background(request: pytest.FixtureRequest) -> Iterator[Background]:
    background: Background = request.param()
    yield background
    background.close()


class Undone:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def finish(background: Background, *tasks: Task[int]) -> None:
    def done() -> bool:
        background.step()
        return all(task.done for task in tasks)

    wait_until(done, 10)


def counting(slices: int) -> Work[int]:
    for _ in range(slices):
        yield
    return slices


def test_work_is_done_to_its_result(background: Background) -> None:
    undone = Undone()
    tasks = [background.start(counting(number), undone) for number in range(3 * THREADS)]
    finish(background, *tasks)
    assert [task.result() for task in tasks] == list(range(3 * THREADS))
    assert undone.count == 0


def test_an_error_is_the_result_and_harms_nothing_else(background: Background) -> None:
    def failing() -> Work[int]:
        yield
        raise OSError("disk")

    undone = Undone()
    bad, good = background.start(failing(), undone), background.start(counting(5), undone)
    finish(background, bad, good)
    with pytest.raises(OSError, match="disk"):
        bad.result()
    assert good.result() == 5
    assert undone.count == 1


def test_cancelled_work_is_undone_once_begun_or_not(background: Background) -> None:
    went_on, ended = threading.Event(), []

    def endless() -> Work[int]:
        try:
            while True:
                went_on.set()
                yield
        finally:
            ended.append(1)

    undone = Undone()
    tasks = [background.start(endless(), undone) for _ in range(THREADS)]
    never = background.start(counting(1_000_000_000), undone)
    never.cancel()

    def going() -> bool:
        background.step()
        return went_on.is_set()

    wait_until(going, 10)
    for task in tasks:
        task.cancel()
    finish(background, *tasks, never)
    for task in (*tasks, never):
        with pytest.raises(Cancelled):
            task.result()
    assert undone.count == THREADS + 1
    assert len(ended) <= THREADS


def test_close_cancels_what_is_left(background: Background) -> None:
    undone = Undone()
    tasks = [background.start(counting(10**12), undone) for _ in range(2 * THREADS)]
    background.close()
    assert all(task.done for task in tasks)
    assert undone.count == 2 * THREADS


def test_slices_of_all_tasks_take_turns_and_run_in_the_loop_alone() -> None:
    order: list[str] = []

    def named(name: str) -> Work[None]:
        for _ in range(2):
            order.append(name)
            yield

    background = Slices()
    tasks = [background.start(named(name), Undone()) for name in "ab"]
    assert order == []
    background.step()
    assert order == ["a", "b"]
    background.step()
    background.step()
    assert order == ["a", "b", "a", "b"]
    assert all(task.done for task in tasks)
