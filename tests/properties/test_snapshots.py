"""After any history, with the log compacted at any points: a snapshot, new or old, and the tail behind it
give the state that the whole log gives, and the partition goes on from there.
"""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.runtime.snapshots import Manifest
from streams.store.memory import MemoryFolder
from streams.store.objects import MemoryObjects
from tests.unit.runtime.installation import Installation, Process

JOBS = 8
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("register"), st.integers(0, JOBS - 1), st.sampled_from([0, 1, 30, 5_000])),
        st.tuples(st.just("cancel"), st.integers(0, JOBS - 1), st.just(0)),
        st.tuples(st.just("claim"), st.integers(1, 4), st.just(0)),
        st.tuples(st.just("complete"), st.just(0), st.just(0)),
        st.tuples(st.just("pass"), st.just(0), st.sampled_from([1, 20, 90_000])),
        st.tuples(st.just("compact"), st.just(0), st.just(0)),
        st.tuples(st.just("snapshot"), st.just(0), st.just(0)),
    ),
    min_size=5,
    max_size=30,
)


class History:
    """One partition through processes that come and go."""

    def __init__(self) -> None:
        self.world = Installation()
        self.objects = MemoryObjects()
        self.world.objects = self.objects
        self.process = self.world.live()
        self.completed = 0

    def do(self, what: str, number: int, sec: int) -> None:
        world, process = self.world, self.process
        match what:
            case "register":
                world.register(f"job-{number}", delay_sec=sec, max_deliveries=2, lease_sec=5)
            case "cancel":
                world.cancel(f"job-{number}")
            case "claim":
                world.request(credit=number)
            case "complete":
                grants = world.grants()
                for grant in grants[self.completed :]:
                    world.complete(grant.execution)
                self.completed = len(grants)
            case "pass":
                world.time.pass_ms(sec * 1000)
            case "compact":
                world.log.compact(world.topics.events, 0)
            case _:
                self.snapshot()
        world.run(process, steps=4)

    def snapshot(self) -> None:
        """A partition in which nothing happened needs none."""
        taken = self.process.metric("snapshots_total", outcome="taken")
        self.world.time.pass_ms(61_000)
        for _ in range(30):
            self.process.step()
            self.world.time.pass_ms(200)
            if self.process.metric("snapshots_total", outcome="taken") > taken:
                return

    def manifests(self) -> list[Manifest]:
        """Newest last."""
        return [
            msgspec.json.decode(content, type=Manifest)
            for path, content in sorted(self.objects.contents.items())
            if path.endswith(".json")
        ]

    def spoil_newest(self) -> None:
        newest = max(path for path in self.objects.contents if path.endswith(".json"))
        self.objects.contents[newest] = b""

    def successor(self) -> Process:
        """Of a process that died, without its local state."""
        self.process.evict()
        process = self.world.start("b", MemoryFolder())
        self.world.until(lambda: process.running == [0], process)
        self.process = process
        return process


@settings(max_examples=60, deadline=None)
@given(before=STEPS, after=STEPS, older=st.booleans())
def test_snapshot_and_tail_give_what_the_whole_log_gives(
    before: list[tuple[str, int, int]], after: list[tuple[str, int, int]], older: bool
) -> None:
    history = History()
    for step in (*before, ("snapshot", 0, 0)):
        history.do(*step)
    if older:
        history.do("register", 0, 30)
        history.do("snapshot", 0, 0)
    for step in after:
        if step[0] != "snapshot":
            history.do(*step)
    history.do("pass", 0, 1)
    if older and len(history.manifests()) > 1:
        history.spoil_newest()
    process = history.successor()
    assert process.partition(0).snapshot is not None
    assert process.digest(0) == history.world.replayed_digest()
    for step in before:
        history.do(*step)
    assert history.process.digest(0) == history.world.replayed_digest()
